"""The launch for AMD devices: HIP's list, containers, what `check` compares; and inherited lists.

vendors/amd/visibility.py names the upstream sources of the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import simtrees
from gputui.checking.answer import SeenDevice
from gputui.checking.report import is_same
from gputui.choosing.bandwidth import bandwidth
from gputui.choosing.named_devices import NamingError, devices_named
from gputui.choosing.pick import Constraints, pick
from gputui.choosing.verdict import verdicts
from gputui.inventory.device import Device
from gputui.launching.compose import compose
from gputui.launching.exports import FORMS, ExportOptions
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import Want
from gputui.system.root import Root
from gputui.vendors.amd.source import AmdSource
from gputui.vendors.amd.vendor import VENDOR
from gputui.vendors.registry import inherited, inherits
from table_tests import each_row
from unit.builders import box, gpu
from unit.calling import Call

AMD = at(BOXES["amd"], 30.0, 0.0)
CPX = at(BOXES["amd-cpx"], 30.0, 0.0)
HIP, ROCR, CUDA = "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
read = VENDOR.visibility


def launch(devices: tuple[Device, ...], *command: str, **environ: str) -> Launch:
    return compose(devices, LaunchOptions(command or ("python", "t.py")), environ)


def test_a_launch_sets_hips_list_and_no_variable_of_cuda(call: Call) -> None:
    line = call("run", "--demo", "amd", "--gpus", "1,0", "--force", "--dry-run", "--", "python", "t.py").out
    assert "HIP_VISIBLE_DEVICES=1,0" in line and "CUDA" not in line


def test_no_device_is_minus_one_as_an_empty_list_is_no_list() -> None:
    assert dict(compose((), LaunchOptions(("python", "t.py")), {}, box=(VENDOR,)).changes) == {HIP: "-1"}


def test_a_list_of_rocr_is_taken_away_from_a_command_that_counts_devices_itself() -> None:
    """deepspeed turns --include into CUDA_VISIBLE_DEVICES, which would count the devices that ROCr leaves."""
    made = launch(AMD.devices[2:4], "deepspeed", "t.py", **{ROCR: "2,3,4"})
    assert "--include=localhost:2,3" in made.argv
    assert dict(made.changes) == {ROCR: None, HIP: None}


@each_row(
    "command",
    [
        ("torchrun", "t.py"),
        ("accelerate", "launch", "t.py"),
        ("deepspeed", "t.py"),
        ("mpirun", "python", "t.py"),
        ("python", "t.py"),
    ],
)
def test_every_launcher_is_given_it(command: tuple[str, ...]) -> None:
    found = launch((AMD.devices[6], AMD.devices[2]), *command)
    assert dict(found.changes).get(HIP) == "6,2" and not any("CUDA" in name for name, _ in found.changes)


@each_row("form", sorted(FORMS))
def test_every_form_of_export_is_without_cuda(form: str) -> None:
    text = FORMS[form].write(launch((AMD.devices[6], AMD.devices[2])), ExportOptions())
    assert "CUDA" not in text
    if form == "docker":
        nodes = "--device /dev/kfd --device /dev/dri/renderD176 --device /dev/dri/renderD144"
        # Inside, the two devices are counted in the order of their nodes.
        assert nodes in text and f"{HIP}=1,0" in text
    elif form == "sbatch":
        assert ROCR in text
    elif form == "ray":
        # Ray selects the devices, and sets the variable itself.
        assert HIP not in text
    elif form == "kubernetes":
        # Kubernetes selects the devices, and the container has only those.
        assert HIP not in text and "amd.com/gpu: 2" in text
    else:
        assert HIP in text


def test_devices_in_their_own_order_need_no_list_in_a_container() -> None:
    found = launch(AMD.devices[2:4], "docker", "run", "rocm/pytorch", "python", "t.py")
    assert HIP not in " ".join(found.argv) and "/dev/dri/renderD144" in found.argv


def test_partitions_are_named_by_index_as_they_share_a_uuid() -> None:
    options = LaunchOptions(("python", "t.py"), ids="uuid")
    assert dict(compose(CPX.devices[3:5], options, {}).changes) == {HIP: "3,4"}
    named = compose(AMD.devices[3:5], options, {})
    assert dict(named.changes)[HIP] == ",".join(d.uuid for d in AMD.devices[3:5])
    assert any("6.2" in warning for warning in named.warnings)


@each_row(
    ("version", "by_uuid", "warned"),
    [
        ("6.2.4-116", True, False),
        ("7.0.1", True, False),
        ("6.1.2", False, False),
        ("5.7", False, False),
        ("", True, True),
        ("x", True, True),
    ],
)
def test_uuids_are_for_a_rocm_that_reads_them(
    tmp_path: Path, version: str, by_uuid: bool, warned: bool
) -> None:
    simtrees.write(tmp_path, BOXES["amd"])
    if version:
        (tmp_path / "opt/rocm/.info").mkdir(parents=True)
        (tmp_path / "opt/rocm/.info/version").write_text(f"{version}\n")
    devices = AmdSource(Root(str(tmp_path))).read(Want.VERDICT).devices[3:5]
    found = compose(devices, LaunchOptions(("python", "t.py"), ids="uuid"), {})
    assert dict(found.changes)[HIP] == ",".join(d.uuid if by_uuid else str(d.index) for d in devices)
    assert any("6.2" in warning for warning in found.warnings) == warned


def test_a_container_is_given_cards_without_a_uuid() -> None:
    cards = tuple(replace(device, uuid="", uuid_usable=False) for device in AMD.devices[2:5:2])
    text = FORMS["docker"].write(launch(cards[::-1]), ExportOptions())
    assert "--device /dev/kfd --device /dev/dri/renderD160 --device /dev/dri/renderD144" in text
    assert f"{HIP}=1,0" in text
    unknown = tuple(replace(card, render=None) for card in cards)
    text = FORMS["docker"].write(launch(unknown[::-1]), ExportOptions())
    # All cards are visible inside then, and HIP counts them as outside.
    assert "--device /dev/kfd --device /dev/dri " in text and f"{HIP}=4,2" in text


def test_a_command_may_use_several_partitions(call: Call) -> None:
    assert len(call("pick", "--demo", "amd-cpx", "-n", "4").out.strip().split(",")) == 4


# Lists in the command itself.

NAMED: list[tuple[dict[str, str], str, list[str]]] = [
    # the variables of the command, the HIP list that it is started with, its own variables that remain
    ({HIP: "3,1"}, "3,1", [HIP]),
    ({HIP: "-1"}, "-1", [HIP]),
    ({CUDA: "3,1"}, "3,1", [CUDA]),
    ({CUDA: "-1"}, "-1", [CUDA]),
    ({CUDA: ""}, "-1", [CUDA]),
    ({CUDA: "5", HIP: "2"}, "2", [CUDA, HIP]),
    ({ROCR: "6,2"}, "6,2", []),
    ({ROCR: "6,2", HIP: "1"}, "2", [HIP]),
    ({ROCR: "6,2", CUDA: "1,0"}, "2,6", [CUDA]),
]


@each_row(("given", "hip", "left"), NAMED, ids=[str(case[0]) for case in NAMED])
def test_a_list_of_the_command_is_what_it_gets(
    call: Call, given: dict[str, str], hip: str, left: list[str]
) -> None:
    words = [f"{name}={text}" for name, text in given.items()]
    done = call("run", "--demo", "amd", "--force", "--dry-run", "--", "env", *words, "python", "t.py")
    line = done.out.splitlines()[0]
    # With an additional ROCr list, HIP's list would mean other devices.
    assert line.startswith(f"{HIP}={hip} ") and ROCR not in line
    assert [name for name in given if name in line.partition(" ")[2]] == left


@each_row("given", [f"{HIP}=1", f"{CUDA}=1", f"{ROCR}=1", f"{CUDA}=-1", f"{HIP}=-1"])
def test_a_list_of_the_command_that_contradicts_the_call_is_refused(call: Call, given: str) -> None:
    done = call("run", "--demo", "amd", "--gpus", "2", "--dry-run", "--", "env", given, "python", "t.py")
    assert done.status == 2 and given in done.err


def test_opencls_list_is_none_of_hips(call: Call) -> None:
    done = call(
        "run",
        "--demo",
        "amd",
        "--gpus",
        "2",
        "--force",
        "--dry-run",
        "--",
        "env",
        "GPU_DEVICE_ORDINAL=1",
        "t",
    )
    assert f"{HIP}=2 " in done.out and "GPU_DEVICE_ORDINAL=1" in done.err


# Inherited lists. Positions are those in `AMD.devices`.

INHERITED: list[tuple[str, Mapping[str, str], list[int], bool]] = [
    ("HIP's list", {HIP: "3,1"}, [3, 1], False),
    ("the first that names nothing ends it", {HIP: "2,99,1"}, [2], True),
    ("a space is no index", {HIP: "2, 1"}, [2], True),
    ("a second time is skipped", {HIP: "2,2,1"}, [2, 1], False),
    ("minus one is none", {HIP: "-1"}, [], False),
    ("an empty list counts as none, then CUDA's does", {HIP: "", CUDA: "4"}, [4], False),
    ("CUDA's list where HIP has none", {CUDA: "5,0"}, [5, 0], False),
    ("CUDA's list is not read beside HIP's", {HIP: "1", CUDA: "5"}, [1], False),
    ("ROCr's list", {ROCR: "6,2"}, [6, 2], False),
    ("an empty list of ROCr's is none", {ROCR: ""}, [], False),
    ("HIP counts what ROCr leaves", {ROCR: "6,2", HIP: "1,0"}, [2, 6], False),
    ("more than ROCr leaves", {ROCR: "6,2", HIP: "0,2"}, [6], True),
    ("ROCr ends at a second time", {ROCR: "6,6,2"}, [6], True),
]


@each_row(("environ", "places", "warns"), [c[1:] for c in INHERITED], ids=[c[0] for c in INHERITED])
def test_what_was_inherited_is_read_as_rocm_reads_it(
    environ: Mapping[str, str], places: list[int], warns: bool
) -> None:
    assert inherits(environ)
    found = inherited(environ, AMD)
    assert found is not None
    assert list(found.keys) == [AMD.devices[place].key for place in places]
    assert (found.warning is not None) == warns


def test_uuids_are_read_in_either_list() -> None:
    one = AMD.devices[4]
    for name, text in (
        (HIP, one.uuid),
        (ROCR, one.uuid.upper().replace("GPU", "gpu")),
        (ROCR, one.uuid[:12]),
    ):
        found = inherited({name: text}, AMD)
        assert found is not None and found.keys == (one.key,)


def test_of_partitions_with_one_uuid_hip_takes_the_first() -> None:
    found = inherited({HIP: CPX.devices[8].uuid}, CPX)
    assert found is not None and found.keys == (CPX.devices[8].key,)


def test_no_list_is_no_limit() -> None:
    assert inherited({HIP: "", CUDA: ""}, AMD) is None and not inherits({HIP: ""})


def test_a_list_beside_ours_is_taken_away_and_said() -> None:
    found = launch((AMD.devices[3],), ROCR_VISIBLE_DEVICES="2,3")
    assert dict(found.changes) == {ROCR: None, HIP: "3"}
    assert any(ROCR in remark for remark in found.remarks)
    beside = inherited({ROCR: "2,3", HIP: "1"}, AMD)
    assert beside is not None and beside.note is not None and ROCR in beside.note


def test_in_a_box_of_two_vendors_cudas_list_limits_both_as_both_read_it() -> None:
    mixed = box(gpu(0), gpu(1), *AMD.devices[:2])
    found = inherited({CUDA: "1"}, mixed)
    assert found is not None and found.keys == (gpu(1).key, AMD.devices[1].key)
    both = inherited({CUDA: "1", HIP: "0"}, mixed)
    assert both is not None and both.keys == (gpu(1).key, AMD.devices[0].key)


# What `check` compares.


def test_a_uuid_of_hip_is_text_in_sixteen_bytes() -> None:
    one = AMD.devices[0]
    digits = one.uuid.removeprefix("GPU-").encode().hex()
    told = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    assert VENDOR.bare_uuid(told) == VENDOR.bare_uuid(one.uuid)
    seen = SeenDevice(uuid=VENDOR.bare_uuid(told), bus=None, name=one.name, memory=one.memory_total)
    assert is_same(one, seen) is True
    assert is_same(AMD.devices[1], seen) is False


def test_a_uuid_that_partitions_share_proves_no_partition() -> None:
    one = CPX.devices[0]
    seen = SeenDevice(uuid=VENDOR.bare_uuid(one.uuid), bus=None, name=one.name, memory=one.memory_total)
    assert is_same(one, seen) is None
    assert is_same(CPX.devices[8], seen) is False


# Devices that are listed and not offered.


def test_an_integrated_gpu_is_not_picked_and_may_be_named() -> None:
    inside = replace(AMD.devices[0], apart="integrated", processes=(), memory_used=0, utilization=0)
    both = box(inside, AMD.devices[2])
    assert pick(both, verdicts(both), Constraints(1)).devices == (AMD.devices[2],)
    assert devices_named("0", both) == (inside,)
    unlisted = replace(inside, index=-1, apart="no runtime")
    apart = box(unlisted, AMD.devices[2])
    assert apart.label(unlisted) == "–"
    with pytest.raises(NamingError):
        devices_named(unlisted.uuid, apart)


# A workstation with an NVIDIA card and a processor with an integrated GPU.

RYZEN = replace(
    AMD.devices[0], uuid="", uuid_usable=False, apart="integrated", unified=True, name="Raphael", processes=()
)
DESKTOP = box(gpu(0), RYZEN)


def test_an_integrated_gpu_takes_no_number_from_the_only_card() -> None:
    assert not DESKTOP.mixed
    assert [DESKTOP.label(device) for device in DESKTOP.devices] == ["0", "amd:0"]
    assert devices_named("0", DESKTOP) == (gpu(0),)
    assert devices_named("amd:0", DESKTOP) == (RYZEN,)


@each_row("text", ["0", "GPU-", "1", gpu(0).uuid])
def test_nor_does_a_list_for_the_card_say_anything_of_it(text: str) -> None:
    alone, beside = inherited({CUDA: text}, box(gpu(0))), inherited({CUDA: text}, DESKTOP)
    assert alone is not None and beside is not None
    assert (beside.warning, beside.note) == (alone.warning, alone.note)
    assert beside.keys[:-1] == alone.keys


def test_it_has_a_key_without_a_uuid_that_is_the_same_tomorrow() -> None:
    assert RYZEN.key == "amd-00000000-05-00-0" and RYZEN.key in DESKTOP.by_key


def test_of_links_of_one_word_the_shorter_way_is_better_and_then_the_wider() -> None:
    """Half of MI250's mesh: each device has one direct neighbour, and reaches the others through it."""
    devices = tuple(replace(device, processes=()) for device in AMD.devices[2:5])
    three = box(*devices, links=(("X", "XGMI", "XGMI"), ("XGMI", "X", "XGMI"), ("XGMI", "XGMI", "X")))
    far = replace(three, link_weights=((0, 30, 30), (30, 0, 15), (30, 15, 0)))
    assert pick(far, verdicts(far), Constraints(2)).devices == devices[1:]
    wide = replace(
        three,
        link_weights=((0, 15, 15), (15, 0, 15), (15, 15, 0)),
        link_bandwidths=((None, 50_000, 200_000), (50_000, None, 50_000), (200_000, 50_000, None)),
    )
    assert pick(wide, verdicts(wide), Constraints(2)).devices == (devices[0], devices[2])
    assert bandwidth(wide, devices[0], devices[2]) == 200.0
