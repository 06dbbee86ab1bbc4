"""Reads files of others: bounded in time and memory, and without waiting for anybody.

All files that are read for one command (its scripts, the scripts that they start, its configurations) form
one reading. Its time is the thread's own CPU time, so a busy machine changes no answer. Work that cannot be
interrupted (a parser written in C) is bounded by the size of its input. Anything that is not read is
reported, by `not_read` or NotReadError.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gputui.inventory.formatting import MIB

SECONDS = 0.1
"""The CPU time of one reading after which no further step begins. It is half of the time that a reading may
take, because a step that has begun is finished."""

MOST_JSON = 10 * MIB
"""The most bytes of a JSON document; the index of DeepSeek-V3's weights has 9 MB."""

_MOST_DIGITS = 400
"""The most digits of a whole number: the time to parse one grows with their square."""

_MOST_VALUES = 250_000
"""The most values of a JSON document: at 232 bytes for the smallest object they stay below 64 MiB."""


_AT_ONCE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class NotReadError(ValueError):
    """A text is not read (any further). The message gives the reason: "it has NUL bytes"."""


class _Reading:
    def __init__(self) -> None:
        self.end = time.thread_time() + SECONDS
        self.notes: dict[str, None] = {}


_reading: ContextVar[_Reading | None] = ContextVar("reading", default=None)


@contextmanager
def one_reading() -> Iterator[dict[str, None]]:
    """Make all reads within this context one reading; a reading inside another one is a part of it.

    Yields the notes on files that were not read, a sentence each, in order: complete at the end.
    """
    known = _reading.get()
    if known is not None:
        yield known.notes
        return
    token = _reading.set(found := _Reading())
    try:
        yield found.notes
    finally:
        _reading.reset(token)


def go_on() -> None:
    """Call before each step of a reading. Raises NotReadError once its time is over."""
    reading = _reading.get()
    if reading is not None and time.thread_time() > reading.end:
        raise NotReadError(f"it takes more than {SECONDS * 1000:.0f} ms to read")


def not_read(name: str, why: object) -> None:
    """Note that a file is not read, or not completely."""
    reading = _reading.get()
    if reading is not None:
        reading.notes[f"{name} is not read: {why}"] = None


def beginning(path: str | os.PathLike[str], most: int, start: int = 0) -> tuple[bytes, bool]:
    """Read at most `most` bytes of a regular file from `start` on, and whether the file ends there.

    Raises OSError (also for anything but a regular file), and ValueError for a path with a NUL.
    """
    handle = open_checked(path, _regular)
    try:
        facts = os.fstat(handle)
        # A large buffer takes longer than the file in it. (The kernel's own files have no size.)
        found = os.pread(handle, min(most, facts.st_size or most) + 1, start)
    finally:
        os.close(handle)
    return found[:most], len(found) <= most


def open_checked(path: str | os.PathLike[str], check: Callable[[os.stat_result], None]) -> int:
    """Open a file for reading, without waiting, once `check` has accepted its facts. Raises OSError.

    To open a pipe or a device, to which a link of another user may lead, has effects: it lets a writer go on,
    starts a watchdog, rewinds a tape. Without O_PATH (macOS) it is opened before the check.
    """
    place = os.open(path, getattr(os, "O_PATH", _AT_ONCE) | os.O_CLOEXEC)
    try:
        check(os.fstat(place))
        # Not by its path, which may lead elsewhere by now.
        return os.open(f"/proc/self/fd/{place}", _AT_ONCE) if hasattr(os, "O_PATH") else os.dup(place)
    finally:
        os.close(place)


def _regular(facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(None, "not a regular file")


TextBeginning = tuple[str, bool]
"""The text at the beginning of a file, and whether that is the whole file."""


def text_beginning(path: str, most: int) -> TextBeginning:
    """The same as text, up to its first NUL, where readers of text stop.

    Bytes that are not UTF-8 are kept (surrogateescape), as in the words of a command. Raises as `beginning`.
    """
    data, whole = beginning(path, most)
    text, nul, _ = data.partition(b"\0")
    if nul and data[:2] != b"\x7fE":
        not_read(os.path.basename(path), "it has NUL bytes")  # noqa: PTH119 - a text
    return text.decode("utf-8", "surrogateescape"), whole and not nul


def parse_json(data: bytes | str, most: int = MOST_JSON, values: int = _MOST_VALUES) -> Any:
    """Parse a JSON document that takes at most `most` bytes as text and has about `values` values at most.
    Raises NotReadError for a document that is too large, else the parser's ValueError."""
    if isinstance(data, str):
        data = data.encode(errors="surrogatepass")
    # In a text with one wide character, every character takes four bytes.
    wide = b"\\u" in data or not data.isascii()
    if len(data) * (4 if wide else 1) > most:
        raise NotReadError(f"it has {len(data)} bytes")
    if sum(map(data.count, (b",", b"[", b"{"))) > values:
        raise NotReadError(f"it has more than {values} values")
    try:
        return json.loads(data, parse_int=_integer)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise NotReadError(f"it has a number of {len(text)} digits")
    return int(text)
