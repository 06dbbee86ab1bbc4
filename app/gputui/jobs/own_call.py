"""Calls of this very gputui: as a command line, and as the content of a job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gputui.inventory.light_dataclasses import frozen

_PACKAGES = str(Path(__file__).parents[2])
"""The folder that contains gputui. The interpreter alone may not know it (a zip that has unpacked itself)."""
_GPUTUI = (
    "import sys; places = [place for place in sys.path if place];"
    " others = [n for n, place in enumerate(places) if place.endswith('-packages')];"
    f" places.insert(others[0] if others else len(places), {_PACKAGES!r}); sys.path = places;"
    " from gputui.cli.main import {entry}; {entry}()"
)
"""The program for our own interpreter that runs this very gputui. `-m` would search the project's folder for
modules first, and import a json.py there as ours."""


def this_gputui(words: Sequence[str], entry: str = "entry") -> tuple[str, ...]:
    """The argv that calls this very gputui with these arguments, through the function `entry` of
    cli/main.py."""
    return (sys.executable, "-c", _GPUTUI.format(entry=entry), *words)


@frozen
class OwnCall:
    """The call of gputui that a job runs: its subcommand with the arguments `words`. The words may hold
    secrets and are not on the command line, which every user of the machine can read: the job reads them from
    its folder. The record shows `argv` as its command and `line` as its launch line.

    `count` is the number of devices that the job waits for before it becomes that command, None for a call
    that does not become another command. `kept` is what a rerun of the job reads from its record."""

    count: int | None
    argv: tuple[str, ...]
    words: tuple[str, ...]
    line: tuple[str, ...]
    kept: object = None
