"""Polls the box until nobody is ahead and enough devices have stayed free.

The cost is bounded: the pause between two looks is more than a thousand times the CPU time of one look, so
waiting costs at most 0.1 %. One more look is due when the window of enough devices is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gputui.allocating.queue import BEAT, Ticket, is_waiting, names_in_line
from gputui.choosing.pick import Constraints, Refusals, TooLittleMemory, TooMuchLoad, available
from gputui.choosing.queue_text import still_taken, too_few
from gputui.choosing.queue_text import wanted as wanted_devices
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import Verdicts, verdicts
from gputui.inventory.device import Device
from gputui.inventory.formatting import gpus, nth
from gputui.inventory.light_dataclasses import dataclass, field, frozen
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter, Waiters
from gputui.sources.source import Clock
from gputui.system.environment import Environ

_LOOK_AHEAD = 1.0
"""Seconds between two looks at the ticket before ours: each takes one to three system calls."""
_FROM_AFAR = 3
"""The factor on `_LOOK_AHEAD` for waiters that do not look at the box yet: nobody waits for them to begin."""
_WATCHING = 4
"""The most waiters ahead of one that looks at the box too, so that it knows at its turn how long devices were
free. The waiters behind them sleep."""
_SHORTEST, _LONGEST = 1.0, 30.0
_SHARE = 0.0006
"""The most of one CPU for looking at the box; waking up to look at the ticket before ours has the rest."""


class TooLongError(Exception):
    """The time limit is over."""


@frozen
class Progress:
    """The progress of waiting.

    ahead     the waiters before us, the first in line first
    snapshot  the last snapshot of the box
    ready     devices that have been free for the whole window
    settling  free devices that this process has not watched for the whole window yet
    wanted    the number of devices
    window    seconds that a device must be watched to be free
    keys      the keys of suitable devices, None for any
    limited   whether the time limit of the wait may end before that
    lacking   the free devices that do not meet a condition on memory or utilization, each with that condition
    verdicts  the verdicts of that snapshot, by key
    """

    ahead: Waiters = ()
    snapshot: Snapshot | None = None
    ready: tuple[Device, ...] = ()
    settling: tuple[Device, ...] = ()
    wanted: int = 1
    window: float = 0.0
    limited: bool = False
    keys: frozenset[str] | None = None
    lacking: Refusals = ()
    verdicts: Verdicts = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The text for a line of progress."""
        what = wanted_devices(self.wanted, self.keys, self.snapshot)
        if self.ahead:
            place = nth(len(self.ahead) + 1)
            return f"{place} in line for {what}, behind {names_in_line(self.ahead)}"
        if self.snapshot is None:
            return f"first in line for {what}"
        free = [each for each in self.snapshot.devices if each in self.ready or each in self.settling]
        if len(free) < self.wanted:
            why = still_taken(free, self.keys, self.verdicts, self.snapshot)
            if not why or self.lacking:
                why = too_few(free, self.wanted, self.lacking, self.snapshot, any_do=self.keys is None)
            return f"first in line for {what}: {why}"
        # Not "cooling down", because a process that has watched for longer (a screen) calls them free
        # already. No seconds count down, because in a log this line stays while nobody's place changes.
        are = "is free and must stay" if len(self.settling) == 1 else "are free and must stay"
        watched = f"{are} free for {self.window:g} s{', or until the wait is over' * self.limited}"
        ready = f"{len(self.ready)} free, " if self.ready else ""
        named = gpus([*map(self.snapshot.label, self.settling)])
        return f"first in line for {what}: {ready}{named} {watched}"


@dataclass
class Wait:
    """One wait for `wanted` devices. `clock` and `sleep` are the machine's; `until` is a time of `clock`.

    `box` is the last snapshot. `keys` are those of suitable devices, None for any.
    """

    environ: Environ
    ticket: Ticket | None
    constraints: Callable[[Snapshot], Constraints]
    wanted: int
    rules: Rules
    tell: Callable[[Progress], None]
    until: float | None = None
    clock: Clock = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    box: Snapshot | None = None
    keys: frozenset[str] | None = None
    _since: dict[str, float] = field(default_factory=dict)
    _again: float | None = None
    _over: bool = False

    def devices(self, read: Callable[[], Snapshot]) -> tuple[Snapshot, tuple[Device, ...]]:
        """Wait until nobody is before us and enough devices have been free for the whole window.

        Returns the last snapshot, and all these devices. At the time limit, devices that are free in a last
        look are enough, as for a request without a wait. Raises TooLongError, and what `read` raises.

        A further call, because the devices could not be taken, begins with a pause, as after any look.
        """
        if self._again is not None:
            self._rest(self._again - self.clock(), None)
        while True:
            cost, began = time.process_time(), self.clock()
            if self._over:
                raise TooLongError
            self._over = self.until is not None and began >= self.until
            ahead = self._ahead()
            if self._over and ahead:
                raise TooLongError
            if len(ahead) > _WATCHING:
                self._since = {}
                self.tell(Progress(ahead, self.box, wanted=self.wanted, keys=self.keys))
                # That waiter is the last that must leave before it is time to look at the box.
                self._rest(max(_LONGEST, self._pause(cost)), ahead[-_WATCHING - 1], _LOOK_AHEAD * _FROM_AFAR)
                continue
            snapshot, before = read(), self.box
            self.box = snapshot
            # The driver has answered, so we could take devices.
            lost = self.ticket is not None and self.ticket.beat()
            if lost or before is None or before.by_key.keys() != snapshot.by_key.keys():
                # We have become last, or waiters that could not start may be able to now, or the reverse.
                ahead = self._ahead()
            judged = verdicts(snapshot, self.rules)
            found = available(snapshot, judged, self.constraints(snapshot))
            free = found.devices
            # The monotonic clock, because the wall clock may be set, and goes on while a machine sleeps.
            self._since = {device.key: self._since.get(device.key, began) for device in free}
            ready = tuple(d for d in free if began - self._since[d.key] >= self.rules.window)
            enough = free if self._over else ready
            if not ahead and len(enough) >= self.wanted:
                self._again = began + self._pause(cost)
                return snapshot, enough
            settling = tuple(device for device in free if device not in ready)
            window = self.rules.window
            limited = self.until is not None and self.until < began + window
            lacking = tuple(
                each for each in found.refused if isinstance(each[1], TooLittleMemory | TooMuchLoad)
            )
            self.tell(
                Progress(
                    *(ahead, snapshot, ready, settling, self.wanted, window, limited, self.keys),
                    *(lacking, judged),
                )
            )
            if self._over:
                raise TooLongError
            due = began + self._pause(cost)
            if not ahead and len(free) >= self.wanted:
                # Whatever this look has cost: a waiter that may start then must not pause.
                due = min(due, sorted(self._since.values())[self.wanted - 1] + window)
            self._rest(due - self.clock(), ahead[-1] if ahead else None)

    def _ahead(self) -> Waiters:
        return self.ticket.ahead(self.environ, self.box) if self.ticket is not None else ()

    def _pause(self, since: float) -> float:
        """The seconds between two looks; one look has cost the CPU time since `since`."""
        cost = time.process_time() - since
        return min(_LONGEST, max(_SHORTEST, self.rules.window / 4, cost / _SHARE))

    def _rest(self, seconds: float, before: Waiter | None, every: float | None = None) -> None:
        """Pause for `seconds`, until the waiter before us is gone, or until the time limit.

        Only that waiter is polled, every `every` seconds (None: as often as near our turn).
        """
        every = _LOOK_AHEAD if every is None else every
        end = self.clock() + max(0.0, seconds)
        while before is None or is_waiting(before):
            now = self.clock()
            if now >= end or (self.until is not None and now >= self.until):
                return
            if self.ticket is not None:
                self.ticket.beat()
            ends = [end - now, *([] if self.until is None else [self.until - now])]
            self.sleep(min([*ends, BEAT if before is None else every]))
