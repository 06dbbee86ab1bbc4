"""Usage: who held and used the devices of this box, summed by day, in one small file for each day.

A file has a checksum and lines of JSON: the day, then the seconds and joules by user, by device and by job.
Of a year, only the lines that are asked for are parsed. Only the holder of the keeper's lock writes, and what
is before `Day.until` is never added again: nothing counts twice. Users who share a device at the same time
share its time and energy equally, so that the sums are those of the devices.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from math import inf, isfinite
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from gputui.inventory.device import Device
from gputui.inventory.errors import reason_of
from gputui.inventory.formatting import MIB, YOU
from gputui.inventory.light_dataclasses import dataclass, field
from gputui.inventory.others_files import beginning, parse_json
from gputui.inventory.process import ENDED, earliest
from gputui.inventory.snapshot import Snapshot
from gputui.system.environment import Environ
from gputui.system.files import NoHomeError, state_folder
from gputui.system.trust import who_can_change
from gputui.system.users import own_name

BRIDGE = 150.0
"""The most seconds between two readings for which the second one stands."""
DAMAGED = ".damaged"
"""The ending of the file of a day that was damaged when a recorder found it."""
_MOST_BYTES, _LONG = MIB, MIB // 16
_JOBS_PER_DEVICE = 32
"""Of more, those of one user share a row: a month of eight devices stays below 1 MiB."""
_MOST_USERS = 1000
"""Of more, all share a row: the containers of one person can have 65,536."""

BY = {"user": ("user",), "device": ("device",), "job": ("job", "user"), "day": ("day",)}
"""What usage can be summed by, and the fields that name each row."""
_KEPT = ("user", "device", "job")
"""The sums that a file has."""
Names = dict[str, str]


class Figures(NamedTuple):
    """Sums of a user, a device or a job: times in seconds, `energy` in J, memory in bytes.

    held      the time with a claim or a process
    busy      the part of it in which a kernel ran; `idle` the part at 0 %. The rest is not known
    work      the sum of utilization × time, in percent × seconds, over the `busy` and `idle` time
    peak      the most memory that one user was seen to use on a device; of nobody, that was in use without a
              visible process
    waited    the time in line for devices
    energy_known  the time of which the power is known: `energy` is of this time only
    """

    held: float = 0.0
    busy: float = 0.0
    idle: float = 0.0
    energy: float = 0.0
    work: float = 0.0
    peak: int = 0
    waited: float = 0.0
    energy_known: float = 0.0

    @classmethod
    def of(cls, parts: Iterable[Figures]) -> Figures:
        """Return the sum of some."""
        columns = [*zip(*parts, strict=True)]
        return cls(*map(sum, columns))._replace(peak=max(columns[_PEAK]))

    @property
    def utilization(self) -> float | None:
        """The mean utilization in percent; None where it was not read."""
        measured = self.busy + self.idle
        return self.work / measured if measured else None

    @property
    def joules(self) -> float | None:
        """The energy; None where it was not read."""
        return self.energy if self.energy_known else None


_PEAK = Figures._fields.index("peak")


@dataclass(slots=True)
class Day:
    """The usage of one day, or of a part of it.

    since, until  the first moment that was counted, and the last one (epoch seconds); 0 for none
    recorded      the seconds that were observed
    labels        the label of each device, by its key; of what is shown here, that of our own user, too
    counters      of each device with a counter of energy: its last value, and the joules estimated since then
    tables        the sums by each of `_KEPT`, by the names of their rows
    """

    since: float = 0.0
    until: float = 0.0
    recorded: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    counters: dict[str, list[float]] = field(default_factory=dict)
    tables: dict[str, dict[tuple[str, ...], Figures]] = field(
        default_factory=lambda: {by: {} for by in _KEPT}
    )

    def add(self, later: Day) -> None:
        """Add what was counted later."""
        self.since = self.since or later.since
        self.until = later.until
        self.recorded += later.recorded
        self.labels.update(later.labels)
        self.counters = later.counters
        for by in later.tables:
            for names, figures in later.tables[by].items():
                self._add(by, names, figures)

    def count(self, figures: Figures, **names: str) -> None:
        """Add to the sums of a `device` ("" for time in line), a `user` ("": nobody, "?": unknown) and a
        `job` ("": no job)."""
        for by in _KEPT:
            self._add(by, tuple(names[name] for name in BY[by]), figures)

    def _add(self, by: str, names: tuple[str, ...], figures: Figures) -> None:
        table = self.tables[by]
        kept = table.get(names)
        table[names] = figures if kept is None else Figures.of((kept, figures))

    def text(self) -> bytes:
        users, jobs = self.tables["user"], self.tables["job"]
        for names in [*users][_MOST_USERS:]:
            self._add("user", ("?",), users.pop(names))
        for job, user in [*jobs][_JOBS_PER_DEVICE * max(1, len(self.labels)) :]:
            self._add("job", ("", user if (user,) in users else "?"), jobs.pop((job, user)))
        parts: list[object] = [(self.since, self.until, self.recorded, self.labels, self.counters)]
        for table in self.tables.values():
            parts.append([(*names, *(round(each, 1) for each in row)) for names, row in table.items()])
        data = b"\n".join(json.dumps(part, separators=(",", ":")).encode() for part in parts)
        return b"%08x\n%s\n" % (crc32(data), data)


class DamagedDayError(ValueError):
    """The bytes are not the usage of a day."""


class Meter:
    """Adds up readings. `day` has the sums since the last `take`.

    `before`: the day so far, for a call that reads once. After a gap, the time since a claim or a process
    began counts as held then, `BRIDGE` seconds of it at most.
    """

    def __init__(self, before: Day | None = None) -> None:
        self.day = Day()
        self._looks_back = before is not None
        self._last = before.until if before is not None else -inf
        self._counters = before.counters if before is not None else {}

    def take(self) -> Day:
        """Return the sums, and begin again."""
        taken, self.day = self.day, Day()
        taken.counters = {key: [*each] for key, each in self._counters.items()}
        return taken

    def add(self, snapshot: Snapshot) -> None:
        """Note a reading: it stands for the time since the one before it."""
        now, last, day = snapshot.time, self._last, self.day
        self._last = now
        seen = 0 < now - last <= BRIDGE
        if not seen:
            self._counters.clear()
        begin = last if seen else now - BRIDGE if self._looks_back else now
        if begin < now:
            day.since = day.since or begin
            day.until = max(day.until, now)
            day.recorded += now - begin if seen else 0.0
        for device in snapshot.devices:
            power = self._power(device, now - begin)
            if begin == now or (device.apart is not None and not device.processes):
                continue
            day.labels[device.key] = snapshot.label(device)
            load, rest = device.utilization, (now - begin if seen else 0.0)
            watts, known = power or 0.0, power is not None
            holders = _holders(snapshot, device)
            for user, (job, since, memory) in holders.items():
                # Those who hold it together share it. Of an unknown start, nothing is known after a gap.
                began = since or (begin if seen else now)
                share = max(0.0, now - max(begin, began)) / len(holders)
                rest -= share
                busy, idle, work = share * bool(load), share * (load == 0), share * (load or 0)
                used = Figures(share, busy, idle, share * watts, work, memory, energy_known=share * known)
                day.count(used, device=device.key, user=user, job=job)
            if rest > 0:
                unseen = device.processes == () and not device.unified and not holders
                peak = (device.memory_used or 0) - (device.memory_idle or 0) if unseen else 0
                unused = Figures(energy=rest * watts, peak=max(0, peak), energy_known=rest * known)
                day.count(unused, device=device.key, user="", job="")
        for waiter in snapshot.waiters if begin < now else ():
            waited = now - max(begin, waiter.since or begin)
            figures = Figures(waited=max(0.0, waited))
            day.count(figures, device="", user=waiter.user, job=waiter.job or "")

    def _power(self, device: Device, seconds: float) -> float | None:
        """Return the power of a device in these seconds: as read, corrected by the driver's counter of energy
        whenever that was read."""
        power = device.power
        total = device.telemetry.energy if device.telemetry is not None else None
        before, estimated = self._counters.get(device.key, (None, 0.0))
        if before is not None and total in (None, before):
            # (Where no power is read, the counter's next value tells of this time, too.)
            power = power or 0.0
            self._counters[device.key] = [before, estimated + power * seconds]
        elif total is not None:
            self._counters[device.key] = [total, 0.0]
            if before is not None and total >= before:
                power = max(0.0, total - before - estimated) / seconds
        return power


def _holders(snapshot: Snapshot, device: Device) -> dict[str, tuple[str, float | None, int]]:
    """Return the users who hold a device: the job, since when, and the bytes in use by each."""
    found: dict[str, tuple[str, float | None, int]] = {}
    for process in device.computing:
        if process.note != ENDED:
            user = process.user or "?"
            job, since, memory = found.get(user, ("", process.started, 0))
            found[user] = job, earliest((since, process.started)), memory + (process.memory or 0)
    for claim in snapshot.claims:
        if claim.key == device.key:
            job, since, memory = found.get(claim.user, ("", claim.since, 0))
            found[claim.user] = job or claim.job or "", since, memory
    if len(found) == 1 and not any(memory for _, _, memory in found.values()):
        # Where the driver reports no memory of processes, all of it is the only holder's.
        found = {user: (job, since, device.memory_used or 0) for user, (job, since, _) in found.items()}
    return found


def host_name() -> str:
    """Return the name of this machine, for the name of a file."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", os.uname().nodename)[:64]


def folder_of(state: Path) -> Path:
    """Return the folder of the days of this machine, in a state folder that machines may share."""
    return state / f"usage-{host_name()}"


def date_of(moment: float) -> str:
    """Return the day of a moment, in local time."""
    return time.strftime("%Y-%m-%d", time.localtime(moment))


def file_of(folder: Path, moment: float) -> Path:
    """Return the file of the day of a moment."""
    return folder / f"{date_of(moment)}.json"


def read_day(file: Path | str, by: str | None = None) -> Day:
    """Return the usage of a day, or only its sums by one of `BY`; an empty one where there is no file. Raise
    OSError and DamagedDayError."""
    try:
        data, whole = beginning(file, _MOST_BYTES)
    except FileNotFoundError:
        return Day()
    checksum, _, text = data.partition(b"\n")
    text = text.rstrip(b"\n")
    # A year of days must be read at once, so only a long text is bounded.
    parse = json.loads if len(text) < _LONG else parse_json
    tables = {}
    try:
        if not whole or int(checksum, 16) != crc32(text):
            raise DamagedDayError
        head, *lines = text.split(b"\n", len(_KEPT))
        since, until, recorded, labels, counters = parse(head)
        for kept, line in zip(_KEPT, lines, strict=True):
            if by in (None, kept) or (by, kept) == ("day", "user"):
                many = len(BY[kept])
                tables[kept] = {tuple(row[:many]): Figures(*row[many:]) for row in parse(line)}
        # (These sums fail where a value is of another kind.)
        "".join(chain(*labels.items(), *chain(*tables.values())))
        moments = [since, until, recorded, *(total + estimated for total, estimated in counters.values())]
        if not isfinite(sum(map(sum, chain([moments], *(table.values() for table in tables.values()))))):
            raise DamagedDayError
        return Day(since, until, recorded, labels, counters, tables)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError):
        raise DamagedDayError from None


@dataclass(slots=True)
class Recorded:
    """The usage of several days, added in their order.

    total    the sum of all
    by_day   that of each one in which somebody was seen, by its date ("2026-11-26")
    damaged  why a day, or a folder, is not read
    """

    total: Day = field(default_factory=Day)
    by_day: dict[tuple[str, ...], Figures] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)

    def add(self, date: str, day: Day) -> None:
        if day.until:
            self.total.add(day)
        if users := day.tables.get("user"):
            self.by_day[date,] = Figures.of(users.values())

    def rows(self, by: str, most: int | None = None) -> list[tuple[Names, Figures]]:
        """Return the sums by one of `BY`, `most` of them: the days in their order, else by the time held, by
        that in line, and devices by their labels."""
        table, labels = self.by_day if by == "day" else self.total.tables[by], self.total.labels

        def place(row: tuple[tuple[str, ...], Figures]) -> tuple[object, ...]:
            (name, *_), figures = row
            label = labels.get(name, name)
            return (name,) if by == "day" else (-figures.held, -figures.waited, len(label), label, row[0])

        found = sorted(table.items(), key=place)[:most]
        return [(dict(zip(BY[by], names, strict=True)), figures) for names, figures in found]


def of_past(past: Iterable[Sequence[Snapshot]]) -> Recorded:
    """Return the usage of earlier readings (`SimulatedSource.past`): a simulated box has no files."""
    return of_film(chain(*reversed([*past])))


def of_film(film: Iterable[Snapshot]) -> Recorded:
    """Return the usage of the readings of a box, in their order."""
    meter, found = Meter(), Recorded()
    for date, readings in groupby(film, key=lambda each: date_of(each.time)):
        for reading in readings:
            meter.add(reading)
        found.add(date, meter.take())
    return found


def recorded(environ: Environ, since: float, until: float, by: str | None = None) -> Recorded:
    """Read the days from one moment to another, or only their sums by one of `BY`."""
    found, folder = Recorded(), "any day"
    names: list[str] = []
    try:
        folder = str(folder_of(state_folder(environ)))
        if why := who_can_change(folder):
            found.damaged[folder] = why
        else:
            names = sorted(os.listdir(folder))  # noqa: PTH208
    except FileNotFoundError:
        pass
    except (OSError, NoHomeError) as error:
        found.damaged[folder] = reason_of(error)
    first, last = date_of(since), date_of(until)
    for name in names:
        date, _, ending = name.partition(".")
        if f".{ending}" not in (".json", DAMAGED) or not first <= date <= last:
            continue
        try:
            found.add(date, read_day(f"{folder}/{name}", by))
        except DamagedDayError:
            found.damaged[date] = "the file is damaged"
        except OSError as error:
            found.damaged[date] = reason_of(error)
    found.total.labels[own_name()] = YOU
    return found
