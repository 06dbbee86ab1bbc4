"""The rows of the list of processes: sorted, filtered, as a list or as trees of who started whom. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gputui.inventory.process import Ancestor, Process
from gputui.inventory.wording import duration, printable, size
from gputui.tui.board import Board

SORTS = ("device", "memory", "age", "user")

_MOST_ABOVE = 3
"""Ancestors that are drawn: the launcher and its shell say enough, a desktop's whole session too much."""


@dataclass(frozen=True, slots=True)
class Row:
    """A process on a device; one that started some (no device); or what holds a device unseen (no process).

    `depth` is how far it is indented in a tree.
    """

    label: str
    pid: str
    user: str
    memory: str
    age: str
    where: str
    what: str
    process: Process | None = None
    key: str | None = None
    depth: int = 0


def rows(board: Board, sort: str = "device", wanted: str = "", tree: bool = False) -> tuple[Row, ...]:
    """All of them; `wanted` is in the user, the command, the container, the pid, or names the device."""
    found = [row for row in _all(board) if _matches(row, wanted.lower())]
    found.sort(key=_ORDER[sort])
    return tuple(_trees(found)) if tree else tuple(found)


def _all(board: Board) -> Iterator[Row]:
    snapshot = board.snapshot
    if snapshot is None:
        return
    for device in snapshot.devices:
        label, verdict = snapshot.label(device), board.verdicts[device.key]
        for process in device.processes or ():
            yield Row(
                label,
                str(process.pid),
                printable(process.user) if process.user else "?",
                "–" if process.memory is None else size(process.memory),
                "–" if process.started is None else duration(snapshot.time - process.started),
                printable(process.container or ""),
                printable(process.command) if process.command else process.note or "?",
                process,
                device.key,
            )
        if not device.processes and not verdict.free and not device.mig:
            used = "–" if device.memory_used is None else size(device.memory_used)
            claim = snapshot.claimed.get(device.key)
            user = printable(claim.user) if claim else "–"
            what = f"{verdict.state}: {printable(verdict.reason)}"
            yield Row(label, "", user, used, "–", "", what, None, device.key)


def _matches(row: Row, wanted: str) -> bool:
    texts = (row.user, row.what, row.where, row.pid, f"gpu {row.label}")
    return not wanted or any(wanted in text.lower() for text in texts)


def _memory(row: Row) -> tuple[float, str]:
    return (-(row.process.memory or 0) if row.process else 0, row.label)


def _age(row: Row) -> tuple[float, str]:
    started = row.process.started if row.process else None
    return (started if started is not None else float("inf"), row.label)


_ORDER: dict[str, Callable[[Row], tuple[object, ...]]] = {
    # (Sorting is stable: within a device they stay as the driver lists them.)
    "device": lambda row: (),
    "memory": _memory,
    "age": _age,
    "user": lambda row: (row.user, row.label),
}


def _trees(found: Sequence[Row]) -> Iterator[Row]:
    """Under those who started them, each tree where its first process stood in the list."""
    done: set[int] = set()
    for place, row in enumerate(found):
        if place in done:
            continue
        above = _above(row)
        if not above:
            yield row
            continue
        yield from _ancestors(above)
        drawn: tuple[Ancestor, ...] = above
        for other in range(place, len(found)):
            theirs = _above(found[other])
            if other in done or not theirs or theirs[0].pid != above[0].pid:
                continue
            if theirs != drawn:
                shared = sum(1 for a, b in zip(theirs, drawn, strict=False) if a.pid == b.pid)
                yield from _ancestors(theirs, shared)
                drawn = theirs
            done.add(other)
            yield _indented(found[other], len(theirs))


def _above(row: Row) -> tuple[Ancestor, ...]:
    """Who started it, the outermost first."""
    return tuple(reversed(row.process.ancestors[:_MOST_ABOVE])) if row.process else ()


def _ancestors(above: Sequence[Ancestor], known: int = 0) -> Iterator[Row]:
    for depth, each in enumerate(above):
        if depth >= known:
            yield Row("", str(each.pid), "", "", "", "", printable(each.command or "?"), depth=depth)


def _indented(row: Row, depth: int) -> Row:
    return Row(
        row.label, row.pid, row.user, row.memory, row.age, row.where, row.what, row.process, row.key, depth
    )
