"""The framework that a command's script trains with, from its imports. The script is read, never run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.launching.host_environment import ThisHost
from gputui.launching.python_script import without_documentation
from gputui.launching.started_script import started_script

TORCH = "torch"

_OF_MODULES = {
    TORCH: TORCH,
    **dict.fromkeys(("tensorflow", "tf_keras"), "tensorflow"),
    **dict.fromkeys(("jax", "flax", "optax", "haiku", "equinox"), "jax"),
}
"""The modules that a script imports, and the framework whose devices it then uses."""

_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(?=\w)|import[ \t]+)([\w., \t]+)", re.MULTILINE)


def framework_of(command: Sequence[str], directory: str | None = None) -> str:
    """The framework that the script imports; torch where it imports torch among others, or none.

    Only the script itself is read, not the files that it imports.
    """
    script = started_script(command, ThisHost(), directory)
    if script is None or script.kind != "python":
        return TORCH
    modules = _IMPORT.findall(without_documentation(script.text))
    # `import jax, torch` names several modules.
    names = [each.strip().partition(".")[0].partition(" ")[0] for text in modules for each in text.split(",")]
    found = [_OF_MODULES[name] for name in names if name in _OF_MODULES]
    return TORCH if TORCH in found or not found else found[0]
