"""The environment that this process was given, for the programs that it starts; and the
origin of the call."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

Environ = Mapping[str, str]
"""An environment: the values of its variables."""

Variables = Mapping[str, str | None]
"""The values of some variables; None for one that is removed."""

Assignments = tuple[tuple[str, str], ...]
"""Variables with their values, in their order."""

_SET = "LC_CTYPE"
_VALUES = ("C.UTF-8", "C.utf8", "UTF-8")
"""Python's own values where the locale is "C", even where the user has set it (PEP 538)."""

CALLED = "GPUTUI_CALLED"
"""Set for a call that comes from another machine over ssh: the name of this box there (`gpu1`)."""


WORDS = "GPUTUI_WORDS"
"""The arguments of a call that may hold secrets, as JSON: others can read a command line, but not the
environment of a process."""
SENT_WORDS = ("run", "--sent-words")
"""The command line of such a call. A gputui that does not read WORDS refuses the option, as one that is too
old."""


def called(environ: Environ) -> str | None:
    """Return the name of this box where the call was typed; None where it was typed here."""
    return environ.get(CALLED) or None


def given_environment() -> dict[str, str]:
    """Return `os.environ` without the interpreter's own LC_CTYPE (PEP 538), and without CALLED.

    CALLED is for this call only. A command that inherits LC_CTYPE reads and writes other characters than when
    it is typed in the user's shell. Linux keeps the environment of the exec call (/proc/self/environ), and
    its value counts. Elsewhere the origin is unknown, and the variable stays: removing the user's setting
    would be worse.
    """
    environ = dict(os.environ)
    environ.pop(CALLED, None)
    if environ.get(_SET) in _VALUES:
        with contextlib.suppress(OSError), open("/proc/self/environ", "rb") as stream:  # noqa: PTH123
            given = (entry.partition(b"=") for entry in stream.read().split(b"\0"))
            # Of several values the first counts, as for getenv.
            values = [value for name, _, value in given if name == os.fsencode(_SET)]
            if values:
                environ[_SET] = os.fsdecode(values[0])
            else:
                del environ[_SET]
    return environ
