"""Run a call of gputui on other boxes (`--hosts`): each box is asked, and the answers are merged.

As JSON, each box is an entry with `host`, `error` and the keys of its own document; as text, each box has its
name and below it the table that it prints. `ls` makes its tables here, from the readings of the boxes; for
`pick`, the best set of all boxes wins.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from gputui.allocating.errors import NotEnoughError
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import for_document
from gputui.cli.common import (
    DONE,
    NO_SOURCE,
    NOT_ENOUGH,
    WRONG_CALL,
    Call,
    WrongCallError,
    output_width,
    own_settings,
    print_json,
    print_line,
    say,
)
from gputui.cli.details_text import details_text
from gputui.cli.hosts_options import boxes_of, way, without_options
from gputui.cli.ls_follow import INTERVAL, Lines
from gputui.cli.ls_text import coloured, table
from gputui.inventory.document import to_document
from gputui.inventory.document_reader import MOST_READING
from gputui.inventory.formatting import MIB, printable
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.link import is_link, strength
from gputui.inventory.text_table import cut
from gputui.inventory.typed_json import SCHEMA, Json, Record, check, iso, loads_of_others, whole, within
from gputui.sources.hosts.calls import MOST_ANSWER, ask, of_each
from gputui.sources.hosts.channel import BoxState, Channels
from gputui.sources.hosts.reading import Reading, read, unreadable
from gputui.sources.hosts.session import MOST_REASON, Answer
from gputui.sources.source import UnreachableError

_IDS = re.compile(r"[A-Za-z0-9:,._/-]*")
_NAME = "gputui: "
"""The beginning of its messages."""
_MOST_TEXT = MIB
"""The most bytes of an answer that is printed as it is; 512 claims take 60,000."""
_LINE = 100
"""Most characters of the line that names the boxes that could not be asked."""


def answers(
    boxes: Sequence[str], words: Sequence[str], views: bool = False, most: int = MOST_ANSWER
) -> list[Answer]:
    """The answer of each box, of at most `most` bytes, to a call of gputui with these arguments. Raises
    WrongCallError for words that cannot be sent."""
    how, unwanted = way(), threading.Event()
    try:
        return of_each(boxes, lambda box: ask(box, words, how, views, unwanted=unwanted, most=most), unwanted)
    except ValueError as error:
        raise WrongCallError(str(error)) from None


def entry(host: str, error: str | None, own: Mapping[str, Any], **more: Any) -> Json:
    """A box as JSON-ready values: its name here, the reason that it is unknown, `more`, its own document."""
    first = {"host": host, "error": error, **more}
    return {**first, **{key: value for key, value in own.items() if key not in first and key != "schema"}}


class _Told(NamedTuple):
    """A box: the reason that it is unknown, and its own document for JSON or its lines for text."""

    host: str
    error: str | None
    told: Mapping[str, Any] | str = ""


def _merged(found: Sequence[_Told], as_json: bool) -> int:
    """Print the answers of the boxes; a box that cannot be reached is included with the reason. Returns 3
    where no box can be reached."""
    if as_json:
        boxes = [entry(host, error, told if isinstance(told, Mapping) else {}) for host, error, told in found]
        print_json({"schema": SCHEMA, "boxes": boxes})
    else:
        texts = (each.told or f"{each.host}  cannot be shown: {each.error}\n" for each in found)
        print_line("\n".join(map(str, texts))[:-1])
    if any(each.error is None for each in found):
        return DONE
    if len(found) > 1 or as_json:
        say("no box can be reached" if len(found) > 1 else f"{found[0].host}: {found[0].error}")
    return NO_SOURCE


def call_on_boxes(args: Call) -> int:
    """Run a subcommand that prints a table, or a document with `--json`, on each box."""
    own = without_options(args.words, "--hosts")
    call = [args.subcommand, *own, *(("--", *args.argv) if args.argv else ())]
    told, most = (_document, MOST_ANSWER) if args.json else (_lines, _MOST_TEXT)
    found = answers(boxes_of(args), call, most=most)
    return _merged([_Told(each.alias, each.error) if each.error else told(each) for each in found], args.json)


def _document(answer: Answer) -> _Told:
    try:
        own = loads_of_others(answer.out)
        whole().read(within(own, "schema"))
    except ValueError as error:
        return _Told(answer.alias, unreadable(error))
    return _Told(answer.alias, None, own)


def _lines(answer: Answer) -> _Told:
    """The box's lines below its name, and its messages; where it printed no line, the last of these."""
    width = output_width()
    told = answer.out.decode(errors="replace").splitlines()
    # (A shell's own messages do not begin with our name.)
    said = [line for line in answer.said.splitlines() if told and line.startswith(_NAME)]
    lines = [cut(f"  {printable(line.removeprefix(_NAME))}".rstrip(), width) for line in (*told, *said)]
    head = answer.alias if lines else f"{answer.alias}  {answer.reason.partition(';')[0]}"
    return _Told(answer.alias, None, "\n".join((head, *lines, "")))


def list_boxes(args: Call) -> int:
    """Run `gputui ls --hosts`: list the devices of each box, judged by our rules."""
    rules = own_settings().rules
    if args.follow:
        return _follow(boxes_of(args), rules, args.interval or INTERVAL)
    words = ("ls", "--json", *(("--details",) if args.details else ()))
    found = map(_reading, answers(boxes_of(args), words, True, MOST_READING))
    told = own if args.json else _table
    boxes = [_Told(each.alias, each.error, told(each, rules, args.details)) for each in found]
    return _merged(boxes, args.json)


def _reading(answer: Answer) -> Reading:
    if answer.error is not None:
        return Reading(answer.alias, error=answer.error)
    return read(answer.alias, answer.out, answer.mode, time.time())


def own(reading: Reading, rules: Rules, details: bool = False) -> Json:
    """The box's own document, with its own name for itself as `hostname`."""
    found = reading.document
    if found is None and reading.snapshot is not None:
        judged = verdicts(reading.snapshot, rules)
        found = to_document(reading.snapshot, for_document(judged, reading.snapshot.time), details)
    found = found or {}
    return {"hostname": found.get("host"), **found}


def live_entry(state: BoxState, rules: Rules) -> Json:
    """The entry of a box with `state` and `since`; a silent or lost box keeps its last known facts."""
    known = own(state.reading or Reading(state.alias), rules)
    return entry(state.alias, state.error, known, state=state.state, since=iso(state.since))


def _table(reading: Reading, rules: Rules, details: bool) -> str:
    if reading.snapshot is None:
        return ""
    here = reading.snapshot
    shown = replace(here, host=replace(here.host, name=reading.alias))
    text = table(shown, verdicts(shown, rules), output_width(), coloured())
    return text + (details_text(shown, output_width()) if details else "")


def _follow(boxes: Sequence[str], rules: Rules, interval: float) -> int:
    """Print the current state of all boxes as one line at each interval, until standard input ends. A line of
    standard input sets the interval from then on, here and on the boxes."""
    channels, lines = Channels(boxes, way(), interval), Lines()
    pace, stopped = [interval], threading.Event()

    def set_interval(seconds: float) -> None:
        pace[0] = seconds
        channels.set_interval(seconds)

    def document() -> str:
        return json.dumps(
            {"schema": SCHEMA, "boxes": [live_entry(state, rules) for state in channels.states]}
        )

    def tell() -> None:
        while not stopped.wait(pace[0]) and lines.write(document):
            pass

    channels.start()
    threading.Thread(target=tell, daemon=True).start()
    try:
        lines.obey(set_interval)
    finally:
        stopped.set()
        channels.stop()
    return DONE


class Picked(NamedTuple):
    """The selection of a box: its devices and the reason, as `pick --format json` prints them there.

    rank  greater is better: first the weakest link, then the least free memory of the devices
    """

    rank: tuple[int, int]
    box: str
    ids: str
    reason: str
    document: Json


def ranked(boxes: Sequence[str], words: Sequence[str], explain: bool = False) -> list[Picked]:
    """The best set of each box that has one, the best first, equal sets in the order of the boxes; `words`
    are options of `pick`.

    If any box has a set, one line names the boxes that could not be asked; if none has, or with `explain`,
    each box is named with its reason. Raises NoSourceError where no box could be asked, NotEnoughError where
    no box has enough devices, and WrongCallError where a box rejects the call as wrong.
    """
    found: list[Picked] = []
    reasons: dict[str, str] = {}
    unasked: list[str] = []
    for answer in answers(boxes, ("pick", "--format", "json", *words)):
        box, why = answer.alias, answer.error
        if answer.status == WRONG_CALL:
            raise WrongCallError(f"{box}: {why}")
        try:
            if why is None:
                found.append(_picked(answer))
        except ValueError as error:
            why = unreadable(error)
        if why is None and explain:
            say(f"{box}: {found[-1].ids}: {found[-1].reason}")
        elif why is not None:
            reasons[box] = why
            if answer.status != NOT_ENOUGH:
                unasked.append(box)
    if explain or not found:
        for box, why in reasons.items():
            say(f"{box}: {why}")
    elif len(unasked) == 1:
        say(cut(f"{unasked[0]}: {reasons[unasked[0]]}", _LINE))
    elif unasked:
        say(cut(f"{len(unasked)} boxes could not be asked: {', '.join(unasked)}", _LINE))
    if not found:
        alone = len(boxes) == 1
        where = boxes[0] if alone else "no box"
        if len(unasked) < len(reasons):
            raise NotEnoughError(f"{where} has {'not ' if alone else ''}enough devices")
        raise UnreachableError(f"{where} {'cannot be asked' if alone else 'can be asked'}")
    return sorted(found, key=lambda picked: picked.rank, reverse=True)


@frozen
class _Device:
    memory_free: int | None


@frozen
class _Set:
    ids: Annotated[str, check(str, _IDS.fullmatch, "a list of devices")]
    weakest_link: Annotated[str, check(str, is_link, "a link")] | None
    devices: tuple[_Device, ...]
    reason: str | None


_SET = Record(_Set)


def _picked(answer: Answer) -> Picked:
    """Parse an answer to `pick --format json`. Raises ValueError."""
    document = loads_of_others(answer.out)
    told = _SET.read(document)
    # -1 where the free memory is unknown.
    free = [-1 if device.memory_free is None else device.memory_free for device in told.devices]
    why = printable(told.reason or "")[:MOST_REASON]
    return Picked((strength(told.weakest_link), min(free, default=-1)), answer.alias, told.ids, why, document)


def pick_from_boxes(args: Call) -> int:
    """Run `gputui pick --hosts`: print the box and its devices on a line, or with `--format json` the box's
    document with "host" added."""
    if args.wait is not None:
        raise WrongCallError("--wait cannot be used with --hosts: each box has a queue of its own")
    if args.format == "env":
        raise WrongCallError(
            "--format env cannot be used with --hosts: the variables are for another machine"
        )
    asked = [word for word in without_options(args.words, "--hosts", "--format") if word != "--json"]
    picked = ranked(boxes_of(args), asked, args.why)[0]
    if args.format == "json":
        print_json({"host": None, **picked.document} | {"host": picked.box})
    else:
        print(f"{picked.box} {picked.ids}")
    return DONE
