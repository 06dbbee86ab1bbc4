"""`gputui compare`: run the same command in variants on the same devices, and print a table."""

from __future__ import annotations

from gputui.cli import experiment, experiment_call
from gputui.cli.common import Call, Parser


def parser() -> Parser:
    return experiment_call.parser("comparison")


def main(args: Call) -> int:
    return experiment.main("comparison", args)
