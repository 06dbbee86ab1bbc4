"""`gputui record`: a snapshot in a file, for a bug report, a test, or `--from`; or one after another."""

from __future__ import annotations

import sys

from gputui.allocating.settings import SettingsError
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.choosing.verdict import verdicts
from gputui.cli.common import (
    DONE,
    INTERNAL,
    Call,
    Parser,
    WrongCallError,
    add_source_options,
    duration_type,
    elsewhere,
    own_settings,
    read,
    say,
    warn,
    write_file,
)
from gputui.cli.ls_text import document_text
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import INTERVALS, Want


def parser() -> Parser:
    made = Parser(
        "record",
        "Write a snapshot of the box to FILE (- for stdout); --from FILE replays it. With --every, write one"
        " reading after another until Ctrl-C; with --daemon, record what `gputui usage` shows.",
        common="--every -o --daemon --anonymous --demo",
        example="gputui record --anonymous box.json && gputui --from box.json\n"
        "gputui record --every 1s -o run.csv",
    )
    made.add_argument("file", nargs="?", metavar="FILE", help="file to write (- for stdout)")
    made.add_argument("-o", dest="output", metavar="FILE", help="the same")
    made.add_argument(
        "--every",
        type=duration_type(*INTERVALS),
        metavar="TIME",
        help="write a reading every TIME (1s): FILE.csv has a line for each device, any other file a JSON"
        " document a line",
    )
    made.add_argument(
        "--daemon",
        action="store_true",
        help="run until stopped, and keep the usage of each day and the timelines (`gputui config --unit`)",
    )
    made.add_argument("--note", action="store_true", help=INTERNAL)
    # A job's supervisor calls these two with the id of the job.
    made.add_argument("--if-stray", metavar="ID", help=INTERNAL)
    made.add_argument("--if-idle", metavar="ID", help=INTERNAL)
    made.add_argument(
        "--anonymous", action="store_true", help="leave out the host name, user names and command lines"
    )
    made.add_argument(
        "--trees",
        action="store_true",
        help="write an archive of the files that were read instead (FILE.tar.xz), for --root",
    )
    add_source_options(made)
    return made


def main(args: Call) -> int:
    if args.file is not None and args.output is not None:
        raise WrongCallError("FILE and -o cannot be used together")
    args.file = args.file or args.output
    if args.note or args.daemon:
        if elsewhere(args) or args.file or args.every or args.trees:
            raise WrongCallError("--daemon records this machine: no other option can be used with it")
        from gputui.cli.recorder import note, run_daemon

        if args.if_stray is not None:
            from gputui.cli.dispatch import run_subcommand

            run_subcommand("jobs", ("stop", "--if-stray", args.if_stray))
        return note(args.if_idle) if args.note else run_daemon()
    if args.file is None:
        raise WrongCallError("record needs a FILE (- for stdout), or --daemon")
    if args.every is not None:
        if args.trees:
            raise WrongCallError("--every cannot be used with --trees")
        from gputui.cli.recorder import record_every

        return record_every(args, _rules(), anonymous if args.anonymous else None)
    if args.trees:
        return _record_trees(args)
    snapshot = read(args, Want.ALL | Want.DETAILS | Want.HOST)
    named = any(d.processes for d in snapshot.devices)
    if args.anonymous:
        snapshot = anonymous(snapshot)
    text = document_text(snapshot, verdicts(snapshot, _rules()), details=True) + "\n"
    if args.file == "-":
        print(text, end="")
        return DONE
    write_file(args.file, text.encode())
    private = ", with the users and command lines of processes (--anonymous leaves them out)"
    say(f"wrote {args.file}{private if named and not args.anonymous else ''}")
    return DONE


def _record_trees(args: Call) -> int:
    """Write an archive of the files that the readers read."""
    if args.demo is not None or args.recording is not None:
        raise WrongCallError("--trees packs a machine's files: this one's, or those below --root DIR")
    from gputui.system.root import HERE
    from gputui.vendors.box import root_below
    from gputui.vendors.trees import packed_trees

    name = args.file
    compression = "gz" if name.endswith((".gz", ".tgz")) else "" if name.endswith(".tar") else "xz"
    data, count = packed_trees(
        HERE if args.root is None else root_below(args.root), args.anonymous, compression
    )
    if name == "-":
        sys.stdout.buffer.write(data)
        return DONE
    write_file(name, data)
    say(f"wrote {name}: {count} files; `tar -C DIR -xf {name}`, then `gputui ls --root DIR`")
    return DONE


def _rules() -> Rules:
    """Return the rules of the settings; the defaults where they are invalid, which may be the bug to
    report."""
    try:
        return own_settings().rules
    except SettingsError as error:
        warn(f"{error}; the default rules are used")
        return DEFAULT_RULES


def anonymous(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without command lines and the names of the machine, of users, of agents and of
    containers. Of the errors, those about claims have the names of users and folders."""
    return replace(
        snapshot,
        host=replace(snapshot.host, name=None),
        errors=(snapshot.missing,) if snapshot.missing else (),
        devices=tuple(
            replace(d, processes=tuple(map(_nobodys, d.processes))) if d.processes else d
            for d in snapshot.devices
        ),
        claims=tuple(
            replace(each, user="?", command=None, job=None, client=None) for each in snapshot.claims
        ),
        waiters=tuple(
            replace(each, user="?", command=None, job=None, client=None) for each in snapshot.waiters
        ),
    )


def _nobodys(process: Process) -> Process:
    return replace(process, user=None, command=None, ancestors=(), container=None)
