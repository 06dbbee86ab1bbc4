"""`gputui queue`: who waits for devices, in which order, whose turn is next, and what blocks them."""

from __future__ import annotations

import os

from gputui.allocating.claims.folder import unusable
from gputui.allocating.queue import waiters
from gputui.choosing.idleness import known_idle
from gputui.choosing.queue_outlook import Outlook, outlook
from gputui.choosing.queue_text import next_in_line, occupied_columns, turn_columns
from gputui.choosing.verdict import verdicts
from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    add_json_option,
    add_source_options,
    elsewhere,
    own_settings,
    print_json,
    print_lines,
    read,
    read_with_past,
    say,
)
from gputui.cli.hosts_options import add_hosts_option
from gputui.inventory.claim import Claim
from gputui.inventory.columns import printed
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import Document, Json, Positive, View
from gputui.inventory.waiter import Waiter
from gputui.sources.source import NoDevices, NoSourceError, Want

# Whether a waiter is a step inside a lease matters only for recordings.
_WAITER = View(
    Waiter, "place user count devices since command job ours silent client min_free max_util", place=Positive
)
_HELD = View(Claim, "uuid=key user since until job client")
QUEUE = Document("waiters held", waiters=_WAITER.list, held=_HELD.list)


def parser() -> Parser:
    made = Parser(
        "queue",
        "List who waits for devices, first come first served (`gputui run --wait`, `pick --wait`, w on the\n"
        "screen), then who is next and why they wait, then when the devices in use are expected to be free.\n"
        "`gputui jobs stop ID` removes your own job from the queue.",
        example="gputui queue",
    )
    add_json_option(made)
    add_hosts_option(made)
    add_source_options(made)
    return made


def main(args: Call) -> int:
    if args.hosts is not None:
        from gputui.cli.boxes import call_on_boxes

        return call_on_boxes(args)
    want = Want.NAMES | Want.QUEUE if args.json else Want.ALL & ~Want.WIRING
    unread = None
    try:
        snapshot = read(args, want) if args.json else read_with_past(args, want)
    except NoSourceError as error:
        if elsewhere(args):
            raise
        # The queue is known without a driver, too.
        unread = str(error)
        snapshot = replace(NoDevices().read(), waiters=waiters(os.environ))
    if args.json:
        print_json(document(snapshot))
    else:
        if not snapshot.waiters:
            why = None if elsewhere(args) else unusable(os.environ)
            say(why or "the queue is empty; `gputui run --wait` waits for devices")
        rules = own_settings().rules
        judged = verdicts(snapshot, rules)
        if lines := _lines(snapshot, outlook(snapshot, judged, known_idle(snapshot), rules.idle)):
            print_lines(lines)
        if unread and snapshot.waiters:
            say(f"the devices are not known: {unread}")
    return DONE


def document(snapshot: Snapshot) -> Json:
    """The JSON of the queue: who waits, and who holds which device."""
    rows = [_WAITER.write(each, place=place) for place, each in enumerate(snapshot.waiters, 1)]
    return QUEUE.write(waiters=rows, held=snapshot.claims)


def _lines(snapshot: Snapshot, found: Outlook) -> list[str]:
    line = printed(turn_columns(snapshot), found.turns) if found.turns else []
    if found.turns and snapshot.devices:
        line += ["", *map("".join, next_in_line(found, snapshot)), ""]
    return line + (printed(occupied_columns(snapshot), found.occupied) if found.occupied else [])
