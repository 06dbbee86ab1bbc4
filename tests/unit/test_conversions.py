"""A command converts from every launcher to every other: same script, same arguments, same environment."""

from __future__ import annotations

import itertools
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching.compose import compose
from gputui.launching.launch import Launch
from gputui.launching.launch_options import AUTO, LaunchOptions
from gputui.launching.launchers import LAUNCHERS, recognised
from gputui.launching.python_command import started_program
from table_tests import each_row
from unit.builders import gpu
from unit.host_environments import Told

KINDS = {"script": ("train.py",), "module": ("train",), "program": ("./train.sh",)}

STARTS = {
    ("python", "script"): "python",
    ("python", "module"): "python -m",
    ("python", "program"): "",
    ("torchrun", "script"): "torchrun --nproc-per-node=2",
    ("torchrun", "module"): "torchrun --nproc-per-node=2 -m",
    ("torchrun", "program"): "torchrun --nproc-per-node=2 --no-python",
    ("accelerate", "script"): "accelerate launch --num_processes 2",
    ("accelerate", "module"): "accelerate launch --num_processes 2 -m",
    ("accelerate", "program"): "accelerate launch --num_processes 2 --no_python",
    ("deepspeed", "script"): "deepspeed --master_port 7",
    ("deepspeed", "module"): "deepspeed --master_port 7 --module",
    ("deepspeed", "program"): "deepspeed --master_port 7 --no_python",
    ("mpirun", "script"): "mpirun -v python",
    ("mpirun", "module"): "mpirun -v python -m",
    ("mpirun", "program"): "mpirun -v",
}
"""The beginning of a command for each launcher, by the kind of program that it starts."""

LEFT_OUT = {
    "torchrun": "--nproc-per-node=2",
    "accelerate": "--num_processes 2",
    "deepspeed": "--master_port 7",
    "mpirun": "-v",
}
PAIRS = [pair for pair in itertools.product(LAUNCHERS, LAUNCHERS) if pair[0] != pair[1]]


def made(
    command: tuple[str, ...], launcher: str, told: Told | None = None, directory: str | None = None
) -> Launch:
    """The launch on GPU 0 and 1."""
    launch_options = LaunchOptions(command, launcher, directory=directory)
    return compose([gpu(0), gpu(1)], launch_options, {"HOME": "/h"}, told or Told())


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("kind", KINDS)
@given(arguments=st.lists(st.text(st.sampled_from("abn-=_ .3"), max_size=6), max_size=4))
@settings(max_examples=6, deadline=None)
def test_script_and_arguments_are_kept_and_options_left_out_are_named(
    kind: str, source: str, target: str, arguments: list[str]
) -> None:
    words = (*KINDS[kind], *arguments)
    command = (*STARTS[source, kind].split(), *words)
    launch = made(command, target)
    assert launch.launcher == target
    assert launch.argv[len(launch.argv) - len(words) :] == words
    entrypoint = LAUNCHERS[target].entrypoint(launch.argv)
    assert (entrypoint.kind, entrypoint.words) == (kind, words)
    named = f"options of {source} left out: {LEFT_OUT.get(source)}"
    assert (named in launch.remarks) == (source in LEFT_OUT)


@pytest.mark.parametrize("target", LAUNCHERS)
@given(
    start=st.sampled_from(sorted(STARTS.values())),
    arguments=st.lists(st.text(st.sampled_from("abn-=_ .3"), max_size=6), max_size=4),
    order=st.lists(st.integers(0, 7), unique=True, max_size=4),
)
@settings(max_examples=25, deadline=None)
def test_a_line_of_ours_is_complete(target: str, start: str, arguments: list[str], order: list[int]) -> None:
    """If the line is given back to gputui, with or without the launcher's name, it stays the same."""
    devices = [gpu(index) for index in order]
    first = compose(devices, LaunchOptions((*start.split(), "train.py", *arguments), target), {}, Told())
    for launcher in (AUTO, target):
        again = compose(devices, LaunchOptions(first.argv, launcher), {}, Told())
        assert again.argv == first.argv


@each_row(("source", "target"), PAIRS)
def test_an_interpreter_that_was_named_stays_the_one(source: str, target: str) -> None:
    """It keeps its options where the launcher is started as its module."""
    through = {
        "python": ("/v/bin/python",),
        "torchrun": ("/v/bin/python", "-X", "dev", "-m", "torch.distributed.run"),
        "accelerate": ("/v/bin/python", "-X", "dev", "-m", "accelerate.commands.launch"),
        "deepspeed": ("/v/bin/python", "-X", "dev", "-m", "deepspeed.launcher.runner"),
        "mpirun": ("mpirun", "/v/bin/python"),
    }
    argv = made((*through[source], "train.py"), target).argv
    assert "/v/bin/python" in argv
    assert not {"python", "torchrun", "accelerate", "deepspeed"} & set(argv)
    if "-X" in through[source]:
        assert "-X dev" in shlex.join(argv)


@each_row("source", ["torchrun", "accelerate launch", "deepspeed"])
@each_row("target", LAUNCHERS)
@each_row(("home", "file"), [(".venv/bin", "/w/.venv/bin/python"), ("/v/bin", "/v/bin/python3")])
def test_a_launcher_named_by_its_path_hands_on_its_environment(
    source: str, target: str, home: str, file: str
) -> None:
    """`.venv/bin/torchrun` means that environment: the accelerate of the PATH belongs to another."""
    name = file.rsplit("/", 1)[-1]
    command = (*f"{home}/{source}".split(), "train.py")
    argv = made(command, target, Told({file: ""}), directory="/w").argv
    if source.startswith(target):
        assert argv[0] == f"{home}/{source.split()[0]}"
    else:
        assert f"{home}/{name}" in argv
        assert argv[0] in ("mpirun", f"{home}/{name}")


@pytest.mark.parametrize("command", ["torchrun -- train.py -- x", "accelerate launch -- train.py -- x"])
def test_the_dashes_before_a_script_are_not_handed_on(command: str) -> None:
    assert shlex.join(made(tuple(command.split()), "python").argv) == "python train.py -- x"


@each_row(
    ("command", "module", "launcher"),
    [
        ("python -m torch.distributed.run x.py", "torch.distributed.run", "torchrun"),
        ("python -mtorch.distributed.run x.py", "torch.distributed.run", "torchrun"),
        ("python -um torch.distributed.run x.py", "torch.distributed.run", "torchrun"),
        ("python3 -u -X dev -W ignore -I -m torch.distributed.run x.py", "torch.distributed.run", "torchrun"),
        ("python -Xdev -m accelerate.commands.launch x.py", "accelerate.commands.launch", "accelerate"),
        ("python -B -m deepspeed.launcher.runner x.py", "deepspeed.launcher.runner", "deepspeed"),
        ("python x.py -m torch.distributed.run", "", "python"),
        ("python -c x -m torch.distributed.run", "", "python"),
        ("python - -m torch.distributed.run", "", "python"),
        ("python -X -m torch.distributed.run", "", "python"),
        ("python -m", "", "python"),
        ("python", "", "python"),
        ("torchrun -m torch.distributed.run", "", "torchrun"),
    ],
)
def test_a_module_is_found_behind_the_interpreters_options(command: str, module: str, launcher: str) -> None:
    words = command.split()
    started = started_program(words)
    assert (started.module or "") == module
    assert recognised(words).name == launcher
    assert not module or words[started.words :] == ["x.py"]
