"""The rows of the process list: sorted, filtered, as a list, as trees of parents and children, or by person.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from gputui.choosing.idleness import is_worth_saying
from gputui.choosing.people import Person, of_nobody, people
from gputui.choosing.verdict_text import idle_text, job_claimed_and_runs_on, reason, user_name
from gputui.inventory.device import Device
from gputui.inventory.formatting import (
    UNKNOWN,
    age,
    by,
    gpus,
    person,
    printable,
    size,
    without_path,
)
from gputui.inventory.light_dataclasses import dataclass, field, frozen, replace
from gputui.inventory.process import Process, earliest
from gputui.inventory.snapshot import ProcessGroup
from gputui.tui.actions import key_of
from gputui.tui.app_state import AppState
from gputui.tui.views.selection import runs

SORTS = ("device", "memory", "age", "user", "load", "CPU", "RAM")

Form = Literal["list", "trees", "people"]

_MOST_ABOVE = 3
"""Ancestors that are drawn: the launcher and its shell are enough, a desktop's whole session is too much."""


@frozen
class Row:
    """A process on a device; an ancestor of one (no device); a device that is held without a process; or a
    person.

    Below a person, a row is all that they have on one device; its process has the most memory there.

    `state` says that nobody uses the device ("idle 2h", `idle`; or not yet long, "0% 3m"), or why it is
    not free without a process. `what` is
    the command, without one the reason for the state; `short` is a command without the path of its program.
    `depth` is the indentation in a tree; `amount` is the memory in bytes, 0 where it is not known.
    """

    label: str
    pid: str
    user: str
    memory: str
    age: str
    where: str
    what: str
    short: str
    process: Process | None = None
    key: str | None = None
    depth: int = 0
    amount: int = 0
    state: str = ""
    idle: bool = False
    person: Person | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """An identity that stays with the process, device or person: a pid alone may be reused."""
        user = (self.person.user,) if self.person else None
        process = (self.process.pid, self.process.started) if self.process else self.pid
        return (self.key, process, user)

    @property
    def same_user(self) -> str:
        """The filter that leaves the processes of this row's user; "" where the row has no user."""
        owner = self.person or self.process
        return f"user {printable(UNKNOWN if owner.user is None else owner.user)}" if owner else ""


def rows(
    app_state: AppState, sort: str = "device", filter_text: str = "", form: Form = "list"
) -> tuple[Row, ...]:
    """The rows that match `filter_text`: part of a user, command, container or pid, "gpu 3", "user ana"."""
    wanted = filter_text.lower()
    if form == "people":
        return tuple(_people(app_state, sort, wanted))
    found = [row for row in _all(app_state) if _matches(row, wanted)]
    # Sorting is stable: equal rows stay in the order of the devices, then of the driver.
    found.sort(key=_ORDER[sort])
    return tuple(_trees(found)) if form == "trees" else tuple(found)


def _people(app_state: AppState, sort: str, wanted: str) -> Iterator[Row]:
    """Each person with what they have on each device; last, the devices in use with no visible process."""
    snapshot = app_state.box
    groups: list[tuple[Row, ...]] = []
    persons = people(snapshot, app_state.idle, app_state.rules.idle)
    for found in persons:
        heading, *others = _person(app_state, found)
        below = [row for row in others if _matches(heading, wanted) or _matches(row, wanted)]
        if below:
            groups.append((heading, *(replace(row, user="") for row in below)))
    order = _ORDER[sort]

    def place(group: tuple[Row, ...]) -> tuple[bool, Any]:
        heading, unsorted = group[0], sort == SORTS[0]
        # Who may be asked for a device comes first.
        idle = unsorted and heading.person is not None and bool(heading.person.idle)
        return not idle, min(map(order, group[:1] if sort == "user" else group))

    for group in sorted(groups, key=place):
        yield from group
    for device in of_nobody(snapshot, app_state.verdicts, persons):
        row = _row(app_state, device, None)
        if _matches(row, wanted):
            # A user's name here tells that the device is not of the person above.
            yield replace(row, user=UNKNOWN)


def _person(app_state: AppState, found: Person) -> list[Row]:
    snapshot, now = app_state.box, app_state.box.time
    uses = [job_claimed_and_runs_on(use, snapshot) for use in found.unclaimed_uses]
    what = "; ".join(uses) + by(", ".join(found.clients))
    heading = Row(
        "",
        "",
        user_name(found),
        size(found.memory or None),
        age(found.since, now),
        "",
        what,
        what,
        amount=found.memory or 0,
        person=found,
    )
    below = []
    for holding in found.holdings:
        row = _row(app_state, holding.device, holding.main)
        number = len(holding.processes)
        below.append(
            replace(
                row,
                pid=f"{number} pids" if number > 1 else row.pid,
                memory=size(holding.memory),
                age=age(holding.since, now),
                amount=holding.memory or 0,
            )
        )
    below += [_row(app_state, device, None) for device in found.claims]
    return [heading, *below]


def next_step(app_state: AppState, row: Row) -> str:
    """How to get the idle devices of another person: "ask bo; or select GPU 6 on the main screen: w waits for
    it"; "" where none of the row is idle."""
    owner = row.person or row.process
    idle = [row.key] if row.process and row.state else []
    if row.person is not None:
        idle = [
            each.device.key
            for each in row.person.holdings
            if is_worth_saying(each.idle, app_state.rules.idle)
        ]
    if owner is None or owner.own or not idle:
        return ""
    snapshot, keymap = app_state.box, app_state.screen.keymap
    devices = gpus([snapshot.label(device) for device in snapshot.devices if device.key in idle])
    wait = f"{key_of('wait', keymap)} waits for {'it' if len(idle) == 1 else 'them'}"
    ask = "" if owner.user is None else f"ask {printable(owner.user)}; or "
    return f"{ask}select {devices} on the main screen: {wait}"


def device_rows(app_state: AppState, key: str) -> tuple[Row, ...]:
    """The processes of one device and of its instances, as trees."""
    snapshot = app_state.box
    if key not in snapshot.by_key:
        return ()
    keys = {key, *(instance.key for instance in snapshot.instances(snapshot.by_key[key]))}
    return tuple(_trees([row for row in _all(app_state) if row.process and row.key in keys]))


@frozen
class Fold:
    """A single row where there is little room: the processes of one job, or one row of the list.

    `row` has the combined texts; `current`: the cursor is on one of the devices; `idle`: nobody uses them.
    """

    row: Row
    current: bool
    idle: bool


def groups(app_state: AppState) -> list[ProcessGroup]:
    """The groups to list where there is little room, of the devices that the filter leaves: first those who
    hold a device without using it, because they may be asked for it, then the user's own.

    Nothing is formatted here: of two thousand rows, thirty are visible.
    """
    listed = {device.key for device in app_state.rows}
    ranked: list[tuple[bool, bool, ProcessGroup]] = []
    for group in app_state.box.process_groups:
        # The table's row already tells why a device without a process is not free.
        if group[0][1] is None:
            continue
        # A mean of unlike amounts is nobody's, and hides which of them works.
        most = max(_memory(each) for each in group)
        parts: dict[tuple[bool, bool], list[tuple[Device, Process | None]]] = {}
        for each in group:
            if each[0].key in listed:
                kind = 2 * _memory(each, most) < most, _is_idle(app_state, each[0])
                parts.setdefault(kind, []).append(each)
        ranked += [(idle, group[0][1].own, tuple(parts[small, idle])) for small, idle in sorted(parts)]
    return [group for *_, group in sorted(ranked, key=lambda each: each[:2], reverse=True)]


def _memory(each: tuple[Device, Process | None], unknown: int = 0) -> int:
    """The bytes of a process on a device."""
    _, process = each
    return unknown if process is None or process.memory is None else process.memory


def _is_idle(app_state: AppState, device: Device) -> bool:
    """Whether somebody holds the device without using it."""
    return app_state.verdicts[device.key].shown == "idle"


def folded(app_state: AppState, found: Sequence[ProcessGroup]) -> list[Fold]:
    """Each group as one row: a user's processes of one command on several devices as "0–3", "4 × 66.1G"."""
    return [_fold(app_state, group) for group in found]


def _fold(app_state: AppState, group: ProcessGroup) -> Fold:
    keys = {device.key for device, _ in group}
    current, idle = app_state.cursor in keys, _is_idle(app_state, group[0][0])
    first = _row(app_state, *group[0])
    if len(group) == 1:
        return Fold(first, current, idle)
    processes = [process for _, process in group if process is not None]
    number, amounts = len(processes), [process.memory for process in processes]
    known = [amount for amount in amounts if amount is not None]
    memory = f"{number} × {first.memory}"
    if len(known) < number:
        memory = UNKNOWN
    elif len(set(map(size, set(known)))) > 1:
        memory = f"{number} × ~{size(sum(known) // number)}"
    started = earliest(process.started for process in processes)
    oldest = age(started, app_state.box.time)
    label = runs(app_state, list({device.key: device for device, _ in group}.values()))
    row = replace(first, label=label, pid=f"{number} pids", memory=memory, age=oldest)
    return Fold(row, current, idle)


def _all(app_state: AppState) -> Iterator[Row]:
    for device in app_state.box.devices:
        for process in device.processes or ():
            yield _row(app_state, device, process)
        if not device.processes and _is_held(app_state, device):
            yield _row(app_state, device, None)


def _is_held(app_state: AppState, device: Device) -> bool:
    """Whether a device without processes is listed for another reason that keeps it from being free.

    A device that is cooling down is not: nothing is on it any more.
    """
    verdict = app_state.verdicts[device.key]
    return not device.mig and device.apart is None and not verdict.free and verdict.state != "cooling"


def _row(app_state: AppState, device: Device, process: Process | None) -> Row:
    snapshot, verdict = app_state.box, app_state.verdicts[device.key]
    label = snapshot.label(device)
    if process is not None:
        what = printable(process.told or UNKNOWN)
        return Row(
            label,
            str(process.pid),
            person(process.user or UNKNOWN, process.own),
            size(process.memory),
            age(process.started, snapshot.time),
            printable(process.container or ""),
            what,
            without_path(what),
            process,
            device.key,
            amount=process.memory or 0,
            state=idle_text(verdict.cause, snapshot.time),
            idle=verdict.shown == "idle",
        )
    claim = snapshot.claimed.get(device.key)
    user, since, what = UNKNOWN, None, reason(verdict, snapshot.time)
    if claim is not None:
        user, since = person(claim.user, claim.own), claim.since
        what = what if verdict.unseen else printable(claim.command or UNKNOWN)
    return Row(
        label,
        "",
        user,
        size(device.memory_used),
        age(since, snapshot.time),
        "",
        what,
        what,
        None,
        device.key,
        amount=device.memory_used or 0,
        state=verdict.state,
    )


def _matches(row: Row, filter_text: str) -> bool:
    # A user who is "you" in the list is also found by name.
    user = (row.process and row.process.user) or row.user
    pid = str(row.process.pid) if row.process else row.pid
    texts = (row.user, user, row.state, row.what, row.where, pid)
    # The name of a GPU matches its instances too.
    names = [f"gpu {row.label}", f"gpu {row.label.split(':')[0]}"]
    names += [f"user {each.lower()}" for each in (row.user, user)]
    return not filter_text or filter_text in names or any(filter_text in text.lower() for text in texts)


def _most(fact: str) -> Callable[[Row], float]:
    """The sort key for a figure of a process: the highest first, unknown values last."""

    def order(row: Row) -> float:
        value = getattr(row.process, fact, None)
        return float("inf") if value is None else -value

    return order


_ORDER: dict[str, Callable[[Row], Any]] = {
    "device": lambda row: 0,
    "memory": lambda row: -row.amount,
    "age": lambda row: (row.process and row.process.started) or float("inf"),
    "user": lambda row: row.user,
    "load": _most("sm"),
    "CPU": _most("host_cpu"),
    "RAM": _most("host_memory"),
}


@dataclass
class _Branch:
    """A process in a tree: its rows if it is on devices, and its child processes."""

    rows: list[Row] = field(default_factory=list)
    below: dict[int, _Branch] = field(default_factory=dict)


def _trees(found: Sequence[Row]) -> Iterator[Row]:
    """The rows under their ancestors, each tree at the place of its first process in the list."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    shown: set[int] = set()
    for row in found:
        if row.process is None:
            continue
        ancestors = row.process.ancestors
        chain = (row.process.pid, *(each.pid for each in ancestors))
        parents.update(pairwise(chain))
        commands.update((each.pid, printable(each.command or UNKNOWN)) for each in ancestors)
        shown.update(chain[: _MOST_ABOVE + 1])
    trunk: dict[int, _Branch] = {}
    for place, row in enumerate(found):
        # A row without a process has its own place in the tree; no pid is less than 0.
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
    """The process and all its known ancestors, the outermost first."""
    line = [pid]
    # An edited recording may contain a process that is its own ancestor.
    while (parent := parents.get(line[-1])) is not None and parent not in line:
        line.append(parent)
    return line[::-1]


def _drawn(branches: Mapping[int, _Branch], commands: Mapping[int, str], depth: int) -> Iterator[Row]:
    for pid, branch in branches.items():
        for row in branch.rows:
            yield replace(row, depth=depth)
        if not branch.rows:
            yield Row("", str(pid), "", "", "", "", commands[pid], without_path(commands[pid]), depth=depth)
        yield from _drawn(branch.below, commands, depth + 1)
