"""Packages that call themselves torch, with devices that are not CUDA's: torch.xpu, torch.hpu and torch.mps,
and torch.cuda as a build for ROCm has it.

They have what the real modules have and no more: torch.xpu reports UUIDs in newer versions, and no bus id;
torch.hpu comes with `habana_frameworks.torch`; torch.mps has no properties, and every build has it. They
prove how gputui handles such answers, and nothing about the runtimes. FAKE_BACKEND is JSON: {"type": "xpu",
"variable": the list that is obeyed, "sorted": whether its order is lost, "first": a device that is counted
first whatever it says, "devices": [{"uuid", "bus", "name", "memory"}], "built": false for a build without the
backend}.
"""

from __future__ import annotations

from pathlib import Path

TORCH = """
import json, os, types

_told = json.loads(os.environ["FAKE_BACKEND"])
_type = _told["type"]
__version__ = "2.9.0"


class version:
    cuda, hip = None, ("6.4.43482" if _type == "cuda" and _told["built"] else None)


def _seen():
    listed = os.environ.get(_told["variable"]) if _told["variable"] else None
    every = range(len(_told["devices"]))
    if not listed:
        places = list(every)
    else:
        places = [int(entry) for entry in listed.split(",") if entry.isdigit()]
    places = sorted(places) if _told["sorted"] else places
    if _told["first"] in places:
        places = [_told["first"], *(place for place in places if place != _told["first"])]
    return [_told["devices"][place] for place in places if place in every]


class _Properties:
    def __init__(self, told):
        self.name, self.total_memory = told["name"], told["memory"]
        if told["uuid"]:
            self.uuid = told["uuid"]
        if told["bus"]:
            self.pci_domain_id, self.pci_bus_id, self.pci_device_id = told["bus"]


def _backend():
    module = types.SimpleNamespace(device_count=lambda: len(_seen()))
    if _type != "mps":
        module.is_available = lambda: bool(_seen())
    if _type in ("cuda", "xpu"):
        module.init = lambda: None
    if _type == "xpu":
        # (Every build has torch.xpu, which says whether it is more than a name: torch/xpu/__init__.py.)
        module._is_compiled = lambda: _told["built"]
    if _type == "hpu":
        # (It would take the device.)
        module.get_device_properties = lambda place: os._exit(9)
    elif _type != "mps":
        module.get_device_properties = lambda place: _Properties(_seen()[place])
    return module


if _type != "hpu" and (_told["built"] or _type in ("cuda", "mps", "xpu")):
    globals()[_type] = _backend()


class backends:
    class mps:
        is_built = staticmethod(lambda: _type == "mps" and _told["built"])
        is_available = staticmethod(lambda: _type == "mps" and _told["built"])
"""

HABANA = """
import torch
torch.hpu = torch._backend()
"""


def install(folder: Path, habana: bool = False) -> Path:
    """Write the packages to a folder for PYTHONPATH, and return the folder."""
    home = folder / "backend"
    (home / "torch").mkdir(parents=True)
    (home / "torch" / "__init__.py").write_text(TORCH)
    if habana:
        (home / "habana_frameworks" / "torch").mkdir(parents=True)
        (home / "habana_frameworks" / "__init__.py").touch()
        (home / "habana_frameworks" / "torch" / "__init__.py").write_text(HABANA)
    return home
