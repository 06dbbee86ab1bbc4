"""An integrated AMD GPU next to an NVIDIA card without its driver, or in a machine without such a card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

import simtrees
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.source import NoSourceError
from gputui.system.root import Root
from gputui.vendors import box
from gputui.vendors.amd.source import AmdSource
from gputui.vendors.box import BoxSource
from gputui.vendors.nvidia.source import DRIVER_NOT_LOADED, REMEDIES, NvmlSource
from unit.calling import Call, caller

SENTENCE = REMEDIES[DRIVER_NOT_LOADED]
PROCESSOR, DISPLAY, SOUND = "0x060000", "0x030200", "0x040300"
CARD = (("0x1022", PROCESSOR), ("0x10de", DISPLAY), ("0x10de", SOUND))
NO_CARD = (("0x1022", PROCESSOR), ("0x1002", DISPLAY), ("0x10de", SOUND))


class Machine:
    """Files of a machine on which NVML cannot start; `call` runs gputui there."""

    def __init__(self, root: Path, call: Call) -> None:
        self.root, self.call = root, call

    def has_processor_with_gpu(self, integrated: bool = True) -> None:
        """Add one AMD GPU, in the processor or for training."""
        one = BOXES["amd"]
        simtrees.write(
            self.root, replace(one, gpus=one.gpus[:1], tasks=(), weights=((None,),), links=(("X",),))
        )
        if integrated:
            properties = self.root / "sys/class/kfd/kfd/topology/nodes/2/properties"
            properties.write_text(properties.read_text().replace("90402", "100306"))

    def has_functions(self, functions: tuple[tuple[str, str], ...]) -> None:
        """Add PCI functions, by vendor and class."""
        for place, (vendor, kind) in enumerate(functions):
            folder = self.root / f"sys/bus/pci/devices/0000:{place:02x}:00.0"
            folder.mkdir(parents=True)
            (folder / "vendor").write_text(f"{vendor}\n")
            (folder / "class").write_text(f"{kind}\n")

    def source(self) -> BoxSource:
        return BoxSource([NvmlSource(root=Root(str(self.root))), AmdSource(Root(str(self.root)))])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    def fail() -> None:
        raise pynvml.NVMLError(DRIVER_NOT_LOADED)

    made = Machine(tmp_path / "machine", caller(capsys))
    monkeypatch.setenv("GPUTUI_CLAIMS", str(tmp_path / "claims"))
    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    monkeypatch.setattr(box, "this_box", made.source)
    return made


@pytest.mark.parametrize(
    "words",
    [["pick"], ["pick", "-n", "2"], ["pick", "--format", "json"], ["run", "-n", "1", "--", "true"]],
    ids=" ".join,
)
@pytest.mark.parametrize("functions", [CARD, ()], ids=["card", "buses-not-shown"])
def test_a_missing_driver_is_why_nothing_can_be_picked(
    machine: Machine, functions: tuple[tuple[str, str], ...], words: list[str]
) -> None:
    machine.has_processor_with_gpu()
    machine.has_functions(functions)
    ended = machine.call(*words)
    assert (ended.status, ended.out) == (3, "")
    assert SENTENCE in ended.err and len(ended.err.splitlines()) == 1


def test_it_is_listed_beside_the_devices(machine: Machine) -> None:
    machine.has_processor_with_gpu()
    machine.has_functions(CARD)
    ended = machine.call("ls")
    assert ended.status == 0 and SENTENCE in ended.out


def test_waiting_does_not_bring_a_driver(machine: Machine) -> None:
    machine.has_processor_with_gpu()
    machine.has_functions(CARD)
    ended = machine.call("pick", "--wait", "1h")
    assert ended.status == 3 and SENTENCE in ended.err


def test_who_names_the_integrated_gpu_gets_it(machine: Machine) -> None:
    machine.has_processor_with_gpu()
    machine.has_functions(CARD)
    assert machine.call("pick", "--gpus", "0").out == "0\n"


@pytest.mark.parametrize("words", [["ls"], ["pick"], ["pick", "--gpus", "0"]], ids=" ".join)
def test_a_machine_without_nvidias_card_is_not_told_about_its_driver(
    machine: Machine, words: list[str]
) -> None:
    machine.has_processor_with_gpu()
    machine.has_functions(NO_CARD)
    ended = machine.call(*words)
    assert ended.status == (4 if words == ["pick"] else 0)
    assert "NVIDIA" not in ended.err + ended.out


def test_nor_is_one_with_another_card_to_train_on(machine: Machine) -> None:
    machine.has_processor_with_gpu(integrated=False)
    machine.has_functions(CARD)
    assert machine.call("pick").out == "0\n"
    assert "NVIDIA" not in machine.call("ls").out


def test_where_nothing_is_the_driver_that_may_be_missing_is_named(machine: Machine) -> None:
    ended = machine.call("pick")
    assert ended.status == 3 and SENTENCE in ended.err
    machine.has_functions(NO_CARD)
    with pytest.raises(NoSourceError, match="AMD"):
        machine.source().open()
