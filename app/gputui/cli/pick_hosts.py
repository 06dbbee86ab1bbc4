"""`gputui pick --hosts`: each box picks its best set of devices, and the best of these wins."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

from gputui.allocating.errors import NotEnoughError
from gputui.cli.common import NOT_ENOUGH, WRONG_CALL, WrongCallError, say
from gputui.cli.hosts_options import answers, why_not
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.link import is_link, strength
from gputui.inventory.text_table import cut
from gputui.inventory.typed_json import DocumentError, Record, check, loads
from gputui.sources.hosts.calls import Answer
from gputui.sources.hosts.reading import MOST_REASON, reason
from gputui.sources.source import NoSourceError

_IDS = re.compile(r"[A-Za-z0-9:,._/-]*")
_MOST = 1024
_LINE = 100
"""Characters of the line that names the boxes that could not be asked."""


@dataclass(frozen=True, slots=True)
class Picked:
    """What a box would give.

    ids           its devices as `pick` prints them there
    weakest_link  of the set, None for one device, or where it is not known
    free          bytes that are free on each of them at least, None where that is not known
    reason        why these
    document      what `pick --format json` prints there
    """

    box: str
    ids: str
    weakest_link: str | None
    free: int | None
    reason: str
    document: dict[str, Any]

    @property
    def rank(self) -> tuple[int, int]:
        """More is better: first the weakest link, then free memory."""
        return strength(self.weakest_link), -1 if self.free is None else self.free


def ranked(boxes: Sequence[str], words: Sequence[str], explain: bool = False) -> list[Picked]:
    """The best set of each box that has one, the best of these first, equal ones in the order of the boxes;
    `words` are options of `pick`.

    Where one has it, those that could not be asked are named in a line, else each with its reason; with
    `explain` that is said anyway. Raises NoSourceError where none could be asked, NotEnoughError where
    none has enough, and WrongCallError where a box takes the words for a wrong call.
    """
    found: list[Picked] = []
    reasons: list[tuple[str, str | None]] = []
    unasked: list[str] = []
    for answer in answers(boxes, ("pick", "--format", "json", *words)):
        why = why_not(answer)
        try:
            picked = None if why is not None else _picked(answer)
        except DocumentError as error:
            why = printable(f"its answer cannot be read: {error}")[:MOST_REASON]
            picked = None
        if picked is not None:
            found.append(picked)
            if explain:
                say(f"{answer.alias}: {picked.ids}: {picked.reason}")
            continue
        if answer.trouble is None and answer.status == WRONG_CALL:
            raise WrongCallError(f"{answer.alias}: {reason(answer.said)}")
        reasons.append((answer.alias, why))
        if answer.trouble is not None or answer.status != NOT_ENOUGH:
            unasked.append(answer.alias)
    if explain or not found:
        for box, why in reasons:
            say(f"{box}: {why}")
    elif len(unasked) == 1:
        say(cut(f"{unasked[0]}: {dict(reasons)[unasked[0]]}", _LINE))
    elif unasked:
        say(cut(f"{len(unasked)} boxes could not be asked: {', '.join(unasked)}", _LINE))
    if not found:
        asked = len(unasked) < len(reasons)
        where = boxes[0] if len(boxes) == 1 else "no box"
        if asked:
            raise NotEnoughError(f"{where} has {'not ' if len(boxes) == 1 else ''}enough devices")
        raise NoSourceError(f"{where} {'cannot be asked' if len(boxes) == 1 else 'can be asked'}")
    return sorted(found, key=lambda picked: picked.rank, reverse=True)


@dataclass(frozen=True, slots=True)
class _Device:
    memory_free: int | None


@dataclass(frozen=True, slots=True)
class _Told:
    ids: Annotated[str, check(str, _IDS.fullmatch, "a list of devices")]
    weakest_link: Annotated[str, check(str, is_link, "a link")] | None
    devices: tuple[_Device, ...]
    reason: str | None


_TOLD = Record(_Told)


def _picked(answer: Answer) -> Picked:
    """Raises DocumentError."""
    document = loads(answer.out)
    told = _TOLD.read(document)
    free = [device.memory_free for device in told.devices]
    known = [each for each in free if each is not None]
    return Picked(
        answer.alias,
        told.ids,
        told.weakest_link,
        min(known, default=None) if len(known) == len(free) else None,
        printable(told.reason or "")[:MOST_REASON],
        document,
    )


def pick_from(boxes: Sequence[str], words: Sequence[str], form: str, explain: bool) -> None:
    """Print the box and its devices on one line, or with `form` "json" as the box prints them, and "host"."""
    picked = ranked(boxes, words, explain)[0]
    if form == "json":
        print(json.dumps({"host": picked.box, **{k: v for k, v in picked.document.items() if k != "host"}}))
    else:
        print(f"{picked.box} {picked.ids}")
