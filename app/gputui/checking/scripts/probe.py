"""What a Python interpreter sees of the devices: run by the interpreter that will train, never by gputui.

    python probe.py FOLDER SECONDS TYPE DRIVER NAME…

The answer is FOLDER/RANK.json: a file, because programs and sitecustomize write what they like to stdout.
TYPE is the devices' type in torch, DRIVER the vendor's script that asks its driver ("-" for none). NAME are
environment variables whose values are answered. torch is only asked for properties, which needs no context
on a device, so that no memory is taken from whoever is there.

This file must run on Python 3.8 and newer with nothing installed. torch is imported by its name as a text,
because nothing of gputui itself may import it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent


def main() -> None:
    # deepspeed's launcher puts an argument of its own first.
    words = [word for word in sys.argv[1:] if not word.startswith("--local_rank")]
    folder, seconds = words[0], int(words[1])
    if hasattr(signal, "alarm"):
        # gputui ends us in time; this is for when it has been killed itself.
        signal.alarm(seconds + 5)
    # What lies beside this file must not be found in place of the user's modules.
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != _HERE]
    answer: dict[str, Any] = {
        "python": sys.version.split()[0],
        "executable": sys.executable or None,
        "environment": {name: os.environ.get(name) for name in words[4:]},
    }
    # The framework first: it must meet the driver as it would in the training.
    answer["torch"] = _torch(words[2])
    answer["driver"] = _driver(words[3])
    rank = "".join(c for c in os.environ.get("LOCAL_RANK", "0") if c.isdigit()) or "0"
    whole, part = Path(folder, rank + ".json"), Path(folder, rank + ".part")
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(whole)


def _torch(device_type: str) -> dict[str, Any] | None:
    """What torch sees; None where there is none."""
    try:
        if importlib.util.find_spec("torch") is None:
            return None
        torch = importlib.import_module("torch")
        built = getattr(torch.version, "cuda", None), getattr(torch.version, "hip", None)
        found: dict[str, Any] = {
            "version": str(torch.__version__),
            "cuda": _text(built[0]),
            "hip": _text(built[1]),
            "built": False,
            "error": None,
            "devices": [],
        }
    except BaseException as error:  # noqa: BLE001 - a broken torch is an answer, whatever it raises
        return {
            "version": None,
            "cuda": None,
            "hip": None,
            "built": False,
            "error": _line(error),
            "devices": [],
        }
    # (A build for ROCm has its devices in the module of the name "cuda".)
    found["built"] = any(built) if device_type == "cuda" else hasattr(torch, device_type)
    if not found["built"]:
        return found
    try:
        module = getattr(torch, device_type)
        count = module.device_count()
        if count or not module.is_available():
            # Where it sees nothing, this is what says why.
            if hasattr(module, "init"):
                module.init()
            count = module.device_count()
        for place in range(count):
            found["devices"].append(_of_torch(module.get_device_properties(place)))
    except BaseException as error:  # noqa: BLE001 - as above
        found["error"] = _line(error)
    return found


def _of_torch(properties: Any) -> dict[str, Any]:
    """One device; the UUID since torch 2.5, the bus id in newer ones still."""
    bus: list[Any] = [
        getattr(properties, "pci_" + each + "_id", None) for each in ("domain", "bus", "device")
    ]
    uuid = getattr(properties, "uuid", None)
    return {
        "uuid": None if uuid is None else str(uuid),
        "bus": None if None in bus else "{:08X}:{:02X}:{:02X}.0".format(*bus),
        "name": _text(getattr(properties, "name", None)),
        "memory": getattr(properties, "total_memory", None),
    }


def _driver(script: str) -> dict[str, Any] | None:
    """What the vendor's driver itself gives, by the vendor's own script; None where it has none."""
    if script == "-":
        return None
    try:
        return dict(runpy.run_path(script)["driver"]())
    except BaseException as error:  # noqa: BLE001 - a driver that fails is an answer, whatever it raises
        return {"error": _line(error), "code": None, "version": None, "devices": []}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (type(error).__name__ + ": " + lines[0])[:500] if lines else type(error).__name__


if __name__ == "__main__":
    main()
