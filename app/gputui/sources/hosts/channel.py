"""The long connection to a box that brings its readings, made again whenever it ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from gputui.inventory.document_reader import MOST_BYTES
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.sources.hosts.calls import cannot_start, connect
from gputui.sources.hosts.reading import Reading, read
from gputui.sources.hosts.remote_script import Mode
from gputui.sources.hosts.session import Session, UnwantedError
from gputui.sources.hosts.ssh import TroubleKind, Way, ssh_argv

State = Literal["connecting", "live", "stale", "dead"]

SILENT = 5.0
"""Seconds without news, or three turns where that is longer, after which a box is stale."""
FIRST_WITHIN = 60.0
"""Seconds for the first reading after the connection: starting a driver may take many."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a connection that has ended is made again: doubled each time, until a reading has come."""
_LOOK = 0.5
"""Seconds between two looks whether the pace is another, or nobody listens any more."""
_SOON_READ = 256 * 1024
"""Bytes of a line that the screen may read at once: in 14 ms. A box of 8 GPUs tells 11,000."""


class _Line(NamedTuple):
    """What a box has told, by what there, and when it came (seconds since the epoch, by our clock)."""

    text: bytes
    mode: Mode | None
    came: float


@dataclass(frozen=True, slots=True)
class BoxState:
    """What is known of a box.

    reading  its last good one, None before the first
    error    why it is not live, None where it is or is being connected to for the first time
    kind     what kind of trouble ssh has with a dead one, None where it has none
    since    when it got into this state; of a stale or dead one that was live: when its last reading came
             (seconds since the epoch, by our clock)
    """

    alias: str
    state: State = "connecting"
    reading: Reading | None = None
    error: str | None = None
    since: float = 0.0
    kind: TroubleKind | None = None

    @property
    def asks(self) -> bool:
        """Whether a person may be what it lacks: a password, a passphrase, a yes to its host key. (Of a host
        key that has changed ssh asks nothing.)"""
        return self.state == "dead" and self.kind in ("denied", "host key")


class Asker(threading.Thread):
    """A box that is asked again and again, on a thread of its own; `state` is what is known of it."""

    def __init__(self, alias: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.alias = alias
        self._stopped, self._now = threading.Event(), threading.Event()

    def stop(self) -> None:
        """End, soon."""
        self._stopped.set()
        self._now.set()

    def ask_now(self) -> None:
        """Pause no longer before it is asked again."""
        self._now.set()


class Channels:
    """The channels of several boxes, and the `way` to them. `states` is for any thread."""

    def __init__(self, boxes: Sequence[str], way: Way, interval: float) -> None:
        self.way = way
        self._channels = [Channel(box, way, interval) for box in boxes]

    def start(self) -> None:
        """Connect to all of them, as many at a time as may be."""
        for channel in self._channels:
            channel.start()

    def stop(self) -> None:
        """End all connections; what runs there ends by itself."""
        for channel in self._channels:
            channel.stop()
        for channel in self._channels:
            channel.join(1.0)

    def set_interval(self, interval: float) -> None:
        """Read every so many seconds from now on, on each box."""
        for channel in self._channels:
            channel.set_interval(interval)

    def connect_now(self, alias: str) -> None:
        """Make the connection to a dead box again without waiting for its time."""
        for channel in self._channels:
            if channel.alias == alias:
                channel.ask_now()

    def asking(self, alias: str) -> tuple[str, ...]:
        """The command that connects to a box and ends, for a terminal on which ssh may ask questions."""
        return ssh_argv(alias, "true", replace(self.way, prompts=True))

    @property
    def states(self) -> tuple[BoxState, ...]:
        """The boxes as they are now, in their order."""
        return tuple(channel.state for channel in self._channels)


class Channel(Asker):
    """One box that is listened to.

    Lines are read when somebody looks at the box: to read those of twenty boxes one after another takes half
    of the CPU that each takes at its own moment, when the processor's caches hold something else (320 and
    650 µs a line). The first line, and long ones, are read on the thread.
    """

    def __init__(self, alias: str, way: Way, interval: float) -> None:
        super().__init__(alias, f"gputui {alias}")
        self._way, self._interval = way, interval
        self._state = BoxState(alias, since=time.time())
        self._own = False
        """Whether gputui there is too old to be followed, so that a copy of ours is sent."""
        self._heard = 0.0
        self._last_good = 0.0
        self._unread: _Line | None = None
        self._reading = threading.Lock()

    def set_interval(self, interval: float) -> None:
        """The pace from now on."""
        self._interval = interval

    @property
    def state(self) -> BoxState:
        """As it is now: one that is silent is stale."""
        # (Where its thread is reading a long line, nobody waits for it.)
        if self._unread is not None and self._reading.acquire(blocking=False):
            try:
                self._read_unread()
            finally:
                self._reading.release()
        state = self._state
        if state.state == "live" and time.monotonic() - self._heard > max(SILENT, 3 * self._interval):
            return replace(state, state="stale", error="no news from it", since=self._last_good)
        return state

    def run(self) -> None:
        """Listen, and connect again, until it is stopped."""
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            knew = self._own
            was_live = self._connected()
            if self._own != knew:
                continue
            pause = _FIRST_PAUSE if was_live else min(2 * pause, _LONGEST_PAUSE)
            self._now.wait(pause)
            self._now.clear()

    def _connected(self) -> bool:
        """Read until the connection ends; whether a reading has come."""
        interval = self._interval
        words = ("ls", "--json", "--follow", f"--interval={interval:g}")
        came, wrong = False, None
        try:
            session = connect(
                self.alias, words, self._way, self._stopped,
                follows=True, views=True, apart=True, own=self._own,
            )  # fmt: skip
        except UnwantedError:
            return False
        except OSError as error:
            ended = cannot_start(self.alias, error)
        else:
            try:
                came, wrong = self._listen(session, interval)
            finally:
                session.close()
            ended = session.answer()
        if ended.too_old:
            self._own = True
        elif not self._stopped.is_set():
            self._dead(
                wrong or ended.error or ended.reason,
                ended.trouble.kind if ended.trouble is not None else None,
            )
        return came

    def _dead(self, error: str, kind: TroubleKind | None = None) -> None:
        with self._reading:
            self._read_unread()
        self._state = replace(self._state, state="dead", error=error, since=self._lost_since(), kind=kind)

    def _lost_since(self) -> float:
        """Since when it is not live: from its last good reading on; of one without any, since it is so."""
        state = self._state
        if state.reading is not None:
            return self._last_good
        return state.since if state.state in ("dead", "stale") else time.time()

    def _listen(self, session: Session, interval: float) -> tuple[bool, str | None]:
        """Take readings until the connection ends, or nothing readable comes. Whether any came, and what was
        wrong, where it was not the connection. `interval` is the pace that the box has been told."""
        buffer = b""
        deadline = time.monotonic() + self._way.timeout + FIRST_WITHIN
        came = False
        while not self._stopped.is_set():
            data = session.receive(_LOOK)
            if data is None:
                return came, None
            if interval != self._interval and session.mode == "run":
                interval = self._interval
                with contextlib.suppress(OSError):
                    session.send(f"{interval:g}\n".encode())
            if not came and time.monotonic() >= deadline:
                return came, "gputui there does not answer in time"
            if not data:
                continue
            buffer += data
            ends = b"\n\n" if session.mode == "nvidia-smi" else b"\n"
            *whole, buffer = buffer.split(ends)
            if len(buffer) > MOST_BYTES:
                return came, "it prints more than an answer"
            if whole:
                # (Of several that came before anybody looked only the last one counts.)
                self._heard, line = time.monotonic(), _Line(whole[-1], session.mode, time.time())
                if came and len(line.text) <= _SOON_READ:
                    self._unread = line
                    continue
                with self._reading:
                    self._unread = line
                    error = self._read_unread()
                if error is not None and not came:
                    return came, error
                came = came or error is None
        return came, None

    def _read_unread(self) -> str | None:
        """Read the last line, where nobody has; what is wrong with it."""
        line, self._unread = self._unread, None
        if line is None:
            return None
        reading = read(self.alias, line.text, line.mode, line.came, self._state.reading)
        if reading.snapshot is None:
            self._state = replace(self._state, state="stale", error=reading.error, since=self._lost_since())
            return reading.error
        self._last_good = line.came
        since = self._state.since if self._state.state == "live" else line.came
        self._state = BoxState(self.alias, "live", reading, None, since)
        return None
