"""`gputui metrics`: the box as OpenMetrics text, once or over HTTP."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from gputui.choosing.idleness import idle_seconds
from gputui.choosing.state_times import Watch
from gputui.choosing.verdict import verdicts
from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    add_source_options,
    elsewhere,
    opened,
    own_settings,
    say,
    write_file,
)
from gputui.cli.job_mapping import VARIABLE, read_jobs, with_own_jobs, write_jobs
from gputui.cli.metrics_text import metrics_text
from gputui.inventory.formatting import is_digits
from gputui.sources.source import Source, Want

_WANTED = Want.MONITOR | Want.MODES | Want.QUEUE | Want.DETAILS | Want.NODES


def parser() -> Parser:
    made = Parser(
        "metrics",
        "Print the box as OpenMetrics text, with the names of NVIDIA's dcgm-exporter.",
        example="gputui metrics -o /var/lib/node_exporter/textfile/gputui.prom\n"
        "gputui metrics --serve 9400    # http://127.0.0.1:9400/metrics",
    )
    where = made.add_mutually_exclusive_group()
    where.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write to a file, whole or not at all (node_exporter's textfile collector)",
    )
    where.add_argument(
        "--serve",
        type=_address,
        metavar="ADDR:PORT",
        help="answer over HTTP until Ctrl-C; a PORT alone is on the loopback interface",
    )
    add_source_options(made)
    return made


def _address(text: str) -> tuple[str, int]:
    """Parse an address and a port: "9400", "127.0.0.1:9400", "[::1]:9400"."""
    address, colon, port = text.rpartition(":")
    if not (is_digits(port) and int(port) < 65536) or (colon and not address):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not ADDR:PORT (9400 is on the loopback interface, 0.0.0.0:9400 on every address)"
        )
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    elif ":" in address:
        raise argparse.ArgumentTypeError(f"{text!r}: write an IPv6 address in brackets: [::1]:9400")
    return address or "127.0.0.1", int(port)


def main(args: Call) -> int:
    with opened(args) as source:
        text = _texts(source, args)
        if args.serve is not None:
            from gputui.cli.metrics_server import serve

            return serve(args.serve, text)
        if args.output is None:
            print(text(), end="")
        else:
            write_file(args.output, text().encode())
    return DONE


def _texts(source: Source, args: Call) -> Callable[[], str]:
    """Return the function that reads the box and returns its metrics as text."""
    rules = own_settings().rules
    named = os.environ.get(VARIABLE)
    folder = None if not named or elsewhere(args) else Path(named)
    publishes = args.output is not None or args.serve is not None
    said: set[str] = set()
    watch = Watch()

    def text() -> str:
        nonlocal watch
        snapshot = source.read(_WANTED)
        judged = verdicts(snapshot, rules)
        watch = watch.after(snapshot, judged)
        jobs: dict[str, tuple[str, ...]] = {}
        if folder is not None:
            try:
                before = read_jobs(folder)
                jobs = with_own_jobs(before, snapshot)
                if publishes:
                    write_jobs(folder, before, jobs)
            except OSError as error:
                message = f"warning: {VARIABLE}={folder}: {error.strerror}"
                if message not in said:
                    said.add(message)
                    say(message)
        # (One reading does not show since when.)
        idle = idle_seconds(watch, snapshot) if args.serve is not None else None
        return metrics_text(snapshot, judged, jobs, idle)

    return text
