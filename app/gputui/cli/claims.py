"""`gputui claims`: who holds which device through gputui, since when, for what, and what it runs on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gputui.allocating.claims.folder import bases
from gputui.allocating.claims.read import claims
from gputui.choosing.claimed_use import ClaimedUse, claimed_uses, use_document
from gputui.choosing.verdict_text import claimed_and_runs_on
from gputui.cli.common import (
    DONE,
    Parser,
    WrongCallError,
    add_source_options,
    elsewhere,
    opened,
    print_line,
    say,
    starting_nothing,
)
from gputui.cli.hosts_options import add_hosts_option
from gputui.inventory.claim import Claim
from gputui.inventory.formatting import duration, person, printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import aligned
from gputui.inventory.typed_json import as_text, iso
from gputui.sources.source import NoSourceError, Want

if TYPE_CHECKING:
    from gputui.allocating.claims.keepers import Keeper

    Kept = Mapping[Claim, Sequence[Keeper]]

SCHEMA = 1
_MOST_KEEPERS = 3
"""Processes that are named on a line of the table."""


def parser() -> Parser:
    made = Parser(
        "claims",
        "List the devices that jobs hold through gputui: who holds them, since when, and for which command.\n"
        "A claim ends with its job. Steps inside a claim are listed below it. A job that runs on devices it\n"
        "has not claimed is marked. `gputui ls` shows what runs without gputui.",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument(
        "--setup",
        nargs="*",
        metavar="USER",
        help="as root: make a folder for the claims of each user (none named: all who can log in) that nobody"
        " else can fill, remove those of users who are gone, and print what /etc/fstab needs",
    )
    add_hosts_option(made)
    add_source_options(made)
    return made


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = starting_nothing(parser(), words, command)
    if args.hosts is not None:
        if args.setup is not None:
            raise WrongCallError("--setup is for this machine: it does not go with --hosts")
        from gputui.cli.boxes import call_on_boxes

        return call_on_boxes("claims", args, words)
    if args.setup is not None:
        from gputui.cli.claims_setup import set_up

        print("\n".join(set_up(args.setup)))
        return DONE
    box: Snapshot | None = None
    simulated = elsewhere(args)
    found, odd = ((), ()) if simulated else claims(os.environ)
    for each in odd:
        say(f"warning: {each}")
    try:
        with opened(args) as source:
            box = source.read(Want.NAMES | (Want.PROCESSES | Want.OWNERS if found else Want(0)))
    except NoSourceError as error:
        if simulated:
            raise
        # Without a driver the claims can be told all the same.
        say(str(error))
    kept: Kept = {}
    if box is not None and not simulated:
        there = tuple(claim for claim in found if claim.own or claim.key in box.by_key)
        if len(there) < len(found):
            say(f"warning: ignored: {len(found) - len(there)} claims of devices that are not on this machine")
        found = there
    if box is not None and simulated:
        found = box.claims
    elif found:
        from gputui.allocating.claims.keepers import keepers
        from gputui.allocating.claims.processes import ClaimProcesses

        if box is not None:
            found = ClaimProcesses().of(found, box.devices)
            box = replace(box, claims=found)
        kept = keepers(found)
    uses = claimed_uses(box) if box else ()
    if args.json:
        import json

        print(
            json.dumps(
                {
                    "schema": SCHEMA,
                    "folder": None if simulated else next(iter(bases(os.environ)), None),
                    "claims": [_row(c, box, uses, kept.get(c)) for c in found],
                }
            )
        )
    elif not found:
        say("no claims; `gputui run` claims the devices that it starts on")
    else:
        print_line("\n".join(_lines(found, box, uses, kept)))
    return DONE


def _lines(found: Sequence[Claim], box: Snapshot | None, uses: Sequence[ClaimedUse], kept: Kept) -> list[str]:
    now = time.time()
    rows = [
        (
            "  " * claim.step + _device(claim, box) + (", step" if claim.step else ""),
            person(claim.user, claim.own),
            "-" if claim.since is None else duration(max(0.0, now - claim.since)),
            (claim.job and printable(claim.job)) or "-",
            _unclaimed_use(claim, box, uses) + printable(claim.command or "-") + _ended(kept.get(claim)),
        )
        for claim in found
    ]
    return aligned([("DEVICE", "USER", "FOR", "JOB", "COMMAND"), *rows])


def _ended(kept_by: Sequence[Keeper] | None) -> str:
    """That the command has ended, and who keeps its devices; "" where it has not."""
    if kept_by is None:
        return ""
    if not kept_by:
        return " (ended; kept by another user's process)"
    named = ", ".join(f"{printable(each.name)} {each.pid}" for each in kept_by[:_MOST_KEEPERS])
    more = len(kept_by) - _MOST_KEEPERS
    return f" (ended; kept by {named}{f' and {more} more' if more > 0 else ''})"


def _unclaimed_use(claim: Claim, box: Snapshot | None, uses: Sequence[ClaimedUse]) -> str:
    """ "(claimed 6,7, runs on 0,1) ", for what stands before the command; "" where it runs as it claimed."""
    use = next((use for use in uses if use.has(claim)), None)
    return f"({claimed_and_runs_on(use, box)}) " if box and use and use.differs else ""


def _device(claim: Claim, box: Snapshot | None) -> str:
    device = box.by_key.get(claim.key) if box else None
    return f"GPU {box.label(device)}" if box and device else claim.key


def _row(
    claim: Claim, box: Snapshot | None, uses: Sequence[ClaimedUse], kept_by: Sequence[Keeper] | None
) -> dict[str, Any]:
    device = box.by_key.get(claim.key) if box else None
    return {
        "uuid": claim.key,
        "index": device.index if device and device.parent is None else None,
        "user": claim.user,
        "since": None if claim.since is None else iso(claim.since),
        "command": as_text(claim.command),
        "pid": claim.pid,
        "job": claim.job,
        "step": claim.step,
        "kept_by": None if kept_by is None else [{"pid": k.pid, "name": as_text(k.name)} for k in kept_by],
        **use_document(next((use for use in uses if use.has(claim)), None)),
    }
