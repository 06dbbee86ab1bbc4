"""The fields that the records of jobs and experiments have in common, read from untrusted JSON.

What a field cannot be raises DocumentError.
"""

from __future__ import annotations

from gputui.inventory.process import Identity
from gputui.inventory.untrusted_json import MOST_TEXT, JsonValue
from gputui.jobs.job import PidScope

_MOST_WORDS = 1_000_000
_LONGEST = MOST_TEXT * 16
"""A command line has 2 MiB at most (execve(2))."""


def check_schema(top: JsonValue, schema: int) -> None:
    """Refuse a record of another gputui."""
    if top["schema"].value != schema:
        raise top["schema"].wrong(f"schema {schema} of this gputui")


def any_text(node: JsonValue) -> str:
    """As `JsonValue.text`, with the stray bytes that a command line may have."""
    if not isinstance(node.value, str) or len(node.value) > _LONGEST:
        raise node.wrong("a text")
    try:
        node.value.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise node.wrong("valid Unicode") from None
    return node.value


def maybe_text(node: JsonValue) -> str | None:
    """`any_text`, or null."""
    return any_text(node) if node.known else None


def texts(node: JsonValue, most: int = _MOST_WORDS) -> tuple[str, ...]:
    """A list of `any_text`."""
    return tuple(any_text(each) for each in node.items(most))


def maybe_whole(node: JsonValue) -> int | None:
    """A whole number, or null."""
    return node.whole() if node.known else None


def maybe_moment(node: JsonValue) -> float | None:
    """Seconds since the epoch, or null."""
    return node.moment() if node.known else None


def identity_of(node: JsonValue) -> Identity:
    """A process, by `pid` and `ticks`."""
    # 0 and -1 are groups of processes to kill(2), 1 is the whole machine's first.
    return Identity(node["pid"].whole(least=1), maybe_whole(node["ticks"]))


def scope_of(node: JsonValue) -> PidScope:
    """Where its pids count, by `host`, `boot` and `pids`."""
    return PidScope(any_text(node["host"]), maybe_text(node["boot"]), maybe_text(node["pids"]))
