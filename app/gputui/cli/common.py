"""The parts that the subcommands share: the parser, the source, the messages and the exit statuses."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from gputui.inventory.errors import WrongCallError as WrongCallError
from gputui.inventory.formatting import printable, read_duration, whole_between
from gputui.sources.source import Source, Want

if TYPE_CHECKING:
    from gputui.allocating.device_request import DeviceRequest
    from gputui.allocating.settings import Settings
    from gputui.inventory.snapshot import Snapshot

_Value = TypeVar("_Value")

DONE, WRONG_CALL, NO_SOURCE, NOT_ENOUGH, CHECK_FAILED = 0, 2, 3, 4, 5
"""Exit statuses, which are part of the contract; `run` ends with its command's own status."""


INTERNAL = argparse.SUPPRESS
"""The help of an option that gputui passes to itself on another box or in a job; no help shows it."""


_WIDEST = 100
"""The most columns of a help text: longer lines are hard to read."""


class _Form(argparse.HelpFormatter):
    """Fills paragraphs; one that begins with a space (a table, examples) stays as it is."""

    def __init__(self, prog: str, width: int = _WIDEST) -> None:
        super().__init__(prog, width=width - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(part if part[:1] == " " else fill(part, width, indent) for part in parts)


class _WholeHelp(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        print(parser.format_whole_help(), end="")
        parser.exit()


class Call(argparse.Namespace):
    """A call: the values of its options, and the words that they were read from.

    subcommand  its name, "" for the screen
    words       gputui's own words without the subcommand
    argv        the command after `--`, None without a `--`
    """

    subcommand: str
    words: Sequence[str]
    argv: Sequence[str] | None


class Parser(argparse.ArgumentParser):
    """argparse's parser, with one-line errors, without abbreviated options, and with a help in two depths.

    `common` are the options that `--help` shows; without it, all. `--help-all` shows all in their groups,
    except those that gputui passes to itself, which have `help=INTERNAL`. `example` is printed below both.
    """

    def __init__(self, name: str, about: str, *, common: str = "", example: str = "", **more: object) -> None:
        super().__init__(
            prog=f"gputui {name}".strip(),
            description=about,
            epilog="\n".join(f"  {line}" for line in example.splitlines()) or None,
            allow_abbrev=False,
            formatter_class=_Form,
            add_help=False,
            **more,  # type: ignore[arg-type]
        )
        self.common = common.split()
        self._words: list[str] = []
        self._positionals.title = "arguments"
        self.add_argument("-h", "--help", action="help", help="show this help")
        whole = "show all options" if common else INTERNAL
        self.add_argument("--help-all", action=_WholeHelp, nargs=0, help=whole)

    def format_help(self) -> str:
        if not self.common:
            return self.format_whole_help()
        known = self._option_string_actions
        usual = [known[name] for name in self.common]
        positional = [action for action in self._actions if not action.option_strings]
        more = f"`{self.prog} --help-all` shows all options."
        return self._help([("arguments", None, positional), ("options", None, usual)], more)

    def format_whole_help(self) -> str:
        """The help with all options, in their groups."""
        groups = self._action_groups
        return self._help([(each.title, each.description, each._group_actions) for each in groups])

    def _help(
        self, sections: Sequence[tuple[str | None, str | None, list[argparse.Action]]], end: str = ""
    ) -> str:
        # argparse makes one more for each option of every call: only this one asks for the terminal's width.
        form = _Form(self.prog, min(terminal_columns(), _WIDEST))
        form.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        form.add_text(self.description)
        for title, about, actions in sections:
            form.start_section(title)
            form.add_text(about)
            form.add_arguments(actions)
            form.end_section()
        if self.epilog:
            form.start_section("examples" if "\n" in self.epilog else "example")
            form.add_text(self.epilog)
            form.end_section()
        form.add_text(end or None)
        return form.format_help()

    def parse_args(self, words: Sequence[str], call: Call | None = None) -> Call:  # type: ignore[override]
        return super().parse_args(words, call or Call())

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        self._words = list(args or ())
        for word in self._words:
            # argparse drops "--" from the values, and passes an empty list in its place.
            option, _, value = word.partition("=")
            if value == "--" and option.startswith("-"):
                self.error(f"argument {option}: '--' is not a value")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        boxes = self._boxes_apart()
        if boxes is not None and boxes[-1] in message:
            message = f"boxes are separated by commas: {','.join(boxes)}"
        elif message.startswith("unrecognized arguments"):
            # The user has typed it in another form (`dispatch`).
            if "--demo=" in message and "--demo" not in self._option_string_actions:
                message = f"{self.prog} shows no box, so it takes no --demo"
            else:
                message += self._no_demo()
        raise WrongCallError(message)

    def _no_demo(self) -> str:
        """The hint that the word after `--demo` is not a box, where the word has no other meaning either."""
        # Some subcommands take a WORD, so `dispatch` has rewritten "--demo WORD" to "--demo=shared WORD".
        for option, word in pairwise(self._words):
            if option.startswith("--demo=") and not word.startswith("-"):
                from gputui.sources.simulated.source import no_box

                return f"; {no_box(word)}"
        return ""

    def _boxes_apart(self) -> tuple[str, str] | None:
        """The words of a call that may be boxes with a space between them: `--hosts A B`."""
        for option, box, other in zip(self._words, self._words[1:], self._words[2:], strict=False):
            if option in ("--hosts", "--on") and not other.startswith("-"):
                return box.rstrip(","), other
        return None


def parsed_by(parse: Callable[[str], _Value]) -> Callable[[str], _Value]:
    """The argparse type of the values that `parse` returns, with the message of the ValueError that it
    raises."""

    def value(text: str) -> _Value:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value


def duration_type(least: float = 0.0, most: float = 366 * 86_400.0) -> Callable[[str], float]:
    """The argparse type of a time in seconds ("90", "30m", "2h"), from `least` to `most`."""

    return parsed_by(lambda text: read_duration(text, least, most))


def number_type(what: str, least: int = 0, most: int = 999_999_999) -> Callable[[str], int]:
    """The argparse type of an integer in digits, from `least` to `most`; `what` names the expected value."""

    def number(text: str) -> int:
        found = whole_between(text, least, most)
        if found is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return found

    return number


def add_json_option(parser: argparse._ActionsContainer, about: str = "print JSON") -> None:
    """Add `--json`, which prints what `about` says."""
    parser.add_argument("--json", action="store_true", help=about)


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add `--demo [BOX]`, `--from FILE` and `--root DIR`, which every subcommand takes."""
    where = parser.add_argument_group("which box").add_mutually_exclusive_group()
    where.add_argument(
        "--demo",
        nargs="?",
        const="",
        type=_box,
        metavar="BOX",
        help="show a simulated box instead of this machine: shared (busy), full, empty, lost (broken), mixed,"
        " … (`--demo list`), or a file with the output of `nvidia-smi topo -m`",
    )
    where.add_argument(
        "--from",
        dest="recording",
        metavar="FILE",
        help="show a recording (`gputui record`), or the output of `nvidia-smi topo -m`",
    )
    where.add_argument(
        "--root",
        metavar="DIR",
        help="read another machine's /sys, /proc and /usr/share below DIR (`gputui record --trees`)",
    )


def elsewhere(args: Call | DeviceRequest) -> bool:
    """Whether a call reads a box other than this machine."""
    return args.demo is not None or args.recording is not None or args.root is not None


def warn_elsewhere(args: Call | DeviceRequest, then: str = "") -> None:
    """Warn where the shown devices are not the devices that a command gets, and of the consequence."""
    if elsewhere(args):
        whose = "not this machine's (--from, --root)" if args.demo is None else "simulated (--demo)"
        warn(f"the devices are {whose}{then}")


def _box(name: str) -> str:
    from gputui.sources.simulated.source import is_box, no_box

    if not is_box(name):
        raise argparse.ArgumentTypeError(no_box(name))
    return name


def source_of(args: Call | DeviceRequest) -> Source:
    """Return the source of a call, not open yet."""
    # Imported here: help and wrong calls need no source.
    from gputui.allocating.named_source import named_source

    return named_source(args.demo, args.recording, args.root)


@contextmanager
def opened(args: Call | DeviceRequest, cpu_only: bool = False) -> Iterator[Source]:
    """Open the source of a call, and close it at the end. `cpu_only`: no device is needed."""
    from gputui.allocating.named_source import opened_in_time

    with opened_in_time(source_of(args), cpu_only) as source:
        yield source


def read(args: Call, want: Want) -> Snapshot:
    """Read the box of a call once."""
    with opened(args) as source:
        return source.read(want)


def read_with_past(args: Call, want: Want) -> Snapshot:
    """The same; of this machine, with what the kept timelines know about its users' idle devices."""
    snapshot = read(args, want)
    # Imported here: help and wrong calls need no past.
    from gputui.timeline.past import with_past

    return snapshot if elsewhere(args) else with_past(snapshot, os.environ)


def own_settings() -> Settings:
    """The settings. Raises SettingsError where they are invalid."""
    # Imported here: help and wrong calls need no settings.
    from gputui.allocating.settings import settings

    return settings(os.environ)


def say(message: str) -> None:
    """Print a message as one line on stderr, with foreign text made harmless to the terminal."""
    if sys.stderr is None:
        # stderr was closed before our start. print would use stdout instead, which is for results.
        return
    with contextlib.suppress(OSError):
        # A message that cannot be written does not change the outcome of a call.
        print(printable(f"gputui: {message}"), file=sys.stderr, flush=True)


def say_notes(notes: Iterable[object]) -> None:
    """Print a line on stderr for each of the notes."""
    for note in notes:
        say(f"note: {note}")


def warn(message: object) -> None:
    """Print a warning as `say` does."""
    say(f"warning: {message}")


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document as one line on stdout."""
    import json

    # ASCII only: a lone surrogate from a process's command line must not break the output.
    print(json.dumps(document))


def write_file(name: str, data: bytes, private: bool = False) -> None:
    """Write a result into the file that a call names; `private`: only its owner can read a new one. Raises
    WrongCallError."""
    from pathlib import Path

    from gputui.system.files import write_result

    try:
        write_result(Path(name), data, private)
    except OSError as error:
        raise WrongCallError(f"cannot write {name!r}: {error.strerror}") from None


def output_width() -> int | None:
    """Columns of the terminal on stdout; None where stdout is not a terminal, and nothing is cut."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return terminal_columns()


def terminal_columns() -> int:
    """Columns of the terminal; 80 where they are unknown (Python 3.10 reports 0 then)."""
    import shutil

    return shutil.get_terminal_size().columns or 80


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for people to stdout, in what it can show."""
    print("\n".join(lines))


def print_line(line: str) -> None:
    """Print a line for a shell to stdout, with the same bytes as our own arguments, in any locale."""
    if not hasattr(sys.stdout, "buffer"):
        print(line)
    else:
        try:
            data = os.fsencode(line)
        except UnicodeEncodeError:
            # The locale cannot encode the line, which therefore did not come from our arguments.
            data = line.encode(errors="surrogateescape")
        sys.stdout.flush()
        sys.stdout.buffer.write(data + b"\n")
