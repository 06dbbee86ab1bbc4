"""The vendor port: the registered vendors, and a second vendor in one file (`tests/acme.py`)."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import acme
from fuzz.bounds import assert_costs
from gputui.choosing.pick import Constraints, OtherVendor, pick
from gputui.choosing.selection import Selection, not_free
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import not_free_lines
from gputui.inventory.matrix_text import write
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality, Nic, Topology
from gputui.launching.compose import compose
from gputui.launching.exports import FORMS, ExportOptions
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.source import NoSourceError
from gputui.system.root import HERE, Root
from gputui.tui.app_state import AppState
from gputui.vendors import registry
from gputui.vendors.box import BoxSource, joined
from gputui.vendors.nvidia.vendor import VENDOR as NVIDIA
from gputui.vendors.registry import MixedVendorsError, inherited, vendor_named, vendor_of, vendors
from gputui.vendors.vendor import UnknownVendor, Vendor
from table_tests import each_row
from tui.support import session
from unit.builders import GIB, box, gpu, recording

SOURCE = Path(__file__).parents[2] / "app" / "gputui"
ACME = tuple(map(acme.accelerator, range(2)))
MIXED = box(gpu(0), gpu(1), *ACME)


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toy vendor, as a distribution of its own in `sys.path`; removed again at the end."""
    acme.install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    _forget()
    yield
    _forget()


def _forget() -> None:
    for cached in (registry.vendors, registry.vendor_named, registry._added):
        cached.cache_clear()


Gputui = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def gputui(tmp_path: Path) -> Gputui:
    """The real program on a machine where the toy vendor is installed, with two of its devices."""

    def call(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "COV_", "COVERAGE"))}
        kept |= {"PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path), "ACME_DEVICES": "2"}
        return subprocess.run(
            [sys.executable, "-m", "gputui", *words],
            capture_output=True,
            text=True,
            # `-m` looks in the current folder first, and `tests` has an `acme` too.
            cwd=tmp_path,
            env=kept | {"GPUTUI_CLAIMS": str(tmp_path / "claims")} | environ,
            timeout=60,
            check=False,
        )

    return call


# The modules that name CUDA.

_NAMES_CUDA = re.compile(r"CUDA_|cuda:[^ ]|libcuda|vendors\.nvidia")
_MAY_NAME_CUDA = {
    "vendors/amd/visibility.py": "ROCm reads CUDA's list, too, where its own is not set",
    "vendors/registry.py": "has the module of each vendor that gputui brings",
}


def test_nothing_outside_its_folder_names_what_is_nvidias() -> None:
    found = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if _NAMES_CUDA.search(file.read_text()) and (SOURCE / "vendors" / "nvidia") not in file.parents
    }
    assert found == set(_MAY_NAME_CUDA)


def test_no_list_of_devices_is_named_outside_the_folder_of_its_vendor() -> None:
    """A vendor may read another's list, as ROCm reads CUDA's; the registry knows the signs of all."""
    for name in registry._SIGNS:
        visibility = vendor_named(name).visibility
        own = re.compile(
            "|".join({*visibility.names, *visibility.also, *registry._SIGNS[name].lists} or {"^$"})
        )
        files = (file for file in SOURCE.rglob("*.py") if (SOURCE / "vendors" / name) not in file.parents)
        found = {file.relative_to(SOURCE).as_posix() for file in files if own.search(file.read_text())}
        assert found <= {"vendors/registry.py"}, name


# The features that a second vendor gets by being installed.


def test_a_list_means_the_devices_of_the_vendor_whose_variable_names_it_else_of_the_first() -> None:
    ours, theirs = gpu(0), replace(gpu(0), vendor="amd", uuid="GPU-1f")
    apple, amd = vendor_named("apple"), vendor_named("amd")
    for devices in ((ours, theirs), (theirs, ours)):
        vendor, found = registry.listed("0", {}, "--gpu_ids 0", devices, (NVIDIA, amd, apple))
        assert (vendor.name, found.devices) == ("nvidia", (ours,))
        vendor, found = registry.listed("0", {}, "HIP_VISIBLE_DEVICES=0", devices, (NVIDIA, apple, amd))
        assert (vendor.name, found.devices) == ("amd", (theirs,))


def test_a_vendor_is_found_by_the_entry_point_of_another_distribution() -> None:
    assert [vendor.name for vendor in vendors()] == ["nvidia", "amd", "intel", "gaudi", "apple", "acme"]
    assert vendor_named("acme").visibility.variable == "ACME_VISIBLE_DEVICES"


@pytest.mark.skipif(
    any(registry.HERE.has(path) for _, paths in registry._SIGNS.values() for path in paths),
    reason="this machine has a sign of one of them",
)
def test_vendors_that_are_not_there_cost_less_than_a_millisecond() -> None:
    """None of their modules is loaded, and looking for all of them reads a few files."""
    script = (
        "import sys, time; from gputui.vendors.registry import vendors_maybe_on, HERE; took = []\n"
        "for _ in range(20): began = time.process_time(); vendors_maybe_on(HERE);"
        " took.append(time.process_time() - began)\n"
        "print(min(took)); print('|'.join(sys.modules))"
    )
    loaded = []

    def cost() -> float:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        took, modules = done.stdout.split("\n")[:2]
        loaded.append(modules)
        return float(took)

    assert_costs(0.001, cost)
    assert not any(f"gputui.vendors.{name}" in loaded[0] for name in ("intel", "gaudi", "apple"))


def test_a_vendor_that_does_not_load_is_named(gputui: Gputui, tmp_path: Path) -> None:
    (tmp_path / "site" / "acme.py").write_text("import nothing_of_that_name")
    done = gputui("pick")
    assert done.returncode == 3 and "acme:VENDOR" in done.stderr and len(done.stderr.splitlines()) == 1


def test_its_devices_are_listed(gputui: Gputui) -> None:
    listed = json.loads(gputui("ls", "--json").stdout)
    assert [(d["vendor"], d["index"], d["verdict"]["state"]) for d in listed["devices"]] == [
        ("acme", 0, "free"),
        ("acme", 1, "free"),
    ]
    assert "Acme Rocket" in gputui("ls").stdout


def test_they_are_picked_by_index_and_by_uuid(gputui: Gputui) -> None:
    assert gputui("pick", "-n", "2").stdout == "0,1\n"
    assert gputui("pick", "--gpus", "ACME-0001", "--ids", "uuid").stdout == "ACME-0001\n"
    line = gputui("pick", "--gpus", "1,0", "--format", "env").stdout
    assert line == "ACME_VISIBLE_DEVICES=1,0\n"


def test_a_command_is_started_on_them_through_their_own_variable(gputui: Gputui) -> None:
    script = "import os; print({k: v for k, v in os.environ.items() if 'VISIBLE' in k or 'CUDA' in k})"
    done = gputui("run", "--gpus", "1,0", "--", sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'ACME_VISIBLE_DEVICES': '1,0'}\n"


def test_a_command_that_names_others_is_refused_by_their_variable(gputui: Gputui) -> None:
    done = gputui("run", "--gpus", "1", "--", "env", "ACME_VISIBLE_DEVICES=0", "true")
    assert done.returncode == 2 and "ACME_VISIBLE_DEVICES=0" in done.stderr


def test_a_command_for_the_cpu_that_names_some_is_refused_too(gputui: Gputui) -> None:
    done = gputui("run", "--gpus", "none", "--", "env", "ACME_VISIBLE_DEVICES=0", "true")
    assert done.returncode == 2 and "ACME_VISIBLE_DEVICES=0" in done.stderr


def test_what_a_command_names_by_their_variable_is_what_it_gets(gputui: Gputui) -> None:
    done = gputui("run", "--", "env", "ACME_VISIBLE_DEVICES=1", "sh", "-c", "echo $ACME_VISIBLE_DEVICES")
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_a_list_that_was_inherited_is_the_limit(gputui: Gputui) -> None:
    assert gputui("pick", ACME_VISIBLE_DEVICES="1").stdout == "1\n"
    assert gputui("pick", "-n", "2", ACME_VISIBLE_DEVICES="1").returncode == 4


@each_row("form", sorted(FORMS))
def test_a_launch_on_them_is_exported_in_every_form(form: str) -> None:
    launch = compose(ACME[::-1], LaunchOptions(("python", "train.py")), {})
    text = FORMS[form].write(launch, ExportOptions())
    assert "CUDA" not in text
    # Slurm, Ray and Kubernetes choose devices themselves, and Slurm's script says so.
    assert "ACME_VISIBLE_DEVICES" in text or form in ("ray", "kubernetes")
    assert "acme.example/rocket: 2" in text or form != "kubernetes"
    if form == "docker":
        assert "--device /dev/acme1 --device /dev/acme0" in text and "ACME-0001,ACME-0000" in text


def test_no_device_is_what_the_vendor_says(gputui: Gputui) -> None:
    assert gputui("pick", "--gpus", "none", "--format", "env").stdout == "ACME_VISIBLE_DEVICES=off\n"


async def test_the_screen_calls_them_as_their_programs_do() -> None:
    async with session(box(*ACME)) as s:
        await s.press("1", "0")
        assert "rocket:0 = GPU 1" in " ".join(s.texts("#selection"))
        assert "ACME_VISIBLE_DEVICES=1,0" in " ".join(s.texts("#launch"))


# Two vendors in one box.


def test_their_indices_are_told_apart() -> None:
    assert [MIXED.label(device) for device in MIXED.devices] == ["nvidia:0", "nvidia:1", "acme:0", "acme:1"]


def test_devices_of_two_vendors_are_no_launch() -> None:
    with pytest.raises(MixedVendorsError):
        vendor_of(MIXED.devices)
    with pytest.raises(MixedVendorsError):
        compose((gpu(0), ACME[0]), LaunchOptions(("python", "train.py")), {})


def test_devices_of_two_vendors_are_a_wrong_call(gputui: Gputui, tmp_path: Path) -> None:
    file = recording(tmp_path, MIXED)
    done = gputui("run", "--from", file, "--dry-run", "--gpus", "nvidia:0,acme:0", "--", "python", "t.py")
    assert done.returncode == 2 and "Acme" in done.stderr and "NVIDIA" in done.stderr
    done = gputui("run", "--from", file, "--dry-run", "--gpus", "0", "--", "python", "t.py")
    assert done.returncode == 2 and "nvidia:0" in done.stderr and "acme:0" in done.stderr


def test_one_vendors_devices_can_be_asked_for(gputui: Gputui, tmp_path: Path) -> None:
    file = recording(tmp_path, MIXED)
    assert gputui("pick", "--from", file, "--vendor", "acme", "-n", "2").stdout == "0,1\n"
    assert gputui("pick", "--from", file, "--vendor", "acme", "-n", "3").returncode == 4
    named = gputui("pick", "--from", file, "--vendor", "acme", "--gpus", "1", "--format", "env")
    assert named.stdout == "ACME_VISIBLE_DEVICES=1\n"
    assert gputui("pick", "--from", file, "--vendor", "nobody").returncode == 2


def test_they_may_be_named_together_to_pick_from(gputui: Gputui, tmp_path: Path) -> None:
    listed = ("pick", "--from", recording(tmp_path, MIXED), "--gpus", "acme:1,nvidia:0,acme:0")
    assert gputui(*listed, "-n", "2", "--ids", "uuid").stdout == "ACME-0000,ACME-0001\n"
    assert gputui(*listed, "-n", "3").returncode == 4
    assert gputui(*listed).returncode == 2


def test_the_screen_selects_devices_of_one_vendor_only() -> None:
    state, _ = AppState({}).with_snapshot(MIXED).toggle(ACME[1])
    refused, why = state.toggle(gpu(0))
    assert refused is state and why is not None and "NVIDIA" in why and "Acme" in why
    assert {device.vendor for device in state.add_best()[0].selected} == {"acme"}
    assert dict(state.launch.changes) == {"ACME_VISIBLE_DEVICES": "1"}


def test_a_device_that_is_not_free_is_called_as_its_programs_do() -> None:
    taken = replace(ACME[1], memory_used=8 * GIB, memory_free=56 * GIB)
    now = box(gpu(0), ACME[0], taken)
    found = not_free(Selection((ACME[0].key, taken.key)), {}, now, verdicts(now))
    assert not_free_lines(found, now)[taken.key].startswith("GPU acme:1 (rocket:1) is held")


def test_a_choice_stays_with_one_vendor() -> None:
    found = pick(MIXED, verdicts(MIXED), Constraints(2))
    assert {device.vendor for device in found.devices} == {"nvidia"}
    taken = pick(MIXED, verdicts(MIXED), Constraints(2, required=(ACME[0].key,)))
    assert {device.vendor for device in taken.devices} == {"acme"}
    short = pick(MIXED, verdicts(MIXED), Constraints(3))
    assert len(short.devices) == 2
    assert [why for _, why in short.refused] == [OtherVendor("nvidia")] * 2


def test_without_devices_those_of_every_vendor_are_hidden() -> None:
    launch = compose((), LaunchOptions(("python", "train.py")), {}, box=(acme.VENDOR, NVIDIA))
    assert dict(launch.changes) == {"ACME_VISIBLE_DEVICES": "off", "CUDA_VISIBLE_DEVICES": ""}


def test_a_list_of_one_vendor_leaves_the_others_devices_alone() -> None:
    found = inherited({"CUDA_VISIBLE_DEVICES": "1"}, MIXED)
    assert found is not None and found.keys == (gpu(1).key, ACME[0].key, ACME[1].key)
    assert found.words == "CUDA_VISIBLE_DEVICES=1"
    both = inherited({"CUDA_VISIBLE_DEVICES": "1", "ACME_VISIBLE_DEVICES": ""}, MIXED)
    assert both is not None and both.keys == (gpu(1).key,)


class _Fixed:
    """A source of one snapshot, or of none."""

    label = ""

    def __init__(self, snapshot: Snapshot | None) -> None:
        self._snapshot = snapshot
        self.closed = 0

    def open(self) -> None:
        if self._snapshot is None:
            raise NoSourceError("no driver here")

    def read(self, *_: Any) -> Snapshot:
        assert self._snapshot is not None
        return self._snapshot

    def close(self) -> None:
        self.closed += 1


def test_the_box_has_the_devices_of_all_that_open() -> None:
    one, other, absent = _Fixed(box(gpu(0), gpu(1))), _Fixed(box(*ACME)), _Fixed(None)
    source = BoxSource([absent, one, other])
    source.open()
    assert source.read().devices == MIXED.devices
    source.close()
    assert (absent.closed, one.closed, other.closed) == (0, 1, 1)
    with pytest.raises(NoSourceError):
        BoxSource([absent, absent]).open()


def test_nothing_is_known_of_what_joins_two_vendors_devices() -> None:
    wired = box(gpu(0), gpu(1), links=(("X", "NV4"), ("NV4", "X")))
    found = joined([wired, box(*ACME)])
    assert found.links == (
        ("X", "NV4", None, None),
        ("NV4", "X", None, None),
        (None,) * 4,
        (None,) * 4,
    )


NICS = (Nic("mlx5_0", "00000000:A0:00.0", 0), Nic("mlx5_1", "00000000:A1:00.0", 1))
NIC_LINKS = (("PIX", "SYS"), ("SYS", "PIX"), ("X", "NODE"), ("NODE", "X"))
WIRED = replace(
    box(gpu(0), gpu(1), links=(("X", "NV4"), ("NV4", "X"))),
    topology=Topology((Locality((0, 1)), Locality((2, 3))), NICS, NIC_LINKS, 12.0),
)
IN_THE_PROCESSOR = replace(acme.accelerator(0), apart="integrated")


@each_row("first", [True, False], ids=["first", "last"])
@each_row("sees", [NICS, ()], ids=["sees-nics", "sees-none"])
@each_row("index", [0, -1])
def test_network_devices_of_a_box_of_two_vendors_are_those_of_each_alone(
    index: int, sees: tuple[Nic, ...], first: bool
) -> None:
    near = Topology((Locality(),), sees, (("SYS", None), ("X", "NODE"), ("NODE", "X")) if sees else ())
    beside = replace(box(replace(IN_THE_PROCESSOR, index=index)), topology=near)
    found = joined([WIRED, beside] if first else [beside, WIRED])
    assert found.topology is not None and found.topology.nics == NICS
    links = found.topology.nic_links
    rows = [found.position[gpu(number).key] for number in (0, 1)]
    assert [links[row] for row in [*rows, 3, 4]] == list(NIC_LINKS)
    assert links[2 if first else 0] == (("SYS", None) if sees else (None, None))
    assert write(found) == write(WIRED)


def test_a_network_device_that_only_one_vendors_source_sees_is_there() -> None:
    other = Topology((Locality(),), NICS[1:], (("PXB",), ("X",)))
    one = replace(WIRED, topology=Topology((Locality(),) * 2, NICS[:1], (("PIX",), ("SYS",), ("X",))))
    found = joined([one, replace(box(ACME[0]), topology=other)]).topology
    assert found is not None and found.nics == NICS
    assert found.nic_links == (("PIX", None), ("SYS", None), (None, "PXB"), ("X", None), (None, "X"))


def test_a_vendor_that_is_only_in_a_recording_is_listed(gputui: Gputui, tmp_path: Path) -> None:
    file = recording(tmp_path, box(replace(ACME[0], vendor="nobody")))
    assert "Acme Rocket" in gputui("ls", "--from", file).stdout
    assert isinstance(vendor_named("nobody"), UnknownVendor)
    launch = compose((replace(ACME[0], vendor="nobody"),), LaunchOptions(("python", "t.py")), {})
    assert launch.changes == () and "nobody" in launch.warnings[0]


def test_the_signs_of_vendors_that_are_not_loaded_are_their_own() -> None:
    for name, signs in registry._SIGNS.items():
        visibility = vendor_named(name).visibility
        assert all(visibility.lists_in({each: "0"}) for each in signs.lists)
        assert signs.lists[:1] == ((visibility.variable,) if visibility.variable else ())
        others = {each for each in visibility.also if visibility.lists_in({each: "0"})} - set(signs.lists)
        assert not others
        # The registry has decided this already, so that the vendor does not decide it again.
        assert type(vendor_named(name)).maybe_there is Vendor.maybe_there


@pytest.mark.skipif(
    any(Path(file).exists() for signs in registry._SIGNS.values() for file in signs.files),
    reason="this machine has one of them",
)
def test_a_vendor_of_whom_there_is_no_sign_is_not_loaded() -> None:
    script = (
        "import sys; from gputui.vendors.box import this_box\n"
        "from gputui.vendors.registry import inherits, order_to_read\n"
        "this_box()\n"
        "inherits({}); order_to_read({})\n"
        "print({m.split('.')[2] for m in sys.modules if m.startswith('gputui.vendors.')})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = ast.literal_eval(done.stdout.splitlines()[-1])
    assert "nvidia" in loaded and not loaded & registry._SIGNS.keys()


@pytest.mark.parametrize("name", ["amd", "gaudi"])
def test_a_vendor_of_whom_there_is_a_sign_is_asked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    signs = set(registry._SIGNS[name].files[-1:])
    monkeypatch.setattr(Root, "has", lambda _, path: path in signs)
    assert [vendor.name for vendor in registry.vendors_maybe_on(HERE)] == ["nvidia", name, "acme"]


def test_of_a_recorded_machine_every_vendor_with_files_looks_for_itself(tmp_path: Path) -> None:
    found = [vendor.name for vendor in registry.vendors_maybe_on(Root(str(tmp_path)))]
    assert found == [*registry._SIGNS, "acme"]
