"""What the subcommands share: how they parse, how they get their source, and how a call ends."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from gputui.inventory.formatting import printable, read_duration
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import NoDevices, NoSourceError, Source, Want

T = TypeVar("T")

DONE, WRONG_CALL, NO_SOURCE, NOT_ENOUGH, CHECK_FAILED, TOO_LONG = 0, 2, 3, 4, 5, 124
"""Exit statuses (the contract's; `run` ends with its command's own)."""


class WrongCallError(Exception):
    """The call cannot be meant: one line to stderr, status 2."""


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

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        for word in args or ():
            # (argparse drops "--" from the values, and hands an empty list over in its place.)
            option, _, value = word.partition("=")
            if value == "--" and option.startswith("-"):
                self.error(f"argument {option}: '--' is no value")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            message += "; a command to start goes after --"
        raise WrongCallError(message)


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


def elsewhere(args: argparse.Namespace) -> bool:
    """Whether a call looks at a box that is not this machine."""
    return args.demo is not None or args.recording is not None or args.root is not None


def _box(name: str) -> str:
    from gputui.sources.simulated.boxes import BOXES
    from gputui.sources.simulated.source import is_file_name

    if name not in BOXES and not is_file_name(name):
        raise argparse.ArgumentTypeError(f"no demo box is called {name!r}; there are: {', '.join(BOXES)}")
    return name


def make_source(demo: str | None, recording: str | None, root: str | None = None) -> Source:
    """The source that the options name; this machine's when they name none."""
    if demo is not None:
        from gputui.sources.simulated.source import named as simulated

        return simulated(demo or None)
    if recording is not None:
        from gputui.sources.recorded import RecordedSource

        return RecordedSource(recording)
    if root is not None:
        from gputui.vendors.box import box_below

        return box_below(root)
    from gputui.allocating.claims.source import WithClaims
    from gputui.vendors.box import this_box

    return WithClaims(this_box(), os.environ)


@contextmanager
def opened(args: argparse.Namespace, cpu_only: bool = False) -> Iterator[Source]:
    """The source of a call, open, and closed at the end.

    With `cpu_only` no device is needed: a machine without a driver is a box without devices then.
    """
    source: Source = InTime(make_source(args.demo, args.recording, args.root))
    if cpu_only and not elsewhere(args):
        source = _for_cpu_only(source)
    source.open()
    try:
        yield source
    finally:
        source.close()


def _for_cpu_only(source: Source) -> Source:
    """A source for a launch without devices. Whose devices are to be hidden must be looked up only where
    several vendors may be here."""
    from gputui.vendors.registry import vendors_here

    if len(vendors_here()) > 1:
        with contextlib.suppress(NoSourceError):
            source.open()
            return source
    return NoDevices()


PATIENCE = 30.0
"""Seconds after which a one-shot call gives a driver up that does not answer (calls can hang for ever)."""


class InTime:
    """A source whose readings come back within `patience` seconds or raise NoSourceError.

    It is read on a daemon thread: a call that hangs in the kernel holds that thread and nothing else. Where
    there can be no thread (`ulimit -u`) it is read on the caller's, however long that takes.
    """

    def __init__(self, source: Source, patience: float | None = None) -> None:
        self.label = source.label
        self._source = source
        self._patience = PATIENCE if patience is None else patience
        self._hangs = False

    def open(self) -> None:
        self._done(self._source.open)

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        return self._done(lambda: self._source.read(want, among))

    def close(self) -> None:
        # Closing NVML under a running call crashes (nvitop #222).
        if not self._hangs:
            self._source.close()

    def _done(self, work: Callable[[], T]) -> T:
        answers: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                answers.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again below, on the caller's thread
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            run()
        else:
            thread.join(self._patience)
        if errors:
            raise errors[0]
        if not answers:
            self._hangs = True
            raise NoSourceError(f"the driver has not answered for {self._patience:.0f} seconds; see `dmesg`")
        return answers[0]


def say(message: str) -> None:
    """One line to stderr, where messages go; foreign text in it cannot do anything to the terminal."""
    if sys.stderr is None:
        # Closed before we were started; print would take stdout instead, which is for results.
        return
    with contextlib.suppress(OSError):
        # A message that cannot be written does not change what a call does.
        print(printable(f"gputui: {message}"), file=sys.stderr, flush=True)


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
