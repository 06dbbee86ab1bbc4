"""A report as lines of text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gputui.checking.compare import Place
from gputui.checking.report import Report
from gputui.inventory.device import Device
from gputui.inventory.document import as_text
from gputui.inventory.formatting import GIB, printable, short_name
from gputui.inventory.text_table import aligned

SCHEMA = 1


def lines(report: Report) -> tuple[str, ...]:
    """A line for each `cuda:n`, and one sentence at the end."""
    return tuple(printable(line) for line in (*_head(report), *_table(report), report.conclusion))


def _head(report: Report) -> Iterator[str]:
    """What was asked: an interpreter by its path, and its torch."""
    seen = report.seen
    if seen is None:
        return
    parts = [f"Python {seen.python}", seen.executable or " ".join(report.argv)]
    if seen.torch is None:
        parts.append("no torch: the CUDA driver itself was asked")
    elif seen.torch.version:
        kinds = (("CUDA", seen.torch.cuda), ("ROCm", seen.torch.hip))
        built = next((f"{kind} {version}" for kind, version in kinds if version), "CPU build")
        parts.append(f"torch {seen.torch.version} ({built})")
    if report.ranks > 1:
        parts.append(f"{report.ranks} processes, all alike")
    yield ", ".join(parts)


def _table(report: Report) -> Iterator[str]:
    yield from aligned([_row(report, number, place) for number, place in enumerate(report.places)])


def _row(report: Report, number: int, place: Place) -> tuple[str, ...]:
    """As the interpreter sees it; what it does not see, as it was chosen, in brackets."""
    device, seen = place.chosen, place.seen
    if seen is None:
        uuid, bus, name, amount = _as_chosen(device)
    else:
        # The driver's UUID has no kind: it is the chosen one's where that is what was found.
        uuid = device.uuid if device and place.state == "equal" and device.uuid else seen.uuid or "-"
        bus, name = seen.bus or "-", short_name(seen.name or "-")
        amount = f"{seen.memory / GIB:.1f} GiB" if seen.memory else "-"
    chosen = "none" if device is None else f"GPU {report.snapshot.label(device)}"
    verdict = place.state if place.state == "equal" else f"{place.state}: {place.why}"
    return (f"cuda:{number}", chosen, uuid, bus, name, amount, verdict)


def _as_chosen(device: Device | None) -> tuple[str, str, str, str]:
    if device is None:
        return "-", "-", "-", "-"
    return f"({device.uuid})" if device.uuid else "-", f"({device.pci_bus_id or '-'})", "-", "-"


def to_document(report: Report) -> dict[str, Any]:
    """JSON-ready values. Memory in bytes; unknown is null."""
    seen = report.seen
    return {
        "schema": SCHEMA,
        "equal": report.equal,
        "status": report.status,
        "conclusion": printable(report.conclusion),
        "interpreter": {
            "argv": [as_text(word) for word in report.argv],
            "executable": seen and seen.executable,
            "python": seen and seen.python,
            "doubt": report.doubt,
            "processes": report.ranks if seen else None,
        },
        "torch": None if seen is None or seen.torch is None else {
            "version": seen.torch.version,
            "cuda": seen.torch.cuda,
            "hip": seen.torch.hip,
            "error": seen.torch.error,
        },
        "driver": None if seen is None else {
            "version": seen.driver.version,
            "code": seen.driver.code,
            "error": seen.driver.error,
            "devices": len(seen.driver.devices),
        },
        "devices": [_place(number, place) for number, place in enumerate(report.places)],
        "environment": [
            {
                "name": each.name,
                "launch": as_text(each.launch),
                "seen": as_text(each.seen),
                "equal": each.equal,
            }
            for each in report.variables
        ],
    }  # fmt: skip


def _place(number: int, place: Place) -> dict[str, Any]:
    device, seen = place.chosen, place.seen
    return {
        "cuda": number,
        "state": place.state,
        "why": place.why or None,
        "chosen": device and {
            "index": device.index,
            "uuid": device.uuid or None,
            "pci_bus_id": device.pci_bus_id,
            "parent": device.parent,
            "name": device.name,
        },
        "seen": seen and {
            "uuid": seen.uuid,
            "pci_bus_id": seen.bus,
            "name": seen.name,
            "memory_total": seen.memory,
        },
    }  # fmt: skip
