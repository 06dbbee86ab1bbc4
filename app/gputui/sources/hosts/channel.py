"""The long connection to a box that brings its readings, reconnected whenever it ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from gputui.inventory.document_reader import MOST_READING
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.hosts.calls import cannot_start, connect
from gputui.sources.hosts.reading import Reading, read
from gputui.sources.hosts.remote_script import Mode
from gputui.sources.hosts.session import MOST_MESSAGES, Session, UnwantedError
from gputui.sources.hosts.ssh import TroubleKind, Way, ssh_argv

State = Literal["connecting", "live", "stale", "dead"]

SILENT = 5.0
"""Seconds without a reading, or three turns where that is longer, after which a box is stale."""
FIRST_WITHIN = 60.0
"""Seconds for the first reading after the connection: starting a driver may take many."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a reconnection: doubled each time, until a reading arrives."""
_LOOK = 0.5
"""Seconds between two checks whether the interval has changed, or the channel has been stopped."""
_SOON_READ = 256 * 1024
"""The most bytes of a line that the screen may parse itself, in 14 ms. A box of 8 GPUs sends 11,000."""


class _Line(NamedTuple):
    """A line from a box, the mode of its sender, and its arrival (seconds since the epoch, by
    the local clock)."""

    text: bytes
    mode: Mode | None
    came: float


@frozen
class BoxState:
    """The known state of a box.

    reading  its last good reading, None before the first
    error    why it is not live; None while it is live or connecting for the first time
    kind     the kind of ssh trouble of a dead box, None where there is none
    since    the beginning of this state; for a stale or dead box that was live, the arrival of its last
             reading (seconds since the epoch, by the local clock)
    """

    alias: str
    state: State = "connecting"
    reading: Reading | None = None
    error: str | None = None
    since: float = 0.0
    kind: TroubleKind | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        """The box in its last reading, None before the first."""
        return self.reading.snapshot if self.reading is not None else None

    @property
    def asks(self) -> bool:
        """Whether a person can help: with a password, a passphrase, or a yes to its host key.

        ssh asks nothing about a host key that has changed.
        """
        return self.state == "dead" and self.kind in ("denied", "host key")


class Asker(threading.Thread):
    """A thread that asks a box again and again; `state` is the known state of the box."""

    def __init__(self, alias: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.alias = alias
        self._stopped, self._now = threading.Event(), threading.Event()

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped.set()
        self._now.set()

    def ask_now(self) -> None:
        """End the pause before the next attempt."""
        self._now.set()


class Channels:
    """The channels of several boxes, and the `way` to them. `states` may be read from any thread."""

    def __init__(self, boxes: Sequence[str], way: Way, interval: float) -> None:
        self.way = way
        self._channels = [Channel(box, way, interval) for box in boxes]

    def start(self) -> None:
        """Connect to all boxes, as many at a time as allowed."""
        for channel in self._channels:
            channel.start()

    def stop(self) -> None:
        """Close all connections; the remote processes end by themselves."""
        for channel in self._channels:
            channel.stop()
        for channel in self._channels:
            channel.join(1.0)

    def set_interval(self, interval: float) -> None:
        """Read every `interval` seconds from now on, on each box."""
        for channel in self._channels:
            channel.set_interval(interval)

    def connect_now(self, alias: str) -> None:
        """Reconnect to a dead box without waiting for its turn."""
        for channel in self._channels:
            if channel.alias == alias:
                channel.ask_now()

    def asking(self, alias: str) -> tuple[str, ...]:
        """Return the command that connects to a box and exits, for a terminal on which ssh
        may ask questions."""
        return ssh_argv(alias, "true", replace(self.way, prompts=True))

    @property
    def states(self) -> tuple[BoxState, ...]:
        """The current state of the boxes, in their order."""
        return tuple(channel.state for channel in self._channels)


class Channel(Asker):
    """One box whose readings are received.

    Lines are parsed when somebody looks at the box. Parsing the lines of twenty boxes one after another takes
    half the CPU of parsing each at its own moment, when the processor's caches hold something else (320 and
    650 µs a line). The thread itself parses the first line, and long lines.
    """

    def __init__(self, alias: str, way: Way, interval: float) -> None:
        super().__init__(alias, f"gputui {alias}")
        self._way, self._interval = way, interval
        self._state = BoxState(alias, since=time.time())
        self._own = False
        """Whether the remote gputui is too old to be followed, so that a copy of this one is sent."""
        self._heard = 0.0
        self._last_good = 0.0
        self._unread: _Line | None = None
        self._reading = threading.Lock()

    def set_interval(self, interval: float) -> None:
        """Read every `interval` seconds from now on."""
        self._interval = interval

    @property
    def state(self) -> BoxState:
        """The current state: a live box without news becomes stale."""
        # While the channel's thread parses a long line, nobody waits for it.
        if self._unread is not None and self._reading.acquire(blocking=False):
            try:
                self._read_unread()
            finally:
                self._reading.release()
        state = self._state
        if state.state == "live" and time.monotonic() - self._heard > max(SILENT, 3 * self._interval):
            return replace(state, state="stale", error="no recent reading", since=self._last_good)
        return state

    def run(self) -> None:
        """Receive readings, and reconnect, until stopped."""
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
        """Read until the connection ends; return whether a reading has arrived."""
        interval = self._interval
        words = ("ls", "--json", "--follow", f"--interval={interval:g}")
        came, wrong = False, None
        try:
            session = connect(
                self.alias, words, self._way, self._stopped,
                follows=True, views=True, apart=True, own=self._own, most_messages=MOST_MESSAGES,
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
        """Return since when it is not live: its last good reading, else the beginning of its state."""
        state = self._state
        if state.reading is not None:
            return self._last_good
        return state.since if state.state in ("dead", "stale") else time.time()

    def _listen(self, session: Session, interval: float) -> tuple[bool, str | None]:
        """Receive readings until the connection ends, or until a line cannot be parsed.

        Return whether any reading arrived, and the error, unless it is the connection's. `interval` is the
        pace that the box has been given.
        """
        buffer = bytearray()
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
            ends = b"\n\n" if session.mode == "nvidia-smi" else b"\n"
            # Only the new data is searched: a box may send a long line in many pieces.
            known = max(0, len(buffer) - len(ends) + 1)
            buffer += data
            end = buffer.rfind(ends, known)
            whole = bytes(buffer[: max(0, end)])
            if end >= 0:
                del buffer[: end + len(ends)]
            if len(buffer) > MOST_READING:
                return came, "its answer is too long"
            if end >= 0:
                # Of several lines that arrive before anybody looks, only the last one counts.
                text = whole.rpartition(ends)[2]
                self._heard, line = time.monotonic(), _Line(text, session.mode, time.time())
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
        """Parse the last line if it is still unread; return its error."""
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
