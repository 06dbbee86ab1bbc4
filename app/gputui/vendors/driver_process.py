"""Asks a vendor's driver which devices it shows to a program, in a process of its own: never in ours.

The driver starts there, and no context is made on a device (`Vendor.driver_probe`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.inventory.errors import GputuiError

if TYPE_CHECKING:
    from gputui.inventory.untrusted_json import JsonValue

_ASK = """
import json, runpy, sys
with open(sys.argv[2], "w") as file:
    json.dump(runpy.run_path(sys.argv[1])["driver"](), file)
"""


class NoAnswerError(GputuiError):
    """The driver did not answer; the message says why."""


def ask_driver(
    probe: Path, environ: Mapping[str, str], seconds: float, left_out: Sequence[str] = ()
) -> JsonValue:
    """What the script `probe` answers within `seconds` in a child with this environment, which cannot open
    the device files `left_out`. Raises NoAnswerError."""
    # (Milliseconds to import, and a launch mostly finds that the driver has been asked.)
    from gputui.inventory.untrusted_json import DocumentError
    from gputui.system.child_process import answers, read_answer, run

    # (Isolated: no file in the working directory, and nobody's sitecustomize, is loaded.)
    words = (sys.executable, "-I", "-S", "-c", _ASK, str(probe))
    try:
        with answers() as folder:
            file = folder / "driver.json"
            ended = run((*words, str(file)), environ, None, seconds, left_out=left_out)
            return read_answer(file)
    except DocumentError as error:
        raise NoAnswerError(ended.trouble or ended.last_line or str(error)) from None
    except OSError as error:
        raise NoAnswerError(str(error.strerror)) from None
