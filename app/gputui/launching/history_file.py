"""The user's file with the history of launches, which is validated when read, and written as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from gputui.inventory.errors import reason_of
from gputui.inventory.light_dataclasses import fields
from gputui.inventory.typed_json import DocumentError, Epoch, Json, Record, Words, whole
from gputui.launching.history import (
    KeepError,
    Launches,
    PastLaunch,
    check_name,
    with_launch,
    working_directory,
)
from gputui.launching.launch_options import MOST, OPTIONS, LaunchOptions
from gputui.system.environment import Environ
from gputui.system.files import (
    NoHomeError,
    UnsafeHomeError,
    alone,
    private_folder,
    read_own,
    state_folder,
    write_private,
)

SCHEMA = 1

_LARGEST = 4 << 20
"""The most bytes that are read and written: a command may have two million."""


def load(environ: Environ) -> Launches:
    """Read the history, the last launch first; rows that are not launches are skipped.

    Raises KeepError where the file exists and cannot be read: the next launch would overwrite it.
    """
    try:
        file = state_folder(environ) / "launches.json"
    except UnsafeHomeError as error:
        raise KeepError(f"saved launches are not used: {error}") from None
    except NoHomeError:
        return ()
    try:
        data = _bytes(file)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise KeepError(f"the launches in {str(file)!r} cannot be read: {error.strerror}") from None
    return _launches(file, data) if data else ()


def _bytes(file: Path) -> bytes:
    """Return the content of a file of our own; never blocks on a named pipe. Raises OSError, KeepError."""
    data = read_own(file, _LARGEST + 1)
    if len(data) > _LARGEST:
        raise KeepError(f"the launches in {str(file)!r} cannot be read: it has more than {_LARGEST} bytes")
    return data


def _launches(file: Path, data: bytes) -> Launches:
    import json

    try:
        document = json.loads(data)
        rows, schema = document["launches"], document["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        rows, schema = None, None
    if isinstance(schema, int) and schema > SCHEMA:
        raise KeepError(f"the launches in {str(file)!r} are of a newer gputui (schema {schema})")
    if not isinstance(rows, list):
        raise KeepError(f"the launches in {str(file)!r} are damaged: repair or remove the file")
    return tuple(each for each_row in rows if (each := read_row(each_row)) is not None)


def change(environ: Environ, how: Callable[[Launches], Launches]) -> Launches:
    """Read the history, apply `how` to it, and write the result, under a lock.

    Raises KeepError; then nothing has changed.
    """
    try:
        folder = state_folder(environ)
    except NoHomeError as error:
        raise KeepError(f"launches cannot be saved: {error}") from None
    try:
        private_folder(folder)
        with alone(folder / ".launches.lock"):
            before = load(environ)
            kept = how(before)
            if kept != before:
                kept, text = _fitting(kept)
                write_private(folder / "launches.json", text)
    except OSError as error:
        raise KeepError(
            f"launches cannot be saved in {str(folder)!r}: {reason_of(error)};"
            " set XDG_STATE_HOME to a writable folder"
        ) from None
    return kept


def remember(environ: Environ, options: LaunchOptions, count: int, when: float) -> str | None:
    """Save a launch on `count` devices, started here, as the last one.

    Returns why it cannot be saved, None when it was.
    """
    try:
        change(environ, lambda known: with_launch(known, options, count, when, working_directory()))
    except KeepError as error:
        return str(error)
    return None


def _fitting(kept: Launches) -> tuple[Launches, str]:
    """Return the launches that fit into the file, and their text. The oldest launches without a name are
    dropped first."""
    import json

    while True:
        text = json.dumps({"schema": SCHEMA, "launches": [row(each) for each in kept]}, indent=1) + "\n"
        if len(text) <= _LARGEST:
            return kept, text
        oldest = max((place for place, each in enumerate(kept) if each.name is None), default=0)
        if not oldest:
            raise KeepError("no room to save this launch: `gputui launches forget NAME` removes one")
        kept = (*kept[:oldest], *kept[oldest + 1 :])


_PAST = Record(
    PastLaunch,
    "name count when where withheld",
    "name where withheld",
    name=object,
    count=Annotated[int, whole(most=MOST)],
    when=Epoch,
    where=Words | None,
)


_OPTIONS = " ".join(f"{each.name}=options.{each.name}" for each in fields(LaunchOptions))
ROW = Record(PastLaunch, f"name count when where withheld {_OPTIONS}", "*")
"""The types of a row, for its schema."""


def row(each: PastLaunch) -> Json:
    """Return a launch as a row of the file, ready for JSON; what is not known is left out."""
    facts = _PAST.write(each, withheld=each.withheld or None) | OPTIONS.write(each.options)
    return {key: value for key, value in facts.items() if value is not None}


def read_row(row: object) -> PastLaunch | None:
    """Return the launch that `row` wrote; None where the row is not a launch."""
    try:
        facts, options = _PAST.facts(row), OPTIONS.read(row)
    except DocumentError:
        return None
    return PastLaunch(options, **facts | {"name": _nameable(facts.get("name"))}) if options.command else None


def _nameable(name: object) -> str | None:
    """Return the name, None where it is not valid."""
    if not isinstance(name, str):
        return None
    try:
        check_name(name)
    except KeepError:
        return None
    return name
