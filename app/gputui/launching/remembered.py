"""The last launches, and those that were given a name: what to run, and on how many devices.

Kept in one file of the user's own. Values of variables that look like secrets are not kept.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from gputui.launching.compose import Plan
from gputui.launching.launchers import AUTO, LAUNCHERS
from gputui.launching.state import NoHomeError, state_folder, write_private
from gputui.launching.visibility import Ids

SCHEMA = 1

MOST = 40
"""Launches without a name that are kept."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Remembered:
    """A launch of before. `count`: devices, 0 for CPU only; `when`: seconds since the epoch."""

    plan: Plan
    count: int
    when: float
    name: str | None = None


Launches = tuple[Remembered, ...]
"""The memory: the last launch first."""


class KeepError(Exception):
    """The file cannot be written; the message has cause and remedy."""


def with_launch(known: Sequence[Remembered], plan: Plan, count: int, when: float) -> Launches:
    """The memory after a launch: it is the first; the same one from before is not there twice.

    Named ones stay however many there are; of the others the last `MOST`.
    """
    kept = _without_secrets(plan)
    before = next((each for each in known if each.plan == kept and each.count == count), None)
    first = Remembered(kept, count, when, before.name if before else None)
    rest = [each for each in known if each is not before]
    unnamed = [each for each in rest if each.name is None][: MOST - 1]
    return (first, *(each for each in rest if each.name is not None or each in unnamed))


def named(known: Sequence[Remembered], place: int, name: str | None) -> Launches:
    """The memory with a name for one of them, or without (None). A name is one launch's only."""
    return tuple(
        replace(each, name=name) if at == place else replace(each, name=None) if each.name == name else each
        for at, each in enumerate(known)
    )


def found(known: Sequence[Remembered], word: str) -> int | None:
    """The place of the launch with that name, or that number, counted from 1 as they are listed."""
    for place, each in enumerate(known):
        if each.name == word:
            return place
    if word.isascii() and word.isdigit() and 1 <= int(word[:6]) <= len(known):
        return int(word) - 1
    return None


def _without_secrets(plan: Plan) -> Plan:
    return replace(plan, additions=tuple(pair for pair in plan.additions if not _SECRET.search(pair[0])))


# The file.


def load(environ: Mapping[str, str]) -> Launches:
    """What is kept, the last one first. A file that is damaged or not ours is as none."""
    import json

    try:
        file = _file(environ)
        with file.open(encoding="utf-8", errors="surrogateescape") as stream:
            document = json.loads(stream.read(_LARGEST))
        rows = document["launches"]
    except (OSError, NoHomeError, ValueError, KeyError, TypeError, RecursionError):
        return ()
    return (
        tuple(each for each_row in rows if (each := _read(each_row)) is not None)
        if isinstance(rows, list)
        else ()
    )


def change(environ: Mapping[str, str], how: Callable[[Launches], Launches]) -> Launches:
    """Read, change by `how` (from what is kept to what is to be kept), and write, with nobody in between.

    Raises KeepError.
    """
    import json

    try:
        file = _file(environ)
        file.parent.mkdir(0o700, parents=True, exist_ok=True)
        with _alone(file.with_name(".launches.lock")):
            kept = how(load(environ))
            document = {"schema": SCHEMA, "launches": [row(each) for each in kept]}
            write_private(file, json.dumps(document, indent=1) + "\n")
    except NoHomeError as error:
        raise KeepError(str(error)) from None
    except OSError as error:
        raise KeepError(f"launches cannot be remembered: {error.filename}: {error.strerror}") from None
    return kept


def _file(environ: Mapping[str, str]) -> Path:
    return state_folder(environ) / "launches.json"


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    import fcntl

    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def row(each: Remembered) -> dict[str, Any]:
    """A launch as it is kept, ready for JSON."""
    facts = {"name": each.name, "count": each.count, "when": each.when, **asdict(each.plan)}
    return {key: value for key, value in facts.items() if value is not None}


def _read(row: object) -> Remembered | None:
    """A row of the file; None where it is not one."""
    if not isinstance(row, dict):
        return None
    plan: dict[str, Any] = {}
    for each in fields(Plan):
        value = row.get(each.name, each.default)
        if each.name == "additions":
            if not _pairs(value):
                return None
            value = tuple((str(name), str(text)) for name, text in value)
        elif each.name == "command":
            if not (isinstance(value, list) and value and all(isinstance(word, str) for word in value)):
                return None
            value = tuple(value)
        elif not _fits(each.name, value):
            return None
        plan[each.name] = value
    count, when, name = row.get("count"), row.get("when"), row.get("name")
    if (
        not isinstance(count, int)
        or not isinstance(when, (int, float))
        or not isinstance(name, (str, type(None)))
    ):
        return None
    return Remembered(Plan(**plan), count, float(when), name)


_NUMBERS, _LAUNCHERS = ("processes", "nodes"), (AUTO, *LAUNCHERS)


def _fits(name: str, value: object) -> bool:
    """Whether a field of a plan can have that value."""
    if name == "ids":
        return value in get_args(Ids)
    if name == "launcher":
        return value in _LAUNCHERS
    if name == "numa":
        return isinstance(value, bool)
    if name in _NUMBERS:
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return whole or (name == "processes" and value is None)
    return value is None or isinstance(value, str)


def _pairs(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
        for pair in value
    )
