"""One ssh connection that runs one call of gputui on a box. For one thread."""

from __future__ import annotations

import contextlib
import math
import os
import select
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen
from gputui.sources.hosts.left_behind import end_with_us, has_ended
from gputui.sources.hosts.remote_script import MARK, MODES, Mode, command, private_line
from gputui.sources.hosts.sent_core import digest, zipped
from gputui.sources.hosts.ssh import LOST, Trouble, Way, ssh_argv, trouble_of

_PIECE = 64 * 1024
_MOST_BEFORE = 64 * 1024
"""The most bytes that a login script may print before gputui does."""
_MOST_SAID = 16 * 1024
"""The most bytes of messages that are kept: the last ones."""
MOST_MESSAGES = 1024 * 1024
"""The most bytes of messages of a call that starts no job: a login whose shell traces each of its commands
writes some ten thousand."""
_LAST_PIECES = 16
"""The most pieces that are read when ssh has ended; a pipe holds 64 KiB."""
_WRONG_CALL = 2
"""The exit status of gputui, and of every argparse, for a call that it does not understand."""
_ENDS_WITHIN = 5.0
"""Seconds to wait for an ssh whose output has ended, or that was asked to end."""
_GRACE = 0.3
"""Seconds to wait for an ssh whose input has ended."""
LOGIN_WITHIN = 15.0
"""Seconds after the connect timeout within which a login must reach the script: with a home on a dead file
server it never does."""
LOOK = 0.2
"""Seconds between two checks whether an answer is still wanted."""
_RUNS: tuple[Mode, ...] = ("run", "nvidia-smi")


MOST_REASON = 300


@frozen
class Answer:
    """The outcome of a call on a box.

    status   the exit status of the remote gputui; None where it did not run, or its output is incomplete
    out      its output
    said     its messages
    trouble  why it has no status
    mode     the program that answered: gputui or nvidia-smi
    own      whether it was a copy of this gputui
    """

    alias: str
    status: int | None
    out: bytes
    said: str
    trouble: Trouble | None
    mode: Mode | None = None
    own: bool = False

    @property
    def error(self) -> str | None:
        """Why it is not an answer: the connection's trouble, or the message of the remote gputui;
        None with status 0."""
        if self.trouble is not None:
            return self.trouble.text
        return None if self.status == 0 else self.reason

    @property
    def reason(self) -> str:
        """The last line of the messages of the remote gputui, without its name."""
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        return printable(lines[-1].removeprefix("gputui: "))[:MOST_REASON] if lines else "no answer"

    @property
    def too_old(self) -> bool:
        """Whether the remote gputui, not a copy of this one, refused an option that this one knows."""
        refused = self.mode == "run" and self.status == _WRONG_CALL and not self.own
        last = self.said.strip().splitlines()[-1:]
        return refused and last != [] and last[0].startswith("gputui: unrecognized arguments:")


class UnwantedError(Exception):
    """The answer is no longer wanted."""


class Session:
    """The connection.

    `mode` is None until gputui, or nvidia-smi in its place, runs there. `reached`: whether the login has
    reached the script. Raise OSError where there is no local `ssh`, and ValueError for words that cannot be
    sent.
    """

    def __init__(
        self,
        alias: str,
        words: Sequence[str],
        way: Way,
        *,
        tied: bool = False,
        follows: bool = False,
        views: bool = False,
        apart: bool = False,
        own: bool = False,
        most_messages: int | None = None,
        connected: Callable[[], None] | None = None,
        watch: threading.Event | None = None,
    ) -> None:
        """Start ssh. `tied`, `follows`, `views`, `own`: as in `remote_script.command`.

        `apart`: in another process group, so that Ctrl-C does not reach it. A box that writes more than
        `most_messages` bytes of messages is given up. `connected` is called once: when the login has reached
        the script, when the connect timeout is over (ssh itself has given up by then), or at the end. Soon
        after `watch` is set, `receive` closes the connection and raises UnwantedError.
        """
        self.alias = alias
        self.own = own
        self.mode: Mode | None = None
        self.reached = False
        self._connected, self._watch = connected, watch
        self._messages_left = most_messages
        self._connects_until = time.monotonic() + way.timeout
        # A person who is asked for a password may need time.
        self._login_until = None if way.prompts else self._connects_until + LOGIN_WITHIN
        self._said = self._news = b""
        self._before, self._looked = b"", 0
        self._private = private_line(words)
        self.process = subprocess.Popen(
            ssh_argv(
                alias, command(words, digest(), tied, follows, views, own=own, called=alias), way, child=True
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=apart,
        )
        end_with_us(self.process.pid)
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._in, self._out, self._err = (
            stream.fileno() for stream in (self.process.stdin, self.process.stdout, self.process.stderr)
        )
        self._poll = select.poll()
        for descriptor in (self._out, self._err):
            self._poll.register(descriptor, select.POLLIN)
        self._open = {self._out, self._err}
        # A box that reads nothing must not block this side.
        os.set_blocking(self._in, False)
        self._unsent: deque[bytes] = deque()
        self._closed = False
        self._gave_up: Trouble | None = None
        self._status: int | None = None

    def receive(self, seconds: float | None, or_messages: bool = False) -> bytes | None:
        """Return the output that has arrived.

        b"" where none arrived in `seconds` (None: no limit), or with `or_messages` where messages arrived;
        None at its end.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._out in self._open:
            for descriptor in self._ready(deadline):
                if descriptor == self._in:
                    self._write()
                    continue
                data = self._some(descriptor)
                if descriptor == self._out and data and (data := self._after_mark(data)):
                    return data
                if descriptor == self._err and data and or_messages:
                    return b""
            # Also where data arrives all the time.
            if deadline is not None and time.monotonic() >= deadline:
                return b"" if self._out in self._open else None
        return None

    def _ready(self, deadline: float | None) -> list[int]:
        """Return the descriptors that are ready, none after the deadline."""
        if self._unsent and not self._input_ended:
            self._poll.register(self._in, select.POLLOUT)
        ends = [deadline, self._connects_until if self._connected else None]
        ends.append(None if self.reached else self._login_until)
        ends.append(time.monotonic() + LOOK if self._watch else None)
        known = [end for end in ends if end is not None]
        # Rounded up: a poll that ends too early would be repeated until the deadline.
        wait = math.ceil(max(0.0, min(known) - time.monotonic()) * 1000) if known else None
        ready = [descriptor for descriptor, _ in self._poll.poll(wait)]
        if self._watch is not None and self._watch.is_set():
            self.close()
            raise UnwantedError
        now = time.monotonic()
        if now >= self._connects_until:
            self._is_connected()
        if not self.reached and self._login_until is not None and now >= self._login_until:
            self._give_up(Trouble("unreachable", "no answer in time: its login may hang"))
            return []
        return ready

    def _is_connected(self) -> None:
        connected, self._connected = self._connected, None
        if connected is not None:
            connected()

    def _some(self, descriptor: int) -> bytes:
        data = os.read(descriptor, _PIECE)
        if not data:
            self._poll.unregister(descriptor)
            self._open.discard(descriptor)
        elif descriptor == self._err:
            self._said = (self._said + data)[-_MOST_SAID:]
            self._news = (self._news + data)[-_MOST_SAID:]
            if self._messages_left is not None:
                self._messages_left -= len(data)
                if self._messages_left < 0 and self._out in self._open:
                    self._give_up(Trouble("failed", "its messages are too long"))
        return data

    def _after_mark(self, data: bytes) -> bytes:
        """Return the part of the output that is gputui's own."""
        if self.mode in _RUNS:
            return data
        self._before += data
        while self.mode not in _RUNS:
            end = self._before.find(b"\n", self._looked)
            # Whatever the sizes of the pieces: a mark that comes too late is foreign.
            if (len(self._before) if end < 0 else end) > _MOST_BEFORE:
                self._give_up(Trouble("failed", "its login shell prints too much before a command starts"))
                return b""
            if end < 0:
                return b""
            mark, _, word = self._before[self._looked : end].partition(b" ")
            self._looked = end + 1
            if mark == MARK.encode():
                self._begin(word.strip())
        rest, self._before = self._before[self._looked :], b""
        return rest

    def _begin(self, word: bytes) -> None:
        self.reached = True
        self._is_connected()
        mode = next((mode for mode in MODES if word == mode.encode()), self.mode)
        # The core is sent once, however often the script requests it.
        if mode == "send" and self.mode is None:
            core = zipped()
            self._unsent.append(b"%d\n" % len(core) + core)
        elif mode == "run" and self._private:
            self._unsent.append(self._private)
        self.mode = mode

    def _give_up(self, why: Trouble) -> None:
        self._gave_up = why
        self.process.terminate()
        self._poll.unregister(self._out)
        self._open.discard(self._out)

    def send(self, data: bytes) -> None:
        """Write to the remote input, after all pending data, and without waiting.

        Data that the pipe does not take is written while `receive` waits. Raise BrokenPipeError.
        """
        if self._input_ended:
            raise BrokenPipeError
        if not self._unsent:
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(self._in, data) :]
        if data:
            self._unsent.append(data)

    def _write(self) -> None:
        """Write as much of the pending data as the pipe takes."""
        try:
            while self._unsent and not self._input_ended:
                # The entry stays in the queue meanwhile, so that a `send` does not overtake it.
                rest = self._unsent[0]
                self._unsent[0] = rest[os.write(self._in, rest[:_PIECE]) :]
                if not self._unsent[0]:
                    self._unsent.popleft()
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The messages hold the reason.
            self._unsent.clear()
        self._poll.unregister(self._in)

    @property
    def _input_ended(self) -> bool:
        return self.process.stdin is None or self.process.stdin.closed

    def end_input(self) -> None:
        """Close the input, so that the remote program ends."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    @property
    def said(self) -> str:
        """The last messages of the remote program and of ssh."""
        return self._said.decode(errors="replace")

    def new_messages(self) -> list[str]:
        """Return the complete lines of messages since the last call."""
        lines, newline, rest = self._news.rpartition(b"\n")
        self._news = rest
        return lines.decode(errors="replace").splitlines() if newline else []

    def finish(self) -> int | None:
        """Close an ssh whose output has ended, with time to end by itself."""
        self.end_input()
        self._has_ended(_ENDS_WITHIN)
        return self.close()

    def close(self) -> int | None:
        """End it. Return the status of the remote program, or ssh's own; None where ssh did
        not end by itself."""
        if self._closed:
            return self._status
        self._closed = True
        self._is_connected()
        self.end_input()
        if self._has_ended(_GRACE):
            self._status = self.process.returncode
        else:
            self.process.terminate()
            if not self._has_ended(_ENDS_WITHIN):
                self.process.kill()
                self.process.wait()
        has_ended(self.process.pid)
        self._rest_of_messages()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return self._status

    def _has_ended(self, within: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within)
        return self.process.returncode is not None

    def _rest_of_messages(self) -> None:
        # A master that goes on in the background may keep either of them open, and write without end.
        for _ in range(_LAST_PIECES):
            ready = [descriptor for descriptor, _ in self._poll.poll(0)]
            found = next((each for each in (self._err, self._out) if each in ready), None)
            if found is None or self._err not in self._open:
                return
            self._some(found)

    def answer(self, out: bytes = b"", trouble: Trouble | None = None) -> Answer:
        """Return the outcome of a session that has ended: `out` is its output, `trouble` an
        error in that output."""
        trouble = trouble or self._trouble()
        return Answer(
            self.alias, None if trouble else self._status, out, self.said, trouble, self.mode, self.own
        )

    def _trouble(self) -> Trouble | None:
        """Return why gputui did not run in a session that has ended; None where it ran."""
        if self._gave_up is not None:
            return self._gave_up
        if self.mode == "none":
            there = "its gputui is older than this one" if self.own else "no gputui"
            return Trouble("no gputui", f"{there} and no Python 3.10 or newer there")
        status = self.process.returncode
        if status == LOST or (self.mode is None and status != 0):
            return trouble_of(self.alias, self._said)
        if self.mode in (None, "send"):
            last = self.said.strip().splitlines()[-1:] or ["no output"]
            return Trouble("no gputui", f"gputui could not be started there: {printable(last[0])[:200]}")
        if self._status is None:
            return Trouble("failed", "ssh has not ended")
        # Less than 0: a signal has ended the local ssh.
        return Trouble("failed", "the connection was lost") if self._status < 0 else None
