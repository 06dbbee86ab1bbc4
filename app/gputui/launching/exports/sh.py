"""A line for any POSIX shell."""

from __future__ import annotations

from gputui.launching.launch import Launch
from gputui.launching.quoting import assignment, posix


def to_sh(launch: Launch) -> str:
    """For any POSIX shell; without a command the variables alone, to be read with `eval` or `source`."""
    if launch.argv:
        return launch.render(posix)
    set_to = " ".join(assignment(name, value, posix) for name, value in launch.changes if value is not None)
    unset = " ".join(name for name, value in launch.changes if value is None)
    return "\n".join([*([f"unset {unset}"] if unset else []), *([f"export {set_to}"] if set_to else [])])
