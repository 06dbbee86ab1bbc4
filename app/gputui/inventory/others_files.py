"""Reading files that others wrote: bounded in time and memory, and never waiting for anybody.

What is read for one command (its scripts, what these start, its configurations) is one reading. Its time is
the thread's own CPU time, so that a busy machine changes no answer; work that cannot be interrupted (a parser
written in C) is bounded by what it is given. Whatever is not read is said, by `not_read` or NotReadError.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

SECONDS = 0.1
"""CPU time of one reading, after which nothing more is begun: half of what a reading may take, as what has
been begun goes on to its end."""

MOST_JSON = 10 * 1024 * 1024
"""Bytes of a JSON document; the index of DeepSeek-V3's weights has 9 MB."""

_MOST_DIGITS = 400
"""Of a whole number: the time to read one grows with their square."""

_MOST_VALUES = 250_000
"""Values of a JSON document: at 232 bytes for the smallest object they stay below 64 MiB."""


class NotReadError(ValueError):
    """It is not read (any further). The message says why: "it has NUL bytes"."""


class _Reading:
    def __init__(self) -> None:
        self.end = time.thread_time() + SECONDS
        self.notes: dict[str, None] = {}


_reading: ContextVar[_Reading | None] = ContextVar("reading", default=None)


@contextmanager
def one_reading() -> Iterator[dict[str, None]]:
    """All that is read within is one reading; within another one it is a part of that.

    Gives what was not read, a sentence each, in order: complete at the end.
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
    """Called before each step of a reading. Raises NotReadError once its time is over."""
    reading = _reading.get()
    if reading is not None and time.thread_time() > reading.end:
        raise NotReadError(f"it takes more than {SECONDS * 1000:.0f} ms to read")


def not_read(name: str, why: object) -> None:
    """Note that a file is not read, or not to its end."""
    reading = _reading.get()
    if reading is not None:
        reading.notes[f"{name} is not read: {why}"] = None


def beginning(path: str | os.PathLike[str], most: int, start: int = 0) -> tuple[bytes, bool]:
    """At most `most` bytes of a regular file from `start` on, and whether the file ends there. Raises OSError
    (also for what is no regular file), and ValueError for a path with a NUL."""
    # Without waiting, where it is a pipe: whether it is one is asked of what was opened.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(None, "not a regular file")
        found = os.pread(handle, most + 1, start)
    finally:
        os.close(handle)
    return found[:most], len(found) <= most


def text_beginning(path: str, most: int) -> tuple[str, bool]:
    """The same as text, up to its first NUL, which no reader of text gets past. Bytes that are no UTF-8 are
    kept (surrogateescape), as in the words of a command. Raises as `beginning`."""
    data, whole = beginning(path, most)
    text, nul, _ = data.partition(b"\0")
    if nul and data[:2] != b"\x7fE":
        not_read(os.path.basename(path), "it has NUL bytes")  # noqa: PTH119 - a text
    return text.decode("utf-8", "surrogateescape"), whole and not nul


def parse_json(data: bytes | str, most: int = MOST_JSON, values: int = _MOST_VALUES) -> Any:
    """The values of a JSON document that takes at most so many bytes as a text, and has about that many
    values at most. Raises ValueError: NotReadError for one that is too large, else what the parser says."""
    if isinstance(data, str):
        data = data.encode(errors="surrogatepass")
    # (A text with one wide character takes four bytes for each of the others.)
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
