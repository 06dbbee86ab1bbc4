"""Commands that name devices of their own: gputui does not claim these, so that it starts nothing on them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.inventory.device import Device
from gputui.jobs.store import all_jobs
from gputui.launching.compose import compose, on_any
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers.deepspeed import HOSTFILE
from gputui.launching.shell_words import assignments
from gputui.sources.simulated.boxes import BOXES
from table_tests import each_row
from unit.builders import gpu
from unit.claims_support import Box
from unit.host_environments import Told

STAYS = {
    # Commands that cannot be rewritten, with the option of gputui that requests the same.
    "deepspeed --num_nodes 2 t.py": None,
    "deepspeed --include localhost:0@worker:1 t.py": None,
    "bash -c 'CUDA_VISIBLE_DEVICES=1 python t.py'": "--gpus 1",
    """bash -c 'export CUDA_VISIBLE_DEVICES="0,1"; python t.py'""": "--gpus 0,1",
    "bash -euo pipefail -c '(CUDA_VISIBLE_DEVICES=1)>log; CUDA_VISIBLE_DEVICES=4 python t.py'": "--gpus 4",
    "make CUDA_VISIBLE_DEVICES=1 train": "--gpus 1",
    # Behind a launcher.
    "mpirun -np 1 env CUDA_VISIBLE_DEVICES=1 python t.py": "--gpus 1",
    "mpirun -np 1 bash -c 'CUDA_VISIBLE_DEVICES=1 python t.py'": "--gpus 1",
    "mpirun -np 1 a : -np 1 -x CUDA_VISIBLE_DEVICES=1 b": "--gpus 1",
    "mpirun -np 1 a : -np 1 env CUDA_VISIBLE_DEVICES=1 b": "--gpus 1",
    "torchrun --no-python env CUDA_VISIBLE_DEVICES=1 python t.py": "--gpus 1",
    "torchrun --no-python bash -c 'CUDA_VISIBLE_DEVICES=1 python t.py'": "--gpus 1",
}

REWRITTEN = {
    # The devices that the command names, and the remaining command on GPU 4.
    "CUDA_VISIBLE_DEVICES=2,0 python t.py": "python t.py",
    "CUDA_VISIBLE_DEVICES= python t.py": "python t.py",
    "CUDA_DEVICE_ORDER=FASTEST_FIRST python t.py": "python t.py",
    f"CUDA_VISIBLE_DEVICES={gpu(2).uuid} python t.py": "python t.py",
    "env CUDA_VISIBLE_DEVICES=1 python t.py": "env CUDA_VISIBLE_DEVICES=4 python t.py",
    "env A=1 CUDA_VISIBLE_DEVICES= python t.py": "env A=1 CUDA_VISIBLE_DEVICES=4 python t.py",
    "env -u CUDA_VISIBLE_DEVICES -u B python t.py": (
        "env -u CUDA_VISIBLE_DEVICES -u B env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=4 python t.py"
    ),
    "env CUDA_DEVICE_ORDER=FASTEST_FIRST python t.py": "env CUDA_DEVICE_ORDER=PCI_BUS_ID python t.py",
    "uv run env CUDA_VISIBLE_DEVICES=1 python t.py": "uv run env CUDA_VISIBLE_DEVICES=4 python t.py",
    "systemd-run --user --scope -E CUDA_VISIBLE_DEVICES=1 python t.py": (
        "systemd-run --user --scope -E CUDA_VISIBLE_DEVICES=1 "
        "env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=4 python t.py"
    ),
    "systemd-run --scope --setenv=CUDA_VISIBLE_DEVICES=1 python t.py": (
        "systemd-run --scope --setenv=CUDA_VISIBLE_DEVICES=1 "
        "env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=4 python t.py"
    ),
    # In the launcher's own options.
    "mpirun -np 1 -x CUDA_VISIBLE_DEVICES=1 ./t": "mpirun -np 1 -x CUDA_VISIBLE_DEVICES=4 ./t",
    "accelerate launch --gpu-ids=1 t.py": (
        "accelerate launch --num_processes=1 --num_machines=1 --gpu_ids=all t.py"
    ),
    # Our environment does not reach the command: the order of its devices is written there, too.
    "sudo CUDA_VISIBLE_DEVICES=1 python t.py": (
        "sudo env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=4 python t.py"
    ),
    "env -i CUDA_VISIBLE_DEVICES=1 python t.py": (
        "env -i env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=4 python t.py"
    ),
    "systemd-run -E CUDA_VISIBLE_DEVICES=1 python t.py": (
        "systemd-run -E CUDA_VISIBLE_DEVICES=1"
        " env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=4 python t.py"
    ),
}

NOT_ASKING = [
    "python t.py",
    "torchrun --nproc-per-node 2 t.py",
    "deepspeed t.py",
    "deepspeed --num_gpus 1 t.py",
    "accelerate launch t.py",
    "accelerate launch --gpu_ids all t.py",
    "mpirun -np 1 -x CUDA_VISIBLE_DEVICES python t.py",
    "CUDA_DEVICE_ORDER=FASTEST_FIRST python t.py",
    "env NCCL_DEBUG=INFO python t.py",
    # The script's own arguments, a shell variable, a container's own numbers.
    "python t.py CUDA_VISIBLE_DEVICES=3",
    "bash -c 'CUDA_VISIBLE_DEVICES=$(free-ones) python t.py'",
    """bash -c 'CUDA_VISIBLE_DEVICES="$(free-ones)" python t.py'""",
    "bash -c 'X=$(free-ones); CUDA_VISIBLE_DEVICES=1$X python t.py'",
    "bash -c 'read X; CUDA_VISIBLE_DEVICES=1,$X python t.py'",
    "docker run -e CUDA_VISIBLE_DEVICES=0 image python t.py",
    # The CPU, for a part of the work.
    "bash -c 'CUDA_VISIBLE_DEVICES=-1 python prepare.py && python t.py'",
    "bash -c 'CUDA_VISIBLE_DEVICES= python prepare.py && python t.py'",
    # Words that only look like a list.
    "./t.sh --note CUDA_VISIBLE_DEVICES=1",
    "grep -r CUDA_VISIBLE_DEVICES=1 .",
    "bash train.sh CUDA_VISIBLE_DEVICES=1",
    "bash -c 'X-CUDA_VISIBLE_DEVICES=1 y'",
    # The last list counts.
    "env CUDA_VISIBLE_DEVICES=1 CUDA_VISIBLE_DEVICES=4 python t.py",
    "env -u CUDA_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES=4 python t.py",
]


def launch_options(line: str) -> LaunchOptions:
    additions, command = assignments(shlex.split(line))
    return LaunchOptions(command, additions=additions)


@each_row("line", STAYS)
def test_what_cannot_be_rewritten_is_known_whichever_devices_it_is_to_run_on(line: str) -> None:
    launch = compose([gpu(3)], launch_options(line), {})
    own = launch.own
    assert own is not None and own.option == STAYS[line]
    assert own.words in line.replace('"', "") and own.warning in launch.warnings
    assert launch.refusal == own.refusal == on_any(launch_options(line), 1, {}).refusal
    # The suggested option requests no devices that the line would not have had.
    assert (own.option or "leave it out") in own.refusal


@each_row("line", REWRITTEN)
def test_the_selected_devices_win_wherever_the_command_can_be_rewritten(line: str) -> None:
    launch = compose([gpu(4)], launch_options(line), {})
    assert launch.own is None
    assert shlex.join(launch.argv) == REWRITTEN[line]
    assert launch.environment({}) == {"CUDA_VISIBLE_DEVICES": "4", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    # There is exactly one remark.
    assert len(launch.remarks) == 1


@each_row("line", NOT_ASKING)
def test_one_that_leaves_it_to_us_is_not_refused(line: str) -> None:
    if "=4" not in line:
        assert on_any(launch_options(line), 1, {}).refusal is None
    assert compose([gpu(4)], launch_options(line), {}).own is None


@each_row(
    ("line", "devices"),
    [
        ("deepspeed --num_gpus 2 t.py", (4, 5)),
        ("deepspeed --include localhost:4,5 t.py", (4, 5)),
        ("deepspeed --include localhost:5,4 t.py", (4, 5)),
        ("accelerate launch --gpu_ids 4,5 t.py", (4, 5)),
        ("accelerate launch --gpu_ids 5,4 t.py", (4, 5)),
        ("env CUDA_VISIBLE_DEVICES=4,5 python t.py", (4, 5)),
        (f"env CUDA_VISIBLE_DEVICES={gpu(4).uuid},{gpu(5).uuid[:12]} python t.py", (4, 5)),
        ("CUDA_VISIBLE_DEVICES=5,4 deepspeed t.py", (4, 5)),
        ("CUDA_VISIBLE_DEVICES=4,5 deepspeed t.py", (4, 5)),
        ("CUDA_VISIBLE_DEVICES= python t.py", ()),
        ("bash -c 'CUDA_VISIBLE_DEVICES=04 python t.py'", (4,)),
        ("mpirun -np 2 -x CUDA_VISIBLE_DEVICES=4,5 python t.py", (4, 5)),
        ("env CUDA_VISIBLE_DEVICES=-1 python t.py", ()),
        ("CUDA_VISIBLE_DEVICES=-1 python t.py", ()),
        ("accelerate launch --cpu --gpu_ids 0 t.py", ()),
    ],
)
def test_one_that_asks_for_the_very_same_devices_agrees(line: str, devices: tuple[int, ...]) -> None:
    selected: list[Device] = [gpu(index) for index in devices]
    assert compose(selected, launch_options(line), {}).own is None


@each_row(
    "line",
    [
        "bash -c 'CUDA_VISIBLE_DEVICES=4 python a.py & CUDA_VISIBLE_DEVICES=5 python b.py; wait'",
        "env CUDA_VISIBLE_DEVICES=4 python t.py",
        "mpirun -np 1 -x CUDA_VISIBLE_DEVICES=4 a : -np 1 -x CUDA_VISIBLE_DEVICES=5 b",
        "accelerate launch --num_processes 1 --gpu_ids 4 t.py",
        "deepspeed --include localhost:4 t.py",
    ],
)
def test_one_that_uses_some_of_its_devices_only_is_not_refused(line: str) -> None:
    assert compose([gpu(4), gpu(5)], launch_options(line), {}).own is None


@pytest.mark.parametrize("line", ["bash -c 'CUDA_VISIBLE_DEVICES=4 python t.py'"])
def test_numbers_beside_devices_by_uuid_may_be_any_device(line: str) -> None:
    """Without CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA counts the fastest first."""
    by_uuid = replace(launch_options(line), ids="uuid")
    assert compose([gpu(4)], by_uuid, {}).own is not None


def test_an_order_of_counting_beside_uuids_changes_nothing() -> None:
    line = f"env CUDA_DEVICE_ORDER=FASTEST_FIRST CUDA_VISIBLE_DEVICES={gpu(4).uuid} python t.py"
    assert compose([gpu(4)], launch_options(line), {}).own is None


@each_row(
    ("line", "argv"),
    [
        ("env CUDA_VISIBLE_DEVICES=4,5 python t.py", "env CUDA_VISIBLE_DEVICES=4,5 python t.py"),
        ("CUDA_VISIBLE_DEVICES=4,5 python t.py", "python t.py"),
        (f"CUDA_VISIBLE_DEVICES={gpu(4).uuid},{gpu(5).uuid} python t.py", "python t.py"),
    ],
)
def test_there_is_nothing_to_say_of_the_same_devices_in_the_same_order(line: str, argv: str) -> None:
    launch = compose([gpu(4), gpu(5)], launch_options(line), {})
    assert (shlex.join(launch.argv), launch.own) == (argv, None)
    assert not [text for text in (*launch.warnings, *launch.remarks) if "VISIBLE" in text]


def test_the_hostfile_that_is_read_of_itself_is_not_in_the_command() -> None:
    for line, file in (("deepspeed --num_gpus 3 t.py", HOSTFILE), ("deepspeed --hostfile /h t.py", "/h")):
        own = compose([gpu(9)], launch_options(line), {}, Told({file: "worker slots=8"})).own
        assert own is not None and own.words == line.removeprefix("deepspeed ").removesuffix(" t.py")


# the calls


_INHERITED = r"ls -l /proc/$$/fd | sed -n 's|.*/\(.*\)@[0-9]*\.[0-9a-f]*\.claim$|claim \1|p' | sort -u" + "\n"
"""A line of shell that prints the claims that a process has inherited."""


@pytest.fixture
def programs(box: Box) -> Path:
    """Launchers that print that they were started."""
    folder = box.folder / "bin"
    folder.mkdir()
    for name in ("deepspeed", "accelerate", "torchrun", "python"):
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$CUDA_VISIBLE_DEVICES" "$@"\n{_INHERITED}')
        (folder / name).chmod(0o755)
    return folder


def inherited(box: Box, out: str) -> list[int]:
    """The devices whose claims a program of `programs` has inherited."""
    found = [line.partition(" ")[2] for line in out.splitlines() if line.startswith("claim ")]
    return sorted(box.uuids.index(uuid) for uuid in found)


LINES = [
    # The launch claims the devices, or their number, that the command names.
    ("deepspeed --num_gpus 2 t.py", [2, 3]),
    ("deepspeed --include localhost:5,6 t.py", [5, 6]),
    ("accelerate launch --gpu_ids 6,5 t.py", [5, 6]),
    ("env CUDA_VISIBLE_DEVICES=6 python t.py", [6]),
    ("CUDA_VISIBLE_DEVICES=6,2 torchrun t.py", [2, 6]),
    ("torchrun --nproc-per-node 2 t.py", [2, 3]),
    ("bash -c 'CUDA_VISIBLE_DEVICES=6 python t.py'", [6]),
]


@pytest.mark.parametrize(("line", "devices"), LINES)
def test_what_the_command_says_is_what_is_claimed(
    box: Box, programs: Path, line: str, devices: list[int]
) -> None:
    box.hold(0, 1)
    path = f"{programs}:{box.environ['PATH']}"
    status, out, err = box.call("run", "-q", "--", *shlex.split(line), PATH=path)
    assert status == 0, err
    assert inherited(box, out) == devices


@pytest.mark.parametrize(("line", "devices"), LINES)
@pytest.mark.parametrize(
    "words",
    [
        ("--gpus", "4"),
        ("--gpus", "4,7,3", "--detach", "--wait"),
        ("-n", "3"),
    ],
    ids=" ".join,
)
def test_a_call_that_contradicts_its_command_is_refused_in_one_sentence(
    box: Box, programs: Path, line: str, devices: list[int], words: tuple[str, ...]
) -> None:
    if len(devices) == 1 and words[:2] == ("--gpus", "4") and "6" not in line:
        return
    holder = box.hold(0, 1)
    path = f"{programs}:{box.environ['PATH']}"
    status, out, err = box.call("run", "-q", *words, "--", *shlex.split(line), PATH=path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert " ".join(words[:2]) in err
    # A line of shell cannot be rewritten.
    assert ("--force" in err) == (not line.startswith("bash"))
    assert box.claimed() == [0, 1] and not holder.over
    assert all_jobs(box.environ) == []


@pytest.mark.thorough
@pytest.mark.parametrize("line", [line for line, _ in LINES])
def test_it_is_refused_for_that_also_on_a_full_box(box: Box, line: str) -> None:
    box.hold(*range(8))
    assert box.call("run", "-q", "-n", "3", "--", *shlex.split(line))[0] == 2


@pytest.mark.parametrize("line", [line for line, _ in LINES if not line.startswith(("bash", "torchrun"))])
def test_with_force_the_call_wins_and_claims_what_is_used(box: Box, programs: Path, line: str) -> None:
    path = f"{programs}:{box.environ['PATH']}"
    words = ("run", "-q", "--force", "--gpus", "4", "--", *shlex.split(line))
    status, out, err = box.call(*words, PATH=path)
    assert status == 0 and "note: " in err
    assert inherited(box, out) == [4]
    assert not {"5,6", "6,5", "6,2"} & set(out.replace("=", " ").split())


def test_force_does_not_start_what_cannot_be_rewritten(box: Box, programs: Path) -> None:
    path = f"{programs}:{box.environ['PATH']}"
    line = "bash -c 'CUDA_VISIBLE_DEVICES=6 python t.py'"
    status, out, _ = box.call("run", "-q", "--force", "--gpus", "4", "--", *shlex.split(line), PATH=path)
    assert (status, out, box.claimed()) == (2, "", [])


@pytest.mark.thorough
@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("places", [(5,), (5, 4)])
def test_a_uuid_beside_what_cannot_be_rewritten_promises_nothing_of_force(
    box: Box, programs: Path, places: tuple[int, ...], force: tuple[str, ...]
) -> None:
    path = f"{programs}:{box.environ['PATH']}"
    listed = ",".join(map(str, sorted(4 + n for n in range(len(places)))))
    names = ",".join(box.uuids[place] for place in places)
    command = ("bash", "-c", f"CUDA_VISIBLE_DEVICES={listed} python t.py")
    status, out, err = box.call("run", "-q", *force, "--gpus", names, "--", *command, PATH=path)
    assert (status, out, box.claimed()) == (2, "", [])
    assert f"CUDA_VISIBLE_DEVICES={listed}" in err and "--force" not in err


@pytest.mark.thorough
@pytest.mark.parametrize("line", ["torchrun --nproc-per-node 2 t.py", "CUDA_VISIBLE_DEVICES=4,5 python t.py"])
@pytest.mark.parametrize("names", ["4,,5", "4,5,", "4,5,6,", ""])
def test_an_empty_entry_is_told_whatever_the_command_says(box: Box, line: str, names: str) -> None:
    for force in ((), ("--force",)):
        alone = box.call("run", "-q", *force, "--gpus", names, "--", "true")
        assert alone[0] == 2 and repr(names) in alone[2]
        assert box.call("run", "-q", *force, "--gpus", names, "--", *shlex.split(line)) == alone


def test_devices_that_are_named_twice_alike_are_started_on(box: Box, programs: Path) -> None:
    path = f"{programs}:{box.environ['PATH']}"
    for options, line, program in (
        (("--gpus", "0,1"), "accelerate launch --gpu_ids 0,1 t.py", "accelerate"),
        (("--gpus", "1"), "env CUDA_VISIBLE_DEVICES=1 python t.py", "python"),
        (("-n", "2"), "deepspeed --num_gpus 2 t.py", "deepspeed"),
        (("--gpus", "2,0"), "CUDA_VISIBLE_DEVICES=2,0 torchrun t.py", "torchrun"),
        (("--gpus", "none"), "CUDA_VISIBLE_DEVICES= python t.py", "python"),
    ):
        status, out, err = box.call("run", "-q", *options, "--", *shlex.split(line), PATH=path)
        assert (status, out.split()[0]) == (0, program), err


GUARDS = [
    # Lines of scripts for an environment without a list, which have no effect in a launch that sets one.
    'if [ -z "$CUDA_VISIBLE_DEVICES" ]; then export CUDA_VISIBLE_DEVICES=0,1; fi',
    "[[ -z ${CUDA_VISIBLE_DEVICES} ]] && export CUDA_VISIBLE_DEVICES=0,1",
    'if test -z "${CUDA_VISIBLE_DEVICES:-}"; then export CUDA_VISIBLE_DEVICES=0,1; fi',
    '[ -n "$CUDA_VISIBLE_DEVICES" ] || export CUDA_VISIBLE_DEVICES=0,1',
    'if [ "$CUDA_VISIBLE_DEVICES" == "" ]; then export CUDA_VISIBLE_DEVICES=0,1; fi',
    'if [ -z "${CUDA_VISIBLE_DEVICES+x}" ]; then export CUDA_VISIBLE_DEVICES=0,1; fi',
    "if [[ ! -v CUDA_VISIBLE_DEVICES ]]; then export CUDA_VISIBLE_DEVICES=0,1; fi",
    'if [ "$CUDA_VISIBLE_DEVICES" ]; then :; else export CUDA_VISIBLE_DEVICES=0,1; fi',
    "if [[ ! $CUDA_VISIBLE_DEVICES ]]; then export CUDA_VISIBLE_DEVICES=0,1; fi",
    "export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0,1}",
    ": ${CUDA_VISIBLE_DEVICES:=0,1}",
    'export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:+$CUDA_VISIBLE_DEVICES}"',
    'GPUS=${CUDA_VISIBLE_DEVICES:-0,1}; [ -z "$GPUS" ] && GPUS=0; export CUDA_VISIBLE_DEVICES=$GPUS',
]


@pytest.mark.parametrize("guard", GUARDS)
def test_what_a_script_sets_where_no_list_is_set_is_not_set(box: Box, programs: Path, guard: str) -> None:
    """The script really runs on the devices that were claimed for it, and no warning is printed."""
    box.hold(0, 1)
    script = box.folder / "train.sh"
    script.write_text(f"{guard}\npython train.py\n")
    path = f"{programs}:{box.environ['PATH']}"
    status, out, err = box.call("run", "-n", "2", "--", "bash", str(script), PATH=path)
    assert status == 0 and "warning" not in err, err
    assert out.splitlines()[0] == "python 2,3 train.py" and inherited(box, out) == [2, 3]


def test_a_script_that_names_devices_where_the_list_is_empty_is_warned_of(box: Box, programs: Path) -> None:
    script = box.folder / "train.sh"
    script.write_text(f"{GUARDS[0]}\npython train.py\n")
    path = f"{programs}:{box.environ['PATH']}"
    status, _, err = box.call("run", "-q", "--gpus", "none", "--", "bash", str(script), PATH=path)
    assert status == 0 and "warning" in err and "train.sh:" in err


SCRIPTS = {
    # The command in the script, and the interpreter that runs the script.
    "acc8.sh": ("accelerate launch --config_file eight.yaml t.py", "bash"),
    "acc8n.sh": ("accelerate launch --num_processes 8 t.py", "bash"),
    "tr8.sh": ("torchrun --nproc_per_node 8 t.py", "bash"),
    "module8.sh": ("python -m torch.distributed.run --nproc_per_node=8 t.py", "sh"),
    "home.sh": ("accelerate launch t.py", "bash"),
}
EIGHT_PROCESSES = "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 1\n"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_number_of_processes_in_a_script_is_contradicted_like_one_that_is_typed(
    box: Box, programs: Path, name: str
) -> None:
    text, starts = SCRIPTS[name]
    own = box.folder / "hf" / "accelerate" / "default_config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(EIGHT_PROCESSES)
    (box.folder / "eight.yaml").write_text(EIGHT_PROCESSES)
    (box.folder / name).write_text(f"{text}\n")
    variables = {"PATH": f"{programs}:{box.environ['PATH']}", "HF_HOME": str(box.folder / "hf")}
    command = ("--directory", str(box.folder), "--", *starts.split(), name)
    for options in (("-n", "2"), ("--gpus", "4,5")):
        status, out, err = box.call("run", "-q", *options, *command, **variables)
        assert (status, out, err.count("\n"), box.claimed()) == (2, "", 1, [])
        assert " ".join(options) in err and " 8 " in err.replace("=", " ")
    status, out, err = box.call("run", "-q", "-n", "8", *command, **variables)
    assert status == 0 and inherited(box, out) == [*range(8)], err
    status, out, err = box.call("run", "-q", *command, **variables)
    assert status == 0 and inherited(box, out) == [*range(8)], err


@pytest.mark.parametrize("asked", [("-n", "2"), ("--gpus", "2,3"), ("-n", "8")])
@pytest.mark.parametrize(("name", "figure"), [("dgx-h100", "8.5 %"), ("rtx4090", "15.9 %")])
def test_the_note_on_the_trainer_has_the_links_of_the_devices(
    box: Box, asked: tuple[str, ...], name: str, figure: str
) -> None:
    box.driver.show_box(replace(BOXES[name], tasks=()))
    script = box.folder / "train.py"
    script.write_text("from transformers import Trainer\n")
    status, _, err = box.call("run", "--dry-run", *asked, "--", "python", str(script))
    assert (status, err.count("\n"), figure in err) == (0, 1, True), err


DEEPSPEED = "deepspeed --num_gpus 2 main.py --deepspeed\n"


@pytest.mark.parametrize("asked", [(), ("-n", "2"), ("-n", "2", "--dry-run"), ("-n", "2", "--detach")])
def test_the_first_devices_that_a_script_takes_must_be_free(
    box: Box, programs: Path, asked: tuple[str, ...]
) -> None:
    """`--num_gpus` in a script takes 0 and 1 whatever is selected, and the user has not chosen these."""
    box.driver.show_box(BOXES["shared"])
    script = box.folder / "ds_chat.sh"
    script.write_text(DEEPSPEED)
    path = f"{programs}:{box.environ['PATH']}"
    status, out, err = box.call("run", "-q", *asked, "--", "bash", str(script), PATH=path)
    assert (status, out, box.claimed(), all_jobs(box.environ)) == (4, "", [], [])
    # One line for each of the two, between the message and the remedy.
    assert err.count("\n") == 4 and "--wait" in err
    assert "--num_gpus 2" in err and "GPU 0,1" in err


@pytest.mark.thorough
def test_the_first_devices_that_a_script_takes_are_claimed(box: Box, programs: Path) -> None:
    box.hold(5)
    script = box.folder / "ds_chat.sh"
    script.write_text(DEEPSPEED)
    path = f"{programs}:{box.environ['PATH']}"
    for asked in ((), ("-n", "2"), ("--gpus", "0,1"), ("-n", "2", "--order", "best"), ("-n", "2", "--wait")):
        status, out, err = box.call("run", "-q", *asked, "--", "bash", str(script), PATH=path)
        assert status == 0 and inherited(box, out) == [0, 1], err
    for wrong in (("-n", "3"), ("--gpus", "2,3"), ("--force", "--gpus", "2,3")):
        status, out, err = box.call("run", "-q", *wrong, "--", "bash", str(script), PATH=path)
        assert (status, out) == (2, ""), err


def test_a_person_may_decide_on_the_first_devices_all_the_same(box: Box, programs: Path) -> None:
    box.driver.show_box(BOXES["shared"])
    script = box.folder / "ds_chat.sh"
    script.write_text(DEEPSPEED)
    path = f"{programs}:{box.environ['PATH']}"
    status, out, err = box.call("run", "-q", "--force", "-n", "2", "--", "bash", str(script), PATH=path)
    assert status == 0 and out.startswith("deepspeed 0,1 "), err


def _old_ultralytics(device: str, _listed: str | None) -> list[int]:
    """Up to 8.4.86 (select_device): `device` becomes the list of visible devices in any case."""
    return [int(entry) for entry in device.replace("cuda:", "").split(",")]


def _new_ultralytics(device: str, listed: str | None) -> list[int]:
    """From 8.4.87 on (parse_device): positions among the visible devices. The numbers are indices where all
    of them are in the list and one is too high for a position."""
    visible = list(range(8)) if listed is None else [int(entry) for entry in listed.split(",")]
    wanted = [int(entry) for entry in device.replace("cuda:", "").split(",")]
    if all(each in visible for each in wanted) and any(each >= len(visible) for each in wanted):
        return wanted
    return [visible[each] for each in wanted]


@pytest.mark.parametrize("listed", ["0,1", "5,4", "3", "0", "2,1,0"])
@pytest.mark.parametrize(
    ("typed", "options"), [("", ("--ids", "uuid")), ("device=4,5", ()), ("device=cuda:0", ())]
)
def test_yolo_runs_on_the_devices_whatever_its_version(
    box: Box, listed: str, typed: str, options: tuple[str, ...]
) -> None:
    words = ("run", "-q", "--force", "--dry-run", *options, "--gpus", listed)
    status, out, err = box.call(*words, "--", "yolo", "train", "model=m.pt", *([typed] if typed else []))
    assert status == 0, err
    line = dict(word.partition("=")[::2] for word in shlex.split(out) if "=" in word)
    chosen = [int(entry) for entry in listed.split(",")]
    assert line["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    if "device" not in line:
        # Then every version takes the first visible device.
        assert (line["CUDA_VISIBLE_DEVICES"], len(chosen)) == (listed, 1)
        return
    for reads in (_old_ultralytics, _new_ultralytics):
        assert reads(line["device"], line.get("CUDA_VISIBLE_DEVICES")) == chosen, out


def test_a_claim_on_what_both_name_is_a_shortage_and_no_wrong_call(box: Box) -> None:
    box.hold(0)
    words = ("run", "-q", "--gpus", "0,1", "--", "accelerate", "launch", "--gpu_ids", "0,1", "t.py")
    assert box.call(*words)[0] == 4
