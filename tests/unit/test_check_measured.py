"""Measurements: the numbers in an answer, the matrix next to the model, and the devices left alone."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.checking.check import check
from gputui.checking.measurement import (
    ALL_REDUCE,
    AllReduce,
    Copy,
    Measured,
    Point,
    measure,
    read_copies,
)
from gputui.checking.render import measured_lines, to_measured_document
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.formatting import UNKNOWN
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import DocumentError
from gputui.launching.launch import Launch
from gputui.vendors.nvidia.vendor import VENDOR
from messages import numbers
from table_tests import each_row
from unit.builders import GIB, MIB, box, busy, gpu
from unit.faketorch import install

LINKS = (("X", "NV18", "SYS"), ("NV18", "X", "SYS"), ("SYS", "SYS", "X"))
BOX = box(gpu(0), gpu(1), gpu(2), links=LINKS)


def copy(source: int, target: int, speed: float, verified: bool = True) -> Copy:
    points = (
        Point(16 * 1024, 4e-6),
        Point(MIB, MIB / speed / 0.5e9),
        Point(256 * MIB, 256 * MIB / speed / 1e9),
    )
    keys = [device.key for device in BOX.devices]
    return Copy(keys[source], keys[target], points, True, verified)


def test_a_pair_carries_what_the_best_size_carries_and_the_smallest_tells_the_latency() -> None:
    one = copy(0, 1, 370.0)
    assert one.gb_per_s == pytest.approx(370.0)
    assert one.latency == pytest.approx(4e-6)
    assert replace(one, points=one.points[:1]).gb_per_s is None
    assert Measured(copies=(one,)).pairs == {(one.source, one.target): pytest.approx(370.0)}


def test_the_bus_carries_twice_n_minus_one_nth_of_what_the_program_has() -> None:
    reduced = AllReduce("nccl", 4, (Point(GIB, GIB / 100e9),), True)
    assert reduced.algorithm == pytest.approx(100.0)
    assert reduced.bus == pytest.approx(150.0)


def test_the_matrix_stands_beside_the_model() -> None:
    keys = tuple(device.key for device in BOX.devices[:2])
    reduced = AllReduce("nccl", 2, (Point(256 * MIB, 256 * MIB / 300e9),), True)
    measured = Measured(keys, (copy(0, 1, 376.0), copy(1, 0, 37.25)), reduced)
    assert measured.verified
    empty, heading, *matrix, small, reduced_line = measured_lines(measured, BOX)
    assert empty == "" and "GB/s" in heading
    assert matrix == [
        "       GPU 0       GPU 1",
        "GPU 0  X           376 (371)",
        "GPU 1  37.2 (371)  X",
    ]
    assert small.startswith("16 KiB ") and "4.0 µs" in small
    assert "nccl" in reduced_line and "256 MiB" in reduced_line and reduced_line.count("300 GB/s") == 2
    document = to_measured_document(measured, BOX)
    assert document["copies"][0]["modelled_gb_per_s"] == 370.8
    assert json.loads(json.dumps(document)) == document


def test_data_that_arrived_wrong_is_a_failure_that_is_said() -> None:
    keys = tuple(device.key for device in BOX.devices[:2])
    measured = Measured(
        keys, (copy(0, 1, 376.0, verified=False),), AllReduce("nccl", 2, (Point(1, 1.0),), False)
    )
    assert not measured.verified
    lines = measured_lines(measured, BOX)
    text = "\n".join(lines)
    assert any("wrong" in line and numbers(line) == [1, 1] for line in lines) and "WRONG" in lines[-1]
    assert f"GPU 1  {UNKNOWN} (371)" in text


@each_row(
    "answer",
    [
        {},
        [{"source": 0}],
        [{"source": 7, "target": 1, "points": [[1, 1.0]], "peer": True, "verified": True}],
        [{"source": 0, "target": 1, "points": [[1, 0.0]], "peer": True, "verified": True}],
        [{"source": 0, "target": 1, "points": [[1, float("inf")]], "peer": True, "verified": True}],
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(answer: Any) -> None:
    with pytest.raises(DocumentError):
        read_copies(answer, {0: "a", 1: "b"})
    with pytest.raises(DocumentError):
        ALL_REDUCE.read({"backend": "nccl", "ranks": 1, "points": [], "verified": True})


# A torch that says it is built for CUDA (unit/faketorch.py), and what our scripts report of it.


class Fake:
    """A launch in an interpreter with the fake torch, and its answers."""

    def __init__(self, folder: Path, snapshot: Snapshot, **told: Any) -> None:
        self.snapshot = snapshot
        speeds = {f"{i}>{j}": 100.0 + 10 * i + j for i in range(8) for j in range(8)}
        devices = [
            {
                "uuid": VENDOR.bare_uuid(d.uuid),
                "bus": [0, 16 + d.index, 0],
                "name": d.name,
                "memory": d.memory_total,
            }
            for d in snapshot.devices
        ]
        told = {"devices": devices, "gb_per_s": speeds, **told}
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(install(folder)),
            "FAKE_TORCH": json.dumps(told),
        }
        devices_ = snapshot.devices
        self.launch = Launch(
            (sys.executable, "train.py"), VENDOR.visibility.changes(devices_), devices=devices_
        )

    def check(self) -> Any:
        return check(self.launch, self.snapshot, self.environ)

    def measure(self, **more: Any) -> Measured:
        report = self.check()
        return measure(
            self.launch,
            report,
            self.snapshot,
            more.pop("rules", DEFAULT_RULES),
            self.environ,
            **{"max_memory": 4 * MIB, "seconds": 30, **more},
        )


def test_a_torch_for_cuda_is_read_with_its_uuids_and_bus_ids(tmp_path: Path) -> None:
    report = Fake(tmp_path, BOX).check()
    assert report.equal and report.conclusion.startswith("equal: torch 2.8.0+cu128 ")
    assert len(report.comparisons) == 3
    assert report.seen.torch.devices[1].bus == "00000000:11:00.0"


def test_a_torch_that_sees_nothing_gives_its_reason(tmp_path: Path) -> None:
    report = Fake(tmp_path, BOX, devices=[]).check()
    assert not report.equal
    assert report.seen.torch.error.startswith("RuntimeError: ")


def test_a_torch_that_cannot_be_imported_gives_its_reason(tmp_path: Path) -> None:
    report = Fake(tmp_path, BOX, **{"import": "libcudart.so.12: cannot open"}).check()
    assert report.status == "differs" and report.seen.torch.version is None
    assert report.conclusion.startswith("not equal: ")
    assert report.conclusion.endswith(": ImportError: libcudart.so.12: cannot open")


def test_every_ordered_pair_is_measured_at_the_sizes_that_the_memory_allows(tmp_path: Path) -> None:
    measured = Fake(tmp_path, BOX).measure()
    keys = [device.key for device in BOX.devices]
    expected = {(a, b) for a in keys for b in keys if a != b}
    assert set(measured.pairs) == expected
    assert [point.size for point in measured.copies[0].points] == [16 * 1024, MIB]
    assert measured.pairs[keys[1], keys[2]] == pytest.approx(112.0, rel=0.15)
    assert all(each.verified for each in measured.copies)
    # A later failure does not remove the measurements, and counts as a failure.
    assert measured.problems and not measured.verified
    assert all(problem.startswith("all-reduce: RuntimeError: ") for problem in measured.problems)


@pytest.mark.thorough
def test_copies_that_arrive_damaged_are_seen(tmp_path: Path) -> None:
    measured = Fake(tmp_path, box(gpu(0), gpu(1)), wrong=True).measure()
    assert [each.verified for each in measured.copies] == [False, False]


@pytest.mark.thorough
def test_a_busy_device_is_left_alone_unless_forced(tmp_path: Path) -> None:
    fake = Fake(tmp_path, box(gpu(0), busy(gpu(1)), gpu(2)))
    keys = [device.key for device in fake.snapshot.devices]
    measured = fake.measure()
    assert [key for key, _ in measured.skipped] == [keys[1]]
    assert measured.skipped[0][1].startswith("busy: mira runs train.py")
    assert set(measured.pairs) == {(keys[0], keys[2]), (keys[2], keys[0])}
    assert len(fake.measure(force=True).pairs) == 6


def test_one_device_has_nothing_to_copy_to_and_that_is_no_failure(tmp_path: Path) -> None:
    measured = Fake(tmp_path, box(gpu(0))).measure()
    assert measured.verified and len(measured.remarks) == 1
    assert (measured.copies, measured.all_reduce, measured.problems) == ((), None, ())


def test_devices_that_are_not_the_chosen_ones_are_not_measured(tmp_path: Path) -> None:
    fake = Fake(tmp_path, BOX)
    fake.launch = replace(fake.launch, devices=fake.launch.devices[::-1])
    measured = fake.measure()
    assert len(measured.problems) == 1 and "devices" in measured.problems[0]
    assert (measured.copies, measured.all_reduce) == ((), None)


def test_a_copy_that_never_ends_is_ended(tmp_path: Path) -> None:
    measured = Fake(tmp_path, box(gpu(0), gpu(1)), hangs=True).measure(seconds=1)
    assert not measured.verified and not measured.copies


def test_an_interpreter_without_torch_measures_nothing(tmp_path: Path) -> None:
    fake = Fake(tmp_path, BOX)
    del fake.environ["PYTHONPATH"]
    fake.launch = replace(fake.launch, argv=(sys.executable, "-S", "-E", "train.py"))
    measured = fake.measure()
    assert len(measured.problems) == 1 and "torch" in measured.problems[0]
    assert (measured.copies, measured.all_reduce) == ((), None)


def test_what_the_rules_call_free_is_measured(tmp_path: Path) -> None:
    held = replace(gpu(0), memory_used=2 * GIB, memory_free=78 * GIB, processes=())
    fake = Fake(tmp_path, box(held, gpu(1)))
    assert [key for key, _ in fake.measure().skipped] == [held.key]
    assert fake.measure(rules=Rules(memory=4 * GIB)).skipped == ()
