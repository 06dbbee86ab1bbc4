"""The environment that this process was given, for the programs that it starts."""

from __future__ import annotations

import contextlib
import os

_SET = "LC_CTYPE"
_VALUES = ("C.UTF-8", "C.utf8", "UTF-8")
"""What Python sets it to where the locale is "C", also where the user has said so (PEP 538)."""


def given_environment() -> dict[str, str]:
    """`os.environ` without what the interpreter has put there for itself: its LC_CTYPE (PEP 538).

    A command that inherits it reads and writes other characters than when it is typed in the user's shell.
    Linux keeps the environment as it was when we were executed (/proc/self/environ), and what that says
    counts. Elsewhere nobody can tell, and the variable stays: to take away what the user has set is worse.
    """
    environ = dict(os.environ)
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
