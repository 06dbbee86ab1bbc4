"""What the subcommands share: how they parse, how they get their source, and how a call ends."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from gputui.inventory.formatting import printable, read_duration
from gputui.sources.source import Source

if TYPE_CHECKING:
    from gputui.allocating.device_request import DeviceRequest

DONE, WRONG_CALL, NO_SOURCE, NOT_ENOUGH, CHECK_FAILED, TOO_LONG = 0, 2, 3, 4, 5, 124
"""Exit statuses (the contract's; `run` ends with its command's own)."""


class WrongCallError(Exception):
    """The call cannot be meant: one line to stderr, status 2."""


_ALIKE = 0.75
"""How alike a word must be to what is suggested for it (difflib's ratio)."""


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
        self._words: list[str] = []

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        self._words = list(args or ())
        for word in self._words:
            # (argparse drops "--" from the values, and hands an empty list over in its place.)
            option, _, value = word.partition("=")
            if value == "--" and option.startswith("-"):
                self.error(f"argument {option}: '--' is no value")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        boxes = self._boxes_apart()
        if boxes is not None and boxes[-1] in message:
            message = f"boxes are separated by commas: {','.join(boxes)}"
        elif message.startswith("unrecognized arguments"):
            message += self._no_demo() or self._meant(message)
        raise WrongCallError(message)

    def _no_demo(self) -> str:
        """That the word after `--demo` is no box, of a word that is nothing else either."""
        # (`dispatch` has made "--demo WORD" "--demo=shared WORD", as some subcommands take a WORD.)
        for option, word in pairwise(self._words):
            if option.startswith("--demo=") and not word.startswith("-"):
                return f"; no demo box is called {word!r} (`gputui --demo list` has all)"
        return ""

    def _meant(self, message: str) -> str:
        """What was meant instead, perhaps, of the first word that is not known."""
        word = message.partition(": ")[2].split(" ")[0].partition("=")[0]
        known = self._option_string_actions
        if word.isascii() and word.isdigit() and "-n" in known:
            return f"; the number of devices is -n {word}"
        if not word.startswith("--"):
            return "; a command to start goes after --"
        import difflib

        close = difflib.get_close_matches(word, known, 1, _ALIKE)
        return f"; did you mean {close[0]}?" if close else ""

    def _boxes_apart(self) -> tuple[str, str] | None:
        """The words of a call that may be boxes with a space between them: `--hosts A B`."""
        for option, box, other in zip(self._words, self._words[1:], self._words[2:], strict=False):
            if option in ("--hosts", "--on") and not other.startswith("-"):
                return box.rstrip(","), other
        return None


def starting_nothing(
    parser: Parser,
    words: Sequence[str],
    command: Sequence[str] | None,
    remedy: str = "use `gputui run` to start a command",
) -> argparse.Namespace:
    """The options of a subcommand that starts no command. Raises WrongCallError where one is given."""
    args = parser.parse_args(words)
    if command is not None:
        raise WrongCallError(f"{parser.prog.removeprefix('gputui ')} does not start commands; {remedy}")
    return args


def duration_type(least: float = 0.0, most: float = 366 * 86_400.0) -> Callable[[str], float]:
    """argparse's type of a time in seconds ("90", "30m", "2h"), from `least` to `most`."""

    def seconds(text: str) -> float:
        try:
            return read_duration(text, least, most)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return seconds


def number_type(what: str, least: int = 0, most: int = 999_999_999) -> Callable[[str], int]:
    """argparse's type of a whole number, in digits, from `least` to `most`; `what` says what is expected."""

    def number(text: str) -> int:
        digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not digits or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return int(text)

    return number


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """`--demo [BOX]`, `--from FILE` and `--root DIR`, which every subcommand takes."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--demo",
        nargs="?",
        const="",
        type=_box,
        metavar="BOX",
        help="show a simulated box instead of this machine; or FILE, the output of nvidia-smi topo -m",
    )
    where.add_argument(
        "--from", dest="recording", metavar="FILE", help="show a recording (`gputui record`), or such a file"
    )
    where.add_argument(
        "--root",
        metavar="DIR",
        help="read /sys, /proc and /usr/share below DIR: another machine's files (`gputui record --trees`)",
    )


def elsewhere(args: argparse.Namespace | DeviceRequest) -> bool:
    """Whether a call looks at a box that is not this machine."""
    return args.demo is not None or args.recording is not None or args.root is not None


def _box(name: str) -> str:
    from gputui.sources.simulated.boxes import BOXES
    from gputui.sources.simulated.source import is_file_name

    if name not in BOXES and not is_file_name(name):
        raise argparse.ArgumentTypeError(f"no demo box is called {name!r}; there are: {', '.join(BOXES)}")
    return name


@contextmanager
def opened(args: argparse.Namespace | DeviceRequest, cpu_only: bool = False) -> Iterator[Source]:
    """The source of a call, open, and closed at the end; `cpu_only`: no device is needed."""
    # (Imported here, as help and wrong calls need no source.)
    from gputui.allocating.named_source import named_source, opened_in_time

    with opened_in_time(named_source(args.demo, args.recording, args.root), cpu_only) as source:
        yield source


def say(message: str) -> None:
    """One line to stderr, where messages go; foreign text in it cannot do anything to the terminal."""
    if sys.stderr is None:
        # Closed before we were started; print would take stdout instead, which is for results.
        return
    with contextlib.suppress(OSError):
        # A message that cannot be written does not change what a call does.
        print(printable(f"gputui: {message}"), file=sys.stderr, flush=True)


def output_width() -> int | None:
    """Columns of the terminal that stdout is; None where it is none: nothing is cut then."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return terminal_columns()


def terminal_columns() -> int:
    """Columns of the terminal; 80 where it does not know (Python 3.10 says 0 there)."""
    import shutil

    return shutil.get_terminal_size().columns or 80


def print_line(line: str) -> None:
    """A line for a shell, to stdout, in the very bytes that our own arguments had, whatever the locale."""
    if not hasattr(sys.stdout, "buffer"):
        print(line)
    else:
        try:
            data = os.fsencode(line)
        except UnicodeEncodeError:
            # The locale has no bytes for it; it did not come from our arguments then.
            data = line.encode(errors="surrogateescape")
        sys.stdout.flush()
        sys.stdout.buffer.write(data + b"\n")
