"""A snapshot as OpenMetrics text, with the names and labels of NVIDIA's dcgm-exporter. Pure.

The text is also valid in the older format of Prometheus (0.0.4), which node_exporter's textfile collector
reads: every type is a gauge or is left out, and no sample has a timestamp. Unknown values are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

from gputui import __version__
from gputui.choosing.verdict import State, Verdicts
from gputui.inventory.device import Device
from gputui.inventory.formatting import MIB, printable
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.telemetry import Telemetry

_PROFILE = re.compile(r"MIG (?P<profile>[0-9][0-9a-z.+]*)$")
_BLANK = Telemetry()

Labels = tuple[tuple[str, str], ...]


class _Metric(NamedTuple):
    """A metric of a device: `fact`, a field of `Telemetry` or else of `Device`, times `factor`. `counts`: it
    counts since the driver was loaded. Such a metric has no type, as the name of a counter must end with
    "_total" in OpenMetrics, and DCGM's name does not."""

    name: str
    about: str
    fact: str
    factor: float = 1.0
    counts: bool = False

    def value(self, device: Device) -> float | None:
        telemetry = device.telemetry or _BLANK
        found = getattr(telemetry if hasattr(telemetry, self.fact) else device, self.fact)
        return None if found is None else found * self.factor


DEVICE_METRICS: tuple[_Metric, ...] = (
    _Metric("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", "sm_clock"),
    _Metric("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "memory_clock"),
    _Metric("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", "memory_temperature"),
    _Metric("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "temperature"),
    _Metric("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "power"),
    _Metric("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit (in W).", "power_limit"),
    _Metric(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Total energy consumption since the driver was loaded (in mJ).",
        "energy",
        1000.0,
        counts=True,
    ),
    _Metric("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "utilization"),
    _Metric("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "memory_utilization"),
    _Metric("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", "encoder"),
    _Metric("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", "decoder"),
    _Metric("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", "xid"),
    _Metric(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "Single-bit ECC errors since the driver was loaded.",
        "ecc_corrected",
        counts=True,
    ),
    _Metric(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "Double-bit ECC errors since the driver was loaded.",
        "ecc_uncorrected",
        counts=True,
    ),
    _Metric("DCGM_FI_DEV_MIG_MODE", "Whether the GPU is divided into MIG instances.", "mig"),
    _Metric("DCGM_FI_DEV_PCIE_LINK_GEN", "PCIe generation of the link now.", "pcie_generation"),
    _Metric("DCGM_FI_DEV_PCIE_LINK_WIDTH", "PCIe lanes of the link now.", "pcie_width"),
    _Metric(
        "DCGM_FI_DEV_PCIE_MAX_LINK_GEN",
        "PCIe generation that the GPU and its slot support.",
        "max_pcie_generation",
    ),
    _Metric(
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "PCIe lanes that the GPU and its slot support.", "max_pcie_width"
    ),
    _Metric("DCGM_FI_PROF_PCIE_TX_BYTES", "Data sent over PCIe (in bytes per second).", "pcie_sent"),
    _Metric("DCGM_FI_PROF_PCIE_RX_BYTES", "Data received over PCIe (in bytes per second).", "pcie_received"),
    _Metric("DCGM_FI_PROF_NVLINK_TX_BYTES", "Data sent over NVLink (in bytes per second).", "nvlink_sent"),
    _Metric(
        "DCGM_FI_PROF_NVLINK_RX_BYTES", "Data received over NVLink (in bytes per second).", "nvlink_received"
    ),
    _Metric("DCGM_FI_DEV_FB_TOTAL", "Framebuffer memory total (in MiB).", "memory_total", 1 / MIB),
    _Metric("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", "memory_free", 1 / MIB),
    _Metric("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "memory_used", 1 / MIB),
    _Metric(
        "DCGM_FI_PROF_SM_ACTIVE",
        "The ratio of cycles an SM has at least 1 warp assigned.",
        "sm_active",
        0.01,
    ),
    _Metric(
        "DCGM_FI_PROF_SM_OCCUPANCY",
        "The ratio of number of warps resident on an SM.",
        "sm_occupancy",
        0.01,
    ),
    _Metric(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        "tensor_active",
        0.01,
    ),
    _Metric("gputui_device_retired_pages", "Memory pages that are retired permanently.", "retired_pages"),
    _Metric("gputui_device_remapped_rows", "Memory rows that are remapped permanently.", "remapped_rows"),
)
"""The metrics that dcgm-exporter has, too, with its names, units and help texts (etc/default-counters.csv,
dcp-metrics-included.csv; dcgm_fields.h for the others), and two metrics that dcgm-exporter reports
only in parts."""


def metrics_text(
    snapshot: Snapshot,
    judged: Verdicts,
    jobs: Mapping[str, Sequence[str]] | None = None,
    idle: Mapping[str, float] | None = None,
) -> str:
    """Return the text, ended by "# EOF".

    `jobs` are the ids of jobs by the index of the GPU, for the label `hpc_job`, with a sample for each job,
    as in dcgm-exporter. `idle`: `idleness.idle_seconds`, None where that is not known.
    """
    devices = [device for device in snapshot.devices if device.apart is None and device.index >= 0]
    labels = {device.key: _labels(snapshot, device) for device in devices}
    lines: list[str] = []
    for metric in DEVICE_METRICS:
        samples = [
            (each, value)
            for device in devices
            if (value := metric.value(device)) is not None
            for each in _with_jobs(labels[device.key], device, jobs or {})
        ]
        lines += _family(metric.name, metric.about, samples, typed=not metric.counts)
    lines += _own(snapshot, judged, devices, labels)
    if idle is not None:
        samples = [(labels[d.key], idle.get(d.key, 0.0)) for d in devices if d.utilization is not None]
        lines += _family("gputui_device_idle_seconds", "How long the device has been at 0 %.", samples)
    return "\n".join((*lines, "# EOF")) + "\n"


def _own(
    snapshot: Snapshot, judged: Verdicts, devices: Sequence[Device], labels: Mapping[str, Labels]
) -> Iterator[str]:
    """Yield the metrics that gputui has and DCGM does not."""
    host = snapshot.host
    about = (("version", __version__), ("driver", host.driver), ("cuda", host.cuda), ("Hostname", host.name))
    info = tuple((name, value) for name, value in about if value is not None)
    yield from _family("gputui_info", "Versions of gputui and of the driver.", [(info, 1)])
    yield from _family(
        "gputui_read_time_seconds", "When the devices were read (Unix time).", [((), snapshot.time)]
    )
    yield from _family(
        "gputui_device_state",
        "1 for the state that the device is in, 0 for the others.",
        [
            ((*labels[device.key], ("state", state)), float(judged[device.key].state == state))
            for device in devices
            for state in get_args(State)
            if state != "cooling"  # one reading never yields it
        ],
    )
    yield from _family(
        "gputui_device_throttled",
        "1 for each reason why the clocks are lower than possible, 0 where there is none.",
        [
            ((*labels[device.key], *([("reason", reason)] if reason else [])), float(bool(reason)))
            for device in devices
            if device.throttled is not None
            for reason in device.throttled or ("",)
        ],
    )
    claims = [
        ((*labels[device.key], ("user", claim.user), *([("job", claim.job)] if claim.job else [])), claim)
        for device in devices
        if (claim := snapshot.claimed.get(device.key)) is not None
    ]
    yield from _family(
        "gputui_device_claim",
        "1 for a device that somebody has claimed through gputui.",
        [(holder, 1) for holder, _ in claims],
    )
    yield from _family(
        "gputui_device_claim_start_time_seconds",
        "When the device was claimed (Unix time).",
        [(holder, claim.since) for holder, claim in claims if claim.since is not None],
    )
    yield from _family(
        "gputui_device_processes",
        "Processes on the device.",
        [(labels[d.key], len(d.processes)) for d in devices if d.processes is not None],
    )
    yield from _family(
        "gputui_waiters", "Launches that wait in the queue for devices.", [((), len(snapshot.waiters))]
    )
    yield from _family(
        "gputui_waited_for_devices",
        "Devices that launches in the queue wait for.",
        [((), sum(waiter.count for waiter in snapshot.waiters))],
    )
    waits = [snapshot.time - each.since for each in snapshot.waiters if each.since is not None]
    if waits or not snapshot.waiters:
        yield from _family(
            "gputui_longest_wait_seconds",
            "The longest time that any launch in the queue has waited.",
            [((), max([0.0, *waits]))],
        )


def _labels(snapshot: Snapshot, device: Device) -> Labels:
    """Return dcgm-exporter's labels. For a MIG instance, `gpu` is its GPU's index, and `UUID` its own."""
    gpu = snapshot.by_key.get(device.parent or "", device)
    profile = _PROFILE.search(device.name or "") if device.parent else None
    found = (
        ("gpu", str(gpu.index)),
        ("UUID", device.uuid),
        ("pci_bus_id", device.pci_bus_id or gpu.pci_bus_id),
        ("device", f"{device.vendor}{gpu.index}"),
        ("modelName", gpu.name),
        ("GPU_I_PROFILE", profile and profile["profile"]),
        ("GPU_I_ID", device.gpu_instance is not None and str(device.gpu_instance)),
        ("Hostname", snapshot.host.name),
    )
    return tuple((name, value) for name, value in found if value)


def _with_jobs(labels: Labels, device: Device, jobs: Mapping[str, Sequence[str]]) -> Iterator[Labels]:
    """Yield the labels for each job of the GPU, or once where it has no job."""
    ids = jobs.get(dict(labels)["gpu"], ()) if device.vendor == "nvidia" else ()
    if not ids:
        yield labels
    for job in ids:
        yield (*labels, ("hpc_job", job))


def _family(
    name: str, about: str, samples: Iterable[tuple[Labels, float]], typed: bool = True
) -> Iterator[str]:
    """Yield the lines of one metric; none where no value is known."""
    lines = [f"{name}{_braces(labels)} {_number(value)}" for labels, value in samples]
    if lines:
        yield f"# HELP {name} {about}"
        if typed:
            yield f"# TYPE {name} gauge"
        yield from lines


def _braces(labels: Labels) -> str:
    return f"{{{','.join(f'{name}={_quoted(value)}' for name, value in labels)}}}" if labels else ""


def _quoted(value: str) -> str:
    text = printable(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _number(value: float) -> str:
    return f"{value:.15g}"
