"""`gputui usage`: who held and used the devices over the last days, from what was recorded."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    WrongCallError,
    add_json_option,
    add_source_options,
    duration_type,
    elsewhere,
    output_width,
    print_json,
    print_lines,
    say,
    warn,
)
from gputui.cli.hosts_options import add_hosts_option
from gputui.inventory.columns import printed
from gputui.inventory.formatting import duration
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import Document, Moment, OrNull, View, Words
from gputui.sources.source import NoSourceError
from gputui.timeline.usage import BY, Recorded, date_of, of_film, of_past, recorded
from gputui.timeline.usage_columns import MOST_ROWS, usage_columns

_SINCE = 7 * 86_400.0
_NAMES = ("day", "user", "device", "job")
_ROW = View(
    None,
    "day user device job held busy idle energy energy_known utilization peak_memory waited",
    **dict.fromkeys(_NAMES, OrNull),
    **dict.fromkeys(("held", "busy", "idle", "energy", "energy_known", "waited"), float),
    utilization=float | None,
    peak_memory=int | None,
)
_DAMAGED = View(None, "day reason", day=str, reason=Words)
USAGE = Document(
    "since until recorded by rows damaged",
    since=Moment,
    until=Moment,
    recorded=float,
    by=str,
    rows=_ROW.list,
    damaged=_DAMAGED.list,
)


def parser() -> Parser:
    made = Parser(
        "usage",
        "List who held and used the devices over the last days: GPU time, energy (kWh), time in line. Every"
        " open screen, running job and `gputui record --daemon` records this; other time is not counted.",
        common="--since --by --json --hosts --demo",
        example="gputui usage --since 30d --by device",
    )
    made.add_argument(
        "--since",
        type=duration_type(),
        metavar="TIME",
        help="how far back (7d, 12h); its first day counts as a whole (default 7d)",
    )
    made.add_argument("--by", choices=(*BY,), default="user", help="a row for each of these (default user)")
    add_json_option(made)
    add_hosts_option(made)
    add_source_options(made)
    return made


def main(args: Call) -> int:
    if args.hosts is not None:
        from gputui.cli.boxes import call_on_boxes

        return call_on_boxes(args)
    until = time.time()
    since = until - (_SINCE if args.since is None else args.since)
    if elsewhere(args):
        found = _elsewhere(args)
        since, until = found.total.since, found.total.until
    else:
        found = recorded(os.environ, since, until, args.by)
    rows = found.rows(args.by, None if args.json else MOST_ROWS)
    damaged = sorted(found.damaged.items())
    for day, why in damaged:
        warn(f"usage of {day} cannot be read, at least in part: {why}")
    if args.json:
        facts = [
            _ROW.write(each, peak_memory=each.peak or None, **(dict.fromkeys(_NAMES, "") | names))
            for names, each in rows
        ]
        print_json(
            USAGE.write(
                since=since,
                until=until,
                recorded=found.total.recorded,
                by=args.by,
                rows=facts,
                damaged=[_DAMAGED.write(day=day, reason=why) for day, why in damaged],
            )
        )
    elif rows:
        width = output_width()
        print_lines(printed(usage_columns(args.by, rows, found.total.labels, width), rows, width))
        more = f"; the first {MOST_ROWS} rows, all with --json" if len(rows) == MOST_ROWS else ""
        say(f"{duration(found.total.recorded)} recorded since {date_of(found.total.since)}{more}")
    elif not damaged:
        say("nothing is recorded yet; `gputui record --daemon` records, and so does every open screen")
    return DONE


def _elsewhere(args: Call) -> Recorded:
    """Return the usage of a recording or a simulated box. Raise NoSourceError and WrongCallError."""
    if args.root is not None:
        raise WrongCallError("--root has the files of one moment, and no usage")
    if args.since is not None:
        raise WrongCallError("--since is for boxes that record their usage: all of this recording is shown")
    if args.recording is None:
        from gputui.sources.simulated.source import named

        source = named(args.demo or None)
        source.open()
        return of_past(source.past())
    from gputui.sources.recorded import RecordedSource

    recording = RecordedSource(args.recording)
    recording.open()
    found = of_film(_up_to_the_end(recording.film()))
    if not found.total.recorded:
        raise WrongCallError(f"{args.recording!r} has one reading; `gputui record --every` records usage")
    return found


def _up_to_the_end(film: Iterator[Snapshot]) -> Iterator[Snapshot]:
    """Yield the readings up to a line that is none, which is said: a recorder may have been killed."""
    try:
        yield from film
    except NoSourceError as error:
        warn(error)
