"""The parts of a message that tests compare: its form, and its names and numbers, not its sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable


def numbers(text: str) -> list[int]:
    """The whole numbers in a message, in order: counts, indices, process ids."""
    return [int(found) for found in re.findall(r"(?<![\w.])\d+(?![\w.])", text)]


def lines_of(err: str) -> tuple[str, ...]:
    """The lines of a call's stderr, without the program's name; asserts that every line is printable and has
    that name."""
    assert err == "" or err.endswith("\n"), err
    lines = err.splitlines()
    assert all(line.startswith("gputui: ") and line.isprintable() for line in lines), err
    return tuple(line.removeprefix("gputui: ") for line in lines)


def warnings_of(err: str) -> tuple[str, ...]:
    """The warnings in a call's stderr, without the prefix "warning: "."""
    return tuple(line.removeprefix("warning: ") for line in lines_of(err) if line.startswith("warning: "))


def only_warning(err: str) -> str:
    """The warning of a call that wrote nothing else on stderr."""
    (line,) = lines_of(err)
    assert line.startswith("warning: "), err
    return line.removeprefix("warning: ")


def of_replaced_words(remarks: Iterable[str]) -> list[str]:
    """The remarks that words of the command have been replaced by the selected devices."""
    return [remark for remark in remarks if remark.endswith(" the selected devices")]
