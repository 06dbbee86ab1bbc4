"""Which framework a command's script trains with: told from its imports, which are read, never run."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence

from gputui.inventory.others_files import NotReadError
from gputui.launching.host_environment import ThisHost
from gputui.launching.script_contents.python import syntax_tree
from gputui.launching.script_contents.started import started_script

TORCH = "torch"

_OF_MODULES = {
    TORCH: TORCH,
    **dict.fromkeys(("tensorflow", "tf_keras"), "tensorflow"),
    **dict.fromkeys(("jax", "flax", "optax", "haiku", "equinox"), "jax"),
}
"""Modules that a script imports, and the framework whose devices it then uses."""

_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.MULTILINE)


def framework_of(command: Sequence[str], directory: str | None = None) -> str:
    """The framework that the script imports; torch where it imports several with torch, or none.

    Only the script itself is read, not what it imports from files beside it.
    """
    script = started_script(command, ThisHost(), directory)
    if script is None or script.kind != "python":
        return TORCH
    modules: Iterable[str] = _IMPORT.findall(script.text)
    if script.whole:
        # (A script that is too long to be parsed is read by lines, where text may look like an import.)
        with contextlib.suppress(NotReadError):
            modules = _imported(syntax_tree(script.text))
    found = [_OF_MODULES[name] for name in modules if name in _OF_MODULES]
    return TORCH if TORCH in found or not found else found[0]


def _imported(tree: ast.AST | None) -> Iterator[str]:
    """The first names of all modules that are imported, in functions too, in the order of the text; none of
    what is no Python."""
    nodes = [
        node for node in (ast.walk(tree) if tree else ()) if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    for node in sorted(nodes, key=lambda node: node.lineno):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif node.module and not node.level:
            yield node.module.partition(".")[0]
