"""`gputui each`: run the tasks of a command or a file, each on devices of its own, and print a table."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.cli import experiment, experiment_call
from gputui.cli.common import Parser


def parser() -> Parser:
    return experiment_call.parser("sweep")


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    return experiment.main("sweep", words, command)
