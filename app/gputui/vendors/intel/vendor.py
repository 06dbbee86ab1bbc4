"""Intel's GPUs behind the vendor port: their source, their wording, and how containers are given them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputui.inventory.device import Device
from gputui.system.environment import Environ
from gputui.vendors.intel.visibility import LevelZeroVisibility
from gputui.vendors.render_nodes import RenderNodes
from gputui.vendors.vendor import RARELY_TOLD, Vendor
from gputui.vendors.visibility import Changes, Visibility

if TYPE_CHECKING:
    from gputui.sources.source import Source
    from gputui.system.root import Root

_OF_THE_BUS = "([0-9a-f]{2})0{8}(0[0-7])([01][0-9a-f])([0-9a-f]{2})([0-9a-f]{4})[0-9a-f]{8}8086"
"""The tile, zeros, the function, the device, the bus and the domain; then revision, model and vendor."""


class IntelContainers(RenderNodes):
    """The render nodes themselves; all of them where tiles are named, whose numbers count all cards."""

    def by_node(self, devices: Sequence[Device]) -> bool:
        return all(device.render and device.partition is None for device in devices)

    def changes(self, devices: Sequence[Device], visibility: Visibility, by_number: bool = False) -> Changes:
        """Return no list for a container with its own devices only: it counts in bus order
        whatever a list says."""
        return () if devices and self.by_node(devices) else visibility.changes(devices)


class Intel(Vendor):
    """Intel's GPUs and their tiles, read from xe and i915."""

    name = "intel"
    title = "Intel"
    runtime = "Level Zero"
    device_type = "xpu"
    visibility = LevelZeroVisibility()
    containers = IntelContainers()
    kubernetes = "gpu.intel.com/xe"
    environment_hints = (
        ("CCL_LOG_LEVEL", "info", "oneCCL logs what it does"),
        ("ZE_ENABLE_PCI_ID_DEVICE_ORDER", "0", "counts discrete GPUs first, as gputui does"),
    )
    remedies = {
        "held": "`sudo fuser -v /dev/dri/render*`",
        "memory": "the kernel reports it only to root and to programs with CAP_PERFMON: `sudo gputui`",
    }
    facts = {"SM": "GPU", **dict.fromkeys(RARELY_TOLD, "")}
    """Facts that no file of xe and i915 has; they are shown only if they are known."""
    backend = "xccl"
    driver = "Level Zero"
    torch_build = "install a build for XPU: https://pytorch.org/get-started/locally"
    other_builds = {"jax": "install Intel's build: pip install intel-extension-for-openxla"}

    def source(self, root: Root) -> Source:
        from gputui.vendors.intel.source import IntelSource

        return IntelSource(root)

    def launch_warnings(self, devices: Sequence[Device], environ: Environ, by_index: bool) -> tuple[str, ...]:
        if any(device.apart == "integrated" for device in devices):
            return ("an integrated GPU has the host's memory, and many programs for XPU do not support it",)
        return ()

    def bare_uuid(self, uuid: str) -> str:
        """Return the UUID in xpu-smi's form.

        A program gets the same sixteen bytes in reverse order (Level Zero, in memory order), the vendor's
        first.
        """
        digits = super().bare_uuid(uuid).replace("-", "")
        if re.fullmatch("8680[0-9a-f]{28}", digits):
            digits = bytes.fromhex(digits)[::-1].hex()
        return digits

    def place_of(self, uuid: str) -> tuple[str, int | None] | None:
        """Return the place that a UUID without a serial number encodes.

        It is made of the vendor, model, revision, place on the bus and tile, counted from 1 (compute-runtime,
        `generateUuidFromPciBusInfo`); an old driver leaves the place out.
        """
        found = re.fullmatch(_OF_THE_BUS, self.bare_uuid(uuid))
        if found is None:
            return None
        tile, function, device, bus, domain = (int(digits, 16) for digits in found.groups())
        if not (bus or device or domain):
            return None
        return f"{domain:08X}:{bus:02X}:{device:02X}.{function}", tile - 1 if tile else None

    def untold(self, device: Device) -> str:
        return "the driver does not report errors or traffic, and memory in use only to root (CAP_PERFMON)"


VENDOR = Intel()
