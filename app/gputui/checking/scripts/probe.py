"""The devices that a Python interpreter sees: run by the interpreter that will train, never by gputui.

    python probe.py FOLDER SECONDS TYPE DRIVER FRAMEWORK NAME…

The answer is FOLDER/RANK.json: a file, because programs and sitecustomize may write anything to stdout. TYPE
is the devices' type in torch, DRIVER the vendor's script that queries its driver ("-" for none), FRAMEWORK
torch, tensorflow or jax. NAME are environment variables whose values are part of the answer. torch and
tensorflow are only asked for properties, which needs no context on a device, so that no memory is taken from
programs there; jax counts devices by opening them, so it is told to take no further memory.

This file must run on Python 3.8 and newer with nothing installed. Frameworks are imported by a name in a
string, because nothing of gputui itself may import one.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pkgutil
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent


def main() -> None:
    # deepspeed's launcher adds an argument of its own in front.
    words = [word for word in sys.argv[1:] if not word.startswith("--local_rank")]
    folder, seconds = words[0], int(words[1])
    if hasattr(signal, "alarm"):
        # gputui ends this process in time; the alarm is for when gputui itself has been killed.
        signal.alarm(seconds + 5)
    # Files beside this one must not be imported in place of the user's modules.
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != _HERE]
    answer: dict[str, Any] = {
        "python": sys.version.split()[0],
        "executable": sys.executable or None,
        "environment": {name: os.environ.get(name) for name in words[5:]},
    }
    # The framework comes first: it must find the driver as it would in the training.
    answer["asked"] = words[4]
    answer["framework"] = _framework(words[4], words[2])
    answer["driver"] = _driver(words[3])
    rank = "".join(c for c in os.environ.get("LOCAL_RANK", "0") if c.isdigit()) or "0"
    whole, part = Path(folder, rank + ".json"), Path(folder, rank + ".part")
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(whole)


def _framework(name: str, device_type: str) -> dict[str, Any] | None:
    """Return what the framework sees; None where there is no framework."""
    found: dict[str, Any] = {
        "version": None,
        "cuda": None,
        "hip": None,
        "built": False,
        "error": None,
        "devices": [],
    }
    try:
        if importlib.util.find_spec(name) is None:
            return None
        if name == "jax":
            # (After the answer on the environment. Otherwise jax would take three quarters of each device.)
            os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        module = importlib.import_module(name)
        version = str(module.__version__)
        _SEES[name](module, device_type, found)
    except BaseException as error:  # noqa: BLE001 - a broken framework is an answer, whatever it raises
        found["error"] = _line(error)
        version = None
    found["version"] = version
    return found


def _torch(torch: Any, device_type: str, found: dict[str, Any]) -> None:
    """Add the devices to `found`, with UUID, bus id, name and memory."""
    found["cuda"] = _text(getattr(torch.version, "cuda", None))
    found["hip"] = _text(getattr(torch.version, "hip", None))
    # (A build for ROCm has its devices in the module named "cuda".)
    built = found["cuda"] or found["hip"]
    if device_type == "hpu":
        _bring_hpu()
    found["built"] = bool(built) if device_type == "cuda" else hasattr(torch, device_type)
    backend: Any = getattr(getattr(torch, "backends", None), device_type, None)
    if device_type != "cuda" and hasattr(backend, "is_built"):
        # (Every build has the module "mps".)
        found["built"] = bool(backend.is_built())
    compiled: Any = getattr(getattr(torch, device_type, None), "_is_compiled", None)
    if device_type != "cuda" and callable(compiled):
        # (And "xpu".)
        found["built"] = bool(compiled())
    if not found["built"]:
        return
    try:
        module = getattr(torch, device_type)
        count = module.device_count()
        available: Any = getattr(module, "is_available", None) or backend.is_available
        if count or not available():
            # If the framework sees nothing, this gives the reason.
            if hasattr(module, "init"):
                module.init()
            count = module.device_count()
        # ("mps" has no properties. Those of "hpu" have neither UUID nor bus id, and to ask for them takes the
        # device, which serves one process at a time.)
        told = None if device_type == "hpu" else getattr(module, "get_device_properties", None)
        for place in range(count):
            found["devices"].append(_of_torch(told(place)) if told else _named(None))
    except BaseException as error:  # noqa: BLE001 - as above
        found["error"] = _line(error)


def _bring_hpu() -> None:
    """Import Habana's package, if it is installed: it adds torch.hpu."""
    if importlib.util.find_spec("habana_frameworks") is not None:
        importlib.import_module("habana_frameworks.torch")


def _tensorflow(tensorflow: Any, device_type: str, found: dict[str, Any]) -> None:
    """Add the devices to `found`, by name. (`device_lib` has more, but opens them and takes their memory.)"""
    build = dict(tensorflow.sysconfig.get_build_info())
    found["cuda"], found["hip"] = _text(build.get("cuda_version")), _text(build.get("rocm_version"))
    found["built"] = bool(build.get("is_cuda_build") or build.get("is_rocm_build"))
    try:
        kind = "GPU" if device_type == "cuda" else device_type.upper()
        devices = tensorflow.config.list_physical_devices(kind)
        found["built"] = found["built"] or bool(devices)
        for device in devices:
            details = tensorflow.config.experimental.get_device_details(device)
            found["devices"].append(_named(details.get("device_name")))
    except BaseException as error:  # noqa: BLE001 - as above
        found["error"] = _line(error)


def _jax(jax: Any, device_type: str, found: dict[str, Any]) -> None:
    """Add the devices to `found`, by name. Without a plugin for them (`jax_plugins.xla_cuda12`), jax is a
    build for the CPU."""
    plugins = importlib.util.find_spec("jax_plugins")
    places = list(plugins.submodule_search_locations or ()) if plugins else []
    found["built"] = any(pkgutil.iter_modules(places))
    try:
        # (The devices of this process: there may be other machines.)
        devices = jax.local_devices(backend="gpu" if device_type == "cuda" else device_type)
        found["built"] = found["built"] or bool(devices)
        found["devices"] = [_named(getattr(device, "device_kind", None)) for device in devices]
    except BaseException as error:  # noqa: BLE001 - as above
        found["error"] = _line(error)


_SEES = {"torch": _torch, "tensorflow": _tensorflow, "jax": _jax}


def _named(name: Any) -> dict[str, Any]:
    return {"uuid": None, "bus": None, "name": _text(name), "memory": None}


def _of_torch(properties: Any) -> dict[str, Any]:
    """Return one device; the UUID exists since torch 2.5, the bus id in even newer versions."""
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
    """Return what the vendor's driver itself reports, by the vendor's own script; None where there is
    none."""
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
