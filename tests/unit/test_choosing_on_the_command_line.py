"""The devices that `pick` and `run` choose, their order, and the messages about them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.choosing.best import best
from gputui.inventory.link import LinkMatrix
from gputui.inventory.matrix_text import read
from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from gputui.sources.simulated.spec import sockets, uniform
from messages import lines_of, numbers
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import GIB, box, busy, gpu, recording
from unit.calling import Call, caller
from unit.simulated_gpus import bridged

TOPOLOGIES = Path(__file__).parents[1] / "data" / "topologies"
DGX_1 = str(TOPOLOGIES / "v100_dgx1_hybrid_cube_mesh_mlx5.txt")
PAIRS = str(TOPOLOGIES / "a100_pcie_4gpu_nv12_pairs.txt")

Save = Callable[[Snapshot], str]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """A function that writes a recording, for `--from`."""
    return lambda snapshot: recording(tmp_path, snapshot)


def linked(links: LinkMatrix, **facts: object) -> Snapshot:
    """Idle GPUs with these links, each able to read the others' memory."""
    gpus = (gpu(i, **facts) for i in range(len(links)))
    peers = tuple(tuple("X" if i == j else "OK" for j in range(len(links))) for i in range(len(links)))
    return replace(box(*gpus, links=links), peers=peers)


def picked(call: Call, *words: str) -> list[int]:
    return [int(index) for index in call("pick", *words).out.split(",")]


def test_the_best_are_taken_and_why_is_said_on_stderr(call: Call) -> None:
    ended = call("pick", "--demo", PAIRS, "-n", "2", "--why")
    assert (ended.status, ended.out) == (0, "0,1\n")
    (why,) = lines_of(ended.err)
    assert why.startswith("GPU 0,1: ") and "NUMA node 0" in why and "weakest link NV12" in why


def test_without_why_nothing_is_said(call: Call) -> None:
    assert call("pick", "--demo", DGX_1, "-n", "8").line == "0,2,3,1,6,4,5,7"


@pytest.mark.parametrize("words", [["-n", "4", "--group", "tp=2"], ["-n", "4", "--group", "TP=2"]])
def test_groups_are_consecutive(call: Call, words: list[str]) -> None:
    assert call("pick", "--demo", DGX_1, *words).line == "0,2,1,3"


def test_the_number_follows_from_the_groups(call: Call) -> None:
    assert len(picked(call, "--demo", DGX_1, "--group", "tp=2,pp=2")) == 4


@each_row(
    "words", [["-n", "3", "--group", "tp=2"], ["--gpus", "0,1,2", "--group", "tp=2"], ["--group", "tp=0"]]
)
def test_what_makes_no_whole_groups_is_a_wrong_call(call: Call, words: list[str]) -> None:
    call("pick", "--demo", DGX_1, *words).refused(2)


@each_row(
    ("words", "link"),
    [
        (["-n", "4", "--group", "tp=2"], "within groups of 2: NV2"),
        (["-n", "4", "--group", "tp=2", "--order", "given"], "within groups of 2: NV1"),
        (["--gpus", "1,5,2,6", "--group", "tp=2"], "within groups of 2: SYS"),
        (["--gpus", "0,1,2,3"], "NV1"),
    ],
)
def test_the_link_that_is_told_is_that_of_the_order_that_is_printed(
    call: Call, words: list[str], link: str
) -> None:
    assert f"weakest link {link}" in call("pick", "--demo", DGX_1, *words, "--why").err


def test_of_named_devices_nobody_says_what_can_be_had(call: Call) -> None:
    said = call("pick", "--demo", "dgx-h100", "--gpus", "0,1,3", "--why").err
    assert "available" not in said and "as named" in said and "NV18 between them" in said


def test_json_tells_the_weakest_link_and_why_also_where_there_was_no_choice(call: Call) -> None:
    told = call("pick", "--demo", "idle", "-n", "2", "--format", "json").json
    assert told["weakest_link"] == "NV4"
    assert "two" in told["reason"] and told["reason"].endswith("weakest link NV4")


@pytest.mark.parametrize("order", ["fastest", "emptiest"])
def test_of_equally_good_devices_those_that_are_joined_best_are_taken(call: Call, order: str) -> None:
    ended = call("pick", "--demo", DGX_1, "-n", "2", "--order", order, "--why")
    assert ended.out == "0,2\n"
    assert "NV2" in ended.err


def test_the_fastest_are_taken_whatever_joins_them(call: Call, save: Save) -> None:
    snapshot = linked(bridged(uniform(4, "SYS"), "NV4", (0, 1)), compute_capability="8.0")
    faster = (*snapshot.devices[:2], *(replace(d, compute_capability="9.0") for d in snapshot.devices[2:]))
    assert picked(call, "--from", save(replace(snapshot, devices=faster)), "-n", "3", "--order", "fastest")[
        :2
    ] == [2, 3]


def test_the_emptiest_order_is_warned_of_behind_nvswitches(call: Call, save: Save) -> None:
    snapshot = linked(uniform(4, "NV18"))
    fuller = tuple(replace(d, memory_free=(40 + 10 * d.index) * GIB) for d in snapshot.devices)
    ended = call("pick", "--from", save(replace(snapshot, devices=fuller)), "-n", "4", "--order", "emptiest")
    assert ended.out == "3,2,1,0\n" and "1906" in ended.err


def test_a_few_mib_are_no_reason_for_another_order(call: Call, save: Save) -> None:
    snapshot = linked(uniform(4, "NV18"))
    fuller = tuple(replace(d, memory_free=80 * GIB - (3 - d.index) * 2**20) for d in snapshot.devices)
    file = save(replace(snapshot, devices=fuller))
    assert picked(call, "--from", file, "-n", "4", "--order", "emptiest") == [0, 1, 2, 3]


def test_groups_of_a_box_that_lacks_a_bridge_use_all_bridges_that_are_there(call: Call, save: Save) -> None:
    """Sixteen GPUs; all pairs i, i + 8 but one are bridged: the other groups may not break a bridged pair."""
    bridges = [(i, i + 8) for i in range(7)]
    file = save(linked(bridged(uniform(16, "PHB"), "NV4", *bridges)))
    order = picked(call, "--from", file, "-n", "16", "--group", "tp=2")
    groups = {tuple(order[at : at + 2]) for at in range(0, 16, 2)}
    assert groups >= set(bridges)


def test_a_partner_that_is_busy_is_not_denied(call: Call, save: Save) -> None:
    snapshot = linked(bridged(sockets((2, 2), "PHB", "SYS"), "NV12", (0, 1), (2, 3)))
    devices = (busy(snapshot.devices[0]), *snapshot.devices[1:])
    said = call("pick", "--from", save(replace(snapshot, devices=devices)), "-n", "1", "--why").err
    assert re.search("GPU 1: no NVLink .*available", said)


def test_a_printed_matrix_says_nothing_of_peers_and_load(call: Call) -> None:
    assert "\tU\t" in call("topo", "--p2p", "--from", PAIRS).text
    assert "--demo FILE" in call("pick", "--from", PAIRS, "-n", "2").refused(4)
    assert "peer access" not in call("pick", "--demo", PAIRS, "-n", "3", "--why").err


def test_a_matrix_in_a_mail_is_read(call: Call, tmp_path: Path) -> None:
    mail = tmp_path / "mail.txt"
    quoted = "".join(f"> {line}\n" for line in Path(PAIRS).read_text().splitlines())
    mail.write_text(f"Hi,\n\nthis is what it prints:\n\n{quoted}\nRegards\n")
    assert call("topo", "--from", str(mail)).text == call("topo", "--from", PAIRS).text
    assert picked(call, "--demo", str(mail), "-n", "2") == [0, 1]


def test_the_alternatives_say_what_they_lack() -> None:
    snapshot = at(box_of(read(Path(DGX_1).read_text()), "dgx"), 0.0, 0.0)
    first, *others = best(snapshot, snapshot.devices, 2)
    assert "behind" not in first.reason
    assert others and all(re.search("(behind|equal to) the first", way.reason) for way in others)


def test_a_wrong_call_is_one_on_a_machine_without_a_driver_too(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nonexistent")
    for words in (("pick",), ("run", "--dry-run"), ("run", "--detach", "--wait", "1")):
        call(*words, "-n", "3", "--group", "tp=2", *(("--", "true") if words[0] == "run" else ())).refused(2)


def test_devices_that_no_variable_makes_visible_have_no_environment(call: Call, save: Save) -> None:
    """`env $(gputui pick --format env) python train.py` would run on every device."""
    strange = save(box(*(replace(gpu(index), vendor="acme") for index in range(2))))
    call("pick", "-n", "1", "--format", "env", "--from", strange).refused(2)


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc_per_node=100000000 t.py",
        "vllm serve m -tp 99999999999999999999",
        "python -m sglang.launch_server --base-gpu-id 1 --tp 100000000",
        "docker run --gpus 100000000 image",
    ],
)
def test_a_number_beyond_that_of_any_box_is_refused_at_once(
    call: Call, nvml_here: SimulatedNvml, command: str
) -> None:
    """A list of so many devices would use up all memory; the test shows that the call ends at all."""
    nvml_here.show_box(BOXES["dgx-h100"])
    assert numbers(call("run", "--dry-run", "--", *command.split()).refused(4))[-1] == 8


def test_each_device_that_is_not_available_has_a_line_with_its_reason(call: Call) -> None:
    ended = call("pick", "--demo", "-n", "5")
    first, *lines = ended.err.splitlines()
    assert (ended.status, ended.out) == (4, "") and first.endswith(":")
    assert [line.split()[2] for line in lines] == ["0", "1", "2", "3", "6"]
    # (The states are in one column.)
    assert len({line.index(f" {line.split()[3]}") for line in lines}) == 1


def test_each_named_device_that_needs_force_has_a_line(call: Call) -> None:
    first, *lines = call("pick", "--demo", "--gpus", "0,2").err.splitlines()
    assert "--force" in first and len(lines) == 2


@pytest.mark.parametrize("option", ["--gpus", "--never"])
def test_a_range_of_devices_is_refused_with_the_list(call: Call, option: str) -> None:
    assert "4,5,6" in call("pick", "--demo", option, "4-6").refused(2)


@each_row(
    "words",
    [
        ("pick", "-n", "2"),
        ("pick", "--gpus", "0,1", "--why"),
        ("run", "-n", "2", "--dry-run", "--", "true"),
        ("run", "--gpus", "1,0", "--dry-run", "--", "true"),
    ],
)
def test_unlike_devices_are_told_once_with_what_limits_them(call: Call, words: tuple[str, ...]) -> None:
    ended = call(words[0], "--demo", "mixed", *words[1:])
    (line,) = (line for line in ended.err.splitlines() if "unlike" in line)
    assert ended.status == 0 and "GTX 1080" in line and "RTX 4090" in line and "8.0G" in line


@pytest.mark.parametrize("words", [("-n", "1"), ("--gpus", "1")])
def test_one_device_has_no_unlike_companion(call: Call, words: tuple[str, ...]) -> None:
    assert "unlike" not in call("pick", "--demo", "mixed", *words).err


def test_devices_of_one_model_are_not_unlike(call: Call, nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["rtx4090"])
    assert "unlike" not in call("pick", "--gpus", "0,3").err


def test_the_remedy_for_named_gpus_in_use_does_not_ask_for_fewer(capsys: pytest.CaptureFixture[str]) -> None:
    for names in ("0", "0,6"):
        told = caller(capsys)("run", "--demo", "shared", "--gpus", names, "--", "true")
        assert told.status == 4 and "--wait" in told.err and "fewer" not in told.err
    assert "fewer" in caller(capsys)("run", "--demo", "shared", "-n", "8", "--", "true").err
