"""Why CUDA does not start, in words, and the remedies. CUresult: the driver's API, `cuda.h`."""

from __future__ import annotations

_CODES: dict[int, tuple[str, str]] = {
    2: ("OUT_OF_MEMORY", "the driver has too little memory to start"),
    34: (
        "STUB_LIBRARY",
        "a stub of libcuda comes before the driver's own in LD_LIBRARY_PATH; remove its folder there",
    ),
    36: ("CALL_REQUIRES_NEWER_DRIVER", "the driver is too old; update it"),
    46: ("DEVICE_UNAVAILABLE", "another process has exclusive use of the device (compute mode)"),
    100: ("NO_DEVICE", "CUDA_VISIBLE_DEVICES names no GPU of this machine, or this container was given none"),
    304: (
        "OPERATING_SYSTEM",
        "check that /dev/nvidia* and /dev/nvidia-uvm can be opened (nvidia-modprobe -u)",
    ),
    802: ("SYSTEM_NOT_READY", "on a box with NVSwitches, start the fabric manager (nvidia-fabricmanager)"),
    803: ("SYSTEM_DRIVER_MISMATCH", "libcuda and the kernel module are of different versions; reboot"),
    804: (
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "cuda-compat is for data centre GPUs; remove it from the library path",
    ),
    999: ("UNKNOWN", "after a suspend or an update: reload nvidia_uvm, or reboot"),
}
"""The name without CUDA_ERROR_, and the remedy, by CUresult."""


def of_code(code: int) -> str:
    """Return the sentence for a CUresult: its name and the remedy."""
    if code not in _CODES:
        return f"CUDA does not start, CUresult {code}; see `dmesg`"
    name, remedy = _CODES[code]
    return f"CUDA does not start, CUDA_ERROR_{name} ({code}): {remedy}"


def of_library(error: str) -> str:
    """Return why libcuda cannot be loaded, and the remedy; `error` is the dynamic linker's message."""
    missing = "libcuda.so.1" in error
    remedy = "install the driver (nvidia-smi shows it), or mount it into this container" if missing else ""
    return f"no CUDA driver: {error}{remedy and '; ' + remedy}"
