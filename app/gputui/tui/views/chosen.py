"""The chosen devices: which cuda:n is which GPU, and how well they are joined."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.choosing.best import as_ordered
from gputui.choosing.links import numa_nodes, weakest, weakest_ring
from gputui.choosing.rings import MOST_EXACT
from gputui.inventory.device import Device
from gputui.inventory.wording import short_bus_id
from gputui.tui.board import Board
from gputui.tui.views.text import Line, clip, title, width_of


def chosen(board: Board, width: int) -> list[Line]:
    """Two lines: a rule, and the longest account of the order that fits."""
    limits = board.limits
    tail = f"inside CUDA_VISIBLE_DEVICES={limits.text or '(empty)'}" if limits else ""
    head = title("chosen", width, tail)
    if board.selection.cpu_only:
        return [head, clip(((" no device: CPU only", "strong"), ("   c takes it back", "dim")), width)]
    if not board.chosen or board.snapshot is None:
        if board.snapshot is not None and not board.snapshot.devices:
            return [head, clip(((" no devices in this box", "dim"), ("   c CPU only", "dim")), width)]
        words = " nothing yet: space or 0-9 chooses, b takes the best free one, c is CPU only"
        return [head, clip(((words, "dim"),), width)]
    facts = _facts(board)
    for form in (_with_buses, _short, _ranks):
        line: Line = ((" ", ""), *form(board, board.chosen), *facts)
        if width_of(line) <= width:
            return [head, line]
    return [head, clip(line, width)]


def _with_buses(board: Board, devices: tuple[Device, ...]) -> Line:
    parts = []
    for rank, device in enumerate(devices):
        bus = f" ({short_bus_id(device.pci_bus_id)})" if device.pci_bus_id else ""
        parts.append(f"cuda:{rank} = {_name(board, device)}{bus}")
    return (("  ".join(parts), "strong"),)


def _short(board: Board, devices: tuple[Device, ...]) -> Line:
    return (("  ".join(f"cuda:{n}={_name(board, d)}" for n, d in enumerate(devices)), "strong"),)


def _ranks(board: Board, devices: tuple[Device, ...]) -> Line:
    assert board.snapshot is not None
    return ((f"cuda:0…{len(devices) - 1} = GPU {runs(board, devices)}", "strong"),)


def at_least(board: Board) -> str:
    """What stands before the ring's weakest link: of many devices there may be a better ring."""
    return "at least " if len(board.chosen) > MOST_EXACT else ""


def runs(board: Board, devices: Sequence[Device]) -> str:
    """The devices by number in their order, three and more that follow each other as "0–35"."""
    assert board.snapshot is not None
    parts: list[list[str]] = []
    before: int | None = None
    for device in devices:
        whole = device.parent is None
        if whole and before is not None and device.index == before + 1:
            parts[-1].append(board.snapshot.label(device))
        else:
            parts.append([board.snapshot.label(device)])
        before = device.index if whole else None
    return ",".join(f"{p[0]}–{p[-1]}" if len(p) > 2 else ",".join(p) for p in parts)


def _facts(board: Board) -> Line:
    assert board.snapshot is not None
    facts = []
    if len(board.chosen) > 1:
        facts.append(f"weakest link {_weakest(board)}")
        if board.job.tensor > 1 or board.job.pipeline > 1:
            way = as_ordered(board.snapshot, board.chosen, board.chosen, board.job)
            facts[-1] = f"{board.job}: weakest link {way.weakest or 'unknown'}"
    nodes = numa_nodes(board.chosen)
    if nodes:
        facts.append(f"NUMA {','.join(map(str, nodes))}")
    return tuple((f"   {fact}", "dim") for fact in facts)


def _weakest(board: Board) -> str:
    """The weakest link of the ring that a collective builds; with a remark where some pair is weaker."""
    assert board.snapshot is not None
    ring, overall = weakest_ring(board.snapshot, board.chosen), weakest(board.snapshot, board.chosen)
    if ring == overall:
        return ring or "unknown"
    return f"{at_least(board)}{ring} (ring)"


def _name(board: Board, device: Device) -> str:
    assert board.snapshot is not None
    return f"GPU {board.snapshot.label(device)}"
