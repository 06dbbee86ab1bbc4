"""`gputui run --held`: one box of a launch on several boxes, which on_boxes.py starts from another machine.

The call claims its devices, prints a line of JSON, and then waits for a line of JSON on its input with the
address of the rendezvous. If the input ends before that, the devices are freed. Then the call starts and
prints the job's id and, with `--attach`, the job's output. From then on, a line of input means Ctrl-C, and
the end of the input means that the terminal has gone.
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
from typing import Annotated

from gputui.allocating.allocation import Allocation
from gputui.allocating.errors import WaitedTooLongError
from gputui.cli.common import WrongCallError, say
from gputui.inventory.formatting import duration
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.typed_json import DocumentError, Record, check, loads, whole
from gputui.jobs.foreground import LEFT
from gputui.launching.host_environment import ThisHost, is_free
from gputui.launching.launch_options import Meeting, table
from gputui.launching.launchers.torchrun import PORT, endpoint
from gputui.launching.start import StartError, look_ahead
from gputui.requesting.prepared_launch import PreparedLaunch
from gputui.system.environment import Environ, given_environment

__all__ = ["HELD_FOR", "LEFT", "agreed", "met", "obey_input", "reached"]

HELD_FOR = 180.0
"""Seconds that the devices are held while no line arrives: the connection may be dead without having ended,
or another box may be slow. Before the other side starts any job, it checks that all boxes still hold
theirs."""
_STDIN = 0
_LONGEST_LINE = 4096


def held_launch(
    prepared: PreparedLaunch, allocation: Allocation, dry_run: bool
) -> tuple[PreparedLaunch, Meeting] | int:
    """The launch with the rendezvous address, or an exit status where it cannot or must not start.

    Raises WaitedTooLongError, WrongCallError.
    """
    if not dry_run:
        try:
            # The program and the directory do not depend on the rendezvous address.
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
    """HOST:PORT of the rendezvous, and the agreed meeting; None where the input ended before.

    Raises WaitedTooLongError where no line arrived in time, WrongCallError for a line with other content.
    """
    facts = {
        "devices": [device.uuid for device in allocation.devices],
        "address": _address(os.environ),
        "port": _port(),
    }
    print(json.dumps(facts), flush=True)
    line = _line(time.monotonic() + HELD_FOR)
    if line is None:
        say("nothing is started: the rendezvous address was not sent")
        return None
    return agreed(line)


@frozen
class _Reachable:
    address: str | None
    port: Annotated[int, whole(1, 65535)] | None


_REACHABLE = Record(_Reachable)


def reached(line: bytes) -> tuple[str | None, int | None]:
    """Parse the address and the free port in a box's line. Raises DocumentError and ValueError."""
    told = _REACHABLE.read(loads(line))
    return None if told.address is None else str(ipaddress.ip_address(told.address)), told.port


@frozen
class _Agreed:
    rendezvous: Annotated[str, check(str, table()["rendezvous"].accepts, "HOST or HOST:PORT")]
    id: Annotated[str, check(str, re.compile("[a-z0-9]{1,40}").fullmatch, "letters and digits")]
    first: bool
    rank: Annotated[int, whole(0, 4096)] = 0


_AGREED = Record(_Agreed)


def agreed(line: bytes) -> tuple[str, Meeting]:
    """Parse HOST:PORT and the meeting from a line of input. Raises WrongCallError."""
    try:
        said = _AGREED.read(loads(line))
    except DocumentError as error:
        raise WrongCallError(f"not a rendezvous address: {error}") from None
    place = said.rendezvous
    return place, Meeting(said.id, said.first, _own_address(place, said.first), said.rank)


def _own_address(place: str, first: bool) -> str | None:
    """The address by which the other machines reach this one; None where it is not known.

    For the first machine it is the meeting place's host, for another the local address of its route there.
    """
    host, _, port = endpoint(place).rpartition(":")
    host = host.strip("[]")
    if first:
        return host
    with contextlib.suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                # On a datagram socket, connect sends nothing.
                probe.connect(address)
                return str(probe.getsockname()[0])
    return None


def _line(deadline: float) -> bytes | None:
    """Read the next line of input, and not a byte more: the rest is for `obey_input`. None at the end. Raises
    WaitedTooLongError where no line arrives in time."""
    line = b""
    while len(line) < _LONGEST_LINE:
        if not select.select([_STDIN], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise WaitedTooLongError(
                f"the other boxes took longer than {duration(HELD_FOR)}: the devices are released, and"
                " nothing is started"
            )
        byte = os.read(_STDIN, 1)
        if byte == b"\n":
            return line
        if not byte:
            return None
        line += byte
    return None


def obey_input() -> None:
    """Read the input on a thread: a line is Ctrl-C for the job, and its end is a hangup of our terminal."""

    def obey() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(_STDIN, _LONGEST_LINE):
                for _ in range(data.count(b"\n")):
                    os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGHUP)

    threading.Thread(target=obey, daemon=True).start()


def _address(environ: Environ) -> str | None:
    """The address at which the connection reached this machine (ssh(1), SSH_CONNECTION).

    Behind a jump host it is the address that the machine's neighbours know. None where others could not use
    it.
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
    """torchrun's default port where nothing listens on it here, else a free port; None where none is free."""
    return PORT if is_free(PORT) else ThisHost().free_port()
