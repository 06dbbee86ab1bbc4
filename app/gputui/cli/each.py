"""`gputui each`: many tasks of one command, or of a file, each on its own devices, as a table."""

from __future__ import annotations

from gputui.cli import experiment, experiment_call
from gputui.cli.common import Call, Parser


def parser() -> Parser:
    return experiment_call.parser("sweep")


def main(args: Call) -> int:
    return experiment.main("sweep", args)
