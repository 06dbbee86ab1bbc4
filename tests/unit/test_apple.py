"""Apple's only device: the text of ioreg, whole, in parts and broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputui.choosing.verdict import verdicts
from gputui.inventory.device import is_uuid
from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import NoSourceError
from gputui.system.root import Root
from gputui.vendors.apple import ioreg
from gputui.vendors.apple.source import AppleSource
from gputui.vendors.apple.vendor import VENDOR
from table_tests import each_row
from unit.calling import Call
from unit.recorded import program

GIB = 1024**3
TEXT = """\
+-o AGXAcceleratorG15X  <class AGXAcceleratorG15X, id 0x1000005a5, registered, matched, active, busy 0>
    {
      "model" = "Apple M3 Max"
      "gpu-core-count" = 40
      "PerformanceStatistics" = {"In use system memory (driver)"=0,"Alloc system memory"=9,@}
    }
""".replace("@", '"Device Utilization %"=7,"In use system memory"=440401920')
CLIENTS = (
    '{ "IOUserClientCreator" = "pid 391, WindowServer" }\n{ "IOUserClientCreator" = "pid 8120, python3.11" }'
)


def mac(root: Path, text: str, limit: str = "0") -> AppleSource:
    (root / "text").write_text(text)
    (root / "clients").write_text(CLIENTS)
    program(
        root,
        "ioreg",
        'd=$(dirname "$0")/..; case "$*" in *IOAccelerator) cat "$d/text";; *) cat "$d/clients";; esac',
    )
    program(root, "sysctl", f"case $2 in iogpu.wired_limit_mb) echo {limit};; *) echo {48 * GIB};; esac")
    return AppleSource(Root(str(root)))


def test_its_load_memory_and_processes_are_read(tmp_path: Path) -> None:
    snapshot = mac(tmp_path, TEXT).read()
    (device,) = snapshot.devices
    assert (device.name, device.cores, device.utilization) == ("Apple M3 Max", 40, 7)
    assert (device.memory_used, device.memory_total, device.unified) == (440401920, 48 * GIB, True)
    assert (device.power, device.temperature) == (None, None)
    assert [process.pid for process in device.processes or ()] == [391, 8120]
    assert is_uuid(device.key) and verdicts(snapshot)[device.key].free


def test_a_limit_that_somebody_has_set_is_the_total(tmp_path: Path) -> None:
    assert mac(tmp_path, TEXT, "36864").read().devices[0].memory_total == 36 * GIB


def test_a_missing_key_is_unknown() -> None:
    text = TEXT.replace('"Device Utilization %"=7,', "").replace(',"In use system memory"=440401920', "")
    assert not ioreg.facts(text).keys() & {"utilization", "memory_used"}


def test_without_a_load_it_is_not_free(tmp_path: Path) -> None:
    snapshot = mac(tmp_path, TEXT.replace("Device Utilization %", "Renderer")).read()
    assert {v.state for v in verdicts(snapshot).values()} == {"unknown"}


@each_row("script", ["exit 1", "true", "echo garbage", "head -c 9000000 /dev/zero", "sleep 60"])
def test_a_broken_ioreg_is_no_device(tmp_path: Path, script: str) -> None:
    program(tmp_path, "ioreg", script)
    with pytest.raises(NoSourceError):
        AppleSource(Root(str(tmp_path)), deadline=0.5).open()


def test_a_launch_has_no_variable_and_its_page_offers_two() -> None:
    devices = at(BOXES["apple"], 0.0, 0.0).devices
    launch = compose(devices, LaunchOptions(("python", "t.py")), {})
    assert launch.changes == () and launch.refusal is None
    offered = {name for name, _, _ in VENDOR.environment_hints}
    assert {"PYTORCH_ENABLE_MPS_FALLBACK", "PYTORCH_MPS_HIGH_WATERMARK_RATIO"} <= offered


def test_no_device_is_said_to_be_the_programs_own_business(call: Call) -> None:
    done = call("run", "--demo", "apple", "--gpus", "none", "--dry-run", "--", "python", "t.py")
    assert done.out.strip() == "python t.py" and "warning" in done.err


def test_deepspeed_is_said_to_ignore_no_variable_where_there_is_none(call: Call) -> None:
    done = call("run", "--demo", "apple", "--dry-run", "--", "deepspeed", "t.py")
    assert "ignores" not in done.err


def test_its_demo_runs(call: Call) -> None:
    done = call("run", "--demo", "apple", "--gpus", "0", "--dry-run", "--", "python", "t.py")
    assert done.status == 0 and done.out == "python t.py\n"


def test_a_job_script_names_no_variable_that_there_is_not(call: Call) -> None:
    done = call("export", "--demo", "apple", "-n", "1", "--as", "sbatch", "--", "python", "t.py")
    assert done.status == 0 and "  " not in done.out and "not for these" in done.err
