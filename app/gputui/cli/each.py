"""`gputui each`: many tasks of one command, or of a file, each on its own devices, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.cli import experiment, experiment_call
from gputui.cli.common import Parser


def parser() -> Parser:
    return experiment_call.parser("sweep")


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    return experiment.main("sweep", words, command)
