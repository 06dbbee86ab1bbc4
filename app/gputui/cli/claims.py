"""`gputui claims`: the holder, start and command of each claim, and the devices that the command runs on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from gputui.allocating.claims.files import seen
from gputui.allocating.claims.folder import base
from gputui.allocating.claims.keepers import Keeper, keepers
from gputui.allocating.claims.read import claims
from gputui.choosing.claimed_use import USE_KEYS, USE_KINDS, ClaimedUse, claimed_uses, use_document
from gputui.choosing.verdict_text import claimed_and_runs_on
from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    WrongCallError,
    add_json_option,
    add_source_options,
    elsewhere,
    opened,
    print_json,
    print_lines,
    say,
    warn,
)
from gputui.cli.hosts_options import add_hosts_option
from gputui.inventory.claim import Claim
from gputui.inventory.columns import Column, printed
from gputui.inventory.formatting import UNKNOWN, age, by, in_time, person, printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import Document, Json, View
from gputui.sources.source import NoDevices, NoSourceError, Want

_KEEPER = View(Keeper, "pid name")
_CLAIM = View(
    Claim,
    f"uuid=key user since command pid job step until client index kept_by {USE_KEYS}",
    index=int | None,
    kept_by=_KEEPER.list | None,
    **USE_KINDS,
)
CLAIMS = Document("folder claims", folder=str | None, claims=_CLAIM.list)
Kept = Mapping[Claim, Sequence[Keeper]]
_MOST_KEEPERS = 3
"""The most processes that are named on a line of the table."""


def parser() -> Parser:
    made = Parser(
        "claims",
        "List the devices that jobs hold through gputui: who holds them, since when, and for which command.\n"
        "A claim ends with its job. Steps inside a claim are listed below it. A job that runs on devices it\n"
        "has not claimed is marked. `gputui ls` shows what runs without gputui.",
        example="gputui claims --hosts gpu1,gpu2",
    )
    add_json_option(made)
    made.add_argument(
        "--setup",
        nargs="*",
        metavar="USER",
        help="as root: make a folder for the claims of each USER (default: all who can log in) that nobody"
        " else can fill, remove the folders of users who are gone, and print the lines for /etc/fstab",
    )
    add_hosts_option(made)
    add_source_options(made)
    return made


def main(args: Call) -> int:
    if args.hosts is not None:
        if args.setup is not None:
            raise WrongCallError("--setup cannot be used with --hosts: it is for this machine")
        from gputui.cli.boxes import call_on_boxes

        return call_on_boxes(args)
    if args.setup is not None and args.json:
        raise WrongCallError("--setup cannot be used with --json: it prints lines for /etc/fstab")
    if args.setup is not None:
        from gputui.cli.claims_setup import set_up

        print("\n".join(set_up(args.setup)))
        return DONE
    box, unread = NoDevices().read(), None
    simulated = elsewhere(args)
    try:
        with opened(args) as source:
            box = source.read(Want.NAMES)
            if box.claims:
                box = source.read(Want.NAMES | Want.PROCESSES | Want.OWNERS)
    except NoSourceError as error:
        if simulated:
            raise
        # The claims are known without a driver, too.
        unread = str(error)
    found = box.claims if simulated else ()
    kept: Kept = {}
    if not simulated:
        names, keys = seen(os.environ, box.by_key), None if unread else box.by_key
        found, odd = claims(os.environ, keys, names)
        for each in odd:
            warn(each)
        away = sum(each.uid != os.geteuid() and each.key not in keys for each in names.records) if keys else 0
        if away:
            warn(f"ignored: {away} records of devices that are not on this machine")
        if found and not unread:
            from gputui.allocating.claims.processes import ClaimProcesses

            found = ClaimProcesses().of(found, box.devices)
            box = replace(box, claims=found)
        kept = keepers(found)
    uses = claimed_uses(box)
    if args.json:
        folder = None if simulated else base(os.environ)[0]
        print_json(CLAIMS.write(folder=folder, claims=[_row(c, box, uses, kept.get(c)) for c in found]))
    elif not found:
        say("no claims; `gputui run` claims the devices that it starts on")
    else:
        print_lines(printed(_columns(box, uses, kept), found))
        if unread:
            say(f"the devices are not known: {unread}")
    return DONE


def _columns(box: Snapshot, uses: Sequence[ClaimedUse], kept: Kept) -> tuple[Column[Claim], ...]:
    def command(claim: Claim) -> str:
        use = _use(claim, uses)
        unclaimed = f"({claimed_and_runs_on(use, box)}) " if use and use.differs else ""
        return unclaimed + printable(claim.command or UNKNOWN) + by(claim.client) + _ended(kept.get(claim))

    return (
        Column("DEVICE", lambda claim: "  " * claim.step + _device(claim, box) + ", step" * bool(claim.step)),
        Column("USER", lambda claim: person(claim.user, claim.own)),
        Column("FOR", lambda claim: age(claim.since, time.time())),
        Column("ENDS", lambda claim: in_time(claim.until, time.time())),
        Column("JOB", lambda claim: printable(claim.job or UNKNOWN)),
        Column("COMMAND", command),
    )


def _ended(kept_by: Sequence[Keeper] | None) -> str:
    """Return a remark where the command has ended, with the processes that keep its devices; otherwise ""."""
    if kept_by is None:
        return ""
    if not kept_by:
        return " (ended; kept by another user's process)"
    named = ", ".join(f"{printable(each.name)} {each.pid}" for each in kept_by[:_MOST_KEEPERS])
    more = len(kept_by) - _MOST_KEEPERS
    return f" (ended; kept by {named}{f' and {more} more' if more > 0 else ''})"


def _use(claim: Claim, uses: Sequence[ClaimedUse]) -> ClaimedUse | None:
    """Return the devices that the job of a claim runs on."""
    return next((use for use in uses if use.has(claim)), None)


def _device(claim: Claim, box: Snapshot) -> str:
    device = box.by_key.get(claim.key)
    return f"GPU {box.label(device)}" if device else claim.key


def _row(claim: Claim, box: Snapshot, uses: Sequence[ClaimedUse], kept_by: Sequence[Keeper] | None) -> Json:
    device = box.by_key.get(claim.key)
    index = device.index if device and device.parent is None else None
    return _CLAIM.write(claim, index=index, kept_by=kept_by, **use_document(_use(claim, uses)))
