"""Asks a vendor's driver which devices it shows to a program, in a process of its own: never in ours.

The driver starts there, and no context is made on a device (`Vendor.driver_probe`).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputui.system.landlock import LandlockError, in_confined_thread

if TYPE_CHECKING:
    import subprocess

_ASK = "import json, runpy, sys; json.dump(runpy.run_path(sys.argv[1])['driver'](), sys.stdout)"
_MOST = 2**20
"""Characters of an answer."""


def ask_driver(
    probe: Path, environ: Mapping[str, str], seconds: float, left_out: Sequence[str] = ()
) -> dict[str, Any] | None:
    """What the script `probe` answers in a child with this environment; None where it does not in `seconds`.

    `left_out` are device files that the child cannot open. Raises LandlockError where it cannot be confined.
    """
    # (Milliseconds to import, and a launch mostly finds that the driver has been asked.)
    import json
    import subprocess

    if not sys.executable:
        return None

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            # (Isolated: no file in the working directory, and nobody's sitecustomize, is loaded.)
            [sys.executable, "-I", "-S", "-c", _ASK, str(probe)],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    try:
        child = in_confined_thread(left_out, start) if left_out else start()
    except LandlockError:
        raise
    except OSError:
        return None
    with child.stdout or contextlib.nullcontext():
        try:
            answer, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                # One that hangs in the kernel is not waited for.
                child.wait(1.0)
            return None
    try:
        found: Any = json.loads(answer[:_MOST])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def uuids_of(answer: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """The UUIDs of the devices in an answer, in the driver's order; None for anything but distinct ones."""
    try:
        found = [device["uuid"] for device in (answer or {})["devices"]]
    except (TypeError, KeyError):
        return None
    good = all(isinstance(uuid, str) for uuid in found) and len(set(found)) == len(found)
    return tuple(found) if good else None
