"""The launch in other forms: a line for a shell, JSON for a program."""

from __future__ import annotations

import json
from collections.abc import Callable

from gputui.launching.launch import Launch
from gputui.launching.quoting import assignment, posix


def to_sh(launch: Launch) -> str:
    """For any POSIX shell; without a command the variables alone, to be read with `eval` or `source`."""
    if launch.argv:
        return launch.render(posix)
    set_to = " ".join(assignment(name, value, posix) for name, value in launch.changes if value is not None)
    unset = " ".join(name for name, value in launch.changes if value is None)
    return "\n".join([*([f"unset {unset}"] if unset else []), *([f"export {set_to}"] if set_to else [])])


def to_json(launch: Launch) -> str:
    """argv, environment changes (null: unset), directory and warnings."""
    return json.dumps(
        {
            "argv": list(launch.argv),
            "environment": dict(launch.changes),
            "directory": launch.directory,
            "warnings": list(launch.warnings),
        },
    )


FORMS: dict[str, Callable[[Launch], str]] = {"sh": to_sh, "json": to_json}
"""What `--as` takes, by name."""
