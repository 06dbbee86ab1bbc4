"""What a Python interpreter sees of the devices: run by the interpreter that will train, never by gputui.

    python probe.py FOLDER SECONDS NAME…

The answer is FOLDER/RANK.json: a file, because programs and sitecustomize write what they like to stdout.
NAME are environment variables whose values are told. Nothing is asked for that needs a CUDA context: the
driver is only counted, torch only asked for properties, so that no memory is taken from whoever is there.

This file must run on Python 3.8 and newer with nothing installed. torch is imported by its name as a text,
because nothing of gputui itself may import it.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
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
        "environment": {name: os.environ.get(name) for name in words[2:]},
    }
    # The framework first: it must meet the driver as it would in the training.
    answer["torch"] = _torch()
    answer["driver"] = _driver()
    rank = "".join(c for c in os.environ.get("LOCAL_RANK", "0") if c.isdigit()) or "0"
    whole, part = Path(folder, rank + ".json"), Path(folder, rank + ".part")
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(whole)


def _torch() -> dict[str, Any] | None:
    """What torch sees; None where there is none."""
    try:
        if importlib.util.find_spec("torch") is None:
            return None
        torch = importlib.import_module("torch")
        built = getattr(torch.version, "cuda", None), getattr(torch.version, "hip", None)
        told: dict[str, Any] = {
            "version": str(torch.__version__),
            "cuda": _text(built[0]),
            "hip": _text(built[1]),
            "error": None,
            "devices": [],
        }
    except BaseException as error:  # noqa: BLE001 - a broken torch is an answer, whatever it raises
        return {"version": None, "cuda": None, "hip": None, "error": _line(error), "devices": []}
    if not any(built):
        return told
    try:
        count = torch.cuda.device_count()
        if count or not torch.cuda.is_available():
            # Where it sees nothing, this is what says why.
            torch.cuda.init()
            count = torch.cuda.device_count()
        for place in range(count):
            told["devices"].append(_of_torch(torch.cuda.get_device_properties(place)))
    except BaseException as error:  # noqa: BLE001 - as above
        told["error"] = _line(error)
    return told


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


def _driver() -> dict[str, Any]:
    """What the CUDA driver itself gives to any program of this environment."""
    told: dict[str, Any] = {"error": None, "code": None, "version": None, "devices": []}
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        told["error"] = _line(error)
        return told
    try:
        version = ctypes.c_int()
        if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
            told["version"] = version.value
        count = ctypes.c_int()
        code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
        if code:
            told["code"] = code
            return told
        for place in range(count.value):
            told["devices"].append(_of_driver(cuda, place))
    except (AttributeError, ValueError, OSError) as error:
        told["error"] = _line(error)
    return told


def _of_driver(cuda: Any, place: int) -> dict[str, Any]:
    device = ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), place):
        return {"uuid": None, "bus": None, "name": None, "memory": None}
    bus, name = ctypes.create_string_buffer(64), ctypes.create_string_buffer(256)
    memory = ctypes.c_size_t()
    has_bus = cuda.cuDeviceGetPCIBusId(bus, len(bus), device) == 0
    has_name = cuda.cuDeviceGetName(name, len(name), device) == 0
    has_memory = cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device) == 0
    return {
        "uuid": _uuid(cuda, device),
        "bus": bus.value.decode("ascii", "replace") if has_bus else None,
        "name": name.value.decode("utf-8", "replace") if has_name else None,
        "memory": memory.value if has_memory else None,
    }


def _uuid(cuda: Any, device: Any) -> str | None:
    """A MIG instance's own UUID by version 2 of the function (CUDA 11.4), else the GPU's."""
    found = (ctypes.c_ubyte * 16)()
    for name in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
        if hasattr(cuda, name) and getattr(cuda, name)(ctypes.byref(found), device) == 0:
            digits = bytes(found).hex()
            parts = [digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]
            return "-".join(parts)
    return None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (type(error).__name__ + ": " + lines[0])[:500] if lines else type(error).__name__


if __name__ == "__main__":
    main()
