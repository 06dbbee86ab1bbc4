"""The speed of the connection between two CPU sockets, by the processor that /proc/cpuinfo names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.system.cpu import between_cpus
from gputui.system.root import HERE, Root

AMD = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC 7763 64-Core Processor
stepping\t: 1
"""
POWER = """\
processor\t: 0
cpu\t\t: POWER9, altivec supported
clock\t\t: 3783.000000MHz
revision\t: 2.3 (pvr 004e 1203)
"""
ARM = """\
processor\t: 0
BogoMIPS\t: 2000.00
Features\t: fp asimd evtstrm aes
CPU implementer\t: 0x41
CPU part\t: 0xd4f
"""


def intel(model: int | str, family: int | str = 6) -> str:
    return (
        f"processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        "model name\t: Intel(R) Xeon(R) Platinum 8480+\nstepping\t: 8\n"
    )


def told(tmp_path: Path, text: str | bytes) -> float | None:
    file = tmp_path / "proc" / "cpuinfo"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return between_cpus(Root(str(tmp_path)))


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        pytest.param(AMD, 16.0, id="EPYC"),
        pytest.param(POWER, 32.0, id="POWER9"),
        pytest.param(intel(63), 6.0, id="Haswell"),
        pytest.param(intel(79), 6.0, id="Broadwell"),
        pytest.param(intel(84), 6.0, id="the last before Skylake"),
        pytest.param(intel(85), 10.0, id="Skylake and Cascade Lake"),
        pytest.param(intel(106), 10.0, id="Ice Lake"),
        pytest.param(intel(142), 10.0, id="the last before Sapphire Rapids"),
        pytest.param(intel(143), 22.0, id="Sapphire Rapids"),
        pytest.param(intel(207), 22.0, id="Emerald Rapids"),
    ],
)
def test_the_speed_is_that_of_the_processor_s_model(tmp_path: Path, text: str, speed: float) -> None:
    assert told(tmp_path, text) == speed


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ARM, id="ARM"),
        pytest.param(POWER.replace("POWER9", "POWER8"), id="POWER8"),
        pytest.param(intel(143, family=19), id="another family of Intel"),
        pytest.param(intel("unknown"), id="a model that is no number"),
        pytest.param(intel("-1"), id="a model below zero"),
        pytest.param(intel("²"), id="a model in high digits"),
        pytest.param("vendor_id\t: GenuineIntel\n", id="a maker and nothing else"),
        pytest.param("vendor_id\t: CentaurHauls\nmodel\t\t: 143\ncpu family\t: 6\n", id="another maker"),
        pytest.param("", id="nothing"),
        pytest.param(":\n::\nvendor_id\n", id="colons"),
        pytest.param(b"\xff\xfe\x00vendor_id\x00", id="bytes"),
        pytest.param("flags\t: " + "x" * 10_000 + "\n" + AMD, id="too far behind"),
    ],
)
def test_of_another_processor_nothing_is_said(tmp_path: Path, text: str | bytes) -> None:
    assert told(tmp_path, text) is None


def test_the_first_processor_counts_on_a_box_of_hundreds(tmp_path: Path) -> None:
    assert told(tmp_path, (AMD + "flags\t\t: fpu vme de pse\n\n") * 256 + intel(143)) == 16.0


def test_bytes_that_are_no_text_do_not_matter(tmp_path: Path) -> None:
    assert told(tmp_path, b"serial\t: \xff\xfe\n" + AMD.encode()) == 16.0


def test_where_there_is_no_such_file_nothing_is_said(tmp_path: Path) -> None:
    assert between_cpus(Root(str(tmp_path / "none"))) is None
    (tmp_path / "proc" / "cpuinfo").mkdir(parents=True)
    assert between_cpus(Root(str(tmp_path))) is None


def test_this_machine_s_own_file_is_no_trouble() -> None:
    assert between_cpus(HERE) in (None, 6.0, 10.0, 16.0, 22.0, 32.0)
