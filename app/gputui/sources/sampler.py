"""The thread that reads a source for a screen, so that no call, however long, delays a key or the exit.

It is a daemon thread: a call that hangs in the kernel for ever (btop #1612, gpud #117) must not keep the
process alive. The last good snapshot stays; `Sampler.age` reports how old it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import NoSourceError, Source, Want

if TYPE_CHECKING:
    from gputui.sources.simulated.source import SimulatedSource

CHANGES_EVERY = 2
"""Seconds between two readings of the process lists of devices whose memory or load has changed."""
PROCESSES_EVERY = 10
"""Seconds between two readings of all process lists, the costly part (up to 4.5 ms a call)."""
GLANCE_EVERY = 2
"""Seconds between two readings of the facts next to the table, which people look at now and then."""
SENSORS_EVERY = 5
HOST_EVERY = 2
MODES_EVERY = 30
"""Seconds between two readings of what an administrator may change: 0.07 calls per GPU and second."""
UNFOCUSED_EVERY = 10.0
"""Seconds between two readings while nobody is looking."""

_AGAIN = 0.3
"""Seconds from the first reading of the details of a page to the second, as rates need two."""

_EARLY = 0.2
"""Seconds by which a turn may be early and still count as due, because turns are not exact to
the millisecond."""

_PACES: tuple[tuple[Want, int], ...] = (
    (Want.CHANGED_PROCESSES | Want.OWNERS | Want.CLAIM_PROCESSES, CHANGES_EVERY),
    (Want.PROCESSES | Want.OWNERS | Want.CLAIM_PROCESSES, PROCESSES_EVERY),
    (Want.SENSORS, SENSORS_EVERY),
    (Want.HOST, HOST_EVERY),
    (Want.MODES, MODES_EVERY),
)

Listener = Callable[["Snapshot | Exception", float], None]
"""Called with a snapshot or an error, and the time (`time.monotonic`) at which its reading began."""


class Sampler:
    """Reads `source` every `interval` seconds and hands each snapshot to `listen`, on its own thread.

    `owners_at_once`: the first reading also brings owners, because verdicts depend on them. `once`: extra
    facts for the reading that brings the links, which is the second.

    A NoSourceError goes to `listen` in place of the snapshot, and reading goes on. Any other exception is a
    defect: it also goes to `listen`, which raises it, and reading ends.
    """

    def __init__(
        self,
        source: Source,
        listen: Listener,
        interval: float = 1.0,
        owners_at_once: bool = False,
        once: Want | None = None,
    ) -> None:
        self._source, self._listen, self._interval = source, listen, interval
        self._owners_at_once, self._once = owners_at_once, once or Want(0)
        self._wake = threading.Condition()
        self._asked = 0
        self._stopped = False
        self._focused = True
        self._looked_at: frozenset[str] = frozenset()
        self._details, self._details_every, self._details_due = Want.DETAILS, 0.0, 0.0
        self._look_is_new = False
        self._thread = threading.Thread(target=self._run, name="gputui sampler", daemon=True)
        self._due: dict[Want, float] = {}
        self._last_good: float | None = None
        self._opened = threading.Event()
        self._refused: NoSourceError | None = None
        self._inside_since: float | None = None
        self.took = 0.0
        """The duration of the last good reading, in seconds."""
        self._linked = False
        self.simulated: SimulatedSource | None = getattr(source, "simulated", None)
        """The simulated box, where the source is one: it has a past, and jobs that are only rehearsed."""

    def start(self) -> None:
        """Begin reading at once."""
        self._thread.start()

    def wait_until_open(self, patience: float) -> bool:
        """Wait until the source is open, for `patience` seconds at most; return False if it is still not
        open.

        Raise NoSourceError if it cannot be opened. Reading goes on whatever the result.
        """
        opened = self._opened.wait(patience)
        if self._refused is not None:
            raise self._refused
        return opened

    @property
    def silent(self) -> float:
        """Seconds since the source was asked for something that it has not answered yet; else 0."""
        since = self._inside_since
        return 0.0 if since is None else time.monotonic() - since

    def ask(self) -> None:
        """Read at once everything that a verdict needs, without waiting for the next turn."""
        with self._wake:
            self._asked += 1
            self._wake.notify()

    def focus(self, focused: bool) -> None:
        """Set whether somebody is looking. Else read every ten seconds, and let a sleeping
        laptop GPU sleep."""
        with self._wake:
            self._focused = focused
            self._wake.notify()

    def look_at(self, keys: Collection[str], details: Want = Want.DETAILS, every: float = 0.0) -> None:
        """Read the details of these devices (`Device.key`s) at once, and then every `every` seconds (0: every
        turn).

        The details of the other devices are dropped. `details`: DETAILS, or DETAILS with TABLE.
        """
        with self._wake:
            self._details_every = every
            if (frozenset(keys), details) != (self._looked_at, self._details):
                self._looked_at, self._details, self._look_is_new = frozenset(keys), details, True
                self._details_due = 0.0
                self._wake.notify()

    @property
    def age(self) -> float | None:
        """Seconds since the last good reading came back; None before the first."""
        return None if self._last_good is None else time.monotonic() - self._last_good

    def set_interval(self, interval: float) -> None:
        """Read every `interval` seconds from now on."""
        with self._wake:
            self._interval = interval
            self._wake.notify()

    @property
    def pace(self) -> float:
        """Seconds between two readings, at the current interval and focus."""
        return self._interval if self._focused else max(self._interval, UNFOCUSED_EVERY)

    def stop(self, patience: float = 0.3) -> bool:
        """Stop reading and close the source. Return False when a call still hangs after `patience` seconds.

        Then the source is left open on purpose: closing NVML under a running call crashes (nvitop #222).
        """
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._open()
            while not self._stopped:
                self._turn()
        except Exception as error:  # noqa: BLE001 - a defect: the listener raises it where it is seen
            self._tell(error, time.monotonic())
        self._source.close()

    def _open(self) -> None:
        # On this thread, because starting a driver may hang for ever, too.
        self._inside_since = time.monotonic()
        try:
            self._source.open()
        except NoSourceError as error:
            self._refused = error
        finally:
            self._inside_since = None
            self._opened.set()

    def _turn(self) -> None:
        with self._wake:
            asked, self._asked = self._asked > 0, 0
            # The first snapshot has no details. After a look at no devices, one reading drops the details.
            first = self._last_good is None
            details = not first and (self._details_are_due() or self._look_is_new)
            looked_at = self._looked_at if details else None
            wanted_details = self._details if details else Want(0)
            again = bool(looked_at) and self._look_is_new and not self._details_every
            self._look_is_new = self._look_is_new and first
        began = self._inside_since = time.monotonic()
        try:
            want = self._wanted(asked)
            snapshot = self._source.read(want | wanted_details, looked_at)
        except NoSourceError as error:
            # The facts that this turn failed to read are still due.
            self._due.clear()
            self._inside_since = None
            self._tell(error, began)
            self._rest(began)
            return
        self._inside_since = None
        self._last_good = time.monotonic()
        self.took = self._last_good - began
        self._linked = self._linked or Want.LINKS in want
        self._tell(snapshot, began)
        if not first:
            if not self._focused and _may_sleep(snapshot):
                # An open NVML keeps a laptop's GPU awake (nvtop #267); the next reading opens it again.
                self._source.close()
                self._linked = False
                self._due.clear()
            self._rest(began, min(self.pace, _AGAIN) if again else None)

    def _details_are_due(self) -> bool:
        now = time.monotonic()
        if not self._looked_at or now < self._details_due - _EARLY:
            return False
        self._details_due = now + self._details_every
        return True

    def _rest(self, began: float, pace: float | None = None) -> None:
        """Wait until the turn after the one that began at `began`; `pace` is the time between the two, by
        default that of the interval."""
        with self._wake:
            before, ended = self._focused, time.monotonic()
            while not (self._stopped or self._asked or self._look_is_new or (self._focused and not before)):
                before = self._focused
                if not self._wake.wait(
                    max(0.0, next_turn(began, ended, pace or self.pace) - time.monotonic())
                ):
                    return

    def _wanted(self, asked: bool) -> Want:
        now = time.monotonic()
        want = always = Want.LOAD | Want.NAMES | Want.QUEUE
        if asked:
            # `asked` may precede a confined launch.
            want |= Want.NODES
        for part, every in _PACES:
            if now >= self._due.get(part, 0.0) - _EARLY or (asked and part & (Want.PROCESSES | Want.MODES)):
                want |= part
                self._due[part] = now + every
        if self._last_good is None:
            # The first snapshot leaves out what takes long: psutil alone takes 20 ms to import.
            want = always | Want.PROCESSES
            want |= Want.OWNERS if self._owners_at_once else Want(0)
            self._due.clear()
        elif not self._linked:
            # Links take the longest (1.3 s on 8×B200) and never change: read them once, after
            # the first picture.
            want |= Want.WIRING | self._once
        return want

    def _tell(self, news: Snapshot | Exception, began: float) -> None:
        if not self._stopped:
            self._listen(news, began)


def next_turn(began: float, ended: float, pace: float) -> float:
    """Return when to read again after a reading from `began` to `ended`, in seconds of one clock.

    The pace runs from beginning to beginning. A slow reading is followed by a rest of the same length, `pace`
    at most, so that the driver is not busy all the time.
    """
    return max(began + pace, ended + min(pace, ended - began))


def _may_sleep(snapshot: Snapshot) -> bool:
    """Return whether every GPU of the box is a laptop's: its driver powers it off when no
    program holds it."""
    names = [device.name or "" for device in snapshot.devices]
    return bool(names) and all("Laptop" in name or "Max-Q" in name for name in names)
