"""The load of the machine, from a /proc of the test's own, and as this machine's source reports it."""

from __future__ import annotations

from pathlib import Path

from gputui.sources.simulated.boxes import BOXES
from gputui.sources.source import Want
from gputui.system.host_load import HostLoadReader
from gputui.system.root import Root
from gputui.vendors.box import this_box
from simnvml import SimulatedNvml


def _stat(proc: Path, *times: int) -> None:
    (proc / "stat").write_text(f"cpu  {' '.join(map(str, times))}\ncpu0 1 1 1 1\n")


def test_cpu_is_since_the_reading_before_and_guests_are_not_counted_twice(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n")
    reader = HostLoadReader(Root(str(tmp_path)))
    _stat(tmp_path / "proc", 100, 0, 0, 800, 100, 0, 0, 0, 50, 0)
    first = reader.read()
    assert first.cpu is None
    assert (first.memory_used, first.memory_total) == (600 * 1024, 1000 * 1024)
    _stat(tmp_path / "proc", 130, 0, 0, 860, 110, 0, 0, 0, 80, 0)
    assert reader.read().cpu == 30
    assert reader.read().cpu is None


def test_where_there_is_no_proc_nothing_is_known(tmp_path: Path) -> None:
    found = HostLoadReader(Root(str(tmp_path))).read()
    assert (found.cpu, found.memory_used, found.memory_total) == (None, None, None)


def test_this_machines_source_tells_and_keeps_it(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["laptop"])
    source = this_box()
    assert source.read(Want.LOAD).host.load is None
    load = source.read(Want.LOAD | Want.HOST).host.load
    assert load is not None and load.memory_total and load.memory_used and load.cpus
    assert source.read(Want.LOAD).host.load == load
    source.close()
