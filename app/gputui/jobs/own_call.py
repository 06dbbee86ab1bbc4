"""Calls of this very gputui: as a command, and as what a job is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gputui.inventory.light_dataclasses import dataclass

_PACKAGES = str(Path(__file__).parents[2])
"""The folder that has gputui, which our interpreter alone may not know (a zip that has unpacked itself)."""
_GPUTUI = (
    "import sys; places = [place for place in sys.path if place];"
    " others = [n for n, place in enumerate(places) if place.endswith('-packages')];"
    f" places.insert(others[0] if others else len(places), {_PACKAGES!r}); sys.path = places;"
    " from gputui.cli.main import {entry}; {entry}()"
)
"""gputui by our own interpreter, and the very one that runs. (`-m` would look for modules in the project's
folder first: a json.py there would be ours.)"""


def this_gputui(words: Sequence[str], entry: str = "entry") -> tuple[str, ...]:
    """The command that is a call of this very gputui with these words, which `entry` of cli/main.py reads."""
    return (sys.executable, "-c", _GPUTUI.format(entry=entry), *words)


@dataclass(frozen=True, slots=True)
class OwnCall:
    """What a job that is a call of gputui itself will run: its subcommand with these `words`. They may hold
    secrets and are not on its command line, which every user of the machine can read: it finds them in its
    folder. `argv` is what the record shows as its command, and `line` as its launch line.

    `count` is how many devices it waits for before it becomes that command, None for a call that stays what
    it is."""

    count: int | None
    argv: tuple[str, ...]
    words: tuple[str, ...]
    line: tuple[str, ...]
