"""A simulated Level Zero for the tests: a libze_loader.so.1 that shows the devices of a snapshot to a
program.

It lists the devices that a program sees, and does nothing else; ZE_AFFINITY_MASK is not read. It is written
from ze_api.h, not from its behaviour on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gputui.inventory.device import Device
from simcuda.building import built

LIBRARY = "libze_loader.so.1"


def build() -> Path:
    return built(Path(__file__).parent / "native" / "simze.c", LIBRARY)


def environment(
    base: Mapping[str, str], folder: Path, devices: Iterable[Device], init: int = 0
) -> dict[str, str]:
    """`base` with the variables that lead a program to a simulated Level Zero with these devices; `init` is
    the result of zeInit."""
    box = folder / "simze"
    box.write_text("".join(f"{(d.pci_bus_id or '')[4:].lower()} {d.name}\n" for d in devices))
    places = {"LD_LIBRARY_PATH": str(build().parent), "SIMZE_BOX": str(box), "SIMZE_INIT": str(init)}
    return {**base, **places}
