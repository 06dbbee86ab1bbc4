"""Other boxes as lines: a summary of each, and the devices below an unfolded one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from time import localtime, strftime
from typing import NamedTuple

from gputui.choosing.device_columns import device_columns
from gputui.choosing.verdict import Verdict
from gputui.choosing.verdict_text import brief
from gputui.inventory.columns import Column
from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, printable
from gputui.inventory.light_dataclasses import dataclass, field, replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.hosts.channel import BoxState
from gputui.tui.app_state import AppState
from gputui.tui.views.selection import strip
from gputui.tui.views.text import (
    Line,
    clip,
    fit,
    prompt_lines,
    table_lines,
    title,
    told_lines,
    width_of,
    wrap,
)

_STATE_LOOKS = {"live": "free", "connecting": "dim", "stale": "warn", "dead": "lost"}
_WIDEST = 22
"""The most cells for the column of names."""
_SINCE = len("stale since 12:00:00")


@dataclass(frozen=True, slots=True)
class ShownBox:
    """A box and the results from its reading: verdicts by `Device.key`; how many devices are the user's."""

    state: BoxState
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    mine: int = 0

    def now(self, state: BoxState) -> ShownBox:
        """The same reading with another state of the box."""
        return self if state is self.state else replace(self, state=state)

    @property
    def live(self) -> bool:
        """Whether the present state of the box is known."""
        return self.state.state == "live"

    @property
    def snapshot(self) -> Snapshot | None:
        """The box's last reading."""
        return self.state.reading.snapshot if self.state.reading else None

    @property
    def free(self) -> int:
        """How many of the box's devices are free; 0 while its state is not known."""
        if not self.live:
            return 0
        return sum(verdict.state == "free" for verdict in self.verdicts.values())


def headline(shown: Sequence[ShownBox], only_free: bool, end: str, width: int) -> Line:
    """The rule at the top, with the text `end` at its end."""
    free = sum(box.free for box in shown)
    tail = f"{free} free on {sum(box.free > 0 for box in shown)} of {len(shown)}"
    return title("boxes with free devices" if only_free else "boxes", width, tail, end)


class Row(NamedTuple):
    """A line of the list. `key` is the box and the `Device.key` of the line's subject, "" for the box itself;
    None for a line without a cursor."""

    key: tuple[str, str] | None
    line: Line


def box_rows(
    shown: Sequence[ShownBox], unfolded: frozenset[str], rank: Callable[[str, str], int | None]
) -> list[Row]:
    """The rows; `rank` returns the place of a box's device in the selection."""
    rows: list[Row] = []
    for box, line in zip(shown, table_lines(_box_columns(unfolded, rank), shown), strict=True):
        alias = box.state.alias
        rows.append(Row((alias, ""), line))
        if alias in unfolded and box.snapshot is not None:
            devices = box.snapshot.devices
            lines = table_lines(_device_columns(box, box.snapshot, rank), devices, before="   ")
            rows += [Row((alias, device.key), line) for device, line in zip(devices, lines, strict=True)]
            rows += [Row(None, ((f"     {printable(error)}", "dim"),)) for error in box.snapshot.errors]
    return rows


def _box_columns(
    unfolded: frozenset[str], rank: Callable[[str, str], int | None]
) -> tuple[Column[ShownBox], ...]:
    def name(box: ShownBox) -> str:
        return f"{'-' if box.state.alias in unfolded else '+'} {box.state.alias}"

    def selected(box: ShownBox) -> str:
        # Below an unfolded box, the marks of its devices are visible.
        alias = box.state.alias
        devices = box.snapshot.devices if box.snapshot and alias not in unfolded else ()
        count = sum(rank(alias, device.key) is not None for device in devices)
        return f"[{count}]" if count else ""

    return (
        Column("BOX", name, most=_WIDEST),
        Column("FREE", _free, lambda box: "free" if box.free else "dim", right=True),
        Column("SELECTED", selected, "slot"),
        Column("YOURS", lambda box: f"{box.mine} yours" if box.mine else "", _tone),
        Column("WHAT", _what, lambda box: "" if box.live else _STATE_LOOKS[box.state.state]),
    )


def _tone(box: ShownBox) -> str:
    return "" if box.live else "dim"


def _what(box: ShownBox) -> str:
    """The devices of a box; for a box that is not live, since when and why."""
    if box.live and box.snapshot is not None:
        return box.snapshot.models
    since = f" since {strftime('%H:%M:%S', localtime(box.state.since))}" if box.state.error else ""
    return f"{fit(box.state.state + since, _SINCE)}  {_brief_error(box.state)}".rstrip()


def _device_columns(
    box: ShownBox, snapshot: Snapshot, rank: Callable[[str, str], int | None]
) -> list[Column[Device]]:
    def place(device: Device) -> str:
        found = rank(box.state.alias, device.key)
        return "" if found is None else f"[{found + 1}]"

    mark = Column[Device]("SELECTED", lambda device: f"{place(device):>4}", "slot")
    columns = device_columns(snapshot, box.verdicts, brief, box.live)
    return [mark, *(column for column in columns if column.name not in ("°C", "W"))]


def launch_lines(
    box: str | None,
    selected: AppState,
    launcher: str,
    line: str,
    missing: str,
    why_not: str | None,
    width: int,
) -> list[Line]:
    """The selected devices, the call that starts the command on them, what is missing, and what prevents it.

    launcher  the name of the command's launcher, "" where there is no command
    line      the call; an outline of it where something is missing
    missing   the part that is still missing for a start, "" for nothing
    """
    name = f"launch: {launcher}" if launcher else "launch"
    chosen = bool(selected.selection.keys)
    rule = title(f"{name}, on {box}" if chosen else name, width, missing or "started only if all are free")
    account = strip(selected, width).lines[1:] if chosen else []
    told = [*([why_not] if why_not and chosen else ()), *selected.warnings]
    return [
        rule,
        *account,
        *prompt_lines(_broken(line, width - 4) if line else (), "dim" if missing else ""),
        *(clip((("   ! ", "warn"), (printable(text), "warn")), width) for text in told),
    ]


def _broken(line: str, width: int) -> list[str]:
    """The call in pieces of at most `width` cells, broken between words or after a comma in a list."""
    pieces = [""]
    for word in re.findall(r"[^ ,]*[ ,]|[^ ,]+$", line):
        if width_of(((pieces[-1] + word.rstrip(), ""),)) <= width:
            pieces[-1] += word
        else:
            *full, last = wrap(word.rstrip(), width)
            pieces += [*full, last + " " * word.endswith(" ")]
    return [piece.rstrip() for piece in pieces if piece.strip()]


def trouble_lines(state: BoxState, width: int) -> list[Line]:
    """The full reason why the box at the cursor is not live, and the remedy; no lines if it is live."""
    if state.error is None or state.state not in ("stale", "dead"):
        return []
    words = f"{state.alias}: {state.error}"
    brief_error = f"{state.alias}: {_brief_error(state)}"
    if state.asks:
        words = f"{brief_error}. ⏎ runs `ssh {state.alias} true` here, so that you can answer what it asks"
    elif state.kind == "changed key":
        words = f"{brief_error}. If that is expected, `ssh-keygen -R HOST` removes the old one"
    elif state.state == "dead":
        words = f"{words}. ⏎ tries again now"
    return told_lines(printable(words), "warn", width)


def _brief_error(state: BoxState) -> str:
    """The error without the remedy, which is shown for the box at the cursor."""
    return (state.error or "").partition("; ")[0]


def _free(box: ShownBox) -> str:
    """How many devices are free; unknown for a box that is not live."""
    if box.snapshot is None:
        return ""
    free = f"{box.free}" if box.live else UNKNOWN
    return f"{free} of {len(box.verdicts)} free"
