"""Intel Gaudi behind the vendor port: its source, its wording, and how containers are given the devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputui.inventory.device import Device, aligned
from gputui.system.environment import Environ
from gputui.vendors.gaudi.visibility import ModuleVisibility
from gputui.vendors.vendor import RARELY_TOLD, Containers, Vendor
from gputui.vendors.visibility import Changes, Visibility

if TYPE_CHECKING:
    from gputui.sources.source import Source
    from gputui.system.root import Root


class GaudiContainers(Containers):
    """Habana's container runtime, which takes hl-smi's indices; programs inside still name modules."""

    by_uuid = False

    def docker(self, devices: Sequence[Device]) -> list[str]:
        numbers = ",".join(str(device.index) for device in devices)
        given = ["--runtime=habana", "-e", f"HABANA_VISIBLE_DEVICES={numbers}"]
        return [*given, "--cap-add=sys_nice", "--net=host", "--ipc=host"]

    podman = docker

    def gives_devices(self, option: str, value: str) -> bool:
        return option == "runtime" and value == "habana"

    def changes(self, devices: Sequence[Device], visibility: Visibility, by_number: bool = False) -> Changes:
        return visibility.changes(devices)


class Gaudi(Vendor):
    """Gaudi 1 to 3, read from hl-smi and the driver habanalabs."""

    name = "gaudi"
    title = "Gaudi"
    runtime = "the Gaudi software"
    device_type = "hpu"
    visibility = ModuleVisibility()
    containers = GaudiContainers()
    kernel_module = "habanalabs"
    kubernetes = "habana.ai/gaudi"
    environment_hints = (
        ("PT_HPU_LAZY_MODE", "0", "eager mode with torch.compile"),
        ("HABANA_LOGS", "/tmp/habana_logs", "where the driver's logs go"),
    )
    remedies = {
        "held": "`sudo fuser -v /dev/accel/accel*`",
        "memory": "only hl-smi reports it, which must be on PATH and answer",
        "reset": "`sudo hl-smi -r -i {bus}` resets it",
    }
    gres = "hpu"
    facts = {"SM": "GPU", **dict.fromkeys(RARELY_TOLD, "")}
    """Facts that hl-smi is not asked for; they are shown only if they are known."""
    backend = "hccl"
    driver = "the Gaudi driver"
    torch_build = "install Intel Gaudi's build of it, which must match the driver: https://docs.habana.ai"

    def source(self, root: Root) -> Source:
        from gputui.vendors.gaudi.source import GaudiSource

        return GaudiSource(root)

    def refused(self, devices: Sequence[Device]) -> str | None:
        if len(devices) < 2 or aligned(devices):
            return None
        modules = ",".join(str(device.module) for device in devices)
        return (
            f"modules {modules} cannot work together: Gaudi takes 2, 4 or 8 of an aligned group"
            " (0,1 or 2,3 …; 0-3 or 4-7; all)"
        )

    def launch_warnings(self, devices: Sequence[Device], environ: Environ, by_index: bool) -> tuple[str, ...]:
        if any(device.module is None for device in devices):
            return ("the module ids are not known; hl-smi's indices are used instead, which may differ",)
        return ()

    def nodes(self, device: Device, root: Root) -> tuple[str, ...]:
        number = (device.render or "").removeprefix("accel")
        found = (f"/dev/accel/accel{number}", f"/dev/accel/accel_controlD{number}")
        return found if number and all(map(root.has, found)) else ()

    def untold(self, device: Device) -> str:
        return "gputui does not ask hl-smi for clocks, links and errors; only root sees processes of others"


VENDOR = Gaudi()
