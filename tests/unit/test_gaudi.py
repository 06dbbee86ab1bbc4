"""Gaudi: hl-smi's answers, recorded and broken; module ids; and aligned groups."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.choosing.pick import Constraints, pick
from gputui.choosing.verdict import Idle, Verdict, verdicts
from gputui.inventory.device import Device, aligned
from gputui.inventory.snapshot import Snapshot
from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import NoSourceError, Want
from gputui.system.root import Root
from gputui.vendors.gaudi import hl_smi
from gputui.vendors.gaudi.models import generation
from gputui.vendors.gaudi.source import DRIVER, GaudiSource
from gputui.vendors.registry import inherited
from table_tests import each_row
from unit.builders import box
from unit.calling import Call
from unit.recorded import VENDORS, needs, program

RECORDED = VENDORS / "gaudi" / "gaudi3_csv_2x"
GIB = 1024**3

HONEST = """\
wanted=$2
echo "$wanted" | sed 's/,/, /g'
while IFS='|' read -r index module bus name total used util; do
  line=""
  for column in $(echo "$wanted" | tr , ' '); do
    case $column in
      index) v=$index;; module_id) v=$module;; bus_id) v=$bus;; name) v=$name;;
      uuid) v=01P4-HL$index;; memory.total) v=$total;; memory.used) v=$used;;
      utilization.aip) v=$util;; temperature.aip) v="36 C";; power.draw) v="226 W";; *) v=N/A;;
    esac
    line="$line${line:+, }$v"
  done
  echo "$line"
done <<END
%s
END
"""
"""A program that answers for the requested columns."""


def machine(root: Path, *rows: str) -> Snapshot:
    program(root, "hl-smi", HONEST % "\n".join(rows))
    return GaudiSource(Root(str(root))).read()


def states(snapshot: Snapshot) -> list[str]:
    return [verdict.state for verdict in verdicts(snapshot).values()]


@needs(RECORDED)
@pytest.mark.parametrize("titled", [True, False])
def test_recorded_lines_are_read_field_by_field(tmp_path: Path, titled: bool) -> None:
    wanted = json.loads((RECORDED / "expected.json").read_text())
    rows = hl_smi.rows((RECORDED / "query.csv").read_text(), wanted["fields"].split(","))
    assert rows is not None and len(rows) == len(wanted["devices"])
    names = [name.split(".")[0] for name in wanted["fields"].split(",")]
    assert "uuid" in names
    # The same lines come from a program, with and without a line of names.
    lines = (RECORDED / "query.csv").read_text()
    (tmp_path / "answer").write_text(f"{wanted['fields']}\n{lines}" if titled else lines)
    program(tmp_path, "hl-smi", 'cat "$(dirname "$0")/../answer"')
    snapshot = GaudiSource(Root(str(tmp_path))).read()
    for device, facts in zip(snapshot.devices, wanted["devices"], strict=True):
        assert {name: getattr(device, name) for name in facts} == facts
    assert [list(row) for row in snapshot.links] == wanted["links"]
    assert states(snapshot) == ["free", "free"] and snapshot.devices[0].processes is None


@pytest.mark.parametrize(("name", "idle"), [("HL-205", 512), ("HL-225", 768), ("HL-325L", 672)])
def test_an_idle_device_of_each_generation_is_free_and_a_used_one_is_not(
    tmp_path: Path, name: str, idle: int
) -> None:
    row = f"0|0|0000:33:00.0|{name}|131072 MiB|{{}} MiB|{{}} %"
    snapshot = machine(
        tmp_path, row.format(idle, 4), row.replace("0|0|0000:33", "1|1|0000:34").format(40_000, 0)
    )
    assert states(snapshot) == ["free", "held"]
    assert [generation(n) for n in ("HL-205", "HL-225C", "HL-325L", None)] == [1, 2, 3, None]


def test_absent_units_and_values_are_read(tmp_path: Path) -> None:
    snapshot = machine(tmp_path, "0|3|0000:33:00.0|HL-225|98304|768|N/A")
    (device,) = snapshot.devices
    assert (device.memory_total, device.utilization, device.module) == (96 * GIB, None, 3)
    assert states(snapshot) == ["unknown"]


def test_a_version_that_knows_fewer_columns_is_asked_for_those(tmp_path: Path) -> None:
    root = tmp_path / "root"
    script = HONEST % "0||0000:33:00.0|HL-225|98304 MiB|768 MiB|0 %"
    program(root, "hl-smi", 'case $2 in *module_id*) echo "unknown column" ; exit 1;; esac\n' + script)
    snapshot = GaudiSource(Root(str(root))).read()
    assert states(snapshot) == ["free"] and snapshot.devices[0].module is None and not snapshot.errors


def test_a_version_without_the_driver_and_the_limit_still_tells_module_ids(tmp_path: Path) -> None:
    line = "0, 3, 0000:19:00.0, 01P4-HL0, HL-225, 98304 MiB, 768 MiB, 0 %, 36 C, 100 W"
    program(tmp_path, "hl-smi", f"echo '{line}'")
    (device,) = GaudiSource(Root(str(tmp_path))).read().devices
    assert (device.index, device.module, device.pci_bus_id) == (0, 3, "00000000:19:00.0")
    assert (device.memory_used, device.utilization, device.power) == (768 * 1024 * 1024, 0, 100)


def test_module_ids_and_nodes_come_from_the_kernel_where_hl_smi_has_none(tmp_path: Path) -> None:
    folder = tmp_path / DRIVER.lstrip("/") / "0000:33:00.0"
    (folder / "accel" / "accel5").mkdir(parents=True)
    (folder / "module_id").write_text("6\n")
    (folder / "numa_node").write_text("1\n")
    (folder / "status").write_text("Operational\n")
    snapshot = machine(tmp_path, "2|N/A|0000:33:00.0|HL-225|98304 MiB|768 MiB|0 %")
    (device,) = snapshot.devices
    assert (device.index, device.module, device.numa_node, device.render) == (2, 6, 1, "accel5")
    assert device.pci_bus_id == "00000000:33:00.0" and states(snapshot) == ["free"]
    (folder / "status").write_text("Needs Reset\n")
    assert states(GaudiSource(Root(str(tmp_path))).read()) == ["lost"]


def test_a_process_that_is_seen_makes_it_busy(tmp_path: Path) -> None:
    folder = tmp_path / DRIVER.lstrip("/") / "0000:33:00.0"
    (folder / "accel" / "accel0").mkdir(parents=True)
    fds = tmp_path / "proc" / "77" / "fd"
    fds.mkdir(parents=True)
    (fds / "5").symlink_to("/dev/accel/accel0")
    assert states(machine(tmp_path, "0|0|0000:33:00.0|HL-225|98304 MiB|768 MiB|0 %")) == ["busy"]


@each_row(
    "script",
    [
        "exit 3",
        "true",
        "echo garbage",
        "head -c 9000000 /dev/zero",
        "sleep 60",
        "yes index",
        "printf 'a\\0b\\n'",
    ],
)
def test_a_broken_program_is_unknown_memory_and_a_notice(tmp_path: Path, script: str) -> None:
    (tmp_path / DRIVER.lstrip("/") / "0000:33:00.0").mkdir(parents=True)
    program(tmp_path, "hl-smi", script)
    source = GaudiSource(Root(str(tmp_path)), deadline=0.5)
    snapshot = source.read()
    assert states(snapshot) == ["unknown"] and len(snapshot.errors) == 1
    assert source.read(Want.VERDICT).devices[0].memory_used is None


def test_without_anything_there_is_no_device(tmp_path: Path) -> None:
    with pytest.raises(NoSourceError):
        GaudiSource(Root(str(tmp_path))).open()


# The environment of programs.

GAUDI = at(BOXES["gaudi"], 0.0, 0.0)


def _with_modules(*modules: int) -> tuple[Device, ...]:
    return tuple(
        replace(GAUDI.devices[0], index=place, uuid=f"01P4-{place}", module=module)
        for place, module in enumerate(modules)
    )


@each_row(
    ("modules", "works"),
    [
        ((0, 1), True),
        ((1, 2), False),
        ((4, 5, 6, 7), True),
        ((2, 3, 4, 5), False),
        ((0, 1, 2), False),
        ((3,), True),
    ],
)
def test_only_aligned_groups_work_together(modules: tuple[int, ...], works: bool) -> None:
    devices = _with_modules(*modules)
    assert aligned(devices) == works
    assert (compose(devices, LaunchOptions(("python", "t.py")), {}).refusal is None) == works


def test_of_the_groups_the_one_with_most_preferred_devices_is_picked() -> None:
    snapshot = replace(GAUDI, devices=_with_modules(*range(8)), claims=())
    free = {device.key: Verdict("free", Idle()) for device in snapshot.devices}

    def picked(count: int, *preferred: int) -> list[int | None]:
        constraints = Constraints(count, prefer=[f"01P4-{module}" for module in preferred])
        return [device.module for device in pick(snapshot, free, constraints).devices]

    assert picked(2) == [0, 1]
    assert picked(2, 5) == [4, 5]
    assert picked(2, 1, 6, 7) == [6, 7]
    assert picked(4, 3, 4, 5) == [4, 5, 6, 7]


def test_a_group_is_offered_that_leaves_the_largest_to_others() -> None:
    found = pick(GAUDI, verdicts(GAUDI), Constraints(2))
    assert [device.module for device in found.devices] == [6, 7]
    four = pick(GAUDI, verdicts(GAUDI), Constraints(4))
    assert [device.module for device in four.devices] == [0, 1, 2, 3]
    constraints = Constraints(3)
    assert not pick(GAUDI, verdicts(GAUDI), constraints).enough(constraints)


def test_a_container_shares_memory_once(call: Call) -> None:
    done = call("export", "--demo", "gaudi", "--gpus", "2,3", "--as", "docker", "--", "torchrun", "t.py")
    assert done.out.count("--ipc=host") == 1 and "HABANA_VISIBLE_DEVICES=2,3" in done.out


def test_slurm_is_not_said_to_set_a_variable_that_it_does_not_know(call: Call) -> None:
    """slurm.conf(5): gres/gpu sets CUDA_, ROCR_VISIBLE_DEVICES and ZE_AFFINITY_MASK."""
    words = ("--gpus", "2,3", "--as", "sbatch", "--", "torchrun", "t.py")
    assert "itself" not in call("export", "--demo", "gaudi", *words).out
    assert "ZE_AFFINITY_MASK itself" in call("export", "--demo", "intel", *words).out


def test_programs_are_given_module_ids_and_not_indices(call: Call) -> None:
    devices = _with_modules(5, 4)
    assert dict(compose(devices, LaunchOptions(("python", "t.py")), {}).changes) == {
        "HABANA_VISIBLE_MODULES": "5,4"
    }
    found = inherited({"HABANA_VISIBLE_MODULES": "4"}, box(*devices))
    assert found is not None and found.keys == (devices[1].key,)
    done = call("run", "--demo", "gaudi", "--gpus", "0,1", "--dry-run", "--", "python", "t.py")
    assert "HABANA_VISIBLE_MODULES=0,1" in done.out and "order" in done.err
    # The order is that of the ranks, so the selected order is passed on.
    done = call("run", "--demo", "gaudi", "--gpus", "1,0", "--dry-run", "--", "python", "t.py")
    assert "HABANA_VISIBLE_MODULES=1,0" in done.out and "not keep" not in done.err
    assert call("run", "--demo", "gaudi", "--gpus", "0,3", "--dry-run", "--", "python", "t.py").status == 2
    assert call("pick", "--demo", "gaudi", "--gpus", "0,3").status == 2
