"""`gputui run --on` on a real terminal, with a job on another box."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from e2e.terminal import Terminal

_ANSWERS = "trap 'echo ca''ught; exit 5' INT; echo re''ady; while :; do sleep 0.05; done"


def interrupted_there(on: str, count: int, environ: Mapping[str, str]) -> str:
    """Interrupt a job on another box, and return the terminal's text at its end.

    The job answers Ctrl-C with a word and ends with status 5, and both must arrive here.
    """
    words = ("run", "--on", on, "--directory", ".", "-n", str(count), "--", "sh", "-c", _ANSWERS)
    terminal = Terminal([sys.executable, "-m", "gputui", *words], {**environ, "TERM": "xterm"}, (120, 20))
    try:
        terminal.until("ready")
        terminal.send("\x03")
        terminal.until("caught")
        assert terminal.end() == 5, terminal.text
        return terminal.text
    finally:
        terminal.close()
