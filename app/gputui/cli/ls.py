"""`gputui ls`: print the box as a table, as JSON, or as a line for a status bar."""

from __future__ import annotations

from gputui.choosing.verdict import verdicts
from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    WrongCallError,
    add_json_option,
    add_source_options,
    duration_type,
    output_width,
    own_settings,
    print_line,
    print_lines,
    read,
    read_with_past,
    source_of,
)
from gputui.cli.hosts_options import add_hosts_option
from gputui.cli.ls_text import coloured, document_text, table
from gputui.inventory.text_table import cut
from gputui.sources.source import INTERVALS, Want


def parser() -> Parser:
    made = Parser(
        "ls",
        "List the devices and their state, as a table or as JSON (schema 1).",
        common="--json --details --follow --hosts --demo",
        usage="gputui ls [--json | --format TEXT] [OPTION…]",
        example="gputui ls --hosts gpu1,gpu2\n"
        "gputui ls --json | jq '.devices[] | select(.verdict.state == \"free\") | .index'",
    )
    form = made.add_mutually_exclusive_group()
    add_json_option(form, "print JSON instead of a table")
    form.add_argument(
        "--format",
        metavar="TEXT",
        help="print one line for a status bar, such as '{free}/{total} free' (an unknown field"
        " lists all fields)",
    )
    made.add_argument(
        "--details", action="store_true", help="also show clocks, links, errors, and the load of each process"
    )
    made.add_argument(
        "--slurm", action="store_true", help="show Slurm's nodes instead: devices, state, and your jobs"
    )
    made.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="also show what Ray counts here, and where it differs (dashboard: by default 127.0.0.1:8265)",
    )
    made.add_argument(
        "--follow",
        action="store_true",
        help="continue until Ctrl-C or the end of standard input: print a line whenever the state of a device"
        " changes, for logs and screen readers; with --json, one document per line, every --interval",
    )
    made.add_argument(
        "--interval",
        type=duration_type(*INTERVALS),
        metavar="S",
        help="with --follow: seconds between two readings (default 1)",
    )
    add_hosts_option(made)
    add_source_options(made)
    return made


def main(args: Call) -> int:
    if args.follow and (args.details or args.format is not None):
        raise WrongCallError("--follow cannot be used with --details or --format")
    if args.follow and args.hosts is not None and not args.json:
        raise WrongCallError("--follow with --hosts needs --json")
    if args.interval is not None and not args.follow:
        raise WrongCallError("--interval needs --follow")
    if args.slurm:
        others = [args.details, args.format, args.follow, args.hosts, args.ray, args.recording, args.root]
        if any(each not in (None, False) for each in others):
            raise WrongCallError("--slurm shows Slurm's nodes: only --json and --demo can be used with it")
        from gputui.cli.ls_slurm import list_nodes

        return list_nodes(args.json, output_width(), args.demo is not None)
    if args.ray is not None:
        if args.follow or any(each is not None for each in (args.format, args.hosts)):
            raise WrongCallError(
                "--ray is for one reading of this machine: only --json and --details can be used with it"
            )
        from gputui.cli.ls_ray import asked, ray_document, ray_text

        ray = asked(args.ray)
    if args.hosts is not None:
        if args.format is not None:
            raise WrongCallError("--format cannot be used with --hosts, which prints a table or JSON")
        from gputui.cli.boxes import list_boxes

        return list_boxes(args)
    if args.follow:
        return _follow(args)
    if args.format is not None:
        return _status_line(args)
    # The host's memory is that of a device without its own.
    want = Want.ALL | Want.HOST | (Want.DETAILS if args.details else Want(0))
    snapshot = read_with_past(args, want)
    judged = verdicts(snapshot, own_settings().rules)
    if args.json:
        more = {} if args.ray is None else {"ray": ray_document(ray, snapshot, judged)}
        print(document_text(snapshot, judged, args.details, more))
        return DONE
    print(table(snapshot, judged, output_width(), coloured()), end="")
    if args.ray is not None:
        print_lines(cut(line, output_width()) for line in ray_text(ray, snapshot, judged))
    if args.details:
        from gputui.cli.details_text import details_text

        print(details_text(snapshot, output_width()), end="")
    return DONE


def _status_line(args: Call) -> int:
    from gputui.cli.status_line import fields_of, status_line

    if args.details:
        raise WrongCallError("--details is for the table and JSON")
    fields_of(args.format)
    # A status bar calls this every few seconds, and it needs neither links nor the CPUs near each device.
    snapshot = read(args, Want.MONITOR | Want.MODES | Want.QUEUE | Want.HOST)
    print_line(status_line(args.format, snapshot, verdicts(snapshot, own_settings().rules)))
    return DONE


def _follow(args: Call) -> int:
    from gputui.cli.ls_follow import INTERVAL, Changes, Documents, follow

    rules = own_settings().rules
    source = source_of(args)
    return follow(source, (Documents if args.json else Changes)(rules), args.interval or INTERVAL)
