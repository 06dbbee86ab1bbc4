"""The text of `gputui ls --details`: below the table, a block for each device, and the machine's load."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, printable, short_name, size
from gputui.inventory.process import Process
from gputui.inventory.snapshot import HostLoad, Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.inventory.text_table import aligned


def details_text(snapshot: Snapshot, width: int | None) -> str:
    """The blocks, each line ended by a newline. What is not known is left out."""
    lines: list[str] = []
    load = _load(snapshot.host.load) if snapshot.host.load else ""
    if load:
        lines += ["", f"host: {load}"]
    for device in snapshot.devices:
        lines += ["", f"GPU {snapshot.label(device)}: {short_name(device.name or '?')}"]
        lines += [f"  {line}" for line in _device(device) if line]
        lines += [f"  {line}" for line in _processes(device.processes or ())]
    return "".join(f"{line[:width].rstrip()}\n" for line in lines)


def _load(load: HostLoad) -> str:
    memory = None
    if load.memory_used is not None and load.memory_total is not None:
        memory = f"RAM {load.memory_used / GIB:.0f}/{load.memory_total / GIB:.0f}G"
    average = None if load.load is None else f"load {load.load:.1f}"
    if average and load.cpus:
        average += f" on {load.cpus} CPUs"
    return _joined(_of("CPU {:.0f}%", load.cpu), average, memory)


def _device(device: Device) -> Iterable[str]:
    told = device.telemetry
    if told is None:
        return ["no details" if device.parent is None else "no details: those of its GPU are above"]
    state = None if told.performance_state is None else f"P{told.performance_state}"
    throttle = None if told.throttle is None else ", ".join(told.throttle) or "no"
    return (
        _line("clocks", _clock("SM", device.sm_clock, device.max_sm_clock), _memory_clock(told), state),
        _line("throttled", throttle and printable(throttle)),
        _line(
            "temperature",
            _of("{} °C", device.temperature),
            _of("memory {} °C", told.memory_temperature),
            _of("slows down at {} °C", told.slowdown_temperature),
            _of("turns off at {} °C", told.shutdown_temperature),
            _of("fan {}%", told.fan),
        ),
        _line(
            "PCIe", _pcie(device, told), _rate("sent", told.pcie_sent), _rate("received", told.pcie_received)
        ),
        _line("NVLink", _rate("sent", told.nvlink_sent), _rate("received", told.nvlink_received)),
        _line(
            "load",
            _of("memory {}%", device.memory_utilization),
            _of("SM active {:.0f}%", told.sm_active),
            _of("SM occupancy {:.0f}%", told.sm_occupancy),
            _of("tensor cores {:.0f}%", told.tensor_active),
            _of("encoder {}%", told.encoder),
            _of("decoder {}%", told.decoder),
        ),
        _line(
            "errors",
            _of("ECC corrected {}", told.ecc_corrected),
            _of("uncorrected {}", told.ecc_uncorrected),
            _of("retired pages {}", told.retired_pages),
            _of("remapped rows {}", told.remapped_rows),
            _of("XID {}", told.xid),
        ),
    )


def _processes(processes: Iterable[Process]) -> list[str]:
    rows = [
        (
            str(process.pid),
            printable(process.user or "?"),
            "–" if process.sm is None else f"{process.sm}%",
            _gib(process.memory),
            "–" if process.host_cpu is None else f"{process.host_cpu:.0f}%",
            _gib(process.host_memory),
            printable(process.command or process.note or "?"),
        )
        for process in processes
    ]
    heading = ("PID", "USER", "SM", "MEMORY", "CPU", "RAM", "COMMAND")
    return aligned([heading, *rows], right=(0, 2, 3, 4, 5)) if rows else []


def _memory_clock(told: Telemetry) -> str | None:
    return _clock("memory", told.memory_clock, told.max_memory_clock)


def _clock(name: str, now: int | None, most: int | None) -> str | None:
    if now is None:
        return None
    return f"{name} {now}/{most} MHz" if most is not None else f"{name} {now} MHz"


def _pcie(device: Device, told: Telemetry) -> str | None:
    if told.pcie_generation is None or told.pcie_width is None:
        return None
    now = f"gen {told.pcie_generation} x{told.pcie_width}"
    if not device.pcie_trained_down:
        return now
    return f"{now}, could be gen {told.max_pcie_generation} x{told.max_pcie_width}"


def _rate(what: str, rate: float | None) -> str | None:
    return None if rate is None else f"{what} {rate / 1e9:.2f} GB/s"


def _gib(amount: int | None) -> str:
    return "–" if amount is None else size(amount)


def _of(form: str, value: float | None) -> str | None:
    return None if value is None else form.format(value)


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def _line(name: str, *parts: str | None) -> str:
    text = _joined(*parts)
    return text and f"{name:<13}{text}"
