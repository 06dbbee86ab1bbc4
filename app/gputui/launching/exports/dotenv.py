"""The variables as a file that python-dotenv, VS Code, Compose and `docker run --env-file` read."""

from __future__ import annotations

import re

from gputui.launching.exports.form import ExportError, final_changes, need_text
from gputui.launching.launch import Launch

_AS_IT_IS = re.compile(r"(?!['\"`])(?:[^\s#$\\'\"`]|(?<=[^\s])#|(?<=[^\s]) (?=[^\s#])|(?<=[^\s])['\"`\\])*")
"""A value that every reader takes unquoted: no spaces at its ends, no comment, no `$`."""

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}


def to_dotenv(launch: Launch) -> str:
    """Return `NAME=value` lines, with the launch as a comment above them.

    `docker run --env-file` takes a line literally, quotes included: a value that other readers need quotes
    for has a comment that says so. Raises ExportError for values that no such file can express.
    """
    need_text(launch, "a dotenv file")
    lines = [f"# {launch.line}"] if launch.argv else []
    for name, value in final_changes(launch).items():
        if value is None:
            raise ExportError(f"a dotenv file cannot unset {name}; --as sh can")
        lines += _lines(name, value)
    return "\n".join(lines)


def _lines(name: str, value: str) -> list[str]:
    if _AS_IT_IS.fullmatch(value):
        return [f"{name}={value}"]
    if "${" in value:
        # python-dotenv does so within quotes of either kind, and there is no escape for it.
        raise ExportError(
            f"readers of dotenv files replace ${{…}} in {name}, in quotes too; --as sh does not"
        )
    note = f"# {name}: `docker run --env-file` would keep the quotes in the value (--as docker)."
    if "\n" in value or "\r" in value:
        text = "".join(_ESCAPES.get(character, character) for character in value)
        return [note, f'{name}="{text}"']
    text = value.replace("\\", "\\\\").replace("'", "\\'")
    return [note, f"{name}='{text}'"]
