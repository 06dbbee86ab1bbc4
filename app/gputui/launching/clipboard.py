"""Copy text to the clipboard of the person at the keyboard, and report how it was copied.

In a local session: the desktop's own tool, then tmux, then OSC 52. Over SSH a local tool would reach the
wrong machine: tmux, then OSC 52. tmux's default `set-clipboard external` drops OSC 52 from the programs
inside it, but passes on `load-buffer -w` (seen with tmux 3.3a).
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gputui.inventory.formatting import TextWriter
from gputui.inventory.light_dataclasses import frozen
from gputui.system.environment import Environ
from gputui.system.trust import program

_PATIENCE = 2.0
"""Timeout of a tool in seconds; xclip on a dead X server never answers."""


@frozen
class Copied:
    """The outcome. `sure`: a program took the text; otherwise a terminal was asked, which does not answer.
    `asked`: false where there was no terminal to ask."""

    message: str
    sure: bool
    asked: bool = True


def osc52(text: str) -> str:
    """Return the escape sequence that asks a terminal to put `text` on its clipboard."""
    return f"\x1b]52;c;{base64.b64encode(text.encode(errors='surrogateescape')).decode()}\x07"


def copy(text: str, environ: Environ, write: TextWriter | None = None) -> Copied:
    """Copy `text`; `write` sends an escape sequence to the terminal (default: through /dev/tty)."""
    for name, argv in tools(environ):
        if _fed(argv, text, environ):
            if name == "tmux":
                return Copied("sent to the clipboard through tmux, and copied to its paste buffer", True)
            return Copied(f"copied to the clipboard with {name}", True)
    try:
        (write or _to_terminal)(osc52(text))
    except OSError as error:
        return Copied(
            f"not copied: no clipboard tool, and no terminal to ask ({error.strerror})", False, False
        )
    return Copied("sent to the terminal's clipboard (OSC 52, not confirmed)", False)


def tools(environ: Environ) -> Iterator[tuple[str, list[str]]]:
    """Yield the tools to try in this environment, in order, as (name, argv)."""
    remote = "SSH_TTY" in environ or "SSH_CONNECTION" in environ
    for name, words, wanted in (
        ("pbcopy", (), not remote and sys.platform == "darwin"),
        ("wl-copy", (), not remote and environ.get("WAYLAND_DISPLAY")),
        ("xclip", ("-selection", "clipboard"), not remote and environ.get("DISPLAY")),
        ("xsel", ("--clipboard", "--input"), not remote and environ.get("DISPLAY")),
        ("tmux", ("load-buffer", "-w", "-"), environ.get("TMUX")),
    ):
        if wanted and (place := program(name, environ.get("PATH"))) is not None:
            yield name, [place, *words]


def _fed(argv: list[str], text: str, environ: Environ) -> bool:
    try:
        # xclip and wl-copy keep running to serve the text: they must not hold our output open.
        done = subprocess.run(
            argv,
            input=text.encode(errors="surrogateescape"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            env=dict(environ),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _to_terminal(sequence: str) -> None:
    with Path(os.ctermid()).open("w") as terminal:
        terminal.write(sequence)
