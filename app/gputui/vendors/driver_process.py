"""Asks a vendor's driver which devices it shows to a program, in a separate process and never in gputui's
own.

The driver starts there, and no context is created on a device (`Vendor.driver_probe`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gputui.inventory.errors import GputuiError
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.typed_json import DocumentError, Record
from gputui.system.environment import Environ

_ASK = """
import json, runpy, sys
with open(sys.argv[2], "w") as file:
    json.dump(runpy.run_path(sys.argv[1])["driver"](), file)
"""


@frozen
class DriverDevice:
    """A device as the driver shows it: its UUID and its place on the bus, None where the driver has none."""

    uuid: str | None = None
    bus: str | None = None


@frozen
class DriverAnswer:
    """The devices that the driver shows, in its order; its error code and message, None for none."""

    devices: tuple[DriverDevice, ...]
    code: int | None = None
    error: str | None = None


_ANSWER = Record(DriverAnswer)


class NoAnswerError(GputuiError):
    """The driver did not answer; the message says why."""


def ask_driver(probe: Path, environ: Environ, seconds: float, left_out: Sequence[str] = ()) -> DriverAnswer:
    """Return the answer of the script `probe` from a child with this environment, within `seconds`.

    The child cannot open the device files `left_out`. Raise NoAnswerError.
    """
    # Importing this takes milliseconds, and in most launches the driver has already been asked.
    from gputui.system.child_process import answers, read_answer, run

    # Isolated, so that no file in the working directory and no user's sitecustomize is loaded.
    words = (sys.executable, "-I", "-S", "-c", _ASK, str(probe))
    try:
        with answers() as folder:
            file = folder / "driver.json"
            ended = run((*words, str(file)), environ, None, seconds, left_out=left_out)
            return _ANSWER.read(read_answer(file))
    except DocumentError as error:
        raise NoAnswerError(ended.trouble or ended.last_line or str(error)) from None
    except OSError as error:
        raise NoAnswerError(str(error.strerror)) from None
