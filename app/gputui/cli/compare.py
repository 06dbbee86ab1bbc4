"""`gputui compare`: run the same command in variants on the same devices, and print a table."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.cli import experiment, experiment_call
from gputui.cli.common import Parser


def parser() -> Parser:
    return experiment_call.parser("comparison")


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    return experiment.main("comparison", words, command)
