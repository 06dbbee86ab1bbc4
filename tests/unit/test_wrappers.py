"""What stands before a command is seen through, and what it does to the variables is said."""

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
from gputui.launching.wrappers import _UV, _UVX, assigned, losing, unwrap, with_variables
from unit.builders import gpu
from unit.host_environments import Told


def apart(text: str) -> tuple[str, str]:
    """What stands before a command, and the command."""
    before, command = unwrap(shlex.split(text))
    return shlex.join(before), shlex.join(command)


def warnings(text: str, **options: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """What is said of a command on GPU 1."""
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


@pytest.mark.parametrize("before", BEFORE)
def test_a_wrapper_is_seen_through(before: str) -> None:
    assert apart(f"{before} torchrun -n 5 x.py --") == (before, "torchrun -n 5 x.py --")


@pytest.mark.parametrize("before", BEFORE)
def test_what_is_behind_a_wrapper_is_completed_there(before: str) -> None:
    argv = compose(
        [gpu(0), gpu(1)], LaunchOptions((*shlex.split(before), "torchrun", "x.py")), {}, Told()
    ).argv
    again = "env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 "
    added = again if before.startswith(("dotenv", "direnv")) else ""
    assert shlex.join(argv) == f"{before} {added}torchrun --standalone --nproc-per-node=2 x.py"


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
    """The -s of timeout is not uv's."""
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


@pytest.mark.parametrize("before", REAL)
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


# What wrappers do to the variables.


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("env -i", "env -i"),
        ("env - A=1", "env -i"),
        ("env --ignore-environment", "env -i"),
        ("env -vi A=1", "env -i"),
        ("sudo", "sudo"),
        ("sudo -u me", "sudo"),
        ("doas", "doas"),
        ("systemd-run --user", "systemd-run without --scope"),
        ("nice uv run sudo", "sudo"),
        ("tox exec -e gpu --", "tox"),
        ("tox exec -e gpu -x testenv.pass_env=CUDA_VISIBLE_DEVICES --", None),
        ("pixi run --clean-env", "pixi --clean-env"),
        ("pixi run -e gpu", None),
        ("apptainer exec --cleanenv img", "apptainer --cleanenv"),
        ("apptainer exec -e img", "apptainer --cleanenv"),
        ("singularity exec --nv -C img", "singularity --containall"),
        ("apptainer run --compat img", "apptainer --compat"),
        ("apptainer exec --nv img", None),
        ("nsys profile --inherit-environment=false", "nsys --inherit-environment=false"),
        ("nsys profile -n false", "nsys --inherit-environment=false"),
        ("nsys profile -n true -o e", None),
        ("env", None),
        ("env A=-i", None),
        ("env -uvirtual", None),
        ("sudo -E", None),
        ("sudo --preserve-env=CUDA_VISIBLE_DEVICES", None),
        ("sudo --preserve-env=HOME,CUDA_VISIBLE_DEVICES", None),
        ("sudo --preserve-env", None),
        ("sudo --preserve-env=HF_TOKEN", "sudo"),
        ("sudo -HE", None),
        ("sudo -u bob -nE", None),
        ("sudo -uE", "sudo"),
        ("systemd-run --user --scope", None),
        ("nohup nice -n 5", None),
        ("", None),
    ],
)
def test_a_wrapper_that_takes_the_variables_away_is_known(text: str, who: str | None) -> None:
    assert losing(shlex.split(text), "CUDA_VISIBLE_DEVICES") == who


@pytest.mark.parametrize("before", ["env -i", "env -", "sudo", "systemd-run --user"])
def test_a_command_that_would_see_all_devices_is_warned_of(before: str) -> None:
    said = warnings(f"{before} python x.py")
    assert len(said) == 1 and said[0].startswith(f"{before.split()[0]} ") and "variables" in said[0]


def test_a_real_env_takes_the_devices_away() -> None:
    launch = compose(
        [gpu(1)], LaunchOptions(("env", "-i", "/bin/sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]")), {}, Told()
    )
    done = subprocess.run(
        launch.argv, env=launch.environment({}), capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "[]\n"
    assert launch.warnings


def test_a_line_of_ours_is_taken_back_without_a_word() -> None:
    """The line that was copied is a command too."""
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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("apptainer exec --env A=2 img", "apptainer exec --env A=5,4 img"),
        ("apptainer exec -e --env=A=2 img", "apptainer exec -e --env=A=5,4 --env=B=x img"),
        ("apptainer exec --nv img", "apptainer exec --nv img"),
        ("apptainer exec --env C=1,A=2 img", """apptainer exec --env 'C=1,"A=5,4"' img"""),
        ("env APPTAINERENV_A=2 apptainer exec img", "env APPTAINERENV_A=5,4 apptainer exec img"),
        ("nsys profile -e A=2,C=1", "nsys profile -e A=5,4,C=1"),
        ("nsys profile --env-var=C=1,A=2", "nsys profile --env-var=C=1,A=5,4"),
        # What may set the variables from its own file is followed by what sets them again.
        ("dotenv run --", "dotenv run -- env B=x A=5,4"),
        ("dotenv run --no-override", "dotenv run --no-override"),
        ("direnv exec . env A=2", "direnv exec . env A=5,4"),
    ],
)
def test_a_list_of_a_container_is_replaced_where_it_stands(before: str, after: str) -> None:
    words, _ = with_variables(shlex.split(before), (("B", "x"), ("A", "5,4")))
    assert shlex.join(words) == after


_words = st.text(st.sampled_from("abAB-=_ .3/"), max_size=8)


@given(st.sampled_from([*BEFORE, "", "uv pip", "timeout"]), st.lists(_words, max_size=6))
@settings(max_examples=200, deadline=None)
def test_no_word_is_lost_or_moved(before: str, words: list[str]) -> None:
    command = (*shlex.split(before), *words)
    found, rest = unwrap(command)
    assert (*found, *rest) == command
    assert rest or not command
    assigned(found)
    losing(found, "CUDA_VISIBLE_DEVICES")
