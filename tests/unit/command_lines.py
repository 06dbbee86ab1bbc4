"""Reader of the table of command lines, tests/data/command_lines.txt; its first lines describe the format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from gputui.choosing.grouping import parse
from gputui.choosing.named_devices import NONE
from gputui.launching.intent import Asked, ContradictionError, Intent, settle
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers.base import ScriptLauncher
from gputui.launching.read_intent import read_intent
from gputui.launching.shell_words import assignments, split
from gputui.launching.wrappers import unwrap
from unit.host_environments import Told

TABLE = Path(__file__).parent.parent / "data" / "command_lines.txt"


@dataclass(frozen=True)
class Row:
    """One command line, and the expected reading of it."""

    text: str
    call: str
    command: str
    expected: str
    source: str
    more: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> LaunchOptions:
        """The command as `gputui run` takes it."""
        additions, command = assignments(split(self.command))
        return LaunchOptions(command, additions=additions)

    @property
    def inherited(self) -> dict[str, str]:
        """The variables that gputui inherits."""
        return dict(pair for word in self.call.split() for pair in assignments((word,))[0])

    @property
    def asked(self) -> Asked:
        """The options of the call."""
        words = self.call.split()
        values = dict(pairwise(words))
        count = values.get("-n")
        group = values.get("--group")
        return Asked(int(count) if count else None, values.get("--gpus"), parse(group) if group else None)

    @property
    def intent(self) -> Intent:
        """The intent read from the command."""
        return read_intent(self.options, self.inherited, HOST)

    def indices(self) -> list[int] | None:
        """The indices of the requested devices; None where the call is refused, or names UUIDs.

        They are the named ones, or as many as the number says, other than a box's first.
        """
        what = self.expected.split()[0]
        asked = None if what == "refused" else settle(self.asked, self.intent, "--force" in self.call.split())
        if asked is None or "GPU-" in what:
            return None
        if asked.names is not None:
            return [] if asked.names == NONE else [int(name) for name in asked.names.split(",")]
        count = asked.count or (asked.group.unit if asked.group else 1)
        return [11 - place for place in range(count)]

    def settled(self) -> str:
        """The final request, in the format of `expected`."""
        try:
            asked = settle(self.asked, self.intent, "--force" in self.call.split())
        except ContradictionError as error:
            assert len(str(error).splitlines()) == 1
            return "refused"
        what = "cpu" if asked.names == NONE else asked.names or (str(asked.count) if asked.count else "-")
        return f"{what} {asked.group}" if asked.group else what


def _rows(text: str) -> Iterator[Row]:
    source = ""
    for line in text.splitlines():
        if line.startswith("#: "):
            source = line[3:]
        elif " => " in line and not line.startswith("#"):
            before, _, after = line.partition(" => ")
            call, _, command = before.partition("$ ")
            expected, *more = after.split("; ")
            named = (each.partition(" ") for each in more)
            yield Row(
                line, call.strip(), command, expected, source, {name: value for name, _, value in named}
            )


def _files(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        if line.startswith("@ "):
            name, *lines = line[2:].split(" | ")
            found[name] = "\n".join(lines) + "\n"
    return found


ROWS = [*_rows(TABLE.read_text())]
HOST = Told(files=_files(TABLE.read_text()))


def lines_of(launcher: ScriptLauncher) -> list[list[str]]:
    """The words after the launcher's own, from each row that starts it."""
    found = []
    for row in ROWS:
        own, rest = launcher.split(unwrap(row.options.command)[1])
        if own:
            found.append(list(rest))
    return found
