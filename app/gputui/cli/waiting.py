"""`--wait`: in line until enough devices are free, with a line of progress; and being told at the end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gputui.allocating.queue import Ticket
from gputui.allocating.settings import SettingsError, settings
from gputui.allocating.waiting import Progress, TooLongError, Wait
from gputui.choosing.naming import listed
from gputui.choosing.pick import Constraints, available
from gputui.choosing.verdict import Verdict
from gputui.cli.choice import Call, Chosen, Hold, by_name, held
from gputui.cli.common import NotEnoughError, WaitedTooLongError, WrongCallError, say
from gputui.inventory.device import Device
from gputui.inventory.formatting import duration, printable
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import Want
from gputui.vendors.registry import inherited

_LOOK = Want.MONITOR & ~Want.SENSORS
_LOG_EVERY = 600.0
"""Seconds between two lines of progress in a log."""


def waited_for(call: Call, hold: Hold | None) -> Chosen:
    """The devices of a call, when they can be had. Raises WaitedTooLongError, and what `choose` raises."""
    if call.args.demo is not None or call.args.recording is not None:
        raise WrongCallError("--wait is for this machine's devices, not for --demo or --from")
    began = time.monotonic()
    snapshot = call.source.read(_LOOK | call.want)
    keys, count = _keys(call, snapshot), _count(call, snapshot)
    can = _most(call, snapshot, keys)
    if count > can:
        raise NotEnoughError(
            f"{count} device{'s' if count > 1 else ''} asked for, and {can or 'none'} will ever do here:"
            " waiting does not help"
        )
    by_hand = call.asked is None
    call.agree(by_name(call.args.gpus, snapshot, inherited(call.environ, snapshot)) if by_hand else count)
    line = _Line()
    wait = Wait(
        call.environ,
        _ticket(call, count, keys),
        lambda box: _wish(call, box, keys),
        count,
        call.rules,
        line.tell,
        None if call.args.wait == float("inf") else began + call.args.wait,
    )
    try:
        while True:
            _, ready = wait.devices(lambda: call.source.read(_LOOK | call.want))
            line.end()
            try:
                chosen = call.chosen(only={device.key for device in ready})
                chosen = chosen if hold is None else held(call, chosen, hold, {d.key for d in ready})
            except NotEnoughError:
                # Taken under our hands, by somebody who is not in line: the first place is still ours.
                continue
            break
    except TooLongError:
        line.end()
        raise WaitedTooLongError(
            f"waited for {duration(time.monotonic() - began)}; it was too long"
        ) from None
    finally:
        line.end()
        if wait.ticket is not None:
            wait.ticket.leave()
    labels = ", ".join(f"GPU {chosen.snapshot.label(device)}" for device in chosen.devices)
    _notify(f"{labels} after {duration(time.monotonic() - began)} of waiting")
    return chosen


def _keys(call: Call, snapshot: Snapshot) -> frozenset[str] | None:
    """The devices that will do, None for all."""
    limits = inherited(call.environ, snapshot)
    if call.args.gpus is not None:
        return frozenset(device.key for device in by_name(call.args.gpus, snapshot, limits))
    never = set(listed(call.rules.never, snapshot))
    if limits is None and not never:
        return None
    return frozenset(key for key in (limits.keys if limits else snapshot.by_key) if key not in never)


def _count(call: Call, snapshot: Snapshot) -> int:
    if call.asked is not None:
        return call.asked
    return len(by_name(call.args.gpus, snapshot, inherited(call.environ, snapshot)))


def _wish(call: Call, snapshot: Snapshot, keys: frozenset[str] | None) -> Constraints:
    """What each device must be like. (Of devices that are named, several may be MIG instances.)"""
    return replace(call.constraints(snapshot, keys), count=call.asked or 1)


def _most(call: Call, snapshot: Snapshot, keys: frozenset[str] | None) -> int:
    """How many devices could be had at the best, whoever has them now."""
    constraints = replace(_wish(call, snapshot, keys), max_util=None)
    empty = tuple(
        replace(device, memory_free=_at_most(device, constraints.min_free)) for device in snapshot.devices
    )
    as_free = {
        device.key: Verdict("busy", "divided", "divided") if device.mig else Verdict("free", "", "")
        for device in empty
    }
    return len(available(replace(snapshot, devices=empty), as_free, constraints).devices)


def _at_most(device: Device, asked: int | None) -> int | None:
    """What would be free of an empty device; as much as is asked for where that is not known."""
    return asked if device.memory_total is None else device.memory_total


def _ticket(call: Call, count: int, keys: frozenset[str] | None) -> Ticket | None:
    """Our place in line; where there can be none we wait by ourselves, and say so."""
    try:
        ticket = Ticket.draw(call.environ, count, keys, call.told)
    except OSError as error:
        say(f"warning: there is no line to wait in: {error.strerror}")
        return None
    if ticket is None:
        say("warning: there is no line to wait in: there is no folder that all users can write")
    return ticket


class _Line:
    """Progress: one line that rewrites itself on a terminal; else a line at each step, and now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown = ""
        self._said: tuple[int, float] | None = None

    def tell(self, progress: Progress) -> None:
        words = printable(f"gputui: {progress.words}")
        if self._terminal:
            words = words[: shutil.get_terminal_size().columns - 1]
            if words != self._shown:
                print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)
                self._shown = words
            return
        now, place = time.monotonic(), len(progress.ahead)
        if self._said is None or self._said[0] != place or now - self._said[1] >= _LOG_EVERY:
            self._said = (place, now)
            say(progress.words)

    def end(self) -> None:
        """Leave the line to the command's own output."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = ""


def _notify(message: str) -> None:
    """The terminal's bell and its notification (OSC 9, OSC 777), and the command of the settings."""
    say(message)
    if sys.stderr is not None and sys.stderr.isatty():
        print(
            f"\a\x1b]9;gputui: {message}\x1b\\\x1b]777;notify;gputui;{message}\x1b\\", end="", file=sys.stderr
        )
        sys.stderr.flush()
    try:
        words = settings(os.environ).notify
    except SettingsError as error:
        say(f"warning: {error}")
        return
    if words:
        _tell([word.replace("{message}", f"gputui: {message}") for word in words])


def _tell(argv: Sequence[str]) -> None:
    """Start a command that is nobody's child: what we become must not find one that it has not started."""
    import subprocess

    program = shutil.which(argv[0])
    if program is None:
        say(f"warning: the command of wait.notify cannot be started: {argv[0]}")
        return
    try:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", str(Path(program).absolute()), *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            check=False,
        )
    except (OSError, ValueError) as error:
        say(f"warning: the command of wait.notify cannot be started: {argv[0]}: {error}")
