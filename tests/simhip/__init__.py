"""A simulated HIP for the tests: a libamdhip64.so that shows the devices of a snapshot to a program.

It lists the devices that a program sees under HIP_VISIBLE_DEVICES, and does nothing else. It is written from
HIP's documentation and source, not from its behaviour on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gputui.inventory.device import Device
from simcuda.building import built

LIBRARY = "libamdhip64.so"


def build() -> Path:
    return built(Path(__file__).parent / "native" / "simhip.c", LIBRARY)


def environment(
    base: Mapping[str, str], folder: Path, devices: Iterable[Device], init: int = 0
) -> dict[str, str]:
    """`base` with the variables that lead a program to a simulated HIP with these devices; `init` is the
    result of hipInit."""
    box = folder / "simhip"
    lines = (
        f"{uuid_bytes(d) or '-'} {(d.pci_bus_id or '')[4:].lower()} {d.memory_total} {d.name}\n"
        for d in devices
    )
    box.write_text("".join(lines))
    places = {"LD_LIBRARY_PATH": str(build().parent), "SIMHIP_BOX": str(box), "SIMHIP_INIT": str(init)}
    return {**base, **places}


def uuid_bytes(device: Device) -> str:
    """The sixteen bytes of HIP's UUID, as hex digits: the text of the sixteen digits of a unique id."""
    return device.uuid.removeprefix("GPU-").encode().hex()
