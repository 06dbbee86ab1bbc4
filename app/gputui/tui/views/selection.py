"""The selected devices: the GPU behind each of the program's devices, and the links between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gputui.choosing.links import numa_nodes, weakest, weakest_ring
from gputui.inventory.device import Device
from gputui.inventory.formatting import counted, short_bus_id
from gputui.inventory.link import PCIE_WORDS
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, Place, Span, cells_of, clip, title, width_of

MOVED = "↔"
"""The sign of the device that the keys for the order move, where there is an order: the cursor itself is in
the table."""


class Strip(NamedTuple):
    """The selected devices as they are shown.

    lines  a rule, and the longest form of the selection that fits
    items  the place of each device in the second line, with its key; () where they do not all fit
    """

    lines: list[Line]
    items: tuple[Place, ...] = ()


def selection_lines(app_state: AppState, width: int) -> list[Line]:
    """Two lines: a rule, and the longest form of the selection that fits."""
    return strip(app_state, width).lines


def strip(app_state: AppState, width: int, dragged: str | None = None, links: str = "") -> Strip:
    """The strip of the selected devices; the device with the key `dragged` follows the mouse, and `links` is
    the last note of the rule."""
    notes = (_by_command(app_state), _limits(app_state), _hidden_panels(app_state), links)
    head = title("selected", width, *notes)
    cpu = key_of("cpu", app_state.screen.keymap)
    if app_state.selection.cpu_only:
        told: Line = ((" no GPU: CPU only", "strong"), (f"   {cpu} turns it off", "dim"))
        return Strip([head, clip(told, width)])
    if not app_state.selected:
        return Strip([head, clip(((f" {nothing_selected(app_state)}", "dim"),), width)])
    facts = _facts(app_state)
    for before, texts, between in _forms(app_state):
        line, items = _items(app_state, before, texts, between, dragged)
        if width_of(line) + width_of(facts) <= width:
            return Strip([head, (*line, *facts)], items)
    ranks = _ranks(app_state, app_state.selected)
    if width_of(ranks) + width_of(facts) > width >= width_of(line):
        # No form has room for the facts: use the one that can be dragged.
        return Strip([head, clip((*line, *facts), width)], items)
    return Strip([head, clip((*ranks, *facts), width)])


def nothing_selected(app_state: AppState) -> str:
    """That nothing is selected, and the keys that select."""
    actions = ("select", "best", "wait", "cpu")
    select, best, wait, cpu = (key_of(action, app_state.screen.keymap) for action in actions)
    if not app_state.box.devices:
        return f"nothing: {cpu} runs on the CPU only"
    by_hand = f"{select.removesuffix('/0-9')} or 0-9 selects"
    if app_state.is_full:
        return f"nothing: {wait} waits in line, {by_hand} a busy one"
    return f"nothing: {by_hand}, {best} the best free one"


def _forms(app_state: AppState) -> Iterator[tuple[str, list[str], str]]:
    """The forms, the longest first: the text before the devices, the text of each, and the separator."""
    call, devices = app_state.vendor.device, app_state.selected
    names = [f"GPU {app_state.box.label(device)}" for device in devices]
    buses = [f" ({short_bus_id(d.pci_bus_id)})" if d.pci_bus_id else "" for d in devices]
    yield (
        "",
        [f"{call(n)} = {name}{bus}" for n, (name, bus) in enumerate(zip(names, buses, strict=True))],
        " ",
    )
    yield "", [f"{call(n)}={name}" for n, name in enumerate(names)], " "
    if len(devices) > 1:
        yield f" {call(0)}…{len(devices) - 1} = GPU", [name.removeprefix("GPU ") for name in names], ","


def _items(
    app_state: AppState, before: str, texts: Sequence[str], between: str, dragged: str | None
) -> tuple[Line, tuple[Place, ...]]:
    """The devices in a row, with a mark at the one at the cursor, and the place of each."""
    spans: list[Span] = [(before, "strong")]
    places, at = [], cells_of(before)
    for place, (text, key) in enumerate(zip(texts, app_state.selection, strict=True)):
        here = key == app_state.cursor
        gap = between if place else ""
        spans += [(gap, ""), (MOVED if here and len(texts) > 1 else " ", "cursor")]
        spans.append((text, "brand" if key == dragged else "strong-on" if here else "strong"))
        begin = at + cells_of(gap) + 1
        at = begin + cells_of(text)
        places.append((begin, at, key))
    return tuple(spans), tuple(places)


def _by_command(app_state: AppState) -> str:
    """The command's own request for devices, and whether it is selected; "" where there is none."""
    choice = app_state.command_choice
    if choice is None or not choice.words or app_state.command_is_unread:
        return ""
    if choice.selection.cpu_only and not choice.firm:
        # The words may be a sentence that says where the request comes from.
        return f"no GPU needed ({choice.words})"
    same = choice.selection.decided and choice.selection == app_state.selection
    return f"as {choice.words} says" if same else f"the command says {choice.words}"


def _limits(app_state: AppState) -> str:
    """The inherited list of visible devices, and the devices that it means where its numbers mislead."""
    limits = app_state.limits
    if limits is None:
        return ""
    words = f"inside {limits.words}{'' if limits.words[-1] != '=' else '(empty)'}"
    if limits.unknown:
        return f"{words}: unknown which GPUs these are"
    if limits.note:
        given = [app_state.box.by_key[key] for key in limits.keys]
        return f"{words}: GPU {','.join(map(app_state.box.label, given))}"
    return words


def _hidden_panels(app_state: AppState) -> str:
    """How many panels are hidden, and the key that shows them; this rule is directly below the panels."""
    count, key = len({*app_state.screen.hidden}), key_of("panels", app_state.screen.keymap)
    return f"{counted(count, 'panel')} hidden: {key}" if count else ""


def _ranks(app_state: AppState, devices: tuple[Device, ...]) -> Line:
    return ((f" {app_state.vendor.device(0)}…{len(devices) - 1} = GPU {runs(app_state, devices)}", "strong"),)


def at_least(app_state: AppState) -> str:
    """The words before the ring's weakest link: with many devices there may be a better ring."""
    # Imported where devices are selected: the first frame usually has none.
    from gputui.choosing.ring_search import MAX_EXACT

    return "at least " if len(app_state.selected) > MAX_EXACT else ""


def runs(app_state: AppState, devices: Sequence[Device]) -> str:
    """The numbers of the devices in their order; three and more consecutive ones as "0–35"."""
    parts: list[list[str]] = []
    before: int | None = None
    for device in devices:
        whole = device.parent is None
        if whole and before is not None and device.index == before + 1:
            parts[-1].append(app_state.box.label(device))
        else:
            parts.append([app_state.box.label(device)])
        before = device.index if whole else None
    return ",".join(f"{p[0]}–{p[-1]}" if len(p) > 2 else ",".join(p) for p in parts)


def _facts(app_state: AppState) -> Line:
    facts = []
    if len(app_state.selected) > 1:
        facts.append(f"weakest link {_weakest(app_state)}")
        if app_state.grouping.tensor > 1 or app_state.grouping.pipeline > 1:
            from gputui.choosing.best import describe_order

            selected, grouping = app_state.selected, app_state.grouping
            as_selected = describe_order(app_state.box, selected, selected, grouping)
            facts[-1] = f"{grouping}: weakest link {as_selected.weakest or 'unknown'}"
    nodes = numa_nodes(app_state.selected)
    if nodes:
        facts.append(f"NUMA {','.join(map(str, nodes))}")
    return tuple((f"   {fact}", "dim") for fact in facts)


def _weakest(app_state: AppState) -> str:
    """The weakest link of the ring that a collective builds; with a remark where some pair is weaker."""
    ring, overall = (
        weakest_ring(app_state.box, app_state.selected),
        weakest(app_state.box, app_state.selected),
    )
    if ring == overall:
        words = PCIE_WORDS.get(ring or "")
        return f"{ring} ({words})" if words else ring or "unknown"
    return f"{at_least(app_state)}{ring} (ring)"
