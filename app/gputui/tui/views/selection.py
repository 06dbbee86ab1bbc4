"""The selected devices: which of a program's devices is which GPU, and how well they are joined."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.choosing.best import describe_order
from gputui.choosing.links import numa_nodes, weakest, weakest_ring
from gputui.choosing.ring_search import MAX_EXACT
from gputui.inventory.device import Device
from gputui.inventory.formatting import short_bus_id
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, clip, title, width_of


def selection_lines(app_state: AppState, width: int) -> list[Line]:
    """Two lines: a rule, and the longest account of the order that fits."""
    head = title("selected", width, "   ".join(filter(None, (_by_command(app_state), _limits(app_state)))))
    if app_state.selection.cpu_only:
        return [head, clip(((" no device: CPU only", "strong"), ("   c takes it back", "dim")), width)]
    if not app_state.selected or app_state.snapshot is None:
        if app_state.snapshot is not None and not app_state.snapshot.devices:
            return [head, clip(((" no devices in this box", "dim"), ("   c CPU only", "dim")), width)]
        words = " nothing yet: space or 0-9 selects, b takes the best free one, c is CPU only"
        return [head, clip(((words, "dim"),), width)]
    facts = _facts(app_state)
    for form in (_with_buses, _short, _ranks):
        line: Line = ((" ", ""), *form(app_state, app_state.selected), *facts)
        if width_of(line) <= width:
            return [head, line]
    return [head, clip(line, width)]


def _by_command(app_state: AppState) -> str:
    """What the command itself says of devices, and whether that is selected; "" where it says nothing."""
    choice = app_state.command_choice
    if choice is None or not choice.words:
        return ""
    if choice.selection.cpu_only and not choice.firm:
        # (The words may be a sentence: where its devices come from.)
        return f"no device needed ({choice.words})"
    same = choice.selection.decided and choice.selection == app_state.selection
    return f"as {choice.words} says" if same else f"the command says {choice.words}"


def _limits(app_state: AppState) -> str:
    """The list of devices that we were started with, and which ones those are where its numbers mislead."""
    limits = app_state.limits
    if limits is None:
        return ""
    words = f"inside {limits.words}{'' if limits.words[-1] != '=' else '(empty)'}"
    if limits.unknown:
        return f"{words}: it is not known which GPUs these are"
    if limits.note and app_state.snapshot is not None:
        given = [app_state.snapshot.by_key[key] for key in limits.keys]
        return f"{words}: GPU {','.join(map(app_state.snapshot.label, given))}"
    return words


def _with_buses(app_state: AppState, devices: tuple[Device, ...]) -> Line:
    parts = []
    for rank, device in enumerate(devices):
        bus = f" ({short_bus_id(device.pci_bus_id)})" if device.pci_bus_id else ""
        parts.append(f"{app_state.vendor.device(rank)} = {_name(app_state, device)}{bus}")
    return (("  ".join(parts), "strong"),)


def _short(app_state: AppState, devices: tuple[Device, ...]) -> Line:
    call = app_state.vendor.device
    return (("  ".join(f"{call(n)}={_name(app_state, d)}" for n, d in enumerate(devices)), "strong"),)


def _ranks(app_state: AppState, devices: tuple[Device, ...]) -> Line:
    assert app_state.snapshot is not None
    return ((f"{app_state.vendor.device(0)}…{len(devices) - 1} = GPU {runs(app_state, devices)}", "strong"),)


def at_least(app_state: AppState) -> str:
    """What stands before the ring's weakest link: of many devices there may be a better ring."""
    return "at least " if len(app_state.selected) > MAX_EXACT else ""


def runs(app_state: AppState, devices: Sequence[Device]) -> str:
    """The devices by number in their order, three and more that follow each other as "0–35"."""
    assert app_state.snapshot is not None
    parts: list[list[str]] = []
    before: int | None = None
    for device in devices:
        whole = device.parent is None
        if whole and before is not None and device.index == before + 1:
            parts[-1].append(app_state.snapshot.label(device))
        else:
            parts.append([app_state.snapshot.label(device)])
        before = device.index if whole else None
    return ",".join(f"{p[0]}–{p[-1]}" if len(p) > 2 else ",".join(p) for p in parts)


def _facts(app_state: AppState) -> Line:
    assert app_state.snapshot is not None
    facts = []
    if len(app_state.selected) > 1:
        facts.append(f"weakest link {_weakest(app_state)}")
        if app_state.grouping.tensor > 1 or app_state.grouping.pipeline > 1:
            selected, grouping = app_state.selected, app_state.grouping
            as_selected = describe_order(app_state.snapshot, selected, selected, grouping)
            facts[-1] = f"{grouping}: weakest link {as_selected.weakest or 'unknown'}"
    nodes = numa_nodes(app_state.selected)
    if nodes:
        facts.append(f"NUMA {','.join(map(str, nodes))}")
    return tuple((f"   {fact}", "dim") for fact in facts)


def _weakest(app_state: AppState) -> str:
    """The weakest link of the ring that a collective builds; with a remark where some pair is weaker."""
    assert app_state.snapshot is not None
    ring, overall = (
        weakest_ring(app_state.snapshot, app_state.selected),
        weakest(app_state.snapshot, app_state.selected),
    )
    if ring == overall:
        return ring or "unknown"
    return f"{at_least(app_state)}{ring} (ring)"


def _name(app_state: AppState, device: Device) -> str:
    assert app_state.snapshot is not None
    return f"GPU {app_state.snapshot.label(device)}"
