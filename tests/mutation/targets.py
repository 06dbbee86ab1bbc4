"""The modules to mutate, and the tests that should notice: those that run in a few seconds."""

from __future__ import annotations

UNIT = "tests/unit/test_"

TARGETS: dict[str, tuple[str, ...]] = {
    "choosing.claimed_use": ("claimed_use",),
    "choosing.verdict": ("verdict", "rules", "verdict_text"),
    "choosing.verdict_text": ("verdict", "verdict_text", "not_free"),
    "choosing.state_times": ("state_times", "verdict"),
    "choosing.rules": ("rules", "verdict", "settings"),
    "choosing.pick": ("pick", "best", "vendors", "choosing_on_the_command_line"),
    "choosing.best": ("best", "pick", "reasons"),
    "choosing.sets": ("best", "best_of_many"),
    "choosing.large_sets": ("best_of_many",),
    "choosing.order": ("matching", "order", "best"),
    "choosing.ring_search": ("ring_search", "order"),
    "choosing.pair_scores": ("best", "order", "reasons"),
    "choosing.links": ("links", "reasons"),
    "choosing.reasons": ("reasons", "best"),
    "choosing.grouping": ("grouping", "order"),
    "choosing.named_devices": ("named_devices", "rules"),
    "choosing.selection": ("selection", "not_free"),
    "choosing.idleness": ("idleness", "people", "queue_outlook"),
    "choosing.people": ("people",),
    "choosing.bandwidth": ("bandwidth",),
    "choosing.tree": ("topo_cli", "links"),
    "allocating.allocation": ("allocation",),
    "allocating.allocator": ("allocation", "choosing_on_the_command_line", "cli"),
    "allocating.queue": ("queue",),
    "allocating.waiting_loop": ("waiting_loop",),
    "allocating.claims.lease": ("claims", "claims_untrusted", "claims_folder", "steps"),
    "allocating.claims.own_lease": ("steps",),
    "allocating.claims.read": ("claims", "claims_untrusted", "claims_cli"),
    "allocating.claims.processes": ("claim_processes",),
    "allocating.claims.files": ("claims", "claims_untrusted"),
    "allocating.claims.folder": ("claims_folder", "claims"),
    "inventory.quoting": ("quoting_in_shells", "exports", "exports_in_fish", "exports_in_powershell"),
    "vendors.visibility": ("visibility", "own_devices"),
    "tui.app_state": ("app_state", "option_rows", "vendors"),
}


def tests_of(target: str) -> list[str]:
    """The test files for a module of gputui."""
    return [f"{UNIT}{name}.py" for name in TARGETS[target]]
