"""Intel's reader on trees of our own: order, tiles, counters, and xpu-smi with and without an answer."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from gputui.choosing.pick import Constraints, pick
from gputui.choosing.verdict import verdicts
from gputui.inventory.snapshot import Snapshot
from gputui.launching.compose import compose
from gputui.launching.exports import FORMS, ExportOptions
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import NoSourceError, Want
from gputui.system.root import Root
from gputui.vendors.intel import memory, xpu_smi
from gputui.vendors.intel.source import IntelSource
from gputui.vendors.registry import inherited
from table_tests import each_row
from unit.builders import box
from unit.calling import Call
from unit.recorded import program

GIB, MIB = 1024**3, 1024**2
MASK = "ZE_AFFINITY_MASK"


def card(
    root: Path, number: int, function: str, device: str = "E20B", driver: str = "xe", tiles: int = 1
) -> Path:
    """Write a card's folder, with a clock and a counter of idle time for each tile."""
    folder = root / f"sys/class/drm/card{number}/device"
    folder.mkdir(parents=True)
    (folder / "uevent").write_text(f"DRIVER={driver}\nPCI_ID=8086:{device}\nPCI_SLOT_NAME={function}\n")
    for tile in range(tiles):
        gt = folder / f"tile{tile}/gt{tile}"
        (gt / "freq0").mkdir(parents=True)
        (gt / "freq0/act_freq").write_text("1200\n")
        (gt / "gtidle").mkdir()
        (gt / "gtidle/idle_residency_ms").write_text("1000\n")
    return folder


def read(root: Path, want: Want = Want.ALL, **environ: str) -> Snapshot:
    return IntelSource(Root(str(root)), environ=environ, deadline=0.5).read(want)


def smi(root: Path, *functions: str, used: str = "24", tiles: int = 1, stats: str | None = None) -> None:
    """Write an xpu-smi of version 1 that knows these cards, each with 32 GiB."""
    listed = [
        {"device_id": n, "device_name": "Intel(R) Data Center GPU", "pci_bdf_address": f, "uuid": ""}
        for n, f in enumerate(functions)
    ]
    one = {"memory_physical_size_byte": str(32 * GIB), "number_of_tiles": str(tiles)}
    load = [
        {"metrics_type": f"XPUM_STATS_{name}", "value": value}
        for name, value in {"GPU_UTILIZATION": 0, "POWER": 15.5, "GPU_CORE_TEMPERATURE": 41}.items()
    ]
    told = {
        "device_level": [*load, {"metrics_type": "XPUM_STATS_MEMORY_USED", "value": int(used)}],
        "tile_level": [
            {"tile_id": t, "data_list": [{"metrics_type": "XPUM_STATS_MEMORY_USED", "value": 12.0}]}
            for t in range(tiles)
        ]
        if tiles > 1
        else [],
    }
    ps = {
        "device_util_by_proc_list": [
            {"device_id": 0, "process_id": 5, "process_name": "xpu-smi", "mem_size": 1}
        ]
    }
    script = f"""case "$*" in
"discovery -j") echo '{json.dumps({"device_list": listed})}';;
discovery*) echo '{json.dumps(one)}';;
stats*) {stats or f"echo '{json.dumps(told)}'"};;
"ps -j") echo '{json.dumps(ps)}';;
*) exit 1;;
esac"""
    program(root, "xpu-smi", script)


# The devices.


def test_discrete_gpus_come_first_and_each_in_bus_order(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:00:02.0", "9A49")
    card(tmp_path, 1, "0000:63:00.0")
    card(tmp_path, 2, "0000:43:00.0")
    found = [(d.index, d.pci_bus_id, d.apart) for d in read(tmp_path).devices]
    assert found == [
        (0, "00000000:43:00.0", None),
        (1, "00000000:63:00.0", None),
        (2, "00000000:00:02.0", "integrated"),
    ]


def test_tiles_of_a_max_gpu_are_devices_unless_cards_are_asked_for(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:4d:00.0", "0BD5", tiles=2)
    card(tmp_path, 1, "0000:a8:00.0", "0BD5", tiles=2)
    flat = read(tmp_path)
    assert [(d.index, d.partition) for d in flat.devices] == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert len({d.key for d in flat.devices}) == 4 and flat.links[0][1] == "MDF"
    composite = read(tmp_path, ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE").devices
    assert [(d.index, d.partition) for d in composite] == [(0, None), (1, None)]


def test_tiles_of_others_are_devices_only_if_asked_for(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:4d:00.0", "020A", tiles=2)
    assert len(read(tmp_path).devices) == 1
    assert len(read(tmp_path, ZE_FLAT_DEVICE_HIERARCHY="FLAT").devices) == 2


def test_no_card_and_no_program_is_no_device(tmp_path: Path) -> None:
    with pytest.raises(NoSourceError):
        read(tmp_path)


# Values that change.


def test_power_and_load_are_differences_of_counters(tmp_path: Path) -> None:
    folder = card(tmp_path, 0, "0000:43:00.0")
    hwmon = folder / "hwmon/hwmon2"
    hwmon.mkdir(parents=True)
    for name, text in {"energy1_label": "card", "energy2_label": "pkg", "energy1_input": "0"}.items():
        (hwmon / name).write_text(text)
    (hwmon / "energy2_input").write_text(str((1 << 63) + 1_000_000))
    now = [0.0]
    source = IntelSource(Root(str(tmp_path)), ticks=lambda: now[0], environ={})
    assert (source.read().devices[0].power, source.read().devices[0].utilization) == (None, None)
    now[0] = 2.0
    (hwmon / "energy2_input").write_text(str((1 << 63) + 1_000_000 + 90_000_000))
    (folder / "tile0/gt0/gtidle/idle_residency_ms").write_text("1500\n")
    (device,) = source.read().devices
    # The card's own counter stays at 0 on some kernels.
    assert (device.power, device.utilization) == (45.0, 75)


def test_a_sleeping_card_is_left_asleep(tmp_path: Path) -> None:
    folder = card(tmp_path, 0, "0000:43:00.0")
    (folder / "power").mkdir()
    (folder / "power/runtime_status").write_text("suspended\n")
    seen: list[str] = []
    source = IntelSource(Root(str(tmp_path), on_read=lambda path, _: seen.append(path)), environ={})
    (device,) = source.read().devices
    assert (device.utilization, device.sm_clock) == (0, None)
    assert not any("gtidle" in path or "hwmon" in path or "act_freq" in path for path in seen)


def _region(kind: int, total: int, second: int) -> bytes:
    return struct.pack("=HHIQQ", kind, 0, 0, total, second).ljust(88, b"\0")


def test_the_drivers_answers_tell_the_memory_where_they_may() -> None:
    xe = (
        struct.pack("=II", 3, 0)
        + _region(0, 64 * GIB, 9)
        + _region(1, 12 * GIB, GIB)
        + _region(1, 12 * GIB, 0)
    )
    assert memory.of_xe(xe) == ((12 * GIB, GIB), (12 * GIB, None))
    i915 = struct.pack("=I12x", 2) + _region(0, 64 * GIB, 9) + _region(1, 6 * GIB, 5 * GIB)
    assert memory.of_i915(i915) == ((6 * GIB, GIB),)
    # A program without the permission is told that everything is unallocated.
    assert memory.of_i915(struct.pack("=I12x", 1) + _region(1, 6 * GIB, 6 * GIB)) == ((6 * GIB, None),)
    for hostile in (b"", b"\xff" * 50, struct.pack("=II", 1 << 31, 0)):
        assert memory.of_xe(hostile) == memory.of_i915(hostile) == ()


def test_without_a_word_on_the_memory_in_use_nothing_is_free(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:43:00.0")
    assert {v.state for v in verdicts(read(tmp_path)).values()} == {"unknown"}


def test_xpu_smi_tells_what_the_kernel_does_not(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:43:00.0")
    smi(tmp_path, "0000:43:00.0")
    snapshot = read(tmp_path)
    (device,) = snapshot.devices
    assert (device.memory_total, device.memory_used, device.utilization) == (32 * GIB, 24 * MIB, 0)
    assert (device.power, device.temperature, device.sm_clock) == (15.5, 41, 1200)
    assert device.processes == () and verdicts(snapshot)[device.key].free and not snapshot.errors
    short = read(tmp_path, Want.VERDICT)
    assert verdicts(short)[device.key].free


@pytest.mark.parametrize("used", ["24", str(24 * MIB)])
def test_bytes_and_mib_of_two_versions_are_told_apart(used: str) -> None:
    row = {"device_level": [{"metrics_type": "XPUM_STATS_MEMORY_USED", "value": used}]}
    assert xpu_smi.load(json.dumps(row), 32 * GIB).memory_used == 24 * MIB


@each_row(
    "told",
    [
        {"device_level": [{"metrics_type": "XPUM_STATS_MEMORY_USED", "value": 0}]},
        {"device_index": 0, "memory": {"used_mib": {"tile_0": {"avg": 0.0, "current": 0.0}}}},
        {"device_index": 0, "memory": {"used_mib": {}}, "utilization": 3},
    ],
)
def test_no_memory_in_use_at_all_is_not_known(told: dict[str, object]) -> None:
    """The driver reports 0 to programs that may not know, xpu-smi included."""
    assert xpu_smi.load(json.dumps(told), 32 * GIB).memory_used is None


MATRIX = """\
+---------+---------+---------+------+--------------+
|         | GPU 0/0 | GPU 1/0 | NIC0 | CPU Affinity |
+---------+---------+---------+------+--------------+
| GPU 0/0 | S       | PIX     | SYS  | 0-23,48-71   |
| GPU 1/0 | PIX     | S       | SYS  | 0-23,48-71   |
| NIC0    | SYS     | SYS     | S    | 24           |
+---------+---------+---------+------+--------------+
"""


@pytest.mark.parametrize("text", [MATRIX, "\n".join(MATRIX.replace("|", " ").splitlines()[1:])])
def test_a_matrix_of_version_2_has_bars_or_none_and_network_devices(text: str) -> None:
    found = xpu_smi.wires(text)
    assert found is not None and found.labels == ((0, 0), (1, 0))
    assert found.words == (("X", "PIX"), ("PIX", "X"))


def test_each_tile_has_its_own_memory(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:4d:00.0", "0BD5", tiles=2)
    smi(tmp_path, "0000:4d:00.0", tiles=2)
    assert [(d.memory_total, d.memory_used) for d in read(tmp_path).devices] == [(16 * GIB, 12 * MIB)] * 2


@each_row(
    "script",
    [
        "exit 1",
        "true",
        "echo garbage",
        'echo \'{"error": "no"}\'',
        "head -c 9000000 /dev/zero",
        "sleep 60",
        'echo \'{"device_list": [1, {"device_id": "x"}, {"device_id": -1}]}\'',
        "yes '['",
        "printf '[%.0s' $(seq 90000)",
    ],
)
def test_a_broken_program_leaves_what_the_kernel_tells(tmp_path: Path, script: str) -> None:
    card(tmp_path, 0, "0000:43:00.0")
    program(tmp_path, "xpu-smi", script)
    snapshot = read(tmp_path)
    (device,) = snapshot.devices
    assert (device.memory_used, device.sm_clock) == (None, 1200)
    assert len(snapshot.errors) <= 2
    assert {v.state for v in verdicts(snapshot).values()} == {"unknown"}


def test_a_job_of_another_user_is_seen_by_the_memory(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:43:00.0")
    smi(tmp_path, "0000:43:00.0", used="9000")
    assert {v.state for v in verdicts(read(tmp_path)).values()} == {"held"}


def test_a_verdict_on_a_gpu_that_is_not_offered_costs_no_program_and_no_look_at_processes(
    tmp_path: Path,
) -> None:
    card(tmp_path, 0, "0000:00:02.0", "9A49")
    program(tmp_path, "xpu-smi", 'touch "$(dirname "$0")/asked"; exit 1')
    (tmp_path / "proc/7/fdinfo").mkdir(parents=True)
    (tmp_path / "proc/7/fdinfo/3").write_text("drm-pdev: 0000:00:02.0\n")
    seen: list[str] = []
    source = IntelSource(Root(str(tmp_path), on_read=lambda path, _: seen.append(path)), environ={})
    source.read(Want.VERDICT)
    assert not (tmp_path / "bin/asked").exists() and not any("/proc/7" in path for path in seen)


# The environment of programs.

INTEL = at(BOXES["intel"], 0.0, 0.0)
MIXED = at(BOXES["mixed-vendors"], 0.0, 0.0)


def test_a_launch_has_the_mask_and_a_word_on_the_order(call: Call) -> None:
    done = call("run", "--demo", "intel", "--gpus", "0,1", "--dry-run", "--", "python", "t.py")
    assert f"{MASK}=0,1" in done.out and "ZE_ENABLE_PCI_ID_DEVICE_ORDER" in done.err


def test_the_best_two_tiles_are_those_of_one_card() -> None:
    found = pick(INTEL, verdicts(INTEL), Constraints(2))
    assert [device.index for device in found.devices] == [0, 1]
    assert found.alternatives[0].weakest == "MDF"


def test_links_are_called_what_they_are(call: Call) -> None:
    """The names on screens and in reasons: MDF joins tiles, Xe links join cards, and there is no NVLink."""
    assert "MDF between" in call("pick", "--demo", "intel", "-n", "2", "--why").err
    assert "by Xe Link" in call("pick", "--demo", "intel", "-n", "3", "--why").err
    tree = call("topo", "--tree", "--demo", "intel").out
    assert "NVLink" not in tree and {line.split("  ")[0] for line in tree.splitlines()[-3:]} == {
        "MDF",
        "Xe Link",
    }
    # Tiles of a card are on the same NUMA node, though no PCIe class connects them.
    assert [line for line in tree.splitlines() if line.startswith("NUMA")] == ["NUMA node 0", "NUMA node 1"]


@each_row("form", sorted(FORMS))
@each_row("name", ["intel", "gaudi", "apple"])
def test_every_form_of_export_is_without_cuda(form: str, name: str) -> None:
    snapshot = at(BOXES[name], 0.0, 0.0)
    devices = snapshot.devices[:2]
    variable = {"intel": MASK, "gaudi": "HABANA_VISIBLE_MODULES"}.get(name)
    launch = compose(devices, LaunchOptions(("torchrun", "t.py")), {})
    if name == "apple" and form in ("docker", "compose", "kubernetes", "dotenv"):
        # Nothing hides the only device, and no container has it.
        return
    text = FORMS[form].write(launch, ExportOptions())
    assert "CUDA" not in text
    if variable and form not in ("sbatch", "docker", "compose", "kubernetes", "ray"):
        assert f"{variable}" in text
    if form == "kubernetes":
        assert {"intel": "gpu.intel.com/xe: 2", "gaudi": "habana.ai/gaudi: 2"}[name] in text
    if form == "docker":
        wanted = {"intel": "--device /dev/dri", "gaudi": "--runtime=habana"}.get(name, "")
        assert wanted in text
    if form == "sbatch" and name == "gaudi":
        assert "#SBATCH --gres=hpu:2" in text


@each_row("name", ["intel", "gaudi"])
@each_row("launcher", ["python", "torchrun", "accelerate launch", "deepspeed", "docker run img python"])
def test_every_launcher_is_given_them(name: str, launcher: str) -> None:
    devices = at(BOXES[name], 0.0, 0.0).devices[:2]
    launch = compose(devices, LaunchOptions((*launcher.split(), "t.py")), {})
    line = launch.line
    variable = {"intel": MASK, "gaudi": "HABANA_VISIBLE_MODULES"}[name]
    if launcher == "deepspeed":
        assert "--include=localhost:0,1" in line
    else:
        assert f"{variable}=0,1" in line
    assert "CUDA" not in line and launch.refusal is None


def test_a_mask_that_was_inherited_is_read_in_its_environment() -> None:
    cards = box(*(d for d in MIXED.devices if d.vendor == "intel"))
    keys = {device.index: device.key for device in cards.devices}
    for text, environ, wanted in (
        ("1,0", {}, [0, 1]),
        ("7,1", {}, [1]),
        ("0.0", {}, [0]),
        ("0", {"ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1"}, [2]),
    ):
        found = inherited({MASK: text, **environ}, cards)
        assert found is not None and list(found.keys) == [keys[n] for n in wanted], text
    assert inherited({MASK: ""}, cards) is None


@each_row(
    ("model", "tiles", "asked", "indices", "wanted"),
    [
        # From compute-runtime: Max counts tiles unless COMPOSITE is set, other models only under FLAT.
        ("0BD5", 2, None, 4, "FLAT"),
        ("0BD5", 2, "FLAT", 4, "FLAT"),
        ("0BD5", 2, "COMBINED", 4, "FLAT"),
        ("0BD5", 2, "COMPOSITE", 2, "COMPOSITE"),
        ("0BDA", 1, None, 2, None),
        ("0BDA", 1, "COMPOSITE", 2, None),
        ("020A", 2, None, 2, None),
        ("020A", 2, "FLAT", 4, "FLAT"),
        ("E20B", 1, "FLAT", 2, None),
    ],
)
def test_a_launch_says_whether_tiles_or_cards_are_counted(
    tmp_path: Path, model: str, tiles: int, asked: str | None, indices: int, wanted: str | None
) -> None:
    """Our numbers are those of gputui's own environment; the line sets the hierarchy that they need."""
    card(tmp_path, 0, "0000:4d:00.0", model, tiles=tiles)
    card(tmp_path, 1, "0000:a8:00.0", model, tiles=tiles)
    environ = {} if asked is None else {"ZE_FLAT_DEVICE_HIERARCHY": asked}
    devices = read(tmp_path, **environ).devices
    assert [device.index for device in devices] == list(range(indices))
    changes = dict(compose(devices[1:], LaunchOptions(("python", "t.py")), environ).changes)
    assert changes.get("ZE_FLAT_DEVICE_HIERARCHY") == wanted
    assert changes[MASK] == ",".join(map(str, range(1, indices)))


def test_a_hierarchy_of_the_command_itself_gives_way(call: Call) -> None:
    words = ("run", "--demo", "intel", "--gpus", "0,1", "--dry-run", "--", "env")
    done = call(*words, "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE", "python", "t.py")
    assert "COMPOSITE" not in done.out and "COMPOSITE replaced" in done.err


def test_integrated_gpus_are_last_unless_all_count_by_bus() -> None:
    """Number 0 is the first discrete GPU here; by bus id alone, it is the integrated one: 00:02.0."""
    cards = box(*(d for d in MIXED.devices if d.vendor == "intel"))
    numbers = [(device.index, device.apart) for device in cards.devices]
    assert numbers == [(0, None), (1, None), (2, "integrated")]
    by_bus = {"ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1"}
    for text, wanted in (("0", 2), ("1", 0), ("2", 1)):
        found = inherited({MASK: text, **by_bus}, cards)
        assert found is not None and found.note is not None
        assert found.keys == (cards.devices[wanted].key,)


def test_a_tile_has_no_dot_where_tiles_are_devices(tmp_path: Path) -> None:
    """FLAT: "0.0" is invalid; COMPOSITE: it is a tile of card 0 (Level Zero specification, PROG)."""
    card(tmp_path, 0, "0000:4d:00.0", "0BD5", tiles=2)
    flat = read(tmp_path)
    found = inherited({MASK: "0.0"}, flat)
    assert found is not None and found.keys == () and found.warning is not None
    whole = read(tmp_path, ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE")
    found = inherited({MASK: "0.1"}, whole)
    assert found is not None and found.keys == (whole.devices[0].key,) and found.warning is not None


def test_what_counts_beside_the_mask_is_taken_away() -> None:
    environ = {"ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1", "ONEAPI_DEVICE_SELECTOR": "level_zero:1"}
    changes = dict(compose(MIXED.devices[2:3], LaunchOptions(("python", "t.py")), environ).changes)
    assert changes == {**dict.fromkeys(environ), MASK: "0"}


def test_a_command_that_counts_devices_itself_counts_what_we_count(call: Call) -> None:
    """deepspeed turns --include into a mask, which is read with the same hierarchy and order as ours."""
    environ = {"ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1", "ONEAPI_DEVICE_SELECTOR": "level_zero:1"}
    tiles = at(BOXES["intel"], 0.0, 0.0).devices[:2]
    changes = dict(compose(tiles, LaunchOptions(("deepspeed", "t.py")), environ).changes)
    assert changes == {**dict.fromkeys(environ), MASK: None, "ZE_FLAT_DEVICE_HIERARCHY": "FLAT"}
    said = call(
        "run", "--demo", "intel", "--dry-run", "--", "deepspeed", "--include=localhost:1,0", "t.py"
    ).err
    assert "Level Zero" in said and "fastest" not in said
