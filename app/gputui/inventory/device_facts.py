"""The facts of a device beyond the table, in groups: for the device page and `ls --details`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, UNKNOWN, duration, number, printable, size
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.inventory.xid import MEANINGS

_WORKING = 20
"""Percent of utilization from which a GPU should run its PCIe link at full speed: a desktop has less."""

_NOTHING_KNOWN = Telemetry()


@frozen
class Fact:
    """A name and a text; `fraction` (0 to 1) is for a bar, `alarm` marks a fact that needs attention, and
    `more` continues the text where there is room."""

    name: str
    text: str
    fraction: float | None = None
    alarm: bool = False
    more: str = ""


@frozen
class Group:
    """Facts of one kind."""

    name: str
    facts: tuple[Fact, ...]


def fact_groups(device: Device, now: float, names: Mapping[str, str] | None = None) -> tuple[Group, ...]:
    """All known facts of a device at `now` (epoch seconds); an unknown fact is "–".

    A MIG instance has load and memory only, because the driver reports the rest for the whole GPU. `names`
    has other names of facts, "" for facts that are left out where they are not known (`Vendor.fact_names`).
    """
    t = device.telemetry or _NOTHING_KNOWN
    groups = (
        Group(
            "Load",
            (
                _utilization(device),
                _percent("SM active", t.sm_active),
                _percent("SM occupancy", t.sm_occupancy),
                _percent("tensor cores", t.tensor_active),
                _video(t),
            ),
        ),
        Group(
            "Memory",
            (
                _memory(device),
                *([Fact("unified", "shared with the host")] if device.unified else []),
                *([] if t.buffers is None else [Fact("buffers", size(t.buffers))]),
                _percent("bandwidth", device.memory_utilization),
            ),
        ),
        Group(
            "Power and temperature",
            (
                _power(device),
                _energy(t),
                _temperature(device, t),
                *_hotspot(t),
                _memory_and_fan(t),
            ),
        ),
        Group(
            "Clocks",
            (
                Fact("SM", _of(device.sm_clock, device.max_sm_clock, "MHz")),
                Fact("memory", _of(t.memory_clock, t.max_memory_clock, "MHz")),
                _state(t),
                _throttle(t),
            ),
        ),
        Group(
            "Links",
            (
                _pcie(device, t),
                Fact("PCIe traffic", _traffic(t.pcie_sent, t.pcie_received)),
                Fact("NVLink", _traffic(t.nvlink_sent, t.nvlink_received)),
                *([_fabric(t)] if t.nvlink_fabric else []),
                *([] if t.tool_index in (None, device.index) else [_tool_index(t)]),
            ),
        ),
        Group("Errors", (_ecc(t), _replaced(t), _xid(t, now))),
    )
    return _renamed(groups if device.parent is None else groups[:2], names or {})


def _renamed(groups: Iterable[Group], names: Mapping[str, str]) -> tuple[Group, ...]:
    renamed = (
        Group(
            group.name,
            tuple(
                replace(fact, name=names[fact.name]) if names.get(fact.name) else fact
                for fact in group.facts
                if names.get(fact.name) != "" or fact.text != UNKNOWN
            ),
        )
        for group in groups
    )
    return tuple(group for group in renamed if group.facts)


def facts_elsewhere(device: Device, snapshot: Snapshot) -> str | None:
    """The text that names the GPU with a MIG instance's other facts; None for a whole GPU."""
    gpu = snapshot.by_key.get(device.parent) if device.parent else None
    if gpu is None:
        return None
    return f"power, temperature, clocks, links and errors are those of GPU {snapshot.label(gpu)}"


def rate(amount: float) -> str:
    """Bytes per second in the decimal units of links: "1.2 GB/s", "40 MB/s"."""
    return f"{amount / 1e9:.1f} GB/s" if amount >= 1e9 else f"{amount / 1e6:.0f} MB/s"


def _percent(name: str, value: float | None) -> Fact:
    return Fact(name, UNKNOWN) if value is None else Fact(name, f"{value:>3.0f} %", value / 100)


def _utilization(device: Device) -> Fact:
    fact = _percent("utilization", device.utilization)
    if device.parent and device.utilization is None and (device.capability or (9, 0)) < (9, 0):
        return replace(fact, text=f"{UNKNOWN} (MIG: Hopper and newer)")
    return fact


def _of(value: float | None, most: float | None, unit: str) -> str:
    if value is None or most is None:
        return number(value, f" {unit}")
    return f"{value:.0f} of {most:.0f} {unit}"


def _memory(device: Device) -> Fact:
    used, total = device.memory_used, device.memory_total
    if used is None or not total:
        return Fact("in use", size(used))
    return Fact("in use", f"{used / GIB:.1f} of {total / GIB:.1f}G", used / total)


def _power(device: Device) -> Fact:
    power, limit = device.power, device.power_limit
    return Fact("power", _of(power, limit, "W"), power / limit if power is not None and limit else None)


def _energy(t: Telemetry) -> Fact:
    if t.energy is None:
        return Fact("energy", UNKNOWN)
    return Fact("energy", f"{t.energy / 3.6e6:.1f} kWh", more=" since the driver was loaded")


def _temperature(device: Device, t: Telemetry) -> Fact:
    if device.temperature is None:
        return Fact("temperature", UNKNOWN)
    return _heat("temperature", device.temperature, t.slowdown_temperature, t.shutdown_temperature)


def _heat(name: str, heat: int, limit: int | None, end: int | None = None) -> Fact:
    """A temperature; `limit` is where the driver lowers the clocks, `end` where it turns the GPU off."""
    off = "" if end is None else f", off at {end}"
    text = f"{heat} °C" if limit is None else f"{heat} °C, slows at {limit}"
    return Fact(name, text, alarm=limit is not None and heat >= limit, more=off)


def _memory_and_fan(t: Telemetry) -> Fact:
    # On one line, so that 24 lines have room for a process.
    fan = None if t.fan is None else f"{t.fan} %"
    if t.memory_temperature is None:
        return Fact("fan", fan) if fan else Fact("memory, fan", UNKNOWN)
    fact = _heat("memory", t.memory_temperature, t.memory_slowdown_temperature)
    return replace(fact, text=f"{fact.text}, fan {fan}") if fan else fact


def _hotspot(t: Telemetry) -> tuple[Fact, ...]:
    heat = t.hotspot_temperature
    return () if heat is None else (_heat("hotspot", heat, t.hotspot_slowdown_temperature),)


def _state(t: Telemetry) -> Fact:
    number = t.performance_state
    parts = [] if number is None else [f"P{number}"]
    if t.persistence is not None:
        parts.append(f"persistence {'on' if t.persistence else 'off'}")
    return Fact("state", ", ".join(parts) or UNKNOWN, more=" (P0 is the fastest)" if number else "")


def _throttle(t: Telemetry) -> Fact:
    if t.throttle is None:
        return Fact("throttling", UNKNOWN)
    return Fact("throttling", printable(", ".join(t.throttle)) or "none", alarm=bool(t.throttle))


def _pcie(device: Device, t: Telemetry) -> Fact:
    """The PCIe link. Idle GPUs lower the generation themselves: it is an alarm only for a working GPU."""
    generation, width = t.pcie_generation, t.pcie_width
    if generation is None and width is None:
        return Fact("PCIe", UNKNOWN)
    slow = generation is not None and (t.max_pcie_generation or 0) > generation
    narrow = width is not None and (t.max_pcie_width or 0) > width
    now = _link(generation, width)
    possible = _link(t.max_pcie_generation if slow else None, t.max_pcie_width if narrow else None)
    if narrow or (slow and (device.utilization or 0) >= _WORKING):
        return Fact("PCIe", f"{now}, down-trained", alarm=True, more=f" ({possible} possible)")
    return Fact("PCIe", now, more=f" ({possible} when busy)" if slow else "")


def _link(generation: int | None, width: int | None) -> str:
    parts = ((generation, "gen "), (width, "×"))
    return " ".join(f"{sign}{number}" for number, sign in parts if number is not None)


def _traffic(sent: float | None, received: float | None) -> str:
    """The rates that the device sends (↑) and receives (↓)."""
    parts = ((sent, "↑"), (received, "↓"))
    return " ".join(f"{sign}{rate(amount)}" for amount, sign in parts if amount is not None) or UNKNOWN


def _fabric(t: Telemetry) -> Fact:
    """The place in the NVLink fabric. The beginning of the domain's UUID is enough to compare two boxes."""
    if t.nvlink_domain is not None:
        return Fact("fabric", f"domain {printable(t.nvlink_domain[:8])}, clique {number(t.nvlink_clique)}")
    broken = t.nvlink_fabric in ("not started", "failed")
    return Fact("fabric", t.nvlink_fabric or UNKNOWN, alarm=broken)


def _tool_index(t: Telemetry) -> Fact:
    return Fact("in rocm-smi", f"number {t.tool_index}", more=" (it counts in PCI order)")


def _video(t: Telemetry) -> Fact:
    parts = ((t.encoder, "enc"), (t.decoder, "dec"))
    return Fact("video", ", ".join(f"{name} {n} %" for n, name in parts if n is not None) or UNKNOWN)


def _counts(*parts: tuple[int | None, str]) -> str:
    """ "2 corrected, 1 uncorrected"; "none" where all known counts are 0."""
    known = [(count, what) for count, what in parts if count is not None]
    return ", ".join(f"{count} {what}" for count, what in known if count) or ("none" if known else UNKNOWN)


def _ecc(t: Telemetry) -> Fact:
    text = _counts((t.ecc_uncorrected, "uncorrected"), (t.ecc_corrected, "corrected"))
    return Fact("ECC errors", text, alarm=bool(t.ecc_uncorrected))


def _replaced(t: Telemetry) -> Fact:
    pages, rows = ("" if n == 1 else "s" for n in (t.retired_pages, t.remapped_rows))
    text = _counts((t.retired_pages, f"retired page{pages}"), (t.remapped_rows, f"remapped row{rows}"))
    return Fact("bad memory", text, alarm=bool(t.retired_pages or t.remapped_rows))


def _xid(t: Telemetry, now: float) -> Fact:
    if t.xid is None:
        return Fact("driver error", UNKNOWN)
    age = "" if t.xid_at is None else f", {duration(now - t.xid_at)} ago"
    meaning = MEANINGS.get(t.xid)
    more = f": {meaning}" if meaning else ""
    return Fact("driver error", f"XID {t.xid}{age}", alarm=True, more=more)
