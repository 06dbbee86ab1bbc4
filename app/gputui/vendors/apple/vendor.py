"""Apple behind the vendor port: one device, no variable that hides it, no containers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputui.inventory.device import Device
from gputui.system.environment import Environ
from gputui.vendors.vendor import RARELY_TOLD, Vendor
from gputui.vendors.visibility import Visibility

if TYPE_CHECKING:
    from gputui.sources.source import Source
    from gputui.system.root import Root


class Apple(Vendor):
    """The GPU of a Mac with Apple silicon, read from ioreg."""

    name = "apple"
    title = "Apple"
    runtime = "Metal"
    device_type = "mps"
    visibility = Visibility()
    environment_hints = (
        ("PYTORCH_ENABLE_MPS_FALLBACK", "1", "what Metal cannot do runs on the CPU; slow"),
        ("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "0.0", "no limit of memory: may slow or stop the whole machine"),
    )
    facts = dict.fromkeys((*RARELY_TOLD, "SM", "power", "temperature"), "")
    """Facts that ioreg does not report."""
    backend = "gloo"
    driver = "Metal"
    torch_build = "install torch for macOS on Apple silicon: https://pytorch.org/get-started/locally"
    other_builds = {
        "tensorflow": "install Apple's plugin: pip install tensorflow-metal",
        "jax": "install Apple's plugin: pip install jax-metal",
    }

    def source(self, root: Root) -> Source:
        from gputui.vendors.apple.source import AppleSource

        return AppleSource(root)

    def launch_warnings(self, devices: Sequence[Device], environ: Environ, by_index: bool) -> tuple[str, ...]:
        if devices:
            return ()
        return ("no variable hides the GPU of a Mac: the program itself must be told to use the CPU",)

    def untold(self, device: Device) -> str:
        return "power, temperature and clocks need root rights (`sudo powermetrics`)"

    def device(self, number: int) -> str:
        return self.device_type


VENDOR = Apple()
