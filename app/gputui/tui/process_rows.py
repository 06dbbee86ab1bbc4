"""The rows of the list of processes: sorted, filtered, as a list or as trees of who started whom. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from gputui.choosing.verdict_text import state_and_reason
from gputui.inventory.formatting import duration, printable, size
from gputui.inventory.process import Process
from gputui.tui.app_state import AppState

SORTS = ("device", "memory", "age", "user")

_MOST_ABOVE = 3
"""Ancestors that are drawn: the launcher and its shell say enough, a desktop's whole session too much."""


@dataclass(frozen=True, slots=True)
class Row:
    """A process on a device; one that started some (no device); or what holds a device unseen (no process).

    `depth` is how far it is indented in a tree; `amount` is the memory in bytes, 0 where it is not known.
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
    amount: int = 0

    @property
    def identity(self) -> tuple[object, ...]:
        """The same as long as it is the same thing: a pid may be another process's tomorrow."""
        return (self.key, self.pid, self.process.started if self.process else None)


def rows(
    app_state: AppState, sort: str = "device", filter_text: str = "", tree: bool = False
) -> tuple[Row, ...]:
    """Those that match `filter_text`: part of a user, command, container or pid, or "gpu 3", "user ana"."""
    found = [row for row in _all(app_state) if _matches(row, filter_text.lower())]
    # (Sorting is stable: equal rows stay in the order of the devices, then of the driver.)
    found.sort(key=_ORDER[sort])
    return tuple(_trees(found)) if tree else tuple(found)


def _all(app_state: AppState) -> Iterator[Row]:
    snapshot = app_state.snapshot
    if snapshot is None:
        return
    for device in snapshot.devices:
        label, verdict = snapshot.label(device), app_state.verdicts[device.key]
        for process in device.processes or ():
            yield Row(
                label,
                str(process.pid),
                printable(process.user) if process.user else "?",
                "–" if process.memory is None else size(process.memory),
                "–" if process.started is None else duration(snapshot.time - process.started),
                printable(process.container or ""),
                printable(process.command or process.note or "?"),
                process,
                device.key,
                amount=process.memory or 0,
            )
        if not device.processes and not verdict.free and not device.mig:
            used = "–" if device.memory_used is None else size(device.memory_used)
            claim = snapshot.claimed.get(device.key)
            user = printable(claim.user) if claim else "–"
            what = state_and_reason(verdict, snapshot.time)
            yield Row(label, "", user, used, "–", "", what, None, device.key, amount=device.memory_used or 0)


def _matches(row: Row, filter_text: str) -> bool:
    texts = (row.user, row.what, row.where, row.pid)
    # A GPU has its instances with it.
    names = (f"gpu {row.label}", f"gpu {row.label.split(':')[0]}", f"user {row.user.lower()}")
    return not filter_text or filter_text in names or any(filter_text in text.lower() for text in texts)


def _age(row: Row) -> float:
    started = row.process.started if row.process else None
    return started if started is not None else float("inf")


_ORDER: dict[str, Callable[[Row], Any]] = {
    "device": lambda row: 0,
    "memory": lambda row: -row.amount,
    "age": _age,
    "user": lambda row: row.user,
}


@dataclass
class _Branch:
    """A process in a tree: its rows where it is on devices, and what it started."""

    rows: list[Row] = field(default_factory=list)
    below: dict[int, _Branch] = field(default_factory=dict)


def _trees(found: Sequence[Row]) -> Iterator[Row]:
    """Under those who started them, each tree where its first process stood in the list."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    shown: set[int] = set()
    for row in found:
        if row.process is None:
            continue
        ancestors = row.process.ancestors
        chain = (row.process.pid, *(each.pid for each in ancestors))
        parents.update(pairwise(chain))
        commands.update((each.pid, printable(each.command or "?")) for each in ancestors)
        shown.update(chain[: _MOST_ABOVE + 1])
    trunk: dict[int, _Branch] = {}
    for place, row in enumerate(found):
        # What is no process has a place of its own; no pid is less than 0.
        path = [-1 - place]
        if row.process is not None:
            path = [pid for pid in _lineage(row.process.pid, parents) if pid in shown]
        level = trunk
        for pid in path:
            branch = level.setdefault(pid, _Branch())
            level = branch.below
        branch.rows.append(row)
    yield from _drawn(trunk, commands, 0)


def _lineage(pid: int, parents: Mapping[int, int]) -> list[int]:
    """The process and all that is known to have started it, the outermost first."""
    line = [pid]
    # (In a recording somebody may have written that a process started itself.)
    while (parent := parents.get(line[-1])) is not None and parent not in line:
        line.append(parent)
    return line[::-1]


def _drawn(branches: Mapping[int, _Branch], commands: Mapping[int, str], depth: int) -> Iterator[Row]:
    for pid, branch in branches.items():
        for row in branch.rows:
            yield replace(row, depth=depth)
        if not branch.rows:
            yield Row("", str(pid), "", "", "", "", commands[pid], depth=depth)
        yield from _drawn(branch.below, commands, depth + 1)
