"""`gputui ls --hosts`: several boxes, each as `gputui ls` shows it there."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gputui.choosing.rules import Rules
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import for_document
from gputui.cli.common import DONE, NO_SOURCE, say
from gputui.cli.hosts_options import answers, way, why_not
from gputui.cli.ls_text import table
from gputui.inventory.document import SCHEMA, to_document
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.typed_json import iso
from gputui.sources.hosts.calls import Answer
from gputui.sources.hosts.reading import Reading, read

if TYPE_CHECKING:
    from gputui.sources.hosts.channel import BoxState

_LS = ("ls", "--json")


def readings(boxes: Sequence[str], details: bool) -> list[Reading]:
    """Each box as it is now, or why it is not known."""
    words = (*_LS, "--details") if details else _LS
    return [_reading(answer) for answer in answers(boxes, words, views=True)]


def _reading(answer: Answer) -> Reading:
    error = why_not(answer)
    if error is not None:
        return Reading(answer.alias, error=error)
    return read(answer.alias, answer.out, answer.mode, time.time())


def list_boxes(
    boxes: Sequence[str], as_json: bool, details: bool, rules: Rules, width: int | None, colour: bool
) -> int:
    """Print the boxes; one that cannot be reached is among them with the reason. 3 where none can be."""
    found = readings(boxes, details)
    if as_json:
        print(json.dumps(document(found, rules, details)))
    else:
        sys.stdout.write("\n".join(_text(each, details, rules, width, colour) for each in found))
    if all(reading.snapshot is None for reading in found):
        if len(found) > 1 or as_json:
            say("no box can be reached" if len(found) > 1 else f"{found[0].alias}: {found[0].error}")
        return NO_SOURCE
    return DONE


def follow_boxes(boxes: Sequence[str], rules: Rules, interval: float) -> int:
    """Print all boxes as they are as one line, again and again, until standard input ends; a line of standard
    input is the pace from then on, here and there."""
    from gputui.cli.follow import obey, write_line
    from gputui.sources.hosts.channel import Channels

    channels = Channels(boxes, way(), interval)
    pace, stopped = [interval], threading.Event()
    failed: list[OSError] = []
    wake, woken = os.pipe()
    sys.stdout.flush()
    output = sys.stdout.fileno()

    def set_interval(seconds: float) -> None:
        pace[0] = seconds
        channels.set_interval(seconds)

    def tell() -> None:
        while not stopped.wait(pace[0]):
            entries = [live_entry(state, rules) for state in channels.states]
            try:
                write_line(output, json.dumps({"schema": SCHEMA, "boxes": entries}))
            except OSError as error:
                failed.append(error)
                os.write(woken, b"x")
                return

    channels.start()
    threading.Thread(target=tell, daemon=True).start()
    try:
        obey(wake, set_interval)
    finally:
        stopped.set()
        channels.stop()
    if failed:
        raise failed[0]
    return DONE


def live_entry(state: BoxState, rules: Rules) -> dict[str, Any]:
    """As `_entry`, with `state` and `since`; of a box that is silent or gone, what was last known of it."""
    known = _entry(state.reading or Reading(state.alias), rules, details=False)
    first = {"host": state.alias, "error": state.error, "state": state.state, "since": iso(state.since)}
    return {**first, **{key: value for key, value in known.items() if key not in first}}


def document(found: Sequence[Reading], rules: Rules, details: bool = False) -> dict[str, Any]:
    """The boxes as JSON-ready values."""
    return {"schema": SCHEMA, "boxes": [_entry(reading, rules, details) for reading in found]}


def _entry(reading: Reading, rules: Rules, details: bool) -> dict[str, Any]:
    """The box's own document; `host` is what the box is called here, `hostname` what it calls itself."""
    own = reading.document
    if own is None and reading.snapshot is not None:
        judged = verdicts(reading.snapshot, rules)
        own = to_document(reading.snapshot, for_document(judged, reading.snapshot.time), details)
    own = own or {}
    named = {"host": reading.alias, "error": reading.error, "hostname": own.get("host")}
    return {**named, **{key: value for key, value in own.items() if key not in named and key != "schema"}}


def _text(reading: Reading, details: bool, rules: Rules, width: int | None, colour: bool) -> str:
    if reading.snapshot is None:
        return f"{reading.alias}  cannot be shown: {reading.error}\n"
    here = reading.snapshot
    shown = replace(here, host=replace(here.host, name=reading.alias))
    text = table(shown, verdicts(shown, rules), width, colour)
    if details:
        from gputui.cli.details_text import details_text

        text += details_text(shown, width)
    return text
