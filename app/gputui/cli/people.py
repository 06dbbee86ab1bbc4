"""`gputui people`: the box by user: their devices, how much of the devices they use, and for how long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from gputui.choosing.claimed_use import ClaimedUse
from gputui.choosing.idleness import is_worth_saying, known_idle
from gputui.choosing.people import Holding, Person, of_nobody, people
from gputui.choosing.verdict import Verdicts, verdicts
from gputui.choosing.verdict_text import brief, job_claimed_and_runs_on, remedy_of, unused_text, user_name
from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    add_json_option,
    add_source_options,
    own_settings,
    print_json,
    print_lines,
    read_with_past,
    say,
)
from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, age, by, printable, size
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import aligned
from gputui.inventory.typed_json import Document, Form, Moment, OrNull, View
from gputui.sources.source import Want

_HOLDING = View(
    Holding,
    "uuid=device.uuid index=device.index parent=device.parent memory pids",
    uuid=OrNull,
)
_USE = View(ClaimedUse, "job pid claimed runs_on=used outside")
_PERSON = View(
    Person,
    "user memory since devices=holdings claims unclaimed_uses clients",
    since=Moment | None,
    devices=_HOLDING.list,
    unclaimed_uses=_USE.list,
    claims=Annotated[tuple[str, ...], Form(list, lambda claims: [device.uuid for device in claims])],
)
_HELD = View(Device, "uuid index memory=memory_used", uuid=OrNull)
PEOPLE = Document("time people held", time=Moment, people=_PERSON.list, held=_HELD.list)


def parser() -> Parser:
    made = Parser(
        "people",
        "List users: which devices they use, how much memory, for how long, and the command. Devices in use\n"
        "with no visible process come last.",
        example="gputui people",
    )
    add_json_option(made)
    add_source_options(made)
    return made


def main(args: Call) -> int:
    rules = own_settings().rules
    snapshot = read_with_past(args, Want.ALL & ~Want.WIRING)
    found = people(snapshot, known_idle(snapshot), rules.idle)
    judged = verdicts(snapshot, rules)
    held = of_nobody(snapshot, judged, found)
    if args.json:
        print_json(PEOPLE.write(time=snapshot.time, people=found, held=held))
    elif not found and not held:
        say("no processes or claims on this box")
    else:
        print_lines(_lines(found, held, snapshot, judged))
        for remedy in filter(None, dict.fromkeys(remedy_of(judged[device.key]) for device in held)):
            say(f"note: {remedy} may show the process")
    return DONE


def _unused(holding: Holding, person: Person) -> str:
    """ " idle 40m", or " 0% 3m" where that is not yet long; "" for a device that its user uses."""
    idle = holding.idle
    if idle is None or not is_worth_saying(idle, person.after):
        return ""
    return f" {unused_text(idle, holding in person.idle)}"


def _lines(
    found: Sequence[Person], held: Sequence[Device], snapshot: Snapshot, judged: Verdicts
) -> list[str]:
    now = snapshot.time or time.time()
    rows = [("USER", "GPUS", "MEMORY", "FOR", "COMMAND")]
    # Who may be asked for a device comes first.
    for person in sorted(found, key=lambda person: not person.idle):
        held_for: dict[str, list[Device]] = {}
        for each in person.holdings:
            held_for.setdefault(_unused(each, person), []).append(each.device)
        labels = (snapshot.labels(devices) + unused for unused, devices in held_for.items())
        claimed = f"claimed {snapshot.labels(person.claims)}" if person.claims else ""
        used = [
            f"{snapshot.label(each)} {brief(judged[each.key], now)}"
            for each in person.claims
            if judged[each.key].unseen
        ]
        claimed += f" ({'; '.join(used)})" if used else ""
        main = max((each.main for each in person.holdings), key=lambda p: p.memory or 0, default=None)
        command = (main and main.told) or UNKNOWN
        if main and main.container:
            command += f" ({main.container})"
        memory = size(person.memory) if person.memory else UNKNOWN
        # Jobs that run on unclaimed devices are shown before the command.
        uses = "".join(f"({job_claimed_and_runs_on(use, snapshot)}) " for use in person.unclaimed_uses)
        rows.append(
            (
                user_name(person),
                " · ".join(filter(None, (*labels, claimed))),
                memory,
                age(person.since, now),
                uses + printable(command) + by(", ".join(person.clients)),
            )
        )
    for device in held:
        why, memory = brief(judged[device.key], now), size(device.memory_used or 0)
        rows.append((UNKNOWN, snapshot.label(device), memory, UNKNOWN, why))
    return aligned(rows, right=(2, 3))
