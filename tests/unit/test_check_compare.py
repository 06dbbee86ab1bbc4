"""The chosen devices against the visible ones: position by position, and in one sentence."""

from __future__ import annotations

import re
from dataclasses import replace

from gputui.checking.answer import Driver, Framework, Seen, SeenDevice
from gputui.checking.render import lines, to_document
from gputui.checking.report import Report, Variable, compare
from gputui.inventory.device import Device
from gputui.vendors.nvidia.cuda_errors import of_code
from gputui.vendors.nvidia.vendor import VENDOR
from messages import numbers
from table_tests import each_row
from unit.builders import GIB, box, gpu, instance

GPUS = tuple(gpu(index) for index in range(4))
BOX = box(*GPUS)


def seen(device: Device, **changes: object) -> SeenDevice:
    """The device as the driver reports it."""
    told = SeenDevice(VENDOR.bare_uuid(device.uuid), device.pci_bus_id, device.name, device.memory_total)
    return replace(told, **changes)  # type: ignore[arg-type]


def answer(*devices: SeenDevice, torch: Framework | None = None, driver: Driver | None = None) -> Seen:
    """The answer of an interpreter that sees these devices; it has no torch unless the test gives one."""
    return Seen("3.12.1", "/opt/venv/bin/python", (), torch, driver or Driver(devices=devices))


def report(chosen: tuple[Device, ...], told: Seen | None, **more: object) -> Report:
    return replace(Report(chosen, BOX, VENDOR, ("python",), seen=told), **more)  # type: ignore[arg-type]


def named(text: str) -> list[str]:
    """The devices that a text names, in order."""
    return re.findall(r"GPU [\d:]*\d|cuda:\d+", text)


def states(chosen: tuple[Device, ...], told: tuple[SeenDevice, ...]) -> list[str]:
    return [place.state for place in compare(chosen, told, BOX)]


def test_the_same_devices_in_the_same_order_are_equal() -> None:
    chosen = (GPUS[2], GPUS[0])
    told = report(chosen, answer(*map(seen, chosen)))
    assert told.equal and told.status == "equal"
    assert told.conclusion.startswith("equal: ") and VENDOR.driver in told.conclusion
    assert numbers(told.conclusion) == [2]


def test_another_order_is_not_equal_and_says_where_each_is() -> None:
    told = report((GPUS[2], GPUS[0]), answer(seen(GPUS[0]), seen(GPUS[2])))
    assert not told.equal
    assert [each.state for each in told.comparisons] == ["differs", "differs"]
    assert told.conclusion.startswith("not equal: cuda:0 ")
    assert named(told.comparisons[0].why) == ["GPU 0", "GPU 2", "cuda:1"]


def test_more_and_fewer_are_not_equal() -> None:
    assert states(GPUS[:1], (seen(GPUS[0]), seen(GPUS[1]))) == ["equal", "extra"]
    assert states(GPUS[:2], (seen(GPUS[0]),)) == ["equal", "missing"]
    told = report(GPUS[:1], answer(seen(GPUS[0]), seen(GPUS[1])))
    assert named(told.conclusion) == ["cuda:1", "GPU 1"] and numbers(told.conclusion)[-2:] == [1, 2]


def test_devices_that_are_seen_though_none_was_chosen_are_not_equal() -> None:
    told = report((), answer(seen(GPUS[0])))
    assert told.status == "differs" and [each.state for each in told.comparisons] == ["extra"]
    assert named(told.conclusion) == ["cuda:0", "GPU 0"] and numbers(told.conclusion)[-2:] == [0, 1]


def test_no_device_chosen_and_none_seen_is_equal() -> None:
    assert report((), answer()).equal


def test_without_a_uuid_the_bus_id_tells_whatever_its_digits() -> None:
    assert states(GPUS[:1], (seen(GPUS[0], uuid=None, bus="0000:10:00.0"),)) == ["equal"]
    assert states(GPUS[:1], (seen(GPUS[1], uuid=None),)) == ["differs"]


def test_name_and_memory_alone_prove_nothing_but_a_difference() -> None:
    alike = seen(GPUS[0], uuid=None, bus=None)
    assert states(GPUS[:1], (alike,)) == ["unsure"]
    assert states(GPUS[:1], (replace(alike, name="NVIDIA A100"),)) == ["differs"]
    assert states(GPUS[:1], (replace(alike, memory=24 * GIB),)) == ["differs"]
    told = report(GPUS[:1], answer(alike))
    assert not told.equal and told.status == "unsure"


def test_an_instance_is_told_by_its_own_uuid_and_not_by_its_gpus() -> None:
    whole = gpu(5, mig=True)
    first, second = instance(whole, 0), instance(whole, 1)
    mig = box(whole, first, second)
    of_gpu = seen(first, uuid=VENDOR.bare_uuid(whole.uuid))
    for told, state in ((seen(first), "equal"), (seen(second), "differs"), (of_gpu, "unsure")):
        assert [place.state for place in compare((first,), (told,), mig)] == [state]
    assert named(compare((first,), (seen(second),), mig)[0].why) == ["GPU 5:1", "GPU 5:0"]
    assert [p.state for p in compare((first,), (seen(first, uuid=None),), mig)] == ["unsure"]


def test_a_torch_too_old_to_tell_uuids_is_completed_by_the_driver() -> None:
    old = Framework(
        "2.1.0", cuda="12.1", built=True, devices=(SeenDevice(None, None, "NVIDIA H100 80GB HBM3", 80 * GIB),)
    )
    told = report(GPUS[1:2], answer(torch=old, driver=Driver(devices=(seen(GPUS[1]),))))
    assert told.equal and told.conclusion.startswith("equal: torch 2.1.0 ")
    # If the two do not see equally many devices, the driver's first need not be torch's.
    more = Driver(devices=(seen(GPUS[1]), seen(GPUS[2])))
    assert not report(GPUS[1:2], answer(torch=old, driver=more)).equal


def test_torch_and_driver_that_disagree_are_not_mixed() -> None:
    torch = Framework("2.8", cuda="12.8", built=True, devices=(seen(GPUS[0], bus=None),))
    told = answer(torch=torch, driver=Driver(devices=(seen(GPUS[1]),)))
    assert told.devices == torch.devices


def test_a_cpu_build_is_named_with_the_remedy_also_where_the_driver_is_right() -> None:
    cpu = Framework("2.13.0+cpu")
    told = report(GPUS[:1], answer(torch=cpu, driver=Driver(devices=(seen(GPUS[0]),))))
    assert not told.equal
    assert "2.13.0+cpu" in told.conclusion and VENDOR.torch_build in told.conclusion
    # The name of the driver begins the sentence, so its first letter may differ.
    assert VENDOR.driver[1:] in told.conclusion
    blind = report(GPUS[:1], answer(torch=cpu, driver=Driver()))
    assert VENDOR.torch_build in blind.conclusion and VENDOR.driver[1:] not in blind.conclusion
    assert report((), answer(torch=cpu)).equal


def test_a_torch_that_cannot_be_imported_is_never_equal() -> None:
    broken = Framework(None, error="ImportError: libcudart.so.12: cannot open shared object file")
    for chosen in ((), GPUS[:1]):
        told = report(chosen, answer(torch=broken))
        assert not told.equal and f"{broken.error}" in told.conclusion


@each_row(
    ("code", "name", "remedy"),
    [
        (100, "NO_DEVICE", "CUDA_VISIBLE_DEVICES"),
        (802, "SYSTEM_NOT_READY", "fabric manager"),
        (803, "SYSTEM_DRIVER_MISMATCH", "reboot"),
        (804, "COMPAT_NOT_SUPPORTED_ON_DEVICE", "cuda-compat"),
        (999, "UNKNOWN", "nvidia_uvm"),
    ],
)
def test_a_driver_that_does_not_start_is_named_with_the_remedy(code: int, name: str, remedy: str) -> None:
    told = report(GPUS[:1], answer(driver=Driver(code=code)))
    assert f"CUDA_ERROR_{name} ({code})" in told.conclusion and remedy in told.conclusion
    assert "dmesg" in of_code(12345)


def test_a_variable_that_something_changed_on_the_way_is_named() -> None:
    wrong = (Variable("CUDA_VISIBLE_DEVICES", "2,0", "0"),)
    told = report((GPUS[2], GPUS[0]), answer(seen(GPUS[0])), variables=wrong)
    assert re.findall(r"[A-Z]+_[A-Z_]+|'[\d,]+'", told.conclusion) == ["CUDA_VISIBLE_DEVICES", "'2,0'", "'0'"]
    # The result is not equal even if the devices happen to be right.
    assert not report(GPUS[:1], answer(seen(GPUS[0])), variables=wrong).equal


def test_no_answer_is_not_equal() -> None:
    told = report(GPUS[:1], None, trouble="no answer")
    assert (told.equal, told.status) == (False, "failed")
    assert lines(told) == ("not proved: no answer",)


def test_the_table_has_a_line_a_device_and_foreign_text_is_harmless() -> None:
    chosen = (GPUS[2], GPUS[0])
    text = lines(report(chosen, answer(*map(seen, chosen))))
    assert text[1].split("  ") == [
        "cuda:0", "GPU 2", GPUS[2].uuid, "00000000:12:00.0", "H100 80GB HBM3", "80.0 GiB", "equal",
    ]  # fmt: skip
    hostile = answer(seen(GPUS[2], name="\x1b[2J"), seen(GPUS[0]), torch=None)
    assert all(line.isprintable() for line in lines(report(chosen, hostile)))


def test_the_json_has_both_sides_of_every_place() -> None:
    told = to_document(report(GPUS[:1], answer(seen(GPUS[1]))))
    assert (told["equal"], told["devices"][0]["state"]) == (False, "differs")
    assert told["devices"][0]["chosen"]["uuid"] == GPUS[0].uuid
    assert told["devices"][0]["seen"]["uuid"] == VENDOR.bare_uuid(GPUS[1].uuid)
