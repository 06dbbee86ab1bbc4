"""Wrappers in front of a command are recognized, and their effects on the variables are reported."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching.argument_vector import OptionTable
from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.wrappers import _UV, _UVX, assigned, unwrap, with_variables
from table_tests import each_row
from unit.builders import gpu
from unit.host_environments import Told


def apart(text: str) -> tuple[str, str]:
    """The wrappers before a command, and the command."""
    before, command = unwrap(shlex.split(text))
    return shlex.join(before), shlex.join(command)


def warnings(text: str, **options: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The warnings about a command on GPU 1."""
    return compose([gpu(1)], LaunchOptions(tuple(shlex.split(text)), **options), {}, Told()).warnings


BEFORE = [
    "uv run",
    "uv run --no-project",
    "uv --directory d run --with torch --extra=gpu -p 3.12 --",
    "uv run --prerelease-package a=b --no-editable-package c",
    "poetry -C d run",
    "pdm run",
    "pipenv run",
    "rye run",
    "pixi run -e gpu",
    "conda run -n ml --no-capture-output",
    "mamba run -p /e",
    "micromamba run -n ml",
    "env",
    "env A=1 B=2",
    "env -i A=1",
    "env - A=1",
    "env -iu A",
    "env -u A -uB --unset C --unset=D -C /w E=1",
    "nice",
    "nice -n 5",
    "nice -5",
    "ionice -c2 -n 7",
    "chrt -f 10",
    "nohup",
    "setsid -w",
    "stdbuf -oL -e 0",
    "time -p",
    "timeout 60",
    "timeout -k 5 --signal=INT 60",
    "taskset -c 0-3",
    "taskset 0x3",
    "numactl -N 0 -m 0",
    "numactl --physcpubind=0-3 --localalloc",
    "unbuffer",
    "flock -w 5 /l",
    "sudo -E -u me A=1",
    "sudo -nEu me",
    "doas",
    "systemd-run --user --scope -p MemoryMax=9G",
    "uvx --from torch -w numpy",
    "uv tool run --from torch --with numpy --",
    "uv --directory d tool run -p 3.12",
    "pipx run --spec torch",
    "hatch -e gpu run",
    "hatch env run -e gpu --",
    "tox exec -e gpu --",
    "tox e -e gpu -x testenv.pass_env=A --",
    "pixi run --clean-env -m pixi.toml",
    "apptainer exec --nv -B /a:/b --env A=1 img.sif",
    "singularity run -ec --pwd /w docker://img",
    "nsys profile -o out --trace=cuda,nvtx -s none --force-overwrite true",
    "nsys launch --trace cuda",
    "ncu --set full -o out -k regex:gemm --nvtx",
    "compute-sanitizer --tool racecheck --leak-check=full",
    "valgrind --leak-check=full",
    "strace -f -o out -e trace=file",
    "perf stat -e cycles --",
    "py-spy record -s -o out.svg --",
    "xvfb-run -a -s '-screen 0 640x480x24'",
    "dotenv -f .env run --",
    "direnv exec .",
    "pyenv exec",
    "/usr/bin/env nice -n 5 timeout 60 uv run",
]


@each_row("before", BEFORE)
def test_a_wrapper_is_seen_through(before: str) -> None:
    assert apart(f"{before} torchrun -n 5 x.py --") == (before, "torchrun -n 5 x.py --")


@each_row("before", BEFORE)
def test_what_is_behind_a_wrapper_is_completed_there(before: str) -> None:
    argv = compose(
        [gpu(0), gpu(1)], LaunchOptions((*shlex.split(before), "torchrun", "x.py")), {}, Told()
    ).argv
    again = "env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 "
    hides = (
        "env -i",
        "env - ",
        "dotenv",
        "direnv",
        "doas",
        "sudo",
        "systemd-run",
        "tox",
        "pixi run --clean-env",
        "singularity run -ec",
    )
    added = again if before.startswith(hides) else ""
    assert shlex.join(argv) == f"{before} {added}torchrun --standalone --nproc-per-node=2 x.py"


@each_row(
    ("command", "words"),
    [
        ("uv run -m torch.distributed.run x.py", "--standalone --nproc-per-node=2 x.py"),
        (
            "uv run --module accelerate.commands.launch --multi_gpu --main_process_port 0 x.py",
            "--gpu_ids=all",
        ),
        (
            "python -m debugpy --listen 1 -m torch.distributed.run x.py",
            "--standalone --nproc-per-node=2 x.py",
        ),
        ("python -m cProfile -m deepspeed.launcher.runner x.py", "--include=localhost:0,1"),
    ],
)
def test_a_launcher_that_is_a_module_is_completed_behind_what_starts_it(command: str, words: str) -> None:
    argv = shlex.join(compose([gpu(0), gpu(1)], LaunchOptions(tuple(shlex.split(command))), {}, Told()).argv)
    module = next(word for word in command.split() if "." in word and word != "x.py")
    before, _, behind = argv.partition(f" {module} ")
    assert command.startswith(before) and words in behind


@each_row(
    "command",
    [
        *(
            "uv pip install torch",
            "uv",
            "uv run",
            "uv run -m train",
            "uv run -qm train",
            "uv run --script x.py",
            "poetry install",
        ),
        *("env", "env A=1", "env -u A", "nice", "nice -n", "timeout 60", "conda activate", "python x.py", ""),
    ],
)
def test_what_starts_no_command_is_the_command_itself(command: str) -> None:
    assert apart(command) == ("", command)


def test_a_wrapper_behind_another_is_judged_by_its_own_words() -> None:
    """The -s of timeout is not an option of uv."""
    assert apart("timeout -s INT 5 uv run torchrun x.py")[1] == "torchrun x.py"


REPORT = "import json, sys; print(json.dumps(sys.argv[1:]))"

REAL = [
    "env A=1",
    "env -i A=1",
    "env - A=1",
    "env -iu A",
    "env -u A -uB --unset C --unset=D E=1",
    "nice",
    "nice -n 5",
    "nice -5",
    "nohup",
    "stdbuf -oL -e 0",
    "timeout 60",
    "timeout -k 5 --signal=INT 60",
    "timeout -s INT --foreground 9",
    "setsid -w",
    "taskset -c 0",
    "taskset 0x1",
    "ionice -c 3",
    "ionice -c2 -n 7",
    "flock -w 5 lock",
    "time -p",
    "env nice timeout 9",
    "numactl --localalloc",
    "chrt -o 0",
]


@each_row("before", REAL)
def test_the_real_program_starts_the_command_at_the_same_place(before: str, tmp_path: Path) -> None:
    words = shlex.split(before)
    if not all(shutil.which(name) for name in words if name in ("env", "nice", "timeout", words[0])):
        pytest.skip(f"{words[0]} is not installed")
    command = (sys.executable, "-c", REPORT, "a b", "-n", "5", "--")
    done = subprocess.run(
        [*words, *command], capture_output=True, text=True, cwd=tmp_path, timeout=30, check=False
    )
    if done.returncode != 0 and "not permitted" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == list(command[3:])
    assert unwrap((*words, *command)) == (tuple(words), command)


@pytest.mark.parametrize(("words", "table"), [("run", _UV), ("tool run", _UVX)])
def test_the_options_of_uv_that_take_a_value_are_uvs_own(words: str, table: OptionTable) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed")
    told = subprocess.run(
        [uv, *words.split(), "--help"], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    found = re.findall(r"^ +(?:(-\w), )?(--[\w-]+)(\.\.\.)?( <)?", told, re.MULTILINE)
    takes = {
        name.lstrip("-"): bool(value) for short, long, _, value in found for name in (short, long) if name
    }
    assert sum(takes.values()) > 30
    listed = {name: table.aliases.get(name, name) in table.valued for name in takes}
    assert listed == takes


# The effects of wrappers on the variables.


@each_row(
    ("text", "found"),
    [
        ("env A=1 B=", (("A", "1"), ("B", ""))),
        ("env -u A -uB E=1", (("A", None), ("B", None), ("E", "1"))),
        ("env --unset C --unset=D", (("C", None), ("D", None))),
        ("env -C X=1 A=1", (("A", "1"),)),
        ("sudo -u me A=1", (("A", "1"),)),
        ("uv run --with A=1", ()),
        ("env A=1 uv run --with B=2", (("A", "1"),)),
        ("env A=1 env A=2", (("A", "1"), ("A", "2"))),
        ("systemd-run -p A=1 --scope", ()),
        ("apptainer exec --env A=1 img", (("A", "1"),)),
        ("nsys profile -o x -e A=2,0 --env-var=B=1", (("A", "2,0"), ("B", "1"))),
        ("strace -f -E A=2,0", (("A", "2,0"),)),
        ("apptainer exec --env A=2,0 img", (("A", "2,0"),)),
        ("apptainer exec --env A=1,B=2,0 --env=C=3 img", (("A", "1"), ("B", "2,0"), ("C", "3"))),
        ("systemd-run -EA=1 --setenv=B=2 --setenv C=3", (("A", "1"), ("B", "2"), ("C", "3"))),
        ("", ()),
    ],
)
def test_variables_that_are_set_on_the_way_are_known(text: str, found: object) -> None:
    assert assigned(shlex.split(text)) == found


@each_row(
    ("text", "is_hidden"),
    [
        *(
            (text, True)
            for text in ("env -i", "env - B=1", "env --ignore-environment", "env -vi B=1", "sudo")
        ),
        *(
            (text, True)
            for text in ("sudo -u me", "doas", "systemd-run --user", "nice uv run sudo", "sudo -uE")
        ),
        *((text, True) for text in ("tox exec -e gpu --", "pixi run --clean-env", "apptainer exec -e img")),
        *((text, True) for text in ("singularity exec --nv -C img", "apptainer run --compat img")),
        *((text, True) for text in ("nsys profile --inherit-environment=false", "nsys profile -n false")),
        *((text, True) for text in ("sudo --preserve-env=HF_TOKEN", "dotenv run --", "direnv exec .")),
        *((text, False) for text in ("pixi run -e gpu", "apptainer exec --nv img", "nsys profile -o e")),
        *((text, True) for text in ("sudo -E", "sudo --preserve-env=A", "systemd-run --user --scope")),
        *((text, False) for text in ("env", "env B=-i", "env -uvirtual", "nohup nice -n 5", "")),
        *((text, False) for text in ("sudo A=5,4", "env -i A=5,4")),
    ],
)
def test_behind_a_wrapper_that_hides_the_variables_they_are_set_again(text: str, is_hidden: bool) -> None:
    words = tuple(shlex.split(text))
    again = ("env", "A=5,4") if is_hidden else ()
    assert with_variables(words, (("A", "5,4"),), {}) == ((*words, *again), ())


def test_behind_a_real_env_the_devices_are_set_again() -> None:
    launch = compose(
        [gpu(1)], LaunchOptions(("env", "-i", "/bin/sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]")), {}, Told()
    )
    argv = [shutil.which(word) or word if word == "env" else word for word in launch.argv]
    done = subprocess.run(
        argv, env=launch.environment({}), capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "[1]\n"


def test_a_line_of_ours_is_taken_back_without_a_word() -> None:
    """A copied line is a command, too."""
    for command in ("python x.py", "torchrun x.py", "deepspeed x.py"):
        first = compose([gpu(1)], LaunchOptions(tuple(command.split())), {}, Told())
        words = shlex.split(first.line)
        place = next((i for i, word in enumerate(words) if "=" not in word), 0)
        pasted = LaunchOptions(
            tuple(words[place:]),
            additions=tuple((name, value) for name, _, value in (w.partition("=") for w in words[:place])),
        )
        again = compose([gpu(1)], pasted, {}, Told())
        assert again.warnings == ()
        assert shlex.split(again.line)[-1] == "x.py"


@each_row(
    ("before", "after"),
    [
        ("apptainer exec --env A=2 img", "apptainer exec --env A=2 img env B=x A=5,4"),
        ("apptainer exec --nv img", "apptainer exec --nv img"),
        ("apptainer exec --env C=1,A=2 img", "apptainer exec --env C=1,A=2 img env B=x A=5,4"),
        ("env APPTAINERENV_A=2 apptainer exec img", "env APPTAINERENV_A=2 apptainer exec img env B=x A=5,4"),
        ("nsys profile -e A=2,C=1", "nsys profile -e A=2,C=1 env B=x A=5,4"),
        ("nice env A=2 C=1", "nice env A=5,4 C=1"),
        ("env -u A", "env -u A env B=x A=5,4"),
        ("sudo -E A=2", "sudo -E env B=x A=5,4"),
        ("direnv exec . env A=2", "direnv exec . env env B=x A=5,4"),
    ],
)
def test_a_list_that_a_wrapper_sets_is_replaced_or_set_again(before: str, after: str) -> None:
    words, replaced = with_variables(shlex.split(before), (("B", "x"), ("A", "5,4")), {})
    assert shlex.join(words) == after
    assert bool(replaced) == ("A=2" in before or "-u" in before)


def test_a_list_that_a_container_is_handed_from_outside_is_set_again() -> None:
    words, replaced = with_variables(("apptainer", "exec", "img"), (("A", "5,4"),), {"APPTAINERENV_A": "0"})
    assert (words, replaced) == (("apptainer", "exec", "img", "env", "A=5,4"), (("A", "0"),))


_words = st.text(st.sampled_from("abAB-=_ .3/"), max_size=8)


@given(st.sampled_from([*BEFORE, "", "uv pip", "timeout"]), st.lists(_words, max_size=6))
@settings(max_examples=60, deadline=None)
def test_no_word_is_lost_or_moved(before: str, words: list[str]) -> None:
    command = (*shlex.split(before), *words)
    found, rest = unwrap(command)
    assert (*found, *rest) == command
    assert rest or not command
    assigned(found)
    with_variables(found, (("A", "1"),), {})
