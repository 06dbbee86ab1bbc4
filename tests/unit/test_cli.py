"""The command line: results on stdout, messages on stderr, and an exit status for each kind of end."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui import __version__
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import reason, state_and_reason
from gputui.cli import completion
from gputui.cli.main import main
from gputui.cli.record import anonymous
from gputui.cli.request_options import count, memory, percent
from gputui.inventory.claim import Claim
from gputui.inventory.device import Fault
from gputui.inventory.document_reader import from_json
from gputui.inventory.process import Ancestor
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter
from gputui.sources.simulated.boxes import BOXES
from gputui.system.environment import WORDS
from gputui.vendors.nvidia.source import REMEDIES
from messages import numbers, only_warning
from table_tests import each_row
from unit.builders import GIB, MIB, box, busy, document, gpu, instance, job, recording
from unit.calling import Call

PARENT = gpu(1, mig=True, utilization=None)
EIGHT = box(*(gpu(index) for index in range(8)))
SLICED = box(gpu(0), PARENT, instance(PARENT, 0), instance(PARENT, 1))
GPUTUI = [sys.executable, "-m", "gputui"]


Record = Callable[[Snapshot], str]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A function that writes a box to a file, for --from."""
    return lambda snapshot: recording(tmp_path, snapshot)


def _process(
    *words: str, stdout: int | None = subprocess.PIPE, **environ: str
) -> subprocess.CompletedProcess[bytes]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "PET_", "PYTHONUNBUFFERED"))}
    return subprocess.run(
        [*GPUTUI, *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**kept, **environ},
        timeout=60,
        check=False,
    )


# ls


@each_row("name", BOXES)
def test_ls_shows_every_device_of_every_box_on_its_own_line(call: Call, name: str) -> None:
    ended = call("ls", "--demo", name)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    devices = json.loads(call("ls", "--json", "--demo", name).out)["devices"]
    # Devices that are not offered are listed separately, under a line of their own.
    assert len(lines) == len(devices) + 2 + any(device["apart"] for device in devices)
    assert BOXES[name].host in lines[0] and BOXES[name].driver in lines[0]


def test_ls_says_why_a_device_is_not_free(call: Call, record: Record) -> None:
    snapshot = box(
        gpu(0), busy(gpu(1)), gpu(2, memory_used=22 * GIB), gpu(3, fault=Fault("lost", "GPU is lost"))
    )
    lines = call("ls", "--from", record(snapshot)).out.splitlines()[2:]
    assert "○ free" in lines[0]
    judged = verdicts(snapshot).values()
    assert [verdict.state for verdict in judged] == ["free", "busy", "held", "lost"]
    for line, sign, verdict in zip(lines, "○●◐✕", judged, strict=True):
        assert f"{sign} {verdict.state}" in line and reason(verdict, snapshot.time) in line


def test_ls_without_a_terminal_has_no_colour(call: Call) -> None:
    assert "\x1b" not in call("ls", "--demo").out


def test_ls_lets_no_foreign_text_move_the_cursor(call: Call, record: Record) -> None:
    evil = job(user="m\x1b[31mi", command="\x1b]0;owned\x07", note="x\ny")
    snapshot = replace(
        box(gpu(0, name="GPU\x1b[2J\nX", processes=(evil,)), gpu(1, fault=Fault("error", "a\x1b[2J\nb"))),
        errors=("bad\x1b[2J\nthing",),
    )
    ended = call("ls", "--from", record(snapshot))
    assert all(line.isprintable() for line in ended.out.splitlines())
    assert len(ended.out.splitlines()) == 5


def test_ls_of_a_box_without_devices_says_so(call: Call, record: Record) -> None:
    assert "no devices" in call("ls", "--from", record(box())).out


def test_memory_that_is_the_hosts_is_shown_as_numbers(call: Call) -> None:
    assert re.search(r"GB10 +0% +\d+\.\d/\d+\.\dG", call("ls", "--demo", "gb10").out)
    device = json.loads(call("ls", "--json", "--demo", "gb10").out)["devices"][0]
    assert device["memory_used"] + device["memory_free"] == device["memory_total"] > 0


def test_ls_json_is_the_document_of_the_contract(call: Call, record: Record) -> None:
    assert json.loads(call("ls", "--json", "--from", record(SLICED)).line) == document(SLICED)


def test_ls_json_is_one_line_of_ascii(call: Call, record: Record) -> None:
    evil = box(gpu(0, processes=(job(user="größe", command="a\nb\u202e"),)))
    assert call("ls", "--json", "--from", record(evil)).line.isascii()


# pick


def test_pick_prints_one_line_of_indices(call: Call, record: Record) -> None:
    assert call("pick", "-n", "3", "--from", record(EIGHT)).line == "0,1,2"


def test_pick_takes_one_device_unless_told_otherwise(call: Call, record: Record) -> None:
    assert call("pick", "--from", record(EIGHT)).line == "0"


def test_pick_can_name_by_uuid(call: Call, record: Record) -> None:
    ended = call("pick", "-n", "2", "--ids", "uuid", "--from", record(EIGHT))
    assert ended.line == f"{gpu(0).uuid},{gpu(1).uuid}"


def test_pick_names_an_instance_by_uuid(call: Call, record: Record) -> None:
    snapshot = box(busy(gpu(0)), PARENT, instance(PARENT, 0))
    assert call("pick", "--from", record(snapshot)).line == instance(PARENT, 0).uuid


@each_row(
    ("words", "line"),
    [
        (["-n", "2"], "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1"),
        (["--ids", "uuid"], f"CUDA_VISIBLE_DEVICES={gpu(0).uuid}"),
        (["--gpus", "none"], "CUDA_VISIBLE_DEVICES="),
    ],
)
def test_pick_can_print_the_variables(call: Call, record: Record, words: list[str], line: str) -> None:
    assert call("pick", *words, "--format", "env", "--from", record(EIGHT)).line == line


def test_pick_json_has_the_devices_and_the_variables(call: Call, record: Record) -> None:
    told = json.loads(call("pick", "-n", "2", "--format", "json", "--from", record(EIGHT)).line)
    assert [device["uuid"] for device in told["devices"]] == [gpu(0).uuid, gpu(1).uuid]
    assert told["environment"] == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,1"}


def test_pick_takes_the_devices_that_are_named_in_their_order(call: Call, record: Record) -> None:
    assert call("pick", "--gpus", "5,0,3", "--from", record(EIGHT)).line == "5,0,3"


def test_pick_takes_the_best_of_those_that_are_named(call: Call, record: Record) -> None:
    snapshot = box(gpu(0), busy(gpu(1)), gpu(2), gpu(3))
    assert call("pick", "-n", "2", "--gpus", "1,2,3", "--from", record(snapshot)).line == "2,3"


def test_pick_none_is_no_device(call: Call, record: Record) -> None:
    ended = call("pick", "--gpus", "none", "--from", record(EIGHT))
    assert (ended.status, ended.out, ended.err) == (0, "\n", "")


@pytest.mark.parametrize("named", ["2,0", f"{gpu(2).uuid},GPU-00000000"])
def test_env_of_a_shell_can_use_what_pick_prints(tmp_path: Path, named: str) -> None:
    file = recording(tmp_path, EIGHT)
    gputui, python = shlex.join(GPUTUI), shlex.quote(sys.executable)
    script = (
        f"env $({gputui} pick --gpus {named} --format env --from {shlex.quote(file)})"
        f""" {python} -c 'import os; print(os.environ["CUDA_VISIBLE_DEVICES"])'"""
    )
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "2,0\n"


def test_env_of_a_shell_can_use_the_empty_choice_too() -> None:
    gputui, python = shlex.join(GPUTUI), shlex.quote(sys.executable)
    script = (
        f"env $({gputui} pick --demo --gpus none --format env)"
        f""" {python} -c 'import os; print(repr(os.environ["CUDA_VISIBLE_DEVICES"]))'"""
    )
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "''\n"


# Too few devices.


def test_a_shortage_is_status_4_with_the_reason_and_nothing_on_stdout(call: Call, record: Record) -> None:
    snapshot = box(busy(gpu(0)), gpu(1), gpu(2, processes=None))
    said = call("pick", "-n", "2", "--from", record(snapshot)).refused(4)
    assert "2 GPUs" in said and "1 of 3" in said
    judged = list(verdicts(snapshot).values())
    for index, state in ((0, "busy"), (2, "unknown")):
        assert judged[index].state == state
        assert f"GPU {index} {state_and_reason(judged[index], snapshot.time)}" in said


@each_row(
    "words",
    [
        ["pick", "-n", "9"],
        ["pick", "-n", "8", "--min-free", "81G"],
        ["pick", "-n", "2", "--gpus", "3"],
        ["pick", "--gpus", "3", "--min-free", "81G"],
        ["run", "-n", "9", "--dry-run", "--", "true"],
        ["run", "-n", "9", "--", "echo", "started"],
        ["export", "-n", "9", "--as", "sh", "--", "true"],
    ],
)
def test_every_call_that_wants_more_than_there_is_is_status_4(
    call: Call, record: Record, words: list[str]
) -> None:
    place = words.index("--") if "--" in words else len(words)
    assert call(*words[:place], "--from", record(EIGHT), *words[place:]).refused(4)


def test_on_a_box_without_devices_there_is_none(call: Call, record: Record) -> None:
    assert "none of 0" in call("pick", "--from", record(box())).refused(4)


def test_what_is_true_of_several_devices_is_said_of_them_once_in_one_sentence(call: Call) -> None:
    said = json.loads(call("pick", "-n", "3", "--demo", "gaudi", "--json").out)["error"]["message"]
    assert said.count("work together") == 1 and "GPU 0-3,6-7 free" in said


def test_a_vendor_that_the_box_does_not_have_is_said_with_those_it_has(call: Call) -> None:
    said = call("pick", "--vendor", "amd", "--demo", "mixed-vendors").refused(4)
    assert all(name in said for name in ("AMD", "NVIDIA", "Intel")) and "available" not in said


def test_where_no_device_has_a_number_it_is_said_why_none_is_offered(call: Call, record: Record) -> None:
    card = gpu(-1, name="Radeon RX 580", vendor="amd", apart="no runtime")
    said = call("pick", "--from", record(box(card))).refused(4)
    assert "Radeon RX 580" in said and "runtime" in said


def test_conditions_are_kept(call: Call, record: Record) -> None:
    snapshot = box(
        gpu(0, memory_free=19 * GIB),
        gpu(1, memory_free=20 * GIB, utilization=6),
        gpu(2, memory_free=20 * GIB, utilization=5),
    )
    file = record(snapshot)
    assert call("pick", "--min-free", "20G", "--max-util", "5%", "--from", file).line == "2"
    assert "19.0G free" in call("pick", "-n", "3", "--min-free", "20GiB", "--from", file).refused(4)


def test_memory_that_is_not_known_is_never_enough(call: Call, record: Record) -> None:
    for unified in (None, True):
        file = record(box(gpu(0, memory_used=None, memory_free=None, unified=unified)))
        said = call("pick", "--min-free", "1G", "--from", file).refused(4)
        assert "unknown" in said and "memory" in said


def test_of_unified_memory_the_host_tells_what_is_free(call: Call) -> None:
    assert call("pick", "--min-free", "100G", "--demo", "gb10").line == "0"
    assert "112.2G free, 150.0G required" in call("pick", "--min-free", "150G", "--demo", "gb10").refused(4)


# Devices that are named.


def test_a_busy_device_that_is_named_is_refused_where_that_is_asked_for(call: Call, record: Record) -> None:
    run = ("run", "--dry-run", "--if-free", "--from", record(box(gpu(0), busy(gpu(1)))))
    call(*run, "--gpus", "1,0", "--", "true").refused(4)
    assert call(*run, "--gpus", "0", "--", "true").status == 0
    for more in ("--force", "--wait"):
        call(*run, "--gpus", "0", more, "--", "true").refused(2)


def test_a_named_device_that_others_use_is_refused_unless_forced(call: Call, record: Record) -> None:
    pick = ("pick", "--gpus", "1,0", "--from", record(box(gpu(0), busy(gpu(1)))))
    assert "GPU 1 is busy: mira " in call(*pick).refused(4)
    ended = call(*pick, "--force")
    assert (ended.status, ended.out) == (0, "1,0\n")
    assert only_warning(ended.err).startswith("GPU 1 is busy: mira ")


def test_a_lost_device_that_is_named_is_a_shortage(call: Call, record: Record) -> None:
    snapshot = box(gpu(0), gpu(1, fault=Fault("lost", "GPU is lost")))
    assert "GPU 1 is lost" in call("pick", "--gpus", "1", "--from", record(snapshot)).refused(4)


def test_a_device_without_a_uuid_is_never_turned_into_no_device(call: Call, record: Record) -> None:
    snapshot = box(gpu(0), gpu(1, uuid="", fault=Fault("error", "GetUUID: Unknown Error")))
    ended = call("pick", "--gpus", "1", "--ids", "uuid", "--from", record(snapshot))
    assert (ended.status, ended.out) in ((0, "1\n"), (4, ""))


# An inherited list limits the choice.


def test_only_what_was_given_is_taken(call: Call, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    file = record(EIGHT)
    assert call("pick", "-n", "2", "--from", file).line == "5,3"
    said = call("pick", "-n", "3", "--from", file).refused(4)
    assert "inside CUDA_VISIBLE_DEVICES=5,3" in said and numbers(said)[:2] == [3, 2]
    assert "CUDA_VISIBLE_DEVICES=5 " in call("run", "--dry-run", "--from", file, "--", "python", "x.py").line


@each_row("given", ["", "-1", "none"])
def test_nothing_given_is_nothing_taken(
    call: Call, record: Record, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    ended = call("pick", "--from", record(EIGHT))
    assert (ended.status, ended.out) == (4, "")


def test_a_device_outside_what_was_given_is_a_wrong_call(
    call: Call, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    said = call("pick", "--gpus", "3,4", "--from", record(EIGHT)).refused(2)
    assert "GPU 4 " in said and "CUDA_VISIBLE_DEVICES=5,3" in said


def test_a_device_inside_what_was_given_can_be_named(
    call: Call, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu(5).uuid)
    assert call("pick", "--gpus", "5", "--from", record(EIGHT)).line == "5"


def test_an_entry_that_names_nothing_is_a_warning(
    call: Call, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,9")
    ended = call("pick", "--from", record(EIGHT))
    assert (ended.status, ended.out) == (0, "2\n")
    assert "warning" in ended.err and "'9'" in ended.err and ended.err.count("\n") == 1


def test_an_absurd_variable_is_a_warning(call: Call, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,\x1b[2J\n" + "9" * 5_000)
    ended = call("pick", "--from", record(EIGHT))
    assert ended.out == "2\n"
    assert len(ended.err.splitlines()) == 1 and ended.err[:-1].isprintable()


# run --dry-run and export


@each_row(
    ("words", "command", "line"),
    [
        (["-n", "2"], ["python", "train.py", "--lr", "3e-4"], "=0,1 python train.py --lr 3e-4"),
        (["--gpus", "5,4"], ["python", "x.py"], "=5,4 python x.py"),
        (["-n", "2"], ["torchrun", "x.py"], "=0,1 torchrun --standalone --nproc-per-node=2 x.py"),
        (
            ["-n", "2", "--launcher", "torchrun"],
            ["python", "x.py"],
            "=0,1 torchrun --standalone --nproc-per-node=2 x.py",
        ),
        ([], ["OMP_NUM_THREADS=4", "python", "x.py"], "=0 OMP_NUM_THREADS=4 python x.py"),
        ([], ["python", "a b", "$HOME"], "=0 python 'a b' '$HOME'"),
        ([], ["python", "--", "x", "--", "y"], "=0 python -- x -- y"),
        ([], ["python", "--demo", "--help"], "=0 python --demo --help"),
    ],
)
def test_a_dry_run_prints_the_launch_line(
    call: Call, record: Record, words: list[str], command: list[str], line: str
) -> None:
    ended = call("run", *words, "--dry-run", "--from", record(EIGHT), "--", *command)
    assert ended.line == f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES{line}"


def test_a_dry_run_starts_nothing(call: Call, record: Record, tmp_path: Path) -> None:
    call("run", "--dry-run", "--from", record(EIGHT), "--", "touch", str(tmp_path / "started"))
    assert not (tmp_path / "started").exists()


def test_what_there_is_to_warn_of_is_said_beside_the_line(call: Call, record: Record) -> None:
    words = ("run", "--dry-run", "--from", record(EIGHT), "--", "PET_MASTER_PORT=1", "torchrun", "x.py")
    ended = call(*words)
    assert ended.status == 0 and ended.out.count("\n") == 1
    assert "PET_MASTER_PORT=1" in only_warning(ended.err)


def test_cpu_only_can_be_launched(call: Call) -> None:
    line = call("run", "--gpus", "none", "--dry-run", "--demo", "--", "python", "x.py").line
    assert line == "CUDA_VISIBLE_DEVICES= python x.py"


def test_run_becomes_the_command(tmp_path: Path) -> None:
    file = recording(tmp_path, EIGHT)
    done = _process(
        "run", "-q", "-n", "2", "--from", file, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 7"
    )
    assert (done.returncode, done.stdout) == (7, b"0,1\n")


def test_run_says_what_it_starts(tmp_path: Path) -> None:
    done = _process("run", "--from", recording(tmp_path, EIGHT), "--", "true")
    assert done.stdout == b"" and b"CUDA_VISIBLE_DEVICES=0 true\n" in done.stderr


@pytest.mark.parametrize(("program", "status"), [("no-such-program-anywhere", 127), ("/", 126)])
def test_run_of_what_cannot_be_started_ends_as_a_shell_would(program: str, status: int) -> None:
    done = _process("run", "-q", "--demo", "idle", "--", program)
    assert (done.returncode, done.stdout) == (status, b"")
    assert program.encode() in done.stderr and b"Traceback" not in done.stderr


def test_export_sh_is_the_line_for_any_shell(call: Call, record: Record) -> None:
    ended = call("export", "--as", "sh", "-n", "2", "--from", record(EIGHT), "--", "python", "a\nb")
    assert ended.text == "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 python 'a\nb'\n"


def test_export_without_a_command_is_the_variables(call: Call, record: Record) -> None:
    line = call("export", "--as", "sh", "-n", "2", "--from", record(EIGHT)).line
    assert line == "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1"


def test_export_without_a_command_starts_no_launcher(call: Call, record: Record) -> None:
    line = call("export", "--as", "sh", "--launcher", "torchrun", "--from", record(EIGHT)).line
    assert line == "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0"


def test_export_json_is_what_would_be_executed(call: Call, record: Record) -> None:
    told = json.loads(
        call("export", "--as", "json", "--gpus", "3", "--from", record(EIGHT), "--", "A=1", "x").line
    )
    assert told["argv"] == ["x"]
    assert told["environment"] == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "3", "A": "1"}
    assert told["directory"] is None and told["warnings"] == []


@pytest.mark.parametrize("form", ["sh", "json"])
def test_export_of_a_word_that_is_not_utf8_works_with_a_strict_terminal(form: str) -> None:
    done = _process(
        "export", "--as", form, "--demo", "idle", "--", "caf\udce9", PYTHONIOENCODING="utf-8:strict"
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"caf" in done.stdout


# record, and --from


def test_a_recording_is_replayed_as_it_was(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "box.json"
    assert call("record", str(file), "--demo", "lost").status == 0
    first = call("ls", "--json", "--details", "--from", str(file)).line
    again = call("record", "-", "--from", str(file))
    assert json.loads(first) == json.loads(again.out) == json.loads(file.read_text())


def test_a_recording_says_that_it_has_names_in_it(call: Call, tmp_path: Path) -> None:
    ended = call("record", str(tmp_path / "box.json"), "--demo", "shared")
    assert "--anonymous" in ended.err and ended.out == ""


def test_an_anonymous_recording_has_none(call: Call) -> None:
    ended = call("record", "-", "--anonymous", "--demo", "shared")
    assert ended.err == ""
    snapshot = from_json(ended.out)
    processes = [process for device in snapshot.devices for process in device.processes or ()]
    assert processes and all((p.user, p.command) == (None, None) for p in processes)
    assert snapshot.host.name is None
    assert not any(word in ended.out for word in ("mira", "olek", "dgx-3", "train.py"))


def test_an_anonymous_recording_leaves_out_what_started_a_process(call: Call, tmp_path: Path) -> None:
    """The path of a supervisor, and the name of a container, have names of users in them."""
    file = tmp_path / "box.json"
    of = (Ancestor(7, "bash /home/mira/x.sh"),)
    named = job(user="mira", command="python mira.py", ancestors=of, container="lxc mira")
    file.write_text(json.dumps(document(box(busy(gpu(0), named)))))
    assert "mira" in call("record", "-", "--from", str(file)).out
    assert "mira" not in call("record", "-", "--from", str(file), "--anonymous").out


def test_an_anonymous_recording_does_not_name_agents() -> None:
    claim = Claim("GPU-1-2", "ana", command="a.py", job="k3f9", client="ana-agent")
    waiter = Waiter((1, "ana"), "ana", command="a.py", job="k3f9", client="ana-agent")
    kept = anonymous(replace(box(gpu(0)), claims=(claim,), waiters=(waiter,)))
    assert all(
        (each.user, each.client, each.command) == ("?", None, None) for each in (*kept.claims, *kept.waiters)
    )


@pytest.mark.parametrize("option", ["--from", "--demo"])
def test_a_pipe_to_which_nobody_writes_is_no_box_and_makes_nobody_wait(
    call: Call, tmp_path: Path, option: str
) -> None:
    """In /tmp, another user may have made it under the name that a person types."""
    os.mkfifo(tmp_path / "topo.txt")
    assert "topo.txt" in call("ls", f"{option}={tmp_path / 'topo.txt'}").refused(3)


def test_an_anonymous_recording_leaves_out_what_is_wrong_with_claims() -> None:
    """The messages name users, and the folders in which they keep claims."""
    box_of_ana = replace(box(gpu(0)), errors=("no driver", "ana uses a newer gputui"), missing="no driver")
    assert anonymous(box_of_ana).errors == ("no driver",)
    assert anonymous(replace(box_of_ana, missing=None)).errors == ()


def test_a_recording_replaces_a_file_whole_and_leaves_nothing_behind(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "box.json"
    file.write_text("old")
    call("record", str(file), "--demo", "idle")
    assert from_json(file.read_bytes()).host.name == "quiet"
    assert [each.name for each in tmp_path.iterdir()] == ["box.json"]


def test_a_recording_is_as_readable_as_any_other_new_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    call("record", str(tmp_path / "box.json"), "--demo", "idle")
    assert (tmp_path / "box.json").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("place", ["none/box.json", "."])
def test_a_recording_that_cannot_be_written_is_a_wrong_call(call: Call, tmp_path: Path, place: str) -> None:
    assert "cannot write" in call("record", str(tmp_path / place), "--demo", "idle").refused(2)


def test_a_recording_can_come_from_standard_input(
    call: Call, monkeypatch: pytest.MonkeyPatch, record: Record
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(Path(record(EIGHT)).read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert call("pick", "--from", "-").line == "0"


@each_row("content", [b"", b"{}", b"\xff", b"[" * 100_000, b"not json\nat all", b"null"])
def test_a_file_that_is_no_recording_is_status_3_in_one_line(
    call: Call, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "box.json"
    file.write_bytes(content)
    for words in (["ls"], ["pick"], ["run", "--dry-run"]):
        command = ["--", "true"] if words[0] == "run" else []
        said = call(*words, "--from", str(file), *command).refused(3)
        assert "box.json" in said


def test_a_file_that_is_not_there_is_status_3(call: Call, tmp_path: Path) -> None:
    assert "cannot read" in call("ls", "--from", str(tmp_path / "none")).refused(3)
    assert "cannot read" in call("ls", "--from", str(tmp_path)).refused(3)


# No source.


@each_row("code", sorted(REMEDIES))
@each_row("words", [["ls"], ["pick"], ["run", "--", "true"], ["record", "-"]])
def test_no_driver_is_status_3_with_cause_and_remedy(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert REMEDIES[code] in call(*words).refused(3)


def test_an_unknown_failure_of_the_driver_is_status_3_too(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert "Unknown Error" in call("ls").refused(3)


# --demo and --from before and after the subcommand.


@each_row(
    "words",
    [
        ["--demo", "ls"],
        ["ls", "--demo"],
        ["--demo", "shared", "ls"],
        ["ls", "--demo", "shared"],
        ["--demo=shared", "ls"],
        ["ls", "--demo=shared"],
    ],
)
def test_a_demo_box_may_be_named_before_and_after_the_subcommand(call: Call, words: list[str]) -> None:
    assert "dgx-3" in call(*words).out


@pytest.mark.parametrize("demo", [["--demo", "laptop"], ["--demo=laptop"]])
def test_another_demo_box_may_be_named_before_and_after_too(call: Call, demo: list[str]) -> None:
    assert call(*demo, "pick").line == call("pick", *demo).line == "0"


@each_row("words", [["--demo", "list"], ["--demo=list"], ["ls", "--demo", "list"]])
def test_the_list_of_demo_boxes_is_no_error_and_has_a_line_for_each(call: Call, words: list[str]) -> None:
    ended = call(*words)
    assert ended.status == 0 and not ended.err
    assert [line.split()[0] for line in ended.out.splitlines()] == list(BOXES)
    assert all(len(line.split()) > 1 for line in ended.out.splitlines())


def test_a_demo_box_may_stand_among_other_options(call: Call) -> None:
    assert call("pick", "--demo", "idle", "-n", "2").line == "0,1"
    assert call("pick", "-n", "2", "--demo", "idle", "--ids", "index").line == "0,1"
    assert call("pick", "-n", "2", "--demo").status == 0


def test_a_recording_may_be_named_before_and_after_the_subcommand(call: Call, record: Record) -> None:
    file = record(EIGHT)
    for words in (["--from", file, "pick"], ["pick", "--from", file], [f"--from={file}", "pick"]):
        assert call(*words).line == "0"


@each_row(
    "words",
    [
        ["ls", "--demo", "moonbase"],
        ["--demo", "moonbase", "ls"],
        ["ls", "--demo=moonbase"],
        ["--demo=moonbase", "ls"],
    ],
)
def test_a_demo_box_that_is_not_there_is_a_wrong_call_wherever_it_stands(
    call: Call, words: list[str]
) -> None:
    assert "no demo box is called 'moonbase'" in call(*words).refused(2)


# Wrong calls: one line on stderr, nothing on stdout, status 2.

WRONG = [
    ["nonsense"],
    ["ls", "nonsense"],
    ["ls", "--nonsense"],
    ["ls", "--jso"],
    ["ls", "--demo", "--from", "x"],
    ["ls", "--demo", "--", "python"],
    ["--interval", "0", "--demo"],
    ["--interval", "x", "--demo"],
    ["--nonsense"],
    ["pick", "-n", "0", "--demo"],
    ["pick", "-n", "-1", "--demo"],
    ["pick", "-n", "two", "--demo"],
    ["pick", "-n", "1.5", "--demo"],
    ["pick", "-n", "٣", "--demo"],
    ["pick", "-n", "²", "--demo"],
    ["pick", "-n", "9" * 5_000, "--demo"],
    ["pick", "-n", "--demo"],
    ["pick", "--gpus", "", "--demo"],
    ["pick", "--gpus", "0,", "--demo"],
    ["pick", "--gpus", "0,0", "--demo"],
    ["pick", "--gpus", "99", "--demo"],
    ["pick", "--gpus", "9" * 5_000, "--demo"],
    ["pick", "--gpus", "GPU-", "--demo"],
    ["pick", "--gpus", "0\n1", "--demo"],
    ["pick", "--gpus", "\x1b[31m0", "--demo"],
    ["pick", "--gpus", "0", "--demo", "a100-mig"],
    ["pick", "--min-free", "lots", "--demo"],
    ["pick", "--min-free", "20", "--demo"],
    ["pick", "--min-free", "-1G", "--demo"],
    ["pick", "--min-free", "1\u212a", "--demo"],
    ["pick", "--max-util", "101", "--demo"],
    ["pick", "--max-util", "half", "--demo"],
    ["pick", "--ids", "name", "--demo"],
    ["pick", "--format", "xml", "--demo"],
    ["pick", "--demo", "--", "python"],
    ["pick", "--demo", "line\nbreak"],
    ["pick", "--demo", "\x1b[2J"],
    ["run", "--demo"],
    ["run", "--demo", "--"],
    ["run", "--demo", "--", "A=1"],
    ["run", "--demo", "python", "x.py"],
    ["run", "-n", "1", "--gpus", "0", "--demo", "--", "x"],
    ["run", "--launcher", "slurm", "--demo", "--", "x"],
    ["export", "--as", "cobol", "--demo", "--", "x"],
    ["record", "--demo"],
    ["record", "a", "b", "--demo"],
    ["record", "-", "--demo", "--", "x"],
    ["completion"],
    ["completion", "cobol"],
    ["completion", "bash", "--", "x"],
]


@each_row("words", WRONG, ids=lambda words: " ".join(words)[:40].encode("unicode_escape").decode())
def test_a_wrong_call_is_one_line_and_status_2(call: Call, words: list[str]) -> None:
    assert call(*words).refused(2)


def test_a_wrong_call_with_bytes_that_are_no_text_is_one_line_too() -> None:
    done = _process("pick", "--gpus", "caf\udce9", "--demo")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1 and done.stderr.decode()[:-1].isprintable()


def test_a_wrong_call_of_a_subcommand_points_to_its_help(call: Call) -> None:
    assert "gputui pick --help" in call("pick", "--nonsense").refused(2)
    assert "gputui --help" in call("--nonsense").refused(2)


@each_row("name", ["ls", "pick", "run", "export", "record", "completion"])
def test_every_subcommand_has_its_help(call: Call, name: str) -> None:
    ended = call(name, "--help")
    assert (ended.status, ended.err) == (0, "")
    assert f"gputui {name}" in ended.out
    assert name in call("--help").out


def test_the_version_is_printed(call: Call) -> None:
    assert call("--version").line == f"gputui {__version__}"


# A wrong call ends with one that works when it is copied.

CORRECTED = [
    ("--parameters 7B -n 2", "plan --parameters 7B -n 2"),
    ("rnu -n 2 -- python train.py", "run -n 2 -- python train.py"),
    ("python train.py", "run -- python train.py"),
    ("torchrun --nproc 2 train.py", "run -- torchrun --nproc 2 train.py"),
    ("rnu --gpu 2 python x.py --gpu 3", "run --gpus 2 -- python x.py --gpu 3"),
    ("run python train.py --lr 3", "run -- python train.py --lr 3"),
    ("run python train.py --bogus", "run -- python train.py --bogus"),
    ("run -n2 torchrun --standalone train.py", "run -n2 -- torchrun --standalone train.py"),
    ("run --detatch -- x 'a b'", "run --detach -- x 'a b'"),
    ("run --gpu 2 -- x", "run --gpus 2 -- x"),
    ("-n 2 -- python t.py", "run -n 2 -- python t.py"),
    ("pick 2", "pick -n 2"),
    ("pick --min-fre=2G", "pick --min-free=2G"),
    ("export --as dockr -- x", "export --as docker -- x"),
    ("jobs lgo k3f9", "jobs log k3f9"),
    ("pick 2 --demo", "pick -n 2 --demo=shared"),
    ("pick --whi", "pick --why"),
    ("list", "ls"),
    ("train.py", "run -- python train.py"),
    ("-n 2 ./train.py --lr 3", "run -n 2 -- python ./train.py --lr 3"),
    ("rnu --help", "run --help"),
    ("stop k3f9", "jobs stop k3f9"),
    ("log k3f9", "jobs log k3f9"),
    ("kill k3f9", "jobs stop k3f9"),
    ("jobs logs k3f9", "jobs log k3f9"),
    ("jobs logs", "jobs log"),
    ("--demo jobs logs", "jobs --demo=shared log"),
    ("stop", "jobs stop"),
    ("wait -n 2 -- python t.py", "run --wait -n 2 -- python t.py"),
    ("free", "ls"),
    ("users --json", "people --json"),
    ("who", "people"),
    ("run 2 sleep 1", "run -n 2 -- sleep 1"),
    ("run --n 2 -- sleep 0", "run -n 2 -- sleep 0"),
    ("run -g 2 -- sleep 0", "run --gpus 2 -- sleep 0"),
    ("-v", "--version"),
    ("-V", "--version"),
]


@pytest.mark.parametrize(("word", "form"), [("slurm", "sbatch"), ("k8s", "kubernetes")])
def test_a_form_has_the_name_of_its_program_too(call: Call, word: str, form: str) -> None:
    rest = ("-n", "2", "--demo", "dgx-h100", "--", "python", "t.py")
    ended = call("export", f"--as={word}", *rest)
    assert ended.status == 0 and ended.out == call("export", "--as", form, *rest).out


def test_an_export_is_a_line_for_a_shell_unless_it_says_otherwise(call: Call) -> None:
    rest = ("-n", "2", "--demo", "dgx-h100", "--", "python", "t.py")
    assert call("export", *rest).out == call("export", "--as", "sh", *rest).out


@each_row(("typed", "meant"), CORRECTED)
def test_a_wrong_call_ends_with_the_call_that_was_meant(call: Call, typed: str, meant: str) -> None:
    assert call(*shlex.split(typed)).refused(2).endswith(f": gputui {meant}")


@each_row(
    "typed",
    [
        "run -n 2 python mark.py --dry-run",
        "--demo run -n 2 python mark.py --dry-run",
        "run -n 2 python mark.py --detach",
        "run python mark.py -n2",
        "run python mark.py --name=x",
        "python mark.py --dry-run",
        "rnu -n 2 python mark.py --dry-run",
        "-n 2 python mark.py --wait",
        "2 python mark.py --dry-run",
        "export --as docker python mark.py -n 2",
    ],
)
def test_no_call_is_made_up_of_options_that_may_be_the_commands(call: Call, typed: str) -> None:
    """Behind `--`, the command gets `--dry-run`, and runs: only the user knows whose option it is."""
    refusal = call(*typed.split()).refused(2)
    assert "try:" not in refusal and "gputui run" not in refusal.split("; ", 1)[1]
    option = next(word for word in reversed(typed.split()) if word.startswith("-"))
    assert f"`{option}`" in refusal and "`--`" in refusal


@each_row(
    "typed",
    ["--nonsense", "nvitop", "pick --zzz", "ls foo", "--demo moonbase ls", "run --demo", "record a b"],
)
def test_a_wrong_call_that_may_mean_anything_points_to_the_help(call: Call, typed: str) -> None:
    assert "--help" in call(*typed.split()).refused(2)


@each_row("name", ["config", "doctor", "launches"])
def test_who_shows_no_box_says_so_in_the_words_that_were_typed(call: Call, name: str) -> None:
    refusal = call("--demo", name).refused(2)
    assert "--demo" in refusal and "--demo=" not in refusal and f"gputui {name}" in refusal


def test_a_command_that_is_quoted_as_a_whole_is_told_apart_from_none(call: Call) -> None:
    words = ("run", "--demo", "-n", "2", "--dry-run", "--")
    meant = "CUDA_VISIBLE_DEVICES=0,1 python train.py"
    assert f"as several words it is: {meant};" in call(*words, meant).refused(2)
    assert "several words" not in call(*words, "A=1").refused(2)


@each_row("typed", ["", "--interval 2s", "-- python t.py"])
def test_a_wrong_settings_file_is_not_the_wrong_call_of_the_screen(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    """Another subcommand would read the same file."""
    (tmp_path / "gputui").mkdir()
    (tmp_path / "gputui" / "config.toml").write_text("[rule]\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    refusal = call(*typed.split()).refused(2)
    assert "rule" in refusal and "gputui run" not in refusal


# The screen without a terminal.


def test_without_a_terminal_the_screen_is_a_table(call: Call) -> None:
    ended = call("--demo", "idle")
    assert ended.status == 0 and "quiet" in ended.out
    assert ended.err.count("\n") == 1 and "gputui ls" in ended.err


def test_without_a_terminal_no_command_is_started(call: Call, tmp_path: Path) -> None:
    ended = call("--demo", "idle", "--", "touch", str(tmp_path / "started"))
    # The call succeeds, because a demo is only looked at. Without a demo, it would be a wrong call.
    assert ended.status == 0 and "nothing was started" in ended.err
    assert not (tmp_path / "started").exists()


# Sizes, percentages, counts.


@each_row(
    ("text", "amount"),
    [
        ("0", 0),
        ("20G", 20 * GIB),
        ("20GiB", 20 * GIB),
        ("20GB", 20 * GIB),
        ("20 gb", 20 * GIB),
        ("1.5G", 3 * GIB // 2),
        ("512M", 512 * MIB),
        ("512MiB", 512 * MIB),
        ("2T", 2048 * GIB),
        ("4096K", 4 * MIB),
        ("21474836480", 20 * GIB),
        ("21474836480B", 20 * GIB),
    ],
)
def test_a_size_is_in_powers_of_1024(text: str, amount: int) -> None:
    assert memory(text) == amount


@each_row("text", ["", "G", "-1G", "1e3G", "20", "20X", "1,5G", ".5G", "5.G", "20GG", "1" * 40, "1\nG"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"size|unit"):
        memory(text)


@each_row(("text", "value"), [("0", 0), ("5", 5), ("5%", 5), ("100%", 100)])
def test_a_percentage_may_have_its_sign(text: str, value: int) -> None:
    assert percent(text) == value


@each_row("text", ["", "%", "101", "-5", "5%%", "5.5", "٣", "²"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="percentage"):
        percent(text)


@given(st.text(max_size=12))
@settings(max_examples=80, deadline=None)
def test_no_text_breaks_a_parser(text: str) -> None:
    for parse in (memory, percent, count):
        try:
            value = parse(text)
        except argparse.ArgumentTypeError as refused:
            assert str(refused)
        else:
            assert value >= 0


# Completion.


@each_row("shell", ["bash", "zsh", "fish", "tcsh"])
def test_there_is_a_completion_for_every_shell(call: Call, shell: str) -> None:
    ended = call("completion", shell)
    assert (ended.status, ended.err) == (0, "")
    assert "gputui" in ended.out and "pick" in ended.out and "rtx3090" in ended.out


@each_row("shell", ["bash", "zsh", "fish"])
def test_a_completion_can_be_read_by_its_shell(call: Call, shell: str) -> None:
    found = shutil.which(shell)
    if not found:
        pytest.skip(f"there is no {shell} here")
    script = call("completion", shell).out
    done = subprocess.run([found, "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_subcommands_and_boxes(call: Call, tmp_path: Path) -> None:
    script = tmp_path / "gputui.bash"
    script.write_text(call("completion", "bash").out)
    ask = (
        f"source {shlex.quote(str(script))};"
        'complete_now() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=();'
        ' "$(complete -p gputui | sed "s/.*-F \\([^ ]*\\).*/\\1/")"; echo "${COMPREPLY[@]}"; };'
        " complete_now gputui pi; complete_now gputui ls --demo rtx"
    )
    done = subprocess.run(["bash", "--norc", "-c", ask], text=True, capture_output=True, check=False)
    assert done.stdout.splitlines() == ["pick", "rtx3090 rtx4090"], done


def test_a_completion_asks_for_jobs_boxes_and_launches(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "config" / "gputui" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[hosts]\nboxes = ["gpu1", "gpu2"]\n')
    assert call("completion", "--list", "boxes").text.split() == ["gpu1", "gpu2", "all"]
    for kind in ("jobs", "compare", "each", "launches"):
        assert call("completion", "--list", kind).text.split() == []
        assert f"_gputui_{kind}" in call("completion", "bash").out


def test_a_name_that_a_shell_would_expand_is_not_completed(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent may give a job any name. bash runs the command in `$(…)` where it completes words."""
    names = ["nightly-1", "--all-ended", "$(touch${IFS}x)", "`id`", "a b", "x;y", "=ls", "~root"]
    names += ["été", "a=b", "{a,b}"]
    monkeypatch.setitem(completion.LISTS, "jobs", lambda: names)
    assert call("completion", "--list", "jobs").text.split("\n")[:-1] == ["nightly-1", "été", "a=b"]


@each_row("words", [None, "", "[", '{"a": 1}', "[1]", "null", '"ls"', '[["ls"]]'])
def test_words_that_were_not_sent_whole_start_nothing(words: str | None) -> None:
    done = _process("run", "--sent-words", **{} if words is None else {WORDS: words})
    assert done.returncode != 0 and done.stdout == b""
    assert b"Traceback" not in done.stderr and WORDS.encode() in done.stderr


# A stdout that fails.


def test_a_reader_that_has_gone_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = _process("ls", "--demo", stdout=write)
    finally:
        os.close(write)
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr
    assert done.returncode != 0


def test_a_full_disk_is_one_line_and_not_a_traceback() -> None:
    with Path("/dev/full").open("wb") as full:
        done = _process("pick", "--demo", stdout=full.fileno())
    assert done.returncode not in (0, 2, 3, 4)
    assert b"Traceback" not in done.stderr and done.stderr.count(b"\n") == 1


def test_no_stdout_at_all_is_no_traceback() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(GPUTUI)} ls --demo >&-"], stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert b"Traceback" not in done.stderr


def test_a_terminal_that_knows_ascii_only_gets_the_table_too() -> None:
    done = _process("ls", "--demo", "idle", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and b"RTX 3090" in done.stdout


def test_messages_never_take_the_place_of_results_when_stderr_is_closed() -> None:
    call = f"{shlex.join(GPUTUI)} pick --demo -n 99 2>&-"
    done = subprocess.run(["sh", "-c", call], stdout=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (4, b"")


def test_a_line_for_a_shell_has_the_bytes_of_the_arguments_in_every_locale() -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    words = ["export", "--demo", "--as", "sh", "--", "echo", "\u00e9 x".encode()]
    done = subprocess.run([*GPUTUI, *words], env=environment, stdout=subprocess.PIPE, timeout=60, check=True)
    assert done.stdout.endswith(b"\n")
    ran = subprocess.run(["sh", "-c", done.stdout], stdout=subprocess.PIPE, timeout=60, check=True)
    assert ran.stdout == "\u00e9 x\n".encode()


def test_a_word_after_demo_that_is_no_box_is_named(call: Call) -> None:
    assert "'python'" in call("pick", "--demo", "python").refused(2)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), SystemError("error return without exception set"), OSError(errno.ENOMEM, "no memory")],
)
def test_too_little_memory_is_a_message(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(_words: list[str]) -> int:
        raise error

    monkeypatch.setattr("gputui.cli.dispatch.dispatch", fail)
    assert main(["ls"]) == 1
    said = capfd.readouterr()
    assert not said.out and said.err.startswith("gputui: ") and said.err.count("\n") == 1


def test_ctrl_c_before_the_first_module_is_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pressed:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "gputui.cli.dispatch":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "gputui.cli.dispatch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Pressed(), *sys.meta_path])
    assert main(["ls"]) == 130
