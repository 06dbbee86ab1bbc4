"""The topology as a tree: NUMA nodes, switches, devices, network devices, and the NVLinks below."""

from __future__ import annotations

from gputui.choosing.tree import lines, links_in_words
from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, printable, short_name
from gputui.tui.app_state import AppState
from gputui.tui.views.table import state_of
from gputui.tui.views.text import Line, clip, place_mark


def tree_lines(app_state: AppState, width: int) -> tuple[list[Line], list[str | None]]:
    """The lines of the tree, and the device of each (`Device.key`, None for a branch or a network device)."""
    snapshot = app_state.box
    drawn: list[Line] = []
    keys: list[str | None] = []
    label = max((len(snapshot.label(device)) for device in snapshot.devices if not device.parent), default=0)
    for before, thing in lines(snapshot, app_state.watch.pcie):
        if thing is None:
            drawn.append(((f"      {before}", "title" if before.startswith("NUMA") else "dim"),))
            keys.append(None)
        elif isinstance(thing, Device):
            drawn.append(clip(_device(app_state, before, thing, label), width))
            keys.append(thing.key)
        else:
            drawn.append(
                clip(((f"      {before}", "rule"), (f"network {printable(thing.name)}", "dim")), width)
            )
            keys.append(None)
    last = None
    for name, text in links_in_words(snapshot):
        head = "" if name == last else name
        drawn.append(clip(((f"      {head:<8}", "title"), (text, "link-nv")), width))
        last = name
        keys.append(None)
    return drawn, keys


def _device(app_state: AppState, before: str, device: Device, label: int) -> Line:
    """A row of the tree, with its number in at least `label` cells."""
    rank, (sign, words, look) = app_state.selection.rank(device.key), state_of(app_state, device)
    name = short_name(device.name or UNKNOWN)
    return (
        ("▸" if device.key == app_state.cursor else " ", "cursor"),
        *place_mark(rank),
        (before, "rule"),
        (f"GPU {app_state.box.label(device):<{label}}", "strong" if rank is not None else ""),
        (f"  {name}", "dim"),
        (f"  {sign} ", look),
        (words, look),
    )
