"""Records that are kept in the state folder, a folder each (comparisons, sweeps), and who runs one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from gputui.inventory.process import Identity
from gputui.inventory.untrusted_json import DocumentError, JsonValue
from gputui.jobs.job import PidScope
from gputui.jobs.process_tree import alive, here, identity
from gputui.jobs.store import cannot_keep
from gputui.system.files import open_own, write_private

MOST_WORDS = 1_000_000
_MOST_BYTES = 64 * 1024 * 1024


class RecordError(Exception):
    """A record that cannot be read, found or removed; the message is one line."""


class Kept(Protocol):
    """What a record says, or why it cannot be read."""

    @property
    def id(self) -> str:
        """The name of its folder."""


T = TypeVar("T")
K = TypeVar("K", bound=Kept)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A folder that has no record we could read, and why."""

    id: str
    folder: Path
    reason: str


def write_record(file: Path, document: Mapping[str, object]) -> None:
    """Write a document, and that it is this process that runs what it tells of. Raises JobError."""
    scope, runner = here(), identity(os.getpid())
    about = {
        "host": scope.host,
        "boot": scope.boot,
        "pids": scope.pids,
        "pid": runner.pid,
        "ticks": runner.ticks,
    }
    try:
        write_private(file, json.dumps({**document, "runner": about}))
    except OSError as error:
        raise cannot_keep(file.parent.parent, error) from None


def entries(folder: Path) -> list[Path]:
    """The folders of the records, by name. Raises RecordError when they cannot be looked for."""
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RecordError(f"cannot read {str(folder)!r}: {error.strerror}") from None


def named(word: str, among: Sequence[K], what: str, subcommand: str) -> K:
    """The one that a word means: its id, or the beginning of one. Raises RecordError."""
    like = [each for each in among if each.id == word] or [
        each for each in among if word and each.id.startswith(word)
    ]
    if len(like) == 1:
        return like[0]
    if like:
        raise RecordError(f"{word!r} matches more than one {what}: {', '.join(each.id for each in like)}")
    raise RecordError(f"no {what} is called {word!r}; `gputui {subcommand} --list` lists them")


def remove(folder: Path) -> None:
    """Remove a record, if it is there. Raises RecordError."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RecordError(f"cannot remove {str(folder)!r}: {error.strerror}") from None


def read_record(file: Path, made: Callable[[JsonValue], T]) -> T:
    """What `made` makes of a record, which it may refuse by DocumentError. Raises RecordError."""
    try:
        handle = open_own(file)
        with os.fdopen(handle, "rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise RecordError("its record is too long")
        return made(JsonValue(json.loads(data), "file"))
    except FileNotFoundError:
        raise RecordError("there is no record in it") from None
    except OSError as error:
        raise RecordError(f"it cannot be read: {error.strerror}") from None
    except DocumentError as error:
        raise RecordError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file.name}: not JSON: {error}") from None


def runs(top: JsonValue) -> bool:
    """Whether the process is there that wrote a record; on another machine nobody can tell, and it counts.

    Raises DocumentError.
    """
    runner = top["runner"]
    boot, pids = runner["boot"], runner["pids"]
    scope = PidScope(
        runner["host"].text(),
        boot.text() if boot.known else None,
        pids.text() if pids.known else None,
    )
    process = Identity(runner["pid"].whole(least=1), maybe_whole(runner["ticks"]))
    now = here()
    if scope == now:
        return alive(process)
    # (This machine after a reboot.)
    return not (scope.host == now.host and scope.boot != now.boot)


def maybe_whole(node: JsonValue) -> int | None:
    """A whole number, or null."""
    return node.whole() if node.known else None


def texts(node: JsonValue, most: int) -> tuple[str, ...]:
    """A list of `any_text`."""
    return tuple(any_text(each) for each in node.items(most))


def any_text(node: JsonValue) -> str:
    """As `JsonValue.text`, with the stray bytes that a command line may have."""
    if isinstance(node.value, str):
        with contextlib.suppress(UnicodeEncodeError):
            node.value.encode(errors="surrogateescape")
            return node.value
    raise node.wrong("a text")
