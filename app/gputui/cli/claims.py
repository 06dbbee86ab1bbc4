"""`gputui claims`: who holds which device through gputui, since when, for what."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from gputui.allocating.claims.folder import shared_folder
from gputui.allocating.claims.read import claims
from gputui.cli.common import DONE, Parser, WrongCallError, add_source_options, opened, print_line, say
from gputui.inventory.claim import Claim
from gputui.inventory.document import as_text, iso
from gputui.inventory.formatting import duration, printable
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import aligned
from gputui.sources.source import NoSourceError, Want

SCHEMA = 1


def parser() -> Parser:
    made = Parser(
        "claims",
        "Who holds which device through gputui, since when, and for what. A claim lives as long as its job:\n"
        "the kernel ends it. What others run without gputui is in `gputui ls`.",
    )
    made.add_argument("--json", action="store_true", help="for a program")
    add_source_options(made)
    return made


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = parser().parse_args(words)
    if command is not None:
        raise WrongCallError("claims starts nothing; a command is for `gputui run`")
    box: Snapshot | None = None
    try:
        with opened(args) as source:
            box = source.read(Want.NAMES)
    except NoSourceError as error:
        if args.demo is not None or args.recording is not None:
            raise
        # Without a driver the claims can be told all the same.
        say(str(error))
    if args.demo is not None or args.recording is not None:
        found: tuple[Claim, ...] = box.claims if box else ()
    else:
        found, odd = claims(os.environ)
        for each in odd:
            say(f"warning: {each}")
    if args.json:
        import json

        print(
            json.dumps(
                {
                    "schema": SCHEMA,
                    "folder": shared_folder(os.environ),
                    "claims": [_row(c, box) for c in found],
                }
            )
        )
    elif not found:
        say("nothing is claimed; `gputui run` claims what it starts on")
    else:
        print_line("\n".join(_lines(found, box)))
    return DONE


def _lines(found: Sequence[Claim], box: Snapshot | None) -> list[str]:
    now = time.time()
    rows = [
        (
            _device(claim, box),
            printable(claim.user),
            "-" if claim.since is None else duration(max(0.0, now - claim.since)),
            (claim.job and printable(claim.job)) or "-",
            printable(claim.command or "-"),
        )
        for claim in found
    ]
    return aligned([("DEVICE", "USER", "FOR", "JOB", "COMMAND"), *rows])


def _device(claim: Claim, box: Snapshot | None) -> str:
    device = box.by_key.get(claim.key) if box else None
    return f"GPU {box.label(device)}" if box and device else claim.key


def _row(claim: Claim, box: Snapshot | None) -> dict[str, Any]:
    device = box.by_key.get(claim.key) if box else None
    return {
        "uuid": claim.key,
        "index": device.index if device and device.parent is None else None,
        "user": claim.user,
        "since": None if claim.since is None else iso(claim.since),
        "command": as_text(claim.command),
        "pid": claim.pid,
        "job": claim.job,
    }
