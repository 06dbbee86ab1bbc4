"""The option parsers of the real launchers, called in a child process: nothing here imports torch."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

MODULES = {"torchrun": "torch", "accelerate": "accelerate", "deepspeed": "deepspeed"}

_ASK = """
import argparse, contextlib, io, json, sys

def torchrun():
    from torch.distributed.launch import parse_args
    return parse_args

def accelerate():
    from accelerate.commands.launch import launch_command_parser
    return launch_command_parser().parse_args

def deepspeed():
    from deepspeed.launcher.runner import parse_args
    return parse_args

asked, answers = json.load(sys.stdin), {}
made = {}
init = argparse.ArgumentParser.parse_args
def noted(self, args=None, namespace=None):
    made["parser"] = self
    return init(self, args, namespace)
argparse.ArgumentParser.parse_args = noted
for name, lines in asked.items():
    with contextlib.redirect_stdout(io.StringIO()):
        parse = globals()[name]()
    parsed = []
    for line in [["x.py"], *lines]:
        try:
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                space = vars(parse(line))
        except (SystemExit, ValueError):
            parsed.append(None)
            continue
        space = {key: value for key, value in space.items() if isinstance(value, (str, int, float, list))}
        parsed.append(space)
    options = [(list(action.option_strings), action.nargs == 0) for action in made["parser"]._actions]
    answers[name] = {"options": [option for option in options if option[0]], "parsed": parsed[1:]}
sys.stdout.write("ANSWER" + json.dumps(answers))
"""


def installed(launcher: str) -> bool:
    """Whether the tests can ask this launcher's parser."""
    return importlib.util.find_spec(MODULES[launcher]) is not None


def need(launcher: str) -> None:
    """Skip the test where the launcher is not installed (the extra `launchers`)."""
    if not installed(launcher):
        pytest.skip(f"{MODULES[launcher]} is not installed")


def parsed(asked: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, Any]:
    """The options of each installed launcher's parser, and its results for these lines (None: refused)."""
    there = {name: [list(line) for line in lines] for name, lines in asked.items() if installed(name)}
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        input=json.dumps(there),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.partition("ANSWER")[2])
