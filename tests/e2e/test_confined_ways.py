"""Every way to start a command starts it confined. The tests compare the devices that it sees."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from confinement import MINORS, SEEN, Confined, needs_landlock, script
from e2e.conftest import Start
from e2e.ranks import PLAIN, need, said_in
from e2e.terminal import Terminal
from unit.jobs_support import until

pytestmark = [pytest.mark.e2e, needs_landlock]

WIDE = (130, 40)


@pytest.fixture
def screen(box: Confined, start: Start, base_environment: dict[str, str]) -> Iterator[Terminal]:
    """The screen on that machine, with a command that writes down the devices that it sees."""
    text = script(box, f"unset SIMCUDA_WAITS; SEEN > {box.folder}/seen")
    environ = {**base_environment, **box.environ, "SIMCUDA_WAITS": str(box.folder / "pipe")}
    os.mkfifo(box.folder / "pipe")
    argv = [*box.machine.before, sys.executable, "-m", "gputui"]
    yield start("--", "sh", text, environment=environ, size=WIDE, argv=argv, cwd=box.folder)


def answer(box: Confined) -> None:
    """Let the driver of the proof answer, now or once it starts."""
    (box.folder / "pipe").open("w").close()


def seen(box: Confined) -> list[int]:
    """The output of the command."""
    file = box.folder / "seen"
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    return box.told(file.read_text())


def row_of_cursor(terminal: Terminal) -> list[str]:
    return [line for line in terminal.lines if line.startswith("▸")]


def test_keys_are_answered_while_the_screen_has_it_proved(box: Confined, screen: Terminal) -> None:
    screen.until("○ free")
    screen.send("62")
    screen.until("cuda:1 = GPU 2")
    before = row_of_cursor(screen)
    screen.send("d")
    screen.until("verifying that")
    # The driver does not answer yet.
    screen.send("k")
    screen.until(lambda terminal: row_of_cursor(terminal) not in ([], before))
    answer(box)
    assert seen(box) == [6, 2]


@pytest.mark.thorough
def test_a_launch_is_left_while_it_is_proved(box: Confined, screen: Terminal) -> None:
    screen.until("○ free")
    screen.send("62")
    screen.until("cuda:1 = GPU 2")
    screen.send("d")
    screen.until("verifying that")
    screen.send("62")
    screen.until(lambda terminal: "cuda:1 = GPU 2" not in terminal.text)
    answer(box)
    screen.until("nothing was started")
    assert not json.loads(box.call("jobs", "--json").stdout)["jobs"]
    assert not json.loads(box.call("claims", "--json").stdout)["claims"]


@pytest.mark.thorough
def test_a_job_that_is_started_again_on_the_screen_is_confined(box: Confined, start: Start) -> None:
    text = script(box, f"echo $GPUTUI_CONFINED >> {box.folder}/confined; SEEN >> {box.folder}/seen")
    done = box.call("run", "--confine", "--detach", "--gpus", "6,2", "--force", "--", "sh", text)
    assert done.returncode == 0, done.stderr
    seen(box)
    argv = [*box.machine.before, sys.executable, "-m", "gputui"]
    terminal = start(environment={**box.environ, "TERM": "xterm-256color"}, size=WIDE, argv=argv)
    terminal.until("○ free")
    terminal.send("D")
    terminal.until("done")
    terminal.send("R")
    terminal.until("⏎ yes")
    terminal.send("\r")
    confined = box.folder / "confined"
    until(lambda: confined.read_text() == "1\n1\n")
    until(lambda: (box.folder / "seen").read_text().count("\n") == 2)
    assert len(seen(box)) == 2


def in_python(box: Confined, code: str, **more: str) -> list[list[int]]:
    """The devices that each program started by `held.popen` or `launch` of the code saw, in order."""
    text = f"import sys\nfrom gputui import *\nWORDS = {list(box.python)!r}\n{code}\n"
    done = box.outside(sys.executable, "-c", text, **more)
    assert done.returncode == 0, done.stderr
    return [box.told(line) for line in done.stdout.splitlines()]


OWN = "{**__import__('os').environ, 'CUDA_VISIBLE_DEVICES': '3'}"


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ("confine='always'", [[5, 4], [5, 4], [4, 5], [0, 1, 2, 3, 4, 5, 6, 7]]),
        ("confine='never'", [[5, 4], [5, 4], [0, 1], [0, 1, 2, 3, 4, 5, 6, 7]]),
        ("", [[5, 4], [5, 4], [4, 5], [0, 1, 2, 3, 4, 5, 6, 7]]),
    ],
)
def test_what_held_devices_are_for_is_confined_and_this_process_is_not(
    box: Confined, held: str, expected: list[list[int]]
) -> None:
    sets = ["env", "CUDA_VISIBLE_DEVICES=0,1"]
    code = f"""
import subprocess
with hold(devices=[5, 4], {held}) as held:
    held.popen(WORDS).wait()
    held.popen(WORDS, env={OWN}).wait()
    held.popen({sets!r} + WORDS).wait()
    subprocess.run(WORDS)
"""
    assert in_python(box, code) == expected


def test_a_child_keeps_the_claim_after_the_block(box: Confined) -> None:
    code = """
import sys
with hold(devices=[5, 4]) as held:
    child = held.popen(["sleep", "600"])
try:
    with hold(devices=[5], confine="never"):
        sys.exit("it could be claimed")
except NotEnoughError:
    pass
child.kill()
child.wait()
"""
    assert in_python(box, code) == []


def test_what_cannot_be_confined_is_an_error_or_is_started_all_the_same(box: Confined) -> None:
    code = """
for how in ("always", "no"):
    try:
        with hold(devices=[5, 4], confine=how) as held:
            held.popen(WORDS)
        sys.exit("it was started")
    except RequestError:
        pass
with hold(devices=[5, 4]) as held:
    held.popen(WORDS).wait()
"""
    assert in_python(box, code, SIMCUDA_SEES_ALL="1") == [[5, 4]]


@pytest.mark.parametrize("how", ["", "detach=True, "])
def test_a_launch_from_python_is_confined(box: Confined, how: str) -> None:
    text = script(box, f"SEEN > {box.folder}/seen.part; mv {box.folder}/seen.part {box.folder}/seen")
    code = f"launch(['sh', {text!r}], devices=[5, 4], {how}confine='always')"
    assert in_python(box, code) == []
    assert seen(box) == [5, 4]


# Several commands, and launchers.


def test_tasks_and_variants_are_confined(box: Confined) -> None:
    text = script(box, f'env -u "CUDA_$(printf VISIBLE)_DEVICES" SEEN > {box.folder}/seen.$1.$X')
    done = box.call("each", "--confine", "-n", "3", "--", "sh", text, "{1..4}", X="x")
    assert done.returncode == 0, done.stderr
    vary = ("--vary", "env:X=a,b", "--confine", "--gpus", "6,2", "--force")
    done = box.call("compare", *vary, "--", "sh", text, "v")
    assert done.returncode == 0, done.stderr
    tasks = [box.told(file.read_text()) for file in sorted(box.folder.glob("seen.?.x"))]
    assert [len(devices) for devices in tasks] == [3] * 4
    variants = [box.told(file.read_text()) for file in sorted(box.folder.glob("seen.v.*"))]
    assert variants == [[2, 6], [2, 6]]


SAYS = """#!/bin/sh
echo "$0 $* | $CUDA_VISIBLE_DEVICES" | sed 's|^[^ ]*/||'
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "inside"),
    [
        ("accelerate launch --gpu_ids 4,5 x.py", "accelerate launch * --gpu_ids=all * | 0,1"),
        ("deepspeed --include localhost:4,5 x.py", "deepspeed --include=localhost:0,1 *"),
        ("vllm serve M --device-ids 4,5", "vllm serve M --device-ids 0,1 | 0,1"),
        ("env CUDA_VISIBLE_DEVICES=5,4 say", "say * | 1,0"),
        ("mpirun -x CUDA_VISIBLE_DEVICES=5,4 -np 2 say", "mpirun * | *"),
    ],
)
def test_a_program_with_numbers_of_its_own_is_given_relative_ones(
    box: Confined, command: str, inside: str
) -> None:
    """The launchers are stand-ins that print their arguments."""
    (box.folder / "x.py").touch()
    for name in ("accelerate", "deepspeed", "vllm", "say", "mpirun"):
        program = box.folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(SAYS)
        program.chmod(0o755)
    path = f"{box.folder}/bin:{box.environ['PATH']}"
    done = box.call("run", "--confine", "--", *command.split(), PATH=path)
    assert done.returncode == 0, done.stderr
    assert fnmatch(done.stdout.strip(), inside)


@pytest.mark.parametrize(
    ("launcher", "gpus", "first"),
    [
        ("torchrun", "5,4", "1,0"),
        ("accelerate", "5,4", "1,0"),
        ("deepspeed", "4,5", "0,1"),
        ("deepspeed", "5,4", "1,0"),
    ],
)
def test_ranks_of_a_real_launcher_are_on_the_claimed_devices(
    box: Confined, launcher: str, gpus: str, first: str
) -> None:
    """deepspeed starts by its first stage where the devices ascend, else by its second with its own list."""
    need("torch")
    need({"torchrun": "torch"}.get(launcher, launcher))
    (box.folder / "train.py").write_text(f"{PLAIN}\nsys.stdout = open(f'seen.{{rank}}', 'w')\n{SEEN}")
    path = f"{Path(sys.executable).parent}:{box.environ['PATH']}"
    # deepspeed counts two devices, as a torch with CUDA would inside.
    counts = {"DS_ACCELERATOR": "cpu", "LOCAL_SIZE": "2"}
    more = {"PATH": path, "HF_HOME": str(box.folder), "OMP_NUM_THREADS": "1", **counts}
    words = ("run", "--confine", "--gpus", gpus, "--launcher", launcher, "--", "python", "train.py")
    done = box.call(*words, **more)
    assert done.returncode == 0, done.stderr
    ranks = said_in(box.folder)
    assert [rank["LOCAL_RANK"] for rank in ranks] == ["0", "1"]
    assert [rank["CUDA_VISIBLE_DEVICES"] for rank in ranks] == [first] * 2
    order = [int(number) for number in gpus.split(",")]
    assert [box.told(file.read_text()) for file in sorted(box.folder.glob("seen.?"))] == [order] * 2


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["--confine", "--no-confine"])
def test_a_job_that_fails_for_its_confinement_is_told_so(box: Confined, how: str) -> None:
    other = f"exec 3<>/dev/nvidia{MINORS[0]}; exit 3"
    done = box.call("run", how, "--attach", "--gpus", "6", "--", "bash", "-c", other)
    assert done.returncode == 3
    assert ("--no-confine" in done.stderr) == (how == "--confine")
    (job,) = json.loads(box.call("jobs", "--json").stdout)["jobs"]
    shown = box.call("jobs", "show", job["id"]).stdout
    assert ("--no-confine" in shown) == (how == "--confine")
    # An ordinary failure is not blamed on the confinement.
    done = box.call("run", how, "--attach", "--gpus", "6", "--", sys.executable, "-c", "raise ValueError")
    assert done.returncode == 1 and "--no-confine" not in done.stderr
