"""The bandwidth between two CPU sockets, by the model of the host's processors."""

from __future__ import annotations

from gputui.system.root import Root, pairs

_AMD, _INTEL_SAPPHIRE, _INTEL_SKYLAKE, _INTEL_BROADWELL, _POWER9 = 16.0, 22.0, 10.0, 6.0, 32.0
"""GB/s one way, NCCL's model (graph/topo.h)."""

_SKYLAKE_MODEL, _SAPPHIRE_MODEL = 85, 143
"""The first server model of each generation in Intel's family 6."""


def between_cpus(root: Root) -> float | None:
    """Return GB/s one way between two sockets, as NCCL models it; None for processors without a model."""
    # The first processor is enough; a large box has hundreds.
    facts = pairs((root.text("/proc/cpuinfo", 4096) or "").partition("\n\n")[0])
    vendor, model = facts.get("vendor_id", ""), facts.get("model", "")
    if vendor == "AuthenticAMD":
        return _AMD
    if vendor == "GenuineIntel" and facts.get("cpu family") == "6" and model.isdecimal():
        number = int(model)
        return (
            _INTEL_SAPPHIRE
            if number >= _SAPPHIRE_MODEL
            else _INTEL_SKYLAKE
            if number >= _SKYLAKE_MODEL
            else _INTEL_BROADWELL
        )
    return _POWER9 if facts.get("cpu", "").startswith("POWER9") else None
