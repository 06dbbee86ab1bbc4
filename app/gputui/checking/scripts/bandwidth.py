"""Measures what the devices of an interpreter exchange: starts the copies, and then an all-reduce.

    python bandwidth.py FOLDER SPEC

SPEC is JSON: {"backend" of torch.distributed, "device_type" of torch, "devices": [their numbers in torch…],
"ranks", "max_memory", "seconds"}.
The answers are FOLDER/copies.json and FOLDER/all_reduce.json, what went wrong FOLDER/ROLE.error. This process
imports no torch; each part has processes of its own, so that the memory of one is given back before the next
begins.

This file must run on Python 3.8 and newer. See probe.py for how it meets torch.
"""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_COPYING = 0.6
"""The share of the time that copies may take; there are n × (n - 1) of them, and one all-reduce."""


def main() -> None:
    folder, spec = sys.argv[1], json.loads(sys.argv[2])
    signal.alarm(int(spec["seconds"]) + 5)
    deadline = time.monotonic() + spec["seconds"]
    if len(spec["devices"]) > 1:
        # The copies stop by themselves in time; this is for one that never ends.
        _run(folder, spec, ["copies"], min(deadline, time.monotonic() + spec["seconds"] * _COPYING + 5))
    if spec["ranks"] > 1:
        spec["left"] = max(1.0, deadline - time.monotonic())
        _run(folder, spec, [f"all_reduce-{rank}" for rank in range(spec["ranks"])], deadline)


def _run(folder: str, spec: dict[str, Any], roles: list[str], deadline: float) -> None:
    """A process a role, until all have ended, or one has failed, or it is too late."""
    children = {role: _start(folder, spec, role) for role in roles}
    failed = ""
    while not failed and any(child.poll() is None for child in children.values()):
        if time.monotonic() > deadline:
            _tell(folder, roles[0], "the time was up")
            break
        time.sleep(0.02)
        failed = next((role for role, child in children.items() if child.poll()), "")
    if failed:
        status = children[failed].returncode
        _tell(folder, failed, f"ended with {status}" if status > 0 else f"ended by signal {-status}")
    for child in children.values():
        if child.poll() is None:
            child.kill()
        child.wait()


def _start(folder: str, spec: dict[str, Any], role: str) -> subprocess.Popen[bytes]:
    script = _HERE / (role.partition("-")[0] + ".py")
    # The interpreter's own options go on: they decide what can be imported.
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    words = [sys.executable, *flags, str(script), folder, role, json.dumps(spec)]
    return subprocess.Popen(words, preexec_fn=_end_with_parent)


def _end_with_parent() -> None:
    """Linux: a worker whose parent is killed must not go on using a device."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (OSError, AttributeError):
        return


def _tell(folder: str, role: str, trouble: str) -> None:
    """What is known of a failure, unless the process itself has said more."""
    path = Path(folder, role + ".error")
    if not path.exists():
        path.write_text(trouble, encoding="utf-8")


if __name__ == "__main__":
    main()
