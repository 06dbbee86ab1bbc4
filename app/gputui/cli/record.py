"""`gputui record`: a snapshot in a file, for a bug report, a test, or `--from`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gputui.allocating.settings import SettingsError
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.choosing.verdict import verdicts
from gputui.cli.common import DONE, Parser, WrongCallError, add_source_options, opened, say, starting_nothing
from gputui.cli.ls_text import document_text
from gputui.cli.rules import rules_of
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import Want


def parser() -> Parser:
    made = Parser(
        "record",
        "Write a snapshot of the box to FILE (- for stdout); --from FILE replays it.",
        example="gputui record --anonymous box.json && gputui --from box.json",
    )
    made.add_argument("file", metavar="FILE", help="file to write (- for stdout)")
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


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = starting_nothing(parser(), words, command)
    if args.trees:
        return _record_trees(args)
    with opened(args) as source:
        snapshot = source.read(Want.ALL | Want.DETAILS | Want.HOST)
    named = sum(
        p.user is not None or p.command is not None for d in snapshot.devices for p in d.processes or ()
    )
    if args.anonymous:
        snapshot = _anonymous(snapshot)
    text = document_text(snapshot, verdicts(snapshot, _rules()), details=True) + "\n"
    if args.file == "-":
        print(text, end="")
        return DONE
    from gputui.system.files import write_result

    try:
        write_result(Path(args.file), text.encode())
    except OSError as error:
        raise WrongCallError(f"cannot write {args.file!r}: {error.strerror}") from None
    private = f", with the user names and command lines of {named} processes (--anonymous: without)"
    say(f"wrote {args.file}{private if named and not args.anonymous else ''}")
    return DONE


def _record_trees(args: argparse.Namespace) -> int:
    """Write an archive of the files that the readers read."""
    if args.demo is not None or args.recording is not None:
        raise WrongCallError("--trees packs a machine's files: this one's, or those below --root DIR")
    from gputui.system.files import write_result
    from gputui.system.root import HERE
    from gputui.vendors.box import root_below
    from gputui.vendors.trees import packed_trees

    name = args.file
    compression = "gz" if name.endswith((".gz", ".tgz")) else "" if name.endswith(".tar") else "xz"
    data, count = packed_trees(
        HERE if args.root is None else root_below(args.root), args.anonymous, compression
    )
    try:
        if name == "-":
            sys.stdout.buffer.write(data)
            return DONE
        write_result(Path(name), data)
    except OSError as error:
        raise WrongCallError(f"cannot write {name!r}: {error.strerror}") from None
    say(f"wrote {name}: {count} files; `tar -C DIR -xf {name}`, then `gputui ls --root DIR`")
    return DONE


def _rules() -> Rules:
    """Return the rules of the settings; the defaults where they are invalid, which may be the bug to
    report."""
    try:
        return rules_of(None)
    except SettingsError as error:
        say(f"warning: {error}; the default rules are used")
        return DEFAULT_RULES


def _anonymous(snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        host=replace(snapshot.host, name=None),
        devices=tuple(
            replace(d, processes=tuple(replace(p, user=None, command=None) for p in d.processes))
            if d.processes
            else d
            for d in snapshot.devices
        ),
        claims=tuple(replace(claim, user="?", command=None, job=None) for claim in snapshot.claims),
        waiters=tuple(replace(each, user="?", command=None, job=None) for each in snapshot.waiters),
    )
