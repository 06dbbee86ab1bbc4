"""A gputui on a box, older than the local one."""

from __future__ import annotations

from pathlib import Path


def lacks_if_free(program: Path) -> None:
    """Make the script that starts gputui behave like a version before `run --if-free`.

    It refuses the option as an argument, and in a request of ours.
    """
    program.write_text(
        '#!/bin/sh\ncase "$*" in *if[_-]free*)'
        ' echo "gputui: unrecognized arguments: --if-free; a command goes after --" >&2; exit 2;; esac\n'
        + program.read_text().partition("\n")[2]
    )
