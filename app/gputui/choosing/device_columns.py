"""The columns of tables of devices: `gputui ls`, and the page of nodes. The main table has bars."""

from __future__ import annotations

from collections.abc import Callable

from gputui.choosing.verdict import GLYPHS, Verdict, Verdicts
from gputui.inventory.columns import Column
from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, UNKNOWN, number, short_name
from gputui.inventory.snapshot import Snapshot


def device_columns(
    snapshot: Snapshot,
    judged: Verdicts,
    words: Callable[[Verdict, float], str],
    live: bool = True,
) -> tuple[Column[Device], ...]:
    """The columns of the devices of a box; `words` makes the text of a verdict.

    The states of a box that is not `live` are shown as unknown: its last states say nothing about now.
    """
    tone = "" if live else "dim"

    def memory(device: Device) -> str:
        used, total = snapshot.memory(device)
        return UNKNOWN if used is None or total is None else f"{used / GIB:.1f}/{total / GIB:.1f}G"

    def state(device: Device) -> str:
        verdict = judged[device.key]
        if not live:
            return f"{GLYPHS['unknown']} unknown"
        return f"{GLYPHS[verdict.shown]} {words(verdict, snapshot.time)}"

    return (
        Column("#", snapshot.label, tone, right=True, least=3),
        Column("NAME", lambda device: short_name(device.name or UNKNOWN), tone, least=4),
        Column("UTIL", lambda device: number(device.utilization, "%"), tone, right=True, least=4),
        Column("MEMORY", memory, tone, right=True, least=12),
        Column("°C", lambda device: number(device.temperature), tone, right=True, least=3),
        Column("W", lambda device: number(device.power), tone, right=True, least=4),
        Column("STATE", state, lambda device: judged[device.key].shown if live else "dim"),
    )
