"""Lists of devices that a program's words give what it starts.

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
"""An assignment to the end of its word: nothing stands behind it that could make the match end earlier."""


def lists_within(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Each list of devices that a program's words give what they start: as it is written, and its value.

    What a shell would put in (`$1`, `$(…)`) is not known: such a list is not among them.
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
