"""Confined launches from end to end: real processes on a machine with device files, and simulated drivers
that leave out the devices whose files a process may not open."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from confinement import MINORS, SEEN, Confined, confined_box, needs_landlock, script, without_landlock
from gputui.sources.simulated.boxes import BOXES
from gputui.system import landlock
from simnvml import SimulatedNvml

pytestmark = [pytest.mark.e2e, needs_landlock]


def test_a_command_sees_its_devices_only_in_the_order_that_was_selected(box: Confined) -> None:
    assert box.seen("run", "--confine", "--gpus", "5,4", "--", *box.python) == [5, 4]
    assert box.seen("run", "--confine", "--gpus", "4,5", "--", *box.python) == [4, 5]
    assert box.seen("run", "--no-confine", "--gpus", "5,4", "--", *box.python) == [5, 4]


def test_numbers_inside_are_relative_and_the_line_is_not(box: Confined) -> None:
    done = box.call("run", "--confine", "--gpus", "5,4", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert done.stdout == "1,0\n"
    assert "CUDA_VISIBLE_DEVICES=5,4" in done.stderr and "sees only GPU 5,4 (cuda:0, cuda:1)" in done.stderr
    by_uuid = box.call(
        *("run", "--confine", "--ids", "uuid", "--gpus", "5,4"),
        *("--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"),
    )
    assert by_uuid.stdout == f"{box.uuids[5]},{box.uuids[4]}\n"
    assert box.seen("run", "--confine", "--ids", "uuid", "--gpus", "5,4", "--", *box.python) == [5, 4]


FREE = 'env -u "CUDA_$(printf VISIBLE)_DEVICES" SEEN'
"""A script that clears the variable in a form that no reading of it recognizes."""


def test_a_job_and_what_is_attached_to_it_are_confined(box: Confined) -> None:
    text = script(box, FREE)
    assert box.seen("run", "--confine", "--attach", "--gpus", "6,2", "--", "sh", text) == [2, 6]
    waiting = box.seen("run", "--confine", "--attach", "--wait", "60", "-n", "2", "--", "sh", text)
    assert len(waiting) == 2


def test_a_command_on_the_cpu_opens_no_device(box: Confined) -> None:
    """On a real H200, a command that set the variable itself opened a GPU that was not claimed for it."""
    words = ("--gpus", "none", "--", "sh", script(box, FREE))
    assert box.seen("run", "--no-confine", *words) == list(range(8))
    assert box.seen("run", "--confine", *words) == []
    done = box.call("run", "--confine", *words)
    assert "sees no GPU" in done.stderr


def test_the_command_before_a_run_is_confined_as_the_run_is(box: Confined) -> None:
    before = f"{' '.join(box.python)} > {{run}}/seen; echo $CUDA_VISIBLE_DEVICES > {{run}}/variable"
    words = ("--confine", "--gpus", "5,4", "--before", f"env -u CUDA_VISIBLE_DEVICES {before}")
    done = box.call("compare", *words, "--", "sh", "-c", "cat $1/*", "sh", "{run}", "{1,2}")
    assert done.returncode == 0, done.stderr
    seen, variable = sorted(box.folder.glob("*/1/*"))
    assert sorted(box.told(seen.read_text())) == [4, 5] and variable.read_text() == "1,0\n"


def test_a_step_inside_sees_relative_numbers_and_its_lease(box: Confined) -> None:
    own = f"{sys.executable} -m gputui"
    done = box.call("run", "--confine", "--gpus", "5,4", "--", "sh", "-c", f"{own} ls --json")
    devices = json.loads(done.stdout)["devices"]
    assert [(each["index"], each["uuid"]) for each in devices] == [(0, box.uuids[4]), (1, box.uuids[5])]
    step = f"{own} run -n 1 -q -- {' '.join(box.python)}"
    found = box.seen("run", "--confine", "--gpus", "5,4", "--", "sh", "-c", step)
    assert len(found) == 1 and found[0] in (4, 5)
    named = f"{own} run --confine --gpus 1 -q -- {' '.join(box.python)}"
    assert box.seen("run", "--confine", "--gpus", "5,4", "--", "sh", "-c", named) == [5]
    more = box.call("run", "--confine", "--gpus", "5,4", "--", "sh", "-c", f"{own} pick -n 3")
    assert more.returncode == 4


@pytest.mark.thorough
def test_a_driver_that_counts_what_it_may_not_open_is_understood(box: Confined) -> None:
    """NVML may count the other devices all the same, and refuse their handles."""
    ours = ("run", "--confine", "--gpus", "5,4", "--", "sh", "-c")
    done = box.call(*ours, f"{sys.executable} -m gputui ls --json", SIMNVML_REFUSES="1")
    devices = json.loads(done.stdout)["devices"]
    assert [(each["index"], each["uuid"]) for each in devices] == [(0, box.uuids[4]), (1, box.uuids[5])]
    own = f"{sys.executable} -m gputui run --gpus 1 -q -- {' '.join(box.python)}"
    assert box.seen("run", "--confine", "--gpus", "5,4", "--", "sh", "-c", own, SIMNVML_REFUSES="1") == [5]


def test_without_proof_nothing_is_confined(box: Confined) -> None:
    """A driver that does not check the device files shows all devices."""
    words = ("--gpus", "6,2", "--", "sh", script(box, "SEEN"))
    done = box.call("run", "--confine", *words, SIMCUDA_SEES_ALL="1")
    assert done.returncode == 2 and not done.stdout
    done = box.call("run", "--confine=auto", *words, SIMCUDA_SEES_ALL="1")
    assert box.told(done.stdout) == [6, 2]
    kept = json.loads((box.folder / "state" / "gputui" / "confinement.json").read_text())
    assert [proof["why"] is None for proof in kept["proofs"]] == [False]
    checked = box.call("check", "--confine", "--gpus", "6,2", "--json", SIMCUDA_SEES_ALL="1")
    told = json.loads(checked.stdout)["confinement"]
    assert checked.returncode == 5 and not told["confined"] and told["why"]


def test_the_proof_is_made_once(box: Confined) -> None:
    for gpus in ("6,2", "1"):
        box.seen("run", "--gpus", gpus, "--", *box.python)
    kept = json.loads((box.folder / "state" / "gputui" / "confinement.json").read_text())
    assert [proof["why"] for proof in kept["proofs"]] == [None]
    # No driver starts for a saved proof: a failing one is not noticed.
    done = box.call(
        "run", "--gpus", "6,2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", SIMCUDA_INIT="999"
    )
    assert done.stdout == "1,0\n"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_kernel_without_landlock(box: Confined, number: int) -> None:
    before, words = without_landlock(number), ("--gpus", "6,2", "--", *box.python)
    done = box.call("run", "--confine", *words, before=before)
    assert done.returncode == 2 and "Traceback" not in done.stderr and not done.stdout
    assert box.seen("run", *words, before=before) == [6, 2]
    assert box.seen("run", "--no-confine", *words, before=before) == [6, 2]


SIXTEEN = """
import os, runpy, sys
confine = runpy.run_path(sys.argv[1])["confine"]
for _ in range(16):
    confine(())
os.execvp(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.thorough
def test_within_sixteen_confinements_nothing_can_be_confined(box: Confined) -> None:
    before = [sys.executable, "-I", "-S", "-c", SIXTEEN, landlock.__file__]
    words = ("--gpus", "6,2", "--", *box.python)
    done = box.call("run", "--confine", *words, before=before)
    assert done.returncode == 2 and "Traceback" not in done.stderr and not done.stdout
    assert box.seen("run", *words, before=before) == [6, 2]


def test_a_confined_command_may_start_one(box: Confined) -> None:
    inner = [sys.executable, "-m", "gputui", "run", "--confine", "--gpus", "0", "--", *box.python]
    assert box.seen("run", "--confine", "--gpus", "6,2", "--", *inner) == [2]


@pytest.mark.thorough
def test_a_device_whose_file_has_vanished_is_in_nobody_s_way(box: Confined) -> None:
    """The driver no longer shows that device."""
    (box.machine.folder / "nodes" / f"nvidia{MINORS[2]}").unlink()
    done = box.call("run", "--confine", "--gpus", box.uuids[2], "--", *box.python)
    assert done.returncode == 2 and "Traceback" not in done.stderr and not done.stdout
    both = f"{box.uuids[6]},{box.uuids[1]}"
    assert box.seen("run", "--confine", "--gpus", both, "--", *box.python) == [6, 1]


@pytest.mark.thorough
def test_a_machine_with_thousands_of_device_files(box: Confined) -> None:
    for number in range(3000):
        (box.machine.folder / "nodes" / f"tty{number}").touch()
    assert box.seen("run", "--confine", "--gpus", "6,2", "--", *box.python) == [6, 2]


@pytest.mark.thorough
def test_where_cuda_has_not_been_used_yet_nothing_is_confined(box: Confined) -> None:
    (box.machine.folder / "nodes" / "nvidia-uvm").unlink()
    words = ("--gpus", "6,2", "--", *box.python)
    assert box.call("run", "--confine", *words).returncode == 2
    assert box.seen("run", *words) == [6, 2]


def test_a_device_without_its_file_cannot_be_confined(box: Confined) -> None:
    box.nvml.error("nvmlDeviceGetMinorNumber", 3, device=2)
    assert box.call("run", "--confine", "--gpus", "2", "--", *box.python).returncode == 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    "command",
    [
        ("sudo", "true"),
        ("tmux", "new", "true"),
        ("ssh", "localhost", "true"),
        ("sh", "-c", "echo true | at now"),
    ],
    ids=" ".join,
)
def test_what_does_not_work_in_a_confined_process_is_refused_or_not_confined(
    box: Confined, command: tuple[str, ...]
) -> None:
    done = box.call("run", "--confine", "-n", "1", "--", *command)
    assert done.returncode == 2 and not done.stdout
    done = box.call("run", "--dry-run", "--force", "-n", "1", "--", *command)
    assert done.returncode == 0 and "not confined" in done.stderr


@pytest.mark.thorough
def test_numbers_of_the_machine_that_cannot_be_rewritten_are_kept(box: Confined) -> None:
    text = script(box, "export CUDA_VISIBLE_DEVICES=4,5\nSEEN")
    assert box.call("run", "--confine", "--", "sh", text).returncode == 2
    assert box.seen("run", "--", "sh", text) == [4, 5]
    first = script(box, "export CUDA_VISIBLE_DEVICES=0,1\nSEEN")
    assert box.seen("run", "--confine", "--", "sh", first) == [0, 1]


def test_the_settings_say_whether(box: Confined) -> None:
    settings = box.folder / "config" / "gputui" / "config.toml"
    settings.parent.mkdir(parents=True, mode=0o700)
    words = ("--gpus", "6,2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    for how, told in (("never", "6,2"), ("always", "1,0"), ("auto", "1,0")):
        settings.write_text(f'[run]\nconfine = "{how}"\n')
        assert box.call("run", *words, XDG_CONFIG_HOME=str(box.folder / "config")).stdout == f"{told}\n"
    done = box.call("run", "--no-confine", *words, XDG_CONFIG_HOME=str(box.folder / "config"))
    assert done.stdout == "6,2\n"


def test_the_check_proves_it_in_the_interpreter_of_the_command(box: Confined) -> None:
    done = box.call("check", "--confine", "--gpus", "5,4", "--json")
    told = json.loads(done.stdout)
    assert told["confinement"]["confined"] and told["confinement"]["why"] is None, done.stderr
    assert told["confinement"]["kernel"] == os.uname().release
    assert sorted(told["confinement"]["left_out"]) == sorted(
        f"/dev/nvidia{minor}" for index, minor in enumerate(MINORS) if index not in (4, 5)
    )


def test_instances_are_confined_by_their_capabilities(tmp_path: Path, simulated_nvml: SimulatedNvml) -> None:
    facts: dict[str, dict[str, int | None]] = {"0": {"minor": 1}, "1": {"minor": 0}}
    rows, nodes = ["config 1", "monitor 2"], ["nvidia0", "nvidia1"]
    for place in range(4):
        gpu, compute = 30 + 2 * place, 31 + 2 * place
        facts[f"0:{place}"] = {"gpu_cap": gpu, "compute_cap": compute}
        rows += [f"gpu1/gi{place + 1}/access {gpu}", f"gpu1/gi{place + 1}/ci0/access {compute}"]
        nodes += [f"nvidia-caps/nvidia-cap{number}" for number in (gpu, compute)]
    snapshot = simulated_nvml.show_box(BOXES["a100-mig"], facts=facts)
    box = confined_box(tmp_path, simulated_nvml, nodes, rows)
    text = script(box, FREE)
    parts = [each for each in snapshot.devices if each.parent is not None]
    uuid = parts[2].uuid
    done = box.call("run", "--confine", "--force", "--gpus", uuid, "--", "sh", text)
    assert json.loads(done.stdout) == [uuid.removeprefix("MIG-").replace("-", "")], done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "text", "starts"),
    [
        ("x.sh", "export CUDA_VISIBLE_DEVICES=0,1; SEEN", "sh"),
        ("x.py", f'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,1"\n{SEEN}', sys.executable),
    ],
)
def test_a_script_that_names_the_first_devices_gets_as_many_free_ones(
    box: Confined, name: str, text: str, starts: str
) -> None:
    """The command starts once its confinement is proved; else it names devices of the machine."""
    script(box, text, name)
    assert box.seen("run", "--confine", "--gpus", "7", "--", *box.python) == [7]
    held = box.call("run", "-q", "--gpus", "0,1", "--detach", "--name", "held", "--", "sleep", "600")
    assert held.returncode == 0, held.stderr
    try:
        seen = box.seen("run", "-q", "--", starts, name)
        assert len(seen) == 2 and not {0, 1} & {*seen}
        assert box.call("run", "-q", "--no-confine", "--", starts, name).returncode != 0
    finally:
        box.call("jobs", "stop", "held")
