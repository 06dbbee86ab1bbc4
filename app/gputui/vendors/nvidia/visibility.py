"""CUDA_VISIBLE_DEVICES: which devices a program sees, and how it counts them.

Its rules: CUDA C++ Programming Guide, "CUDA Environment Variables"; odd values are read as torch's own parser
reads them (torch/cuda/__init__.py, `_parse_visible_devices`).
"""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.device import Device
from gputui.vendors.visibility import Visibility

UUID_PREFIXES = ("GPU-", "MIG-")
"""The prefixes of GPUs and of MIG instances ("MIG-GPU-…/1/0" of older drivers)."""


class CudaVisibility(Visibility):
    """CUDA_VISIBLE_DEVICES: indices or UUIDs, in the order in which a program counts them.

    CUDA counts the fastest device first (`device_order.py`) unless it is set to count by bus id, like NVML.
    """

    variable = "CUDA_VISIBLE_DEVICES"
    order = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    uuid_prefixes = UUID_PREFIXES
    begins_with = True
    also = ("NVIDIA_VISIBLE_DEVICES",)
    reader = "CUDA"

    def own_order(self, gpus: Sequence[Device]) -> tuple[Device | None, ...]:
        from gputui.vendors.nvidia.device_order import known_places

        return known_places(gpus)
