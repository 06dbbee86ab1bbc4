"""The user's `ssh`, with all of the user's configuration, and the meaning of its messages."""

from __future__ import annotations

import errno
import os
import re
from typing import Literal

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen
from gputui.system.trust import program

_ALIVE_EVERY, _ALIVE_TIMES = 5, 3
"""A connection on which nothing has arrived for 15 seconds is lost."""

LOST = 255
"""The exit status of ssh itself, where it could not connect or has lost the connection."""

TroubleKind = Literal["host key", "changed key", "denied", "unreachable", "no gputui", "failed"]


@frozen
class Trouble:
    """Why a box cannot be reached: `text` is one line for display, with a remedy where there is one."""

    kind: TroubleKind
    text: str


@frozen
class Way:
    """How to connect to boxes.

    timeout  seconds until the connection attempt is given up (ssh_config(5), ConnectTimeout)
    prompts  whether ssh may ask for a password
    """

    timeout: int
    prompts: bool = False


def ssh_argv(
    alias: str, command: str, way: Way, terminal: bool = False, quiet: bool = False, child: bool = False
) -> tuple[str, ...]:
    """Return the command that runs `command` by the shell of that box.

    Host keys, masters, agents and jumps are those of the configuration. The command turns off only what a
    second connection must not do: it forwards no ports, which the user's own connection has already. A
    `child` of gputui may be ended at any moment, so it must not be the master of other connections: without
    prompts it becomes none; with prompts a separate process becomes the master, so that the person's answer
    holds for the next call. Raise OSError where there is no `ssh`.
    """
    found = program("ssh", os.environ.get("PATH"))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "PATH has none that no other user can change")
    return (
        found,
        *("-o", f"ConnectTimeout={way.timeout}"),
        *("-o", f"ServerAliveInterval={_ALIVE_EVERY}", "-o", f"ServerAliveCountMax={_ALIVE_TIMES}"),
        *(() if way.prompts else ("-o", "BatchMode=yes")),
        *(("-o", "ControlPersist=60" if way.prompts else "ControlMaster=no") if child else ()),
        *("-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none"),
        # Otherwise ssh reports at the end that the connection is closed.
        *(("-o", "LogLevel=ERROR") if quiet else ()),
        "-tt" if terminal else "-T",
        "--",
        alias,
        command,
    )


_MEANINGS: tuple[tuple[str, TroubleKind, str], ...] = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "changed key",
        "its host key has changed; `ssh {alias}` shows more",
    ),
    ("Host key verification failed", "host key", "its host key is not known yet; `ssh {alias}` asks for it"),
    ("Permission denied", "denied", "permission denied; `ssh {alias}` must work without a password"),
    ("Too many authentication failures", "denied", "too many authentication failures"),
    ("Could not resolve hostname", "unreachable", "no such host name"),
    ("Connection refused", "unreachable", "connection refused"),
    ("timed out", "unreachable", "no answer in time"),
    ("not responding", "unreachable", "it no longer answers"),
    ("No route to host", "unreachable", "no route to it"),
    ("is unreachable", "unreachable", "network unreachable"),
    ("kex_exchange_identification", "unreachable", "it closed the connection at once"),
    ("Connection closed", "unreachable", "it closed the connection"),
    ("Connection reset", "unreachable", "the connection was reset"),
    ("Broken pipe", "unreachable", "the connection was lost"),
)
"""ssh's messages, which are never translated, and their meanings. The first match counts."""


def trouble_of(alias: str, said: bytes) -> Trouble:
    """Return the meaning of the messages of an `ssh` that has failed."""
    text = said.decode(errors="replace")
    for words, kind, meaning in _MEANINGS:
        if words in text:
            return Trouble(kind, meaning.format(alias=alias))
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    return Trouble("failed", printable(lines[-1])[:200] if lines else "ssh ended without a message")
