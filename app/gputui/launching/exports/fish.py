"""A line for fish."""

from __future__ import annotations

from gputui.launching.exports.form import settled
from gputui.launching.launch import Launch
from gputui.launching.quoting import assignment
from gputui.launching.quoting import fish as quoted

_BUILTINS = frozenset(
    (
        *(".", ":", "[", "_", "abbr", "and", "argparse", "begin", "bg", "bind", "block", "break"),
        *("breakpoint", "builtin", "case", "cd", "command", "commandline", "complete"),
        *("contains", "continue", "count", "disown", "echo", "else", "emit", "end", "eval", "exec"),
        *("exit", "false", "fg", "for", "function", "functions", "history", "if", "jobs", "math"),
        *("not", "or", "path", "printf", "pwd", "random", "read", "realpath", "return", "set"),
        *("set_color", "source", "status", "string", "switch", "test", "time", "true", "type"),
        *("ulimit", "wait", "while", "fish_indent", "fish_key_reader", "{", "}"),
    )
)
"""fish's own words (`builtin --names`, 3.6 and 4.0). Quotes do not hide them: `'if'` begins a block."""


def to_fish(launch: Launch) -> str:
    """One line that sets and unsets for the command only; without a command lines for `source`."""
    if not launch.argv:
        return "\n".join(
            f"set -e {name}" if value is None else f"set -gx {name} {quoted(value)}"
            for name, value in settled(launch).items()
        )
    unset = [name for name, value in launch.changes if value is None]
    words = [
        *(["env", *(word for name in unset for word in ("-u", name))] if unset else []),
        *(assignment(name, value, quoted) for name, value in launch.changes if value is not None),
        *_program(launch.argv[0], after_env=bool(unset)),
        *(quoted(word) for word in launch.argv[1:]),
    ]
    line = " ".join(words)
    if not launch.directory:
        return line
    # As in `Launch.render`: not the last directory ("-"), nor one of CDPATH.
    place = launch.directory if launch.directory.startswith("/") else f"./{launch.directory}"
    return f"cd -- {quoted(place)} && {line}"


def _program(word: str, after_env: bool) -> list[str]:
    if not after_env and word in _BUILTINS:
        return ["command", quoted(word)]
    # Without quotes `A=1` would be an assignment.
    return [f"'{word}'" if quoted(word) == word and "=" in word else quoted(word)]
