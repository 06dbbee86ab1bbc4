"""`gputui ls`: the box as a table, as JSON, or as a line for a status bar."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from gputui.allocating.named_source import named_source
from gputui.allocating.settings import INTERVALS
from gputui.choosing.verdict import GLYPHS, State, Verdict, verdicts
from gputui.choosing.verdict_text import brief, for_document, reason
from gputui.cli.common import (
    DONE,
    Parser,
    WrongCallError,
    add_source_options,
    duration_type,
    opened,
    output_width,
    print_line,
    starting_nothing,
)
from gputui.cli.hosts_options import add_hosts_option
from gputui.cli.rules import rules_of
from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, printable, short_name
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import aligned, cut
from gputui.sources.source import Want

_COLOURS: dict[State, int] = {
    "free": 32,
    "busy": 31,
    "held": 33,
    "claimed": 35,
    "cooling": 36,
    "unknown": 90,
    "lost": 31,
}


def parser() -> Parser:
    made = Parser("ls", "List the devices and their state, as a table or as JSON (schema 1).")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of a table")
    form.add_argument(
        "--format",
        metavar="TEXT",
        help="print one line for a status bar, as '{free}/{total} free' (a wrong field lists all)",
    )
    made.add_argument(
        "--details", action="store_true", help="also show clocks, links, errors, and the load of each process"
    )
    made.add_argument(
        "--slurm", action="store_true", help="the nodes of Slurm instead: devices, state, and your jobs"
    )
    made.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="also what Ray counts here, and where that differs (dashboard: by default 127.0.0.1:8265)",
    )
    made.add_argument(
        "--follow",
        action="store_true",
        help="with --json: a document a line, again and again, until standard input ends; a line of standard"
        " input is a number of seconds, the pace from then on",
    )
    made.add_argument(
        "--interval",
        type=duration_type(*INTERVALS),
        metavar="S",
        help="with --follow: seconds from one document to the next (default 1)",
    )
    add_hosts_option(made)
    add_source_options(made)
    return made


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = starting_nothing(parser(), words, command)
    if args.follow and (args.details or not args.json):
        raise WrongCallError("--follow goes with --json, and without --details")
    if args.interval is not None and not args.follow:
        raise WrongCallError("--interval goes with --follow")
    if args.slurm:
        others = [args.details, args.format, args.follow, args.hosts, args.ray, args.recording, args.root]
        if any(each not in (None, False) for each in others):
            raise WrongCallError("--slurm shows Slurm's nodes: nothing but --json and --demo goes with it")
        from gputui.cli.ls_slurm import list_nodes

        return list_nodes(args.json, output_width(), args.demo is not None)
    if args.ray is not None:
        if args.follow or any(each is not None for each in (args.format, args.hosts)):
            raise WrongCallError("--ray is for one reading of this machine: --json and --details go with it")
        from gputui.cli.ls_ray import asked, ray_document, ray_text

        ray = asked(args.ray)
    if args.hosts is not None:
        if args.format is not None:
            raise WrongCallError("--format is for this machine: --hosts has the table and JSON")
        from gputui.cli.boxes import list_boxes

        return list_boxes(args)
    if args.follow:
        return _follow(args)
    if args.format is not None:
        return _status_line(args)
    with opened(args) as source:
        snapshot = source.read(Want.ALL | Want.DETAILS | Want.HOST if args.details else Want.ALL)
    judged = verdicts(snapshot, rules_of(None))
    if args.json:
        more = {} if args.ray is None else {"ray": ray_document(ray, snapshot, judged)}
        print(document_text(snapshot, judged, args.details, more))
        return DONE
    print(table(snapshot, judged, output_width(), coloured()), end="")
    if args.ray is not None:
        print_line("\n".join(cut(line, output_width()) for line in ray_text(ray, snapshot, judged)))
    if args.details:
        from gputui.cli.details_text import details_text

        print(details_text(snapshot, output_width()), end="")
    return DONE


def _status_line(args: argparse.Namespace) -> int:
    from gputui.cli.status_line import fields_of, status_line

    if args.details:
        raise WrongCallError("--details is for the table and for JSON")
    fields_of(args.format)
    # (It is called every few seconds: links and what is near each device say nothing here.)
    with opened(args) as source:
        snapshot = source.read(Want.MONITOR | Want.MODES | Want.QUEUE | Want.HOST)
    print_line(status_line(args.format, snapshot, verdicts(snapshot, rules_of(None))))
    return DONE


def _follow(args: argparse.Namespace) -> int:
    from gputui.cli.follow import INTERVAL, follow
    from gputui.system.users import own_name

    rules = rules_of(None)
    source = named_source(args.demo, args.recording, args.root)
    # (Who follows from another machine has another name there.)
    more = {"user": own_name()}
    return follow(
        source, lambda read: document_text(read, verdicts(read, rules), more=more), args.interval or INTERVAL
    )


def document_text(
    snapshot: Snapshot,
    judged: dict[str, Verdict],
    details: bool = False,
    more: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """The snapshot as one line of JSON, and more keys."""
    import json

    from gputui.inventory.document import to_document

    # ASCII only: a lone surrogate of somebody's command line must not break the output.
    return json.dumps({**to_document(snapshot, for_document(judged, snapshot.time), details), **more})


def coloured() -> bool:
    """Whether to colour: only on a terminal."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return output_width() is not None and not plain


def table(snapshot: Snapshot, judged: dict[str, Verdict], width: int | None, colour: bool) -> str:
    """The table as text, a line a device, each ended by a newline.

    Where a reason is too long for the width, states are as brief as on the screen.
    """
    first, *others = _aligned(snapshot, judged, _state_and_why)
    if width is not None and any(len(line) + 2 > width for line in others):
        first, *others = _aligned(snapshot, judged, brief)
    lines = [heading(snapshot), f"  {first}"]
    both = [*zip(snapshot.devices, others, strict=True)]
    both.sort(key=lambda each: each[0].apart is not None)
    for place, (device, text) in enumerate(both):
        if device.apart is not None and place > 0 and both[place - 1][0].apart is None:
            lines.append("  not offered:")
        verdict = judged[device.key]
        line = cut(f"  {text}", width)
        if colour:
            head, glyph, tail = line.partition(GLYPHS[verdict.state])
            line = f"{head}\x1b[{_COLOURS[verdict.state]}m{glyph}\x1b[0m{tail}"
        lines.append(line)
    lines += [f"  {printable(error)}" for error in snapshot.errors]
    if not snapshot.devices:
        lines.append("  no devices")
    return "\n".join(lines) + "\n"


def _state_and_why(verdict: Verdict, now: float) -> str:
    """ "busy    mira is running python (pid 4242), 3h", the reasons below one another."""
    return f"{verdict.state:<7} {reason(verdict, now)}"


def _aligned(
    snapshot: Snapshot, judged: dict[str, Verdict], state: Callable[[Verdict, float], str]
) -> list[str]:
    rows = [
        ("#", "NAME", "UTIL", "MEMORY", "°C", "W", "STATE"),
        *(
            (*_facts(snapshot, device), f"{GLYPHS[verdict.state]} {state(verdict, snapshot.time)}")
            for device in snapshot.devices
            for verdict in (judged[device.key],)
        ),
    ]
    return aligned(rows, right=(0, 2, 3, 4, 5), least=(3, 4, 4, 12, 3, 4))


def heading(snapshot: Snapshot) -> str:
    """ "dgx-3  8× H100 80GB HBM3  driver 550.54.15  CUDA 12.4"."""
    host = snapshot.host
    parts = [
        printable(host.name or "?"),
        snapshot.models,
        f"driver {printable(host.driver)}" if host.driver else "",
        f"CUDA {printable(host.cuda)}" if host.cuda else "",
    ]
    return "  ".join(part for part in parts if part)


def _facts(snapshot: Snapshot, device: Device) -> tuple[str, ...]:
    util = "–" if device.utilization is None else f"{device.utilization}%"
    if device.memory_used is None or device.memory_total is None:
        memory = "–"
    else:
        memory = f"{device.memory_used / GIB:.1f}/{device.memory_total / GIB:.1f}G"
    heat = "–" if device.temperature is None else str(device.temperature)
    power = "–" if device.power is None else f"{device.power:.0f}"
    return (snapshot.label(device), short_name(device.name or "?"), util, memory, heat, power)
