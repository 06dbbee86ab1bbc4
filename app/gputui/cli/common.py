"""What the subcommands share: how they parse, how they get their source, and how a call ends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from gputui.inventory.wording import printable
from gputui.sources.source import Source

DONE, WRONG_CALL, NO_SOURCE, NOT_ENOUGH = 0, 2, 3, 4
"""Exit statuses (the contract's; `run` ends with its command's own)."""


class WrongCallError(Exception):
    """The call cannot be meant: one line to stderr, status 2."""


class NotEnoughError(Exception):
    """Fewer devices than asked for: the reason to stderr, nothing to stdout, status 4."""


class Parser(argparse.ArgumentParser):
    """argparse, with wrong calls as one line and no guessing of shortened options."""

    def __init__(self, name: str, about: str, **more: object) -> None:
        super().__init__(
            prog=f"gputui {name}".strip(),
            description=about,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **more,  # type: ignore[arg-type]
        )

    def error(self, message: str) -> NoReturn:
        raise WrongCallError(message)


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """`--demo [BOX]` and `--from FILE`, which every subcommand takes."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--demo", nargs="?", const="", type=_box, metavar="BOX", help="a simulated box, not this machine"
    )
    where.add_argument("--from", dest="recording", metavar="FILE", help="a recording (`gputui record`)")


def _box(name: str) -> str:
    from gputui.sources.simulated.boxes import BOXES

    if name not in BOXES:
        raise argparse.ArgumentTypeError(f"there is no demo box {name!r}; there are: {', '.join(BOXES)}")
    return name


def make_source(demo: str | None, recording: str | None) -> Source:
    """The source that the options name; this machine's when they name none."""
    if demo is not None:
        from gputui.sources.simulated.source import named as simulated

        return simulated(demo or None)
    if recording is not None:
        from gputui.sources.recorded import RecordedSource

        return RecordedSource(recording)
    from gputui.sources.nvml import NvmlSource

    return NvmlSource()


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[Source]:
    """The source of a call, open, and closed at the end."""
    source = make_source(args.demo, args.recording)
    source.open()
    try:
        yield source
    finally:
        source.close()


def say(message: str) -> None:
    """One line to stderr, where messages go; foreign text in it cannot do anything to the terminal."""
    print(printable(f"gputui: {message}"), file=sys.stderr)
