"""Finds where a command itself sets the visible devices.

With VISIBLE for the variable: `env VISIBLE=1 …`, `bash -c 'VISIBLE=1 …'`, `make VISIBLE=1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from gputui.launching.argument_vector import program_name
from gputui.launching.shell_words import assignments
from gputui.launching.shells import shell_of
from gputui.launching.wrappers import assigned, unwrap


@lru_cache(maxsize=8)
def _in_shell(variable: str) -> re.Pattern[str]:
    """Matches an assignment up to the end of its word in a shell's command."""
    return re.compile(rf"(?:^|(?<=[\s;&|(`{{]))({variable}=((?:\"[^\"]*\"|'[^']*'|[^\s;&|()<>\"'])*))")


def lists_within(words: Sequence[str], variable: str) -> tuple[tuple[str, str], ...]:
    """Each list of devices in a command's words, as (what is written, the list).

    `variable` has the list; "" where the vendor has none. A list that a shell would expand (`$1`, `$(…)`) is
    left out, as its value is not known.
    """
    if not variable:
        return ()
    prefix, inner = unwrap(words)
    listed = dict(assigned(prefix)).get(variable)
    found = [] if listed is None else [(f"{variable}={listed}", listed)]
    shell = shell_of(inner)
    if shell is not None:
        for match in _in_shell(variable).finditer(shell.command or ""):
            if not re.search(r"[$`\\]", match[2]):
                found.append((match[1], re.sub("[\"']", "", match[2])))
    elif program_name(inner) == "make":
        values = dict(pair for word in inner[1:] for pair in assignments((word,))[0])
        value = values.get(variable)
        if value is not None and "$" not in value:
            found.append((f"{variable}={value}", value))
    return tuple(found)
