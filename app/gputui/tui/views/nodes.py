"""Nodes as lines: boxes over ssh with their devices, the places of Slurm, and a launch there. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from time import localtime, strftime
from typing import NamedTuple

from gputui.choosing.device_columns import device_columns
from gputui.choosing.verdict import Verdicts
from gputui.choosing.verdict_text import brief
from gputui.inventory.columns import Column
from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, counted, devices_text, printable
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot
from gputui.sources.hosts.channel import BoxState
from gputui.sources.slurm.cluster import Job
from gputui.sources.slurm.places import JOBS, NOTE, PLACE, PLACE_FACTS, Place
from gputui.tui.views.text import (
    Line,
    Span,
    clip,
    prompt_lines,
    table_lines,
    title,
    told_lines,
    width_of,
    wrap,
)

NO_BOXES = 'no other boxes yet: name them with boxes = ["gpu1"] below [hosts] in the settings'

_STATE_LOOKS = {"live": "", "connecting": "dim", "stale": "warn", "dead": "lost"}
_WIDEST = 24
"""The most cells for the column of names."""


class Row(NamedTuple):
    """A line of the list. `key` is the identity of its subject; None for a line without a cursor."""

    key: Hashable | None
    line: Line


@frozen
class Node:
    """A row of the table of nodes; every kind of node gives its rows in this form. All texts are printable.

    key        its identity among the nodes of all kinds, None for a row without a cursor
    free       how many of its devices are free, with the same in words
    selected   how many of its devices are selected, where they have no lines of their own
    note       its state in the words of the source, and a further remark, with their style
    below      the lines below it, of its devices
    """

    key: Hashable | None
    name: str
    free: int = 0
    free_of: str = ""
    selected: int = 0
    note: Span = ("", "")
    below: tuple[Row, ...] = ()


NODE_COLUMNS: tuple[Column[Node], ...] = (
    Column("NODE", lambda node: node.name, most=_WIDEST),
    Column("FREE", lambda node: node.free_of, lambda node: "free" if node.free else "dim", right=True),
    Column(
        "SELECTED",
        lambda node: f"[{node.selected}]" if node.selected else "",
        lambda node: "slot" if node.selected else "",
    ),
    Column("NOTE", lambda node: node.note[0], lambda node: node.note[1]),
)


_FREE = " free", "     "
"""Behind the number of free devices, and in its place where there are none: a filter finds the word."""


def headline(free: Sequence[int], end: str, width: int) -> Line:
    """The rule at the top, with the text `end` at its end; `free` has each node's number of free devices."""
    tail = f"{devices_text(sum(free))} free on {sum(map(bool, free))} of {counted(len(free), 'node')}"
    return title("nodes", width, tail, end)


def node_rows(nodes: Sequence[Node]) -> list[Row]:
    """A row for each node, each with the lines below it."""
    lines = table_lines(NODE_COLUMNS, nodes)
    return [
        row for node, line in zip(nodes, lines, strict=True) for row in (Row(node.key, line), *node.below)
    ]


# Boxes over ssh


def box_node(
    state: BoxState,
    judged: Verdicts,
    mine: int,
    unfolded: bool,
    rank: Callable[[str, str], int | None],
) -> Node:
    """The row of a box. `judged` are the verdicts on its devices by key, `mine` is how many of these are the
    user's; `rank` returns the place of a box's device in the selection."""
    live, look, snapshot = state.state == "live", _STATE_LOOKS[state.state], state.snapshot
    devices = snapshot.devices if snapshot is not None else ()
    free = sum(verdict.state == "free" for verdict in judged.values()) if live else 0
    models = snapshot.models if snapshot is not None else ""
    told = f"{mine} yours, {models}" if mine else models
    if not live:
        # A reason that is too long for its column is below the list, too.
        since = f": {_brief_error(state)}, since {strftime('%H:%M:%S', localtime(state.since))}"
        told = state.state + (since if state.error else "")
    return Node(
        (state.alias, ""),
        f"{'-' if unfolded else '+'} {state.alias}",
        free,
        f"{free if live else UNKNOWN} of {len(judged)}{_FREE[not free]}" if snapshot is not None else "",
        # The devices of an unfolded box have marks of their own.
        0 if unfolded else sum(rank(state.alias, device.key) is not None for device in devices),
        (told, look),
        tuple(_device_rows(state.alias, snapshot, judged, live, rank)) if unfolded and snapshot else (),
    )


def _device_rows(
    alias: str,
    snapshot: Snapshot,
    judged: Verdicts,
    live: bool,
    rank: Callable[[str, str], int | None],
) -> list[Row]:
    def mark(device: Device) -> str:
        place = rank(alias, device.key)
        return f"{'' if place is None else f'[{place + 1}]':>4}"

    columns = device_columns(snapshot, judged, brief, live)
    shown = [
        Column("SELECTED", mark, lambda row: "slot" if mark(row).strip() else ""),
        *(each for each in columns if each.name not in ("°C", "W")),
    ]
    lines = table_lines(shown, snapshot.devices, before="   ")
    rows = [Row((alias, device.key), line) for device, line in zip(snapshot.devices, lines, strict=True)]
    return [*rows, *(Row(None, ((f"     {printable(error)}", "dim"),)) for error in snapshot.errors)]


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
    return told_lines(words, "warn", width)


def _brief_error(state: BoxState) -> str:
    """The error without the remedy, which is shown for the box at the cursor."""
    return (state.error or "").partition("; ")[0]


# Slurm


def place_node(place: Place) -> Node:
    """The row of a place that a job of Slurm can request."""
    free, state, in_use = (column.text(place) for column in PLACE_FACTS)
    ((note, tone),) = NOTE.cells([place])
    told = ", ".join(filter(None, (state, in_use and f"in use {in_use}", note)))
    return Node(
        place.key, f"  {PLACE.text(place)}", place.free, f"{free}{_FREE[not place.free]}", note=(told, tone)
    )


def job_lines(jobs: Sequence[Job], width: int) -> list[Line]:
    """The user's own jobs in Slurm, below their own rule; no lines where there are none."""
    if not jobs:
        return []
    rows = [clip(line, width) for line in table_lines(JOBS, jobs, before="   ")]
    return [title("your Slurm jobs", width, "squeue and scancel act on them"), *rows]


# The launch


def launch_lines(
    head: str,
    end: str,
    shown: Sequence[Line],
    pieces: Sequence[str],
    look: str,
    told: Sequence[Span],
    width: int,
) -> list[Line]:
    """The launch at the cursor: a rule with `head` and `end`, the devices that are `shown`, the command line
    in pieces, and sentences, each with its style."""
    return [
        title(head, width, end),
        *shown,
        *prompt_lines(pieces, look),
        *(line for text, tone in told for line in told_lines(text, tone, width)),
    ]


def broken(line: str, width: int, most: int = 1000) -> list[str]:
    """The line in pieces of at most `width` cells, broken between words or after a comma in a list; at most
    `most` pieces, of which the last is then cut."""
    pieces = [""]
    for word in re.findall(r"[^ ,]*[ ,]|[^ ,]+$", line):
        if width_of(((pieces[-1] + word.rstrip(), ""),)) <= width:
            pieces[-1] += word
        else:
            *full, last = wrap(word.rstrip(), width)
            pieces += [*full, last + " " * word.endswith(" ")]
    found = [piece.rstrip() for piece in pieces if piece.strip()]
    if len(found) > most:
        found = [*found[: most - 1], f"{found[most - 1][: max(0, width - 2)]} …"]
    return found
