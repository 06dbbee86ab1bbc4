"""Why CUDA does not start, in words, and the remedies. CUresult: the driver's API, `cuda.h`."""

from __future__ import annotations

_CODES: dict[int, tuple[str, str]] = {
    2: ("OUT_OF_MEMORY", "the driver has no memory left to start with"),
    34: ("STUB_LIBRARY", "a stub of libcuda stands before the driver's own in LD_LIBRARY_PATH"),
    36: ("CALL_REQUIRES_NEWER_DRIVER", "the driver is too old; update it"),
    46: ("DEVICE_UNAVAILABLE", "another process has it for itself (exclusive mode)"),
    100: ("NO_DEVICE", "nothing in CUDA_VISIBLE_DEVICES is there, or this container was given no GPU"),
    304: ("OPERATING_SYSTEM", "may /dev/nvidia* and /dev/nvidia-uvm be opened? (nvidia-modprobe -u)"),
    802: ("SYSTEM_NOT_READY", "behind NVSwitches the fabric manager must run (nvidia-fabricmanager)"),
    803: ("SYSTEM_DRIVER_MISMATCH", "libcuda and the kernel module are of different versions; reboot"),
    804: (
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "cuda-compat is for data centre GPUs; remove it from the library path",
    ),
    999: ("UNKNOWN", "after a suspend or an update: reload nvidia_uvm, or reboot"),
}
"""By CUresult: the name without CUDA_ERROR_, and the remedy."""


def of_code(code: int) -> str:
    """Return the sentence for a CUresult: its name and the remedy."""
    if code not in _CODES:
        return f"CUDA does not start, CUresult {code}; see `dmesg`"
    name, remedy = _CODES[code]
    return f"CUDA does not start, CUDA_ERROR_{name} ({code}): {remedy}"


def of_library(error: str) -> str:
    """Return why libcuda cannot be loaded, and the remedy; `error` is the dynamic linker's message."""
    missing = "libcuda.so.1" in error
    remedy = "is the driver installed (nvidia-smi), and mounted into this container?" if missing else ""
    return f"no CUDA driver: {error}{remedy and '; ' + remedy}"
