"""`gputui run --held`: one box of a launch over several, which on_boxes.py starts from another machine.

The call claims its devices, says so in a line of JSON, and starts nothing before it is told where the
machines meet, in a line of JSON on its input. If its input ends before that, the devices are free again. Then
it prints the job's id and, with `--attach`, the job's output; a line of its input is Ctrl-C, its end the end
of a terminal.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import select
import signal
import socket
import threading
import time
from collections.abc import Mapping
from typing import Annotated

from gputui.allocating.allocation import Allocation
from gputui.allocating.errors import WaitedTooLongError
from gputui.cli.common import WrongCallError, say
from gputui.inventory.formatting import duration
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.typed_json import DocumentError, Record, check, loads, whole
from gputui.jobs.foreground import LEFT
from gputui.launching.host_environment import ThisHost, is_free
from gputui.launching.launch_options import Meeting, table
from gputui.launching.launchers.torchrun import PORT, endpoint
from gputui.launching.start import StartError, look_ahead
from gputui.requesting.prepared_launch import PreparedLaunch
from gputui.system.environment import given_environment

__all__ = ["HELD_FOR", "LEFT", "agreed", "met", "obey_input", "reached"]

HELD_FOR = 180.0
"""Seconds for which the devices are held for a word that does not come: a connection is dead without an end,
or another box takes as long. (The other side looks, before it starts any, whether all still hold theirs.)"""
_STDIN = 0
_LONGEST_LINE = 4096


def held_launch(
    prepared: PreparedLaunch, allocation: Allocation, dry_run: bool
) -> tuple[PreparedLaunch, Meeting] | int:
    """The launch with the place where the machines meet; a status where it cannot start, or is not to.

    Raises WaitedTooLongError, WrongCallError.
    """
    if not dry_run:
        try:
            # (Which program and directory it is does not depend on where the machines meet.)
            unmet = _meeting_at(prepared.asked.options.rendezvous or "localhost", prepared)
            look_ahead(replace(unmet, confine="never").launch(allocation, os.environ), given_environment())
        except StartError as error:
            say(str(error))
            return error.status
    try:
        found = met(allocation)
    except WaitedTooLongError:
        allocation.release()
        raise
    if found is None:
        return LEFT
    place, meeting = found
    return _meeting_at(place, prepared), meeting


def _meeting_at(place: str, prepared: PreparedLaunch) -> PreparedLaunch:
    options = replace(prepared.asked.options, rendezvous=place)
    return replace(prepared, asked=replace(prepared.asked, options=options))


def met(allocation: Allocation) -> tuple[str, Meeting] | None:
    """HOST:PORT where the machines meet, and what else they have agreed on; None where nobody can say it.

    Raises WaitedTooLongError where nobody has said it in time, WrongCallError for a line that says something
    else.
    """
    facts = {
        "devices": [device.uuid for device in allocation.devices],
        "address": _address(os.environ),
        "port": _port(),
    }
    print(json.dumps(facts), flush=True)
    line = _line(time.monotonic() + HELD_FOR)
    if line is None:
        say("nobody has said where the machines meet: nothing starts")
        return None
    return agreed(line)


@dataclass(frozen=True, slots=True)
class _Reachable:
    address: str | None
    port: Annotated[int, whole(1, 65535)] | None


_REACHABLE = Record(_Reachable)


def reached(line: bytes) -> tuple[str | None, int | None]:
    """The address and the free port that a box has said in its line. Raises DocumentError and ValueError."""
    told = _REACHABLE.read(loads(line))
    return None if told.address is None else str(ipaddress.ip_address(told.address)), told.port


@dataclass(frozen=True, slots=True)
class _Agreed:
    rendezvous: Annotated[str, check(str, table()["rendezvous"].accepts, "HOST or HOST:PORT")]
    id: Annotated[str, check(str, re.compile("[a-z0-9]{1,40}").fullmatch, "letters and digits")]
    first: bool


_AGREED = Record(_Agreed)


def agreed(line: bytes) -> tuple[str, Meeting]:
    """HOST:PORT and the meeting that a line of input says. Raises WrongCallError."""
    try:
        said = _AGREED.read(loads(line))
    except DocumentError as error:
        raise WrongCallError(f"this is not where machines meet: {error}") from None
    place = said.rendezvous
    return place, Meeting(said.id, said.first, _own_address(place, said.first))


def _own_address(place: str, first: bool) -> str | None:
    """The address by which the other machines reach this one; None where that is not known.

    That of the first is where they meet, another's the one from which it goes there.
    """
    host, _, port = endpoint(place).rpartition(":")
    host = host.strip("[]")
    if first:
        return host
    with contextlib.suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                # (Of a datagram socket, this sends nothing.)
                probe.connect(address)
                return str(probe.getsockname()[0])
    return None


def _line(deadline: float) -> bytes | None:
    """The next line of input, and not a byte more: what follows is for `obey_input`. None at its end. Raises
    WaitedTooLongError where none comes in time."""
    line = b""
    while len(line) < _LONGEST_LINE:
        if not select.select([_STDIN], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise WaitedTooLongError(
                f"the other boxes have taken longer than {duration(HELD_FOR)}: the devices are given back,"
                " and nothing starts"
            )
        byte = os.read(_STDIN, 1)
        if byte == b"\n":
            return line
        if not byte:
            return None
        line += byte
    return None


def obey_input() -> None:
    """From now on, on a thread: a line of input is Ctrl-C for the job, its end is the end of our terminal."""

    def obey() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(_STDIN, _LONGEST_LINE):
                for _ in range(data.count(b"\n")):
                    os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGHUP)

    threading.Thread(target=obey, daemon=True).start()


def _address(environ: Mapping[str, str]) -> str | None:
    """The address by which the connection has reached this machine (ssh(1), SSH_CONNECTION).

    Behind a jump host it is the one that its neighbours know. None where there is none that others could use.
    """
    words = environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:
        return None
    try:
        found = ipaddress.ip_address(words[2])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return None if found.is_unspecified or found.is_link_local else str(found)


def _port() -> int | None:
    """torchrun's own port where nothing listens on it here, else one that is free; None where none is."""
    return PORT if is_free(PORT) else ThisHost().free_port()
