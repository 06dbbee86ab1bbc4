"""The output of `gputui ls` for a box: a table, or JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType

from gputui.choosing.device_columns import device_columns
from gputui.choosing.verdict import GLYPHS, Shown, Verdict, Verdicts
from gputui.choosing.verdict_text import brief, for_document, reason
from gputui.inventory.columns import printed
from gputui.inventory.formatting import UNKNOWN, printable
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import cut
from gputui.system import terminal_abilities

_COLOURS: dict[Shown, int] = {
    "free": 32,
    "busy": 31,
    "idle": 33,
    "held": 33,
    "claimed": 35,
    "cooling": 36,
    "unknown": 90,
    "lost": 31,
}


def document_text(
    snapshot: Snapshot,
    judged: Verdicts,
    details: bool = False,
    more: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """Return the snapshot and the keys of `more` as one line of JSON."""
    import json

    from gputui.inventory.document import to_document

    # ASCII only: a lone surrogate from a process's command line must not break the output.
    return json.dumps({**to_document(snapshot, for_document(judged, snapshot.time), details), **more})


def coloured() -> bool:
    """Whether to colour the table."""
    return terminal_abilities.coloured(sys.stdout, os.environ)


def table(snapshot: Snapshot, judged: Verdicts, width: int | None, colour: bool) -> str:
    """Return the table as text, with a line per device, each ended by a newline.

    Where a reason is too long for the width, states are as short as on the screen.
    """
    devices = snapshot.devices
    first, *others = printed(device_columns(snapshot, judged, _state_and_why), devices)
    if width is not None and any(len(line) + 2 > width for line in others):
        first, *others = printed(device_columns(snapshot, judged, brief), devices)
    lines = [heading(snapshot), f"  {first}"]
    both = [*zip(devices, others, strict=True)]
    both.sort(key=lambda each: each[0].apart is not None)
    for place, (device, text) in enumerate(both):
        if device.apart is not None and place > 0 and both[place - 1][0].apart is None:
            lines.append("  not offered:")
        shown = judged[device.key].shown
        line = cut(f"  {text}", width)
        if colour:
            head, glyph, tail = line.partition(GLYPHS[shown])
            line = f"{head}\x1b[{_COLOURS[shown]}m{glyph}\x1b[0m{tail}"
        lines.append(line)
    lines += [f"  {printable(error)}" for error in snapshot.errors]
    if not snapshot.devices:
        lines.append("  no devices")
    return "\n".join(lines) + "\n"


def _state_and_why(verdict: Verdict, now: float) -> str:
    """Return "busy    mira runs python (pid 4242, 3h)", with one reason per line."""
    return f"{verdict.shown:<7} {reason(verdict, now)}"


def heading(snapshot: Snapshot) -> str:
    """Return "dgx-3  8× H100 80GB HBM3  driver 550.54.15  CUDA 12.4"."""
    host = snapshot.host
    parts = [
        printable(host.name or UNKNOWN),
        snapshot.models,
        f"driver {printable(host.driver)}" if host.driver else "",
        f"CUDA {printable(host.cuda)}" if host.cuda else "",
    ]
    return "  ".join(part for part in parts if part)
