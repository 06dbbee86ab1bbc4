"""The environment that this process was given, for the programs that it starts; who has called it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

_SET = "LC_CTYPE"
_VALUES = ("C.UTF-8", "C.utf8", "UTF-8")
"""What Python sets it to where the locale is "C", also where the user has said so (PEP 538)."""

CALLED = "GPUTUI_CALLED"
"""Set for a call that comes from another machine over ssh: what this box is called there (`gpu1`)."""


def called(environ: Mapping[str, str]) -> str | None:
    """What this box is called where the call has been typed; None where that was here."""
    return environ.get(CALLED) or None


def given_environment() -> dict[str, str]:
    """`os.environ` without what the interpreter has put there for itself, its LC_CTYPE (PEP 538), and without
    CALLED, which is for this call only.

    A command that inherits it reads and writes other characters than when it is typed in the user's shell.
    Linux keeps the environment as it was when we were executed (/proc/self/environ), and what that says
    counts. Elsewhere nobody can tell, and the variable stays: to take away what the user has set is worse.
    """
    environ = dict(os.environ)
    environ.pop(CALLED, None)
    if environ.get(_SET) in _VALUES:
        with contextlib.suppress(OSError), open("/proc/self/environ", "rb") as stream:  # noqa: PTH123
            given = (entry.partition(b"=") for entry in stream.read().split(b"\0"))
            # (Of several the first counts, as for getenv.)
            values = [value for name, _, value in given if name == os.fsencode(_SET)]
            if values:
                environ[_SET] = os.fsdecode(values[0])
            else:
                del environ[_SET]
    return environ
