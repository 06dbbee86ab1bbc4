"""Lists of devices in a command's words: `CUDA_VISIBLE_DEVICES=…` for what the command itself starts.

`env CUDA_VISIBLE_DEVICES=1 …`, `bash -c 'CUDA_VISIBLE_DEVICES=1 …'`, `make CUDA_VISIBLE_DEVICES=1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.launching.argument_vector import program_name
from gputui.launching.shell_words import assignments
from gputui.launching.shells import shell_of
from gputui.launching.wrappers import assigned, unwrap
from gputui.vendors.nvidia.visibility import VISIBLE

_IN_SHELL = re.compile(rf"(?:^|(?<=[\s;&|(`{{]))({VISIBLE}=((?:\"[^\"]*\"|'[^']*'|[^\s;&|()<>\"'])*))")
"""An assignment up to the end of its word in a shell's command."""


def lists_within(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Each list of devices in a command's words, as (what is written, the list).

    A list that a shell would expand (`$1`, `$(…)`) is left out, as its value is not known.
    """
    prefix, inner = unwrap(words)
    listed = dict(assigned(prefix)).get(VISIBLE)
    found = [] if listed is None else [(f"{VISIBLE}={listed}", listed)]
    shell = shell_of(inner)
    if shell is not None:
        for match in _IN_SHELL.finditer(shell.command or ""):
            if not re.search(r"[$`\\]", match[2]):
                found.append((match[1], re.sub("[\"']", "", match[2])))
    elif program_name(inner) == "make":
        values = dict(pair for word in inner[1:] for pair in assignments((word,))[0])
        value = values.get(VISIBLE)
        if value is not None and "$" not in value:
            found.append((f"{VISIBLE}={value}", value))
    return tuple(found)
