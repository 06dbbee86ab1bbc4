"""Looks at the box again and again until nobody is ahead and enough devices have stayed free.

The cost is bounded: the pause between two looks is more than a thousand times as long as the CPU time of
one, so that waiting costs at most 0.1 %. One more look is due when the window of enough devices is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from gputui.allocating.queue import BEAT, Ticket, is_waiting, names_in_line, nth
from gputui.choosing.pick import Constraints, available
from gputui.choosing.queue_outlook import wanted as wanted_devices
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
from gputui.inventory.formatting import gpus
from gputui.inventory.light_dataclasses import dataclass, field
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter

_LOOK_AHEAD = 1.0
"""Seconds between two looks at the ticket before ours: one system call or three."""
_FROM_AFAR = 3
"""Times as long between two looks of those who do not look at the box yet: nobody waits for them to begin."""
_WATCHING = 4
"""Waiters behind the first who look at the box too, so that each knows at his turn how long it was free. The
others sleep."""
_SHORTEST, _LONGEST = 1.0, 30.0
_SHARE = 0.0006
"""Of one CPU, at most, for looking at the box; waking up to look at the ticket before ours has the rest."""


class TooLongError(Exception):
    """The time is over."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How waiting stands.

    ahead     those before us, the first one first
    snapshot  the box as it was last seen
    ready     devices that have been free for the whole window; settling: that are free, and that this process
              has not watched for so long yet
    keys      of the devices that will do, None for any
    window    seconds that a device must be watched to be free
    """

    ahead: tuple[Waiter, ...] = ()
    snapshot: Snapshot | None = None
    ready: tuple[Device, ...] = ()
    settling: tuple[Device, ...] = ()
    wanted: int = 1
    window: float = 0.0
    keys: frozenset[str] | None = None

    @property
    def words(self) -> str:
        """For a line of progress."""
        what = wanted_devices(self.wanted, self.keys, self.snapshot)
        if self.ahead:
            place = nth(len(self.ahead) + 1)
            return f"{place} in line for {what}, after {names_in_line(self.ahead)}"
        parts = [f"{len(self.ready)} free"] if self.ready or not self.settling else []
        if self.settling and self.snapshot:
            # (Not "cooling down": who has watched for longer, as a screen may have, calls them free already.
            # Without seconds that pass: in a log this line stands as long as nobody's place changes.)
            are = "is free and is" if len(self.settling) == 1 else "are free and are"
            watched = f"{are} watched for {self.window:g} s first"
            parts.append(f"{gpus([*map(self.snapshot.label, self.settling)])} {watched}")
        return f"first in line for {what}: {', '.join(parts)}"


@dataclass
class Wait:
    """One wait for `wanted` devices. `clock` and `sleep` are the machine's; `until` a moment of `clock`.

    `box` is the box as it was last seen. `keys` are of the devices that will do, None for any.
    """

    environ: Mapping[str, str]
    ticket: Ticket | None
    constraints: Callable[[Snapshot], Constraints]
    wanted: int
    rules: Rules
    tell: Callable[[Progress], None]
    until: float | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    box: Snapshot | None = None
    keys: frozenset[str] | None = None
    _since: dict[str, float] = field(default_factory=dict)
    _again: float | None = None
    _over: bool = False

    def devices(self, read: Callable[[], Snapshot]) -> tuple[Snapshot, tuple[Device, ...]]:
        """Come back when nobody is before us and enough devices have been free for the whole window: the box
        then, and all that have been. When the time is over, those will do that are free in a last look, as
        they do for who does not wait at all. Raises TooLongError, and what `read` raises.

        Called again because they could not be had after all, it begins with a rest, as after any look.
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
                # He is the last to go before it is time to look at the box.
                self._rest(max(_LONGEST, self._pause(cost)), ahead[-_WATCHING - 1], _LOOK_AHEAD * _FROM_AFAR)
                continue
            snapshot, before = read(), self.box
            self.box = snapshot
            if before is None or before.by_key.keys() != snapshot.by_key.keys():
                # Somebody may be able to start now who was not, or the other way round.
                ahead = self._ahead()
            if self.ticket is not None:
                # The driver has answered: we could take devices.
                self.ticket.beat()
            judged = verdicts(snapshot, self.rules)
            free = available(snapshot, judged, self.constraints(snapshot)).devices
            # By our own clock: the system's may be set, and goes on while a machine sleeps.
            self._since = {device.key: self._since.get(device.key, began) for device in free}
            ready = tuple(d for d in free if began - self._since[d.key] >= self.rules.window)
            enough = free if self._over else ready
            if not ahead and len(enough) >= self.wanted:
                self._again = began + self._pause(cost)
                return snapshot, enough
            settling = tuple(device for device in free if device not in ready)
            window = self.rules.window
            self.tell(Progress(ahead, snapshot, ready, settling, self.wanted, window, self.keys))
            if self._over:
                raise TooLongError
            due = began + self._pause(cost)
            if not ahead and len(free) >= self.wanted:
                # (However much this look has cost: who may start then must not rest.)
                due = min(due, sorted(self._since.values())[self.wanted - 1] + window)
            self._rest(due - self.clock(), ahead[-1] if ahead else None)

    def _ahead(self) -> tuple[Waiter, ...]:
        return self.ticket.ahead(self.environ, self.box) if self.ticket is not None else ()

    def _pause(self, since: float) -> float:
        """Seconds between two looks, of which one has cost CPU time since then."""
        cost = time.process_time() - since
        return min(_LONGEST, max(_SHORTEST, self.rules.window / 4, cost / _SHARE))

    def _rest(self, seconds: float, before: Waiter | None, every: float | None = None) -> None:
        """Rest so long, or until the waiter before us is gone: only he is looked at, `every` so many seconds
        (None: as often as by those whose turn is near), or until the time is over."""
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
