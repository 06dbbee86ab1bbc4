"""`gputui metrics`: text that Prometheus' own parsers read, with DCGM's names; over HTTP, with bounds."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gputui.choosing.verdict import verdicts
from gputui.cli import metrics, metrics_server
from gputui.cli.job_mapping import VARIABLE, read_jobs
from gputui.cli.metrics_server import Server
from gputui.cli.metrics_text import DEVICE_METRICS, metrics_text
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Host, Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.inventory.waiter import Waiter
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.details import detailed
from gputui.sources.simulated.motion import at
from gputui.sources.source import NoSourceError
from gputui.system.processes import ProcessTable
from gputui.vendors.nvidia.source import NvmlSource
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import NOW, box, busy, gpu, instance
from unit.calling import Call
from unit.claims_support import Box
from unit.jobs_support import until

openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
older = pytest.importorskip("prometheus_client.parser")

DOCS = Path(__file__).parents[2] / "docs"

Samples = dict[str, list[tuple[dict[str, str], float]]]


def samples(text: str) -> Samples:
    """The samples that both of Prometheus' parsers read in a text, which must be the same."""
    found: list[Samples] = []
    for parse in (openmetrics.text_string_to_metric_families, older.text_string_to_metric_families):
        read: Samples = {}
        for family in parse(text):
            assert family.documentation and family.type in ("gauge", "unknown"), family
            for sample in family.samples:
                assert sample.timestamp is None
                read.setdefault(sample.name, []).append((sample.labels, sample.value))
        found.append(read)
    assert found[0] == found[1]
    return found[0]


def of(snapshot: Snapshot, **more: object) -> Samples:
    return samples(metrics_text(snapshot, verdicts(snapshot), **more))  # type: ignore[arg-type]


@each_row("name", BOXES)
def test_prometheus_reads_the_metrics_of_every_box(name: str) -> None:
    snapshot = detailed(at(BOXES[name], 20.0, NOW), BOXES[name], 20.0)
    found = of(snapshot)
    offered = [d for d in snapshot.devices if d.apart is None and d.index >= 0]
    states = [labels for labels, value in found["gputui_device_state"] if value == 1]
    assert len(states) == len(offered)
    for metric in DEVICE_METRICS:
        known = [metric.value(device) for device in offered]
        expected = sorted(value for value in known if value is not None)
        assert sorted(value for _, value in found.get(metric.name, [])) == pytest.approx(expected)


def test_the_names_units_and_labels_are_dcgms() -> None:
    device = replace(gpu(3), memory_used=3 * 2**30, utilization=97, power=612.5)
    found = of(box(device))
    labels, value = found["DCGM_FI_DEV_FB_USED"][0]
    assert value == 3072
    assert (labels["gpu"], labels["UUID"], labels["device"]) == ("3", device.uuid, "nvidia3")
    assert labels["modelName"] == device.name and "Hostname" in labels
    assert found["DCGM_FI_DEV_GPU_UTIL"][0][1] == 97 and found["DCGM_FI_DEV_POWER_USAGE"][0][1] == 612.5


def test_an_instance_has_its_gpus_number_and_its_own_uuid() -> None:
    parent = gpu(2, mig=True)
    small = instance(parent, 1)
    found = of(box(parent, small))
    modes = [(each["UUID"], value) for each, value in found["DCGM_FI_DEV_MIG_MODE"]]
    assert modes == [(parent.uuid, 1)]
    labels = [labels for labels, _ in found["gputui_device_processes"]]
    assert [(each["gpu"], each["UUID"]) for each in labels] == [("2", parent.uuid), ("2", small.uuid)]


def test_what_is_not_known_is_left_out() -> None:
    found = of(Snapshot(Host(), NOW, (Device(index=0, uuid="GPU-1"),)))
    assert not [name for name in found if name.startswith("DCGM_")]
    assert "gputui_device_processes" not in found


def test_states_claims_and_waiters_are_there() -> None:
    snapshot = replace(
        box(gpu(0), busy(gpu(1)), gpu(2)),
        claims=(Claim(gpu(2).key, 'a"n\\a', NOW, "python", 1, "m6u5"),),
        waiters=(Waiter((1, "a"), "ben", 2), Waiter((2, "b"), "eve", 3)),
    )
    found = of(snapshot)
    states = {each["gpu"]: each["state"] for each, value in found["gputui_device_state"] if value == 1}
    assert states == {"0": "free", "1": "busy", "2": "claimed"}
    ((labels, value),) = found["gputui_device_claim"]
    assert (labels["user"], labels["job"], value) == ('a"n\\a', "m6u5", 1)
    ((labels, since),) = found["gputui_device_claim_start_time_seconds"]
    assert (labels["user"], since) == ('a"n\\a', NOW)
    assert (found["gputui_waiters"][0][1], found["gputui_waited_for_devices"][0][1]) == (2, 5)


def test_the_longest_wait_is_known_or_left_out() -> None:
    def waits(*since: float | None) -> list[tuple[dict[str, str], float]] | None:
        line = tuple(Waiter((place, "a"), "ben", since=each) for place, each in enumerate(since))
        return of(replace(box(gpu(0)), waiters=line)).get("gputui_longest_wait_seconds")

    assert waits() == [({}, 0.0)]
    assert waits(None) is None
    assert waits(NOW - 5, NOW - 90, None) == [({}, 90.0)]
    assert waits(NOW + 5) == [({}, 0.0)], "a clock that was set back"


def test_the_reasons_for_lower_clocks_are_known_or_left_out() -> None:
    throttled = [None, (), ("power limit", "thermal")]
    devices = [replace(gpu(n), throttled=each) for n, each in enumerate(throttled)]
    found = of(box(*devices))["gputui_device_throttled"]
    assert [(each["gpu"], each.get("reason"), value) for each, value in found] == [
        *(("1", None, 0), ("2", "power limit", 1), ("2", "thermal", 1))
    ]


def test_idle_seconds_are_told_where_they_are_known() -> None:
    snapshot = box(replace(gpu(0), utilization=0), busy(gpu(1)), replace(gpu(2), utilization=None))
    assert "gputui_device_idle_seconds" not in of(snapshot)
    found = of(snapshot, idle={gpu(0).key: 75.0})["gputui_device_idle_seconds"]
    assert [(each["gpu"], value) for each, value in found] == [("0", 75), ("1", 0)]


def test_a_strangers_text_cannot_add_a_line() -> None:
    name = 'x"} 1\ngputui_free 1\n\x1b[0m\udc80'
    found = of(replace(box(replace(gpu(0), name=name)), host=Host(name)))
    assert "gputui_free" not in found


def test_a_sample_for_each_job_of_the_gpu() -> None:
    found = of(box(gpu(0), gpu(1)), jobs={"1": ("17", "gputui-m6u5")})
    jobs = [(each["gpu"], each.get("hpc_job")) for each, _ in found["DCGM_FI_DEV_GPU_UTIL"]]
    assert jobs == [("0", None), ("1", "17"), ("1", "gputui-m6u5")]


# Through the real nvidia-ml-py.

RATES = ("DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_NVLINK_RX_BYTES", "DCGM_FI_PROF_SM_ACTIVE")


@pytest.fixture
def scraped(nvml_here: SimulatedNvml) -> Callable[[float], Samples]:
    """What a scrape of `metrics --serve` gets from the driver, so many seconds after the first one."""
    clock = [NOW]
    source = NvmlSource(ProcessTable(host_pids=True), clock=lambda: clock[0], ticks=lambda: clock[0])
    args = metrics.parser().parse_args(["--serve", "0"])
    text = metrics._texts(source, args)

    def scrape(after: float) -> Samples:
        clock[0] = NOW + after
        nvml_here.show_box(BOXES["dgx-h100"], after, NOW)
        return samples(text())

    return scrape


def test_every_metric_of_a_device_is_read_from_nvml(scraped: Callable[[float], Samples]) -> None:
    first, second = scraped(0), scraped(30)
    assert not {*RATES} & first.keys() and {*RATES} <= second.keys(), "rates need two readings"
    # XIDs are events; the instances and the retired pages of other boxes have tests of their own.
    left = {"DCGM_FI_DEV_XID_ERRORS", "gputui_device_retired_pages"}
    assert {metric.name for metric in DEVICE_METRICS} - second.keys() <= left
    assert {"gputui_device_throttled", "gputui_device_idle_seconds"} <= second.keys()


def test_idle_seconds_go_on_from_scrape_to_scrape(scraped: Callable[[float], Samples]) -> None:
    def idle(after: float) -> float:
        return max(value for _, value in scraped(after)["gputui_device_idle_seconds"])

    assert [idle(0), idle(30), idle(90)] == [0, 30, 90]
    assert idle(600) == 0, "nobody has looked meanwhile"


def test_an_instance_has_the_number_of_its_part(nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["a100-mig"], 0, NOW)
    found = of(NvmlSource().read(metrics._WANTED))
    parts = [labels for labels, _ in found["gputui_device_processes"] if "GPU_I_PROFILE" in labels]
    assert parts and all(labels["GPU_I_ID"].isdigit() for labels in parts)


def test_the_last_xid_is_told(scraped: Callable[[float], Samples], nvml_here: SimulatedNvml) -> None:
    assert "DCGM_FI_DEV_XID_ERRORS" not in scraped(0)
    nvml_here.xid(2, 79)
    ((labels, code),) = scraped(15)["DCGM_FI_DEV_XID_ERRORS"]
    assert (labels["gpu"], code) == ("2", 79)


# The page and the dashboard.


def names() -> set[str]:
    """The names of every metric that there is."""
    device = replace(
        busy(gpu(0)), throttled=(), telemetry=Telemetry(**{f.name: 1 for f in fields(Telemetry)})
    )
    claim = Claim(gpu(0).key, "ann", NOW, "python", 1)
    snapshot = replace(box(device), claims=(claim,), host=Host("box"))
    made = {*of(snapshot, idle={})}
    assert made >= {metric.name for metric in DEVICE_METRICS}
    return made


_NAME = re.compile(r"\b(?:DCGM_FI|gputui)_\w+\b")


def test_every_metric_is_on_the_page_and_no_other() -> None:
    assert {*_NAME.findall((DOCS / "metrics.md").read_text())} == names()


def test_every_metric_of_the_dashboard_is_one_of_ours() -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    asked += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    used = {name for expression in asked for name in _NAME.findall(expression)}
    assert len(asked) > 15 and used <= names()
    labels = {name for expression in asked for name in re.findall(r"(\w+)=~?\"", expression)}
    assert labels <= {"Hostname", "gpu", "state", "user", "GPU_I_PROFILE"}
    # What a dashboard is made of, where Grafana looks for it.
    assert {each["id"] for each in dashboard["panels"]} == {*range(1, len(dashboard["panels"]) + 1)}
    places = [each["gridPos"] for each in dashboard["panels"]]
    assert all(each["x"] + each["w"] <= 24 for each in places)


# The call.


def test_the_text_is_printed_or_written_whole(tmp_path: Path, call: Call) -> None:
    printed = call("metrics", "--demo=idle")
    assert printed.status == 0 and printed.out.endswith("# EOF\n")
    file = tmp_path / "gputui.prom"
    file.write_text("old")
    assert call("metrics", "--demo=idle", "-o", str(file)).status == 0
    assert samples(file.read_text()).keys() == samples(printed.out).keys()
    assert [each.name for each in tmp_path.glob("*.prom")] == ["gputui.prom"]
    assert not [*tmp_path.glob(".gputui*")]
    call("metrics", "--demo=idle", "-o", str(tmp_path / "none" / "x.prom")).refused(2)


@each_row("address", ["", ":9400", "host", "1.2.3.4", "127.0.0.1:", "::1:9400", "1:65536", "-1"])
def test_an_address_that_is_none_is_a_wrong_call(address: str, call: Call) -> None:
    call("metrics", "--demo=idle", f"--serve={address}").refused(2)


def test_a_job_is_in_the_cluster_s_folder_as_long_as_it_runs(box: Box, tmp_path: Path) -> None:
    folder = tmp_path / "mapping"
    folder.mkdir()
    (folder / "1").write_text("4711\n")
    (folder / "notes").write_text("no GPU\n")
    box.environ[VARIABLE] = str(folder)
    file = tmp_path / "gputui.prom"
    status, job, _ = box.call("run", "--gpus", "0,1", "--detach", "--", "sleep", "60")
    assert status == 0
    ours = f"gputui-{job.strip()}"
    # A call that only prints writes no file.
    text = box.call("metrics")[1]
    assert read_jobs(folder) == {"1": ("4711",)}
    assert box.call("metrics", "-o", str(file))[0] == 0
    for each_text in (text, file.read_text()):
        found = samples(each_text)
        pairs = [(each["gpu"], each.get("hpc_job")) for each, _ in found["DCGM_FI_DEV_GPU_UTIL"]]
        assert pairs[:4] == [("0", ours), ("1", "4711"), ("1", ours), ("2", None)]
    assert read_jobs(folder) == {"0": (ours,), "1": ("4711", ours)}
    assert box.call("jobs", "stop", job.strip())[0] == 0
    assert box.call("metrics", "-o", str(file))[0] == 0
    assert read_jobs(folder) == {"0": (), "1": ("4711",)}


def test_a_folder_that_others_can_write_into_is_read_and_not_written(box: Box, tmp_path: Path) -> None:
    folder = tmp_path / "mapping"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "0").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("secret\n")
    # Of a million of such files, none is opened; and what others can change is not believed.
    (folder / "1234").write_text("planted\n")
    (folder / "7").write_text("forged\n")
    (folder / "7").chmod(0o666)
    assert read_jobs(folder) == {"0": (), "7": ()}
    box.environ[VARIABLE] = str(folder)
    _, job, _ = box.call("run", "--gpus", "0", "--detach", "--", "sleep", "60")
    status, _, err = box.call("metrics", "-o", str(tmp_path / "x.prom"))
    assert status == 0 and len(err.splitlines()) == 1
    assert "secret" not in (tmp_path / "x.prom").read_text()
    assert (tmp_path / "secret").read_text() == "secret\n"
    box.call("jobs", "stop", job.strip())


# The server.


@contextmanager
def served(text: Callable[[], str], address: str = "127.0.0.1") -> Iterator[str]:
    with Server((address, 0), text) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def fetched(url: str, **headers: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_scrapes_within_a_second_share_one_reading() -> None:
    readings: list[float] = []

    def text() -> str:
        readings.append(time.monotonic())
        return "# EOF\n"

    with served(text) as url:
        began = time.monotonic()
        answers = [fetched(f"{url}/metrics") for _ in range(5)]
        took = time.monotonic() - began
    assert {each[0] for each in answers} == {200}
    assert len(readings) <= 1 + took


def test_the_format_is_the_one_that_is_asked_for() -> None:
    with served(lambda: "# EOF\n") as url:
        assert fetched(f"{url}/metrics")[1].startswith("text/plain; version=0.0.4")
        kind = fetched(f"{url}/metrics", Accept="application/openmetrics-text; version=1.0.0,*/*;q=0.1")[1]
        assert kind.startswith("application/openmetrics-text")
        assert fetched(f"{url}/etc/passwd")[0] == 404


def test_a_driver_that_is_gone_is_an_error_and_not_old_figures() -> None:
    answers = iter(["# EOF\n"])

    def text() -> str:
        try:
            return next(answers)
        except StopIteration:
            raise NoSourceError("no driver") from None

    with served(text) as url:
        assert fetched(url)[0] == 200
        until(lambda: fetched(url)[0] == 503)


def test_a_scrape_does_not_wait_for_ever_for_another_one_s_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "_PATIENCE", 0.05)
    begun, go_on = threading.Event(), threading.Event()

    def text() -> str:
        begun.set()
        assert go_on.wait(30)
        return "# EOF\n"

    with served(text) as url:
        answers: list[int] = []
        first = threading.Thread(target=lambda: answers.append(fetched(url)[0]))
        first.start()
        assert begun.wait(30)
        assert fetched(url)[0] == 503
        go_on.set()
        first.join()
    assert answers == [200]


def _connected(url: str, count: int, source: str = "127.0.0.1") -> list[socket.socket]:
    where = ("127.0.0.1", int(url.rpartition(":")[2]))
    return [socket.create_connection(where, 30, (source, 0)) for _ in range(count)]


def _close(connections: list[socket.socket]) -> None:
    for each in connections:
        each.close()


@each_row("sources", [1, 40])
@each_row("said", [b"", b"GET /metrics HTTP/1.0\r\nX-Slow: "])
def test_any_number_of_slow_connections_keeps_no_scrape_from_its_answer(sources: int, said: bytes) -> None:
    """They may come from any address: on the loopback every user has millions."""
    with served(lambda: "# EOF\n") as url:
        opened: list[socket.socket] = []
        try:
            for number in range(40):
                opened += _connected(url, 1, f"127.0.0.{2 + number % sources}")
                with contextlib.suppress(OSError):
                    opened[-1].send(said)
            assert fetched(url)[0] == 200
            # The bounds: this number is left, and these are the latest.
            left = 4 if sources == 1 else 16
            until(lambda: sum(not _closed(each) for each in opened) <= left)
        finally:
            _close(opened)


def test_connections_that_come_at_once_keep_no_scrape_waiting() -> None:
    """The sixth of them began again after a second, and so did a scrape behind it: sixteen seconds for 96."""
    with served(lambda: "# EOF\n") as url:
        began = time.monotonic()
        opened = _connected(url, 96)
        assert fetched(url)[0] == 200 and time.monotonic() - began < 8.0
        _close(opened)


def test_connections_that_follow_a_scrape_do_not_close_it_before_its_answer() -> None:
    """It was the oldest of sixteen before the driver had been read, which takes some milliseconds."""

    def text() -> str:
        time.sleep(0.01)
        return "# EOF\n"

    with served(text) as url:
        (scrape,) = _connected(url, 1)
        scrape.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        opened = [each for number in range(40) for each in _connected(url, 1, f"127.0.0.{2 + number}")]
        assert scrape.recv(100).startswith(b"HTTP/1.0 200 ")
        _close([scrape, *opened])


def test_a_connection_ends_after_a_time_also_one_that_goes_on_sending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "_LONGEST", 0.2)
    with served(lambda: "# EOF\n") as url:
        (slow,) = _connected(url, 1)

        def is_cut() -> bool:
            try:
                slow.send(b"G")
            except OSError:
                return True
            return False

        try:
            until(is_cut)
        finally:
            slow.close()


@each_row("line", [b"X: y\r\n", b"X-Long: " + b"y" * 60_000 + b"\r\n", b"GET /" + b"y" * 60_000])
def test_a_request_is_read_within_bounds(line: bytes) -> None:
    """A hundred lines of 64 KB each are 6 MB on one connection, and take more memory while they are read."""
    sent = 0
    with served(lambda: "# EOF\n") as url:
        (large,) = _connected(url, 1)
        with large, contextlib.suppress(OSError):
            large.sendall(b"" if line.startswith(b"GET") else b"GET /metrics HTTP/1.1\r\n")
            while sent < 6 * 2**20:
                sent += large.send(line)
            large.sendall(b"\r\n")
            assert large.recv(1) == b""
        assert fetched(url)[0] == 200


@each_row(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:19400", 200),  # ssh -L 19400:127.0.0.1:9400
        ("localhost:9400", 200),
        ("LOCALHOST", 200),
        ("evil.example", 421),
        ("evil.example:9400", 421),
        ("127.0.0.1.evil.example", 421),
        ("127.0.0.1@evil.example", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_a_name_that_is_not_ours_is_not_answered(host: str, status: int) -> None:
    with served(lambda: "# EOF\n") as url:
        assert fetched(f"{url}/metrics", Host=host)[0] == status


def test_the_name_that_is_served_is_answered() -> None:
    with served(lambda: "# EOF\n", "localhost") as url:
        assert fetched(url, Host="localhost")[0] == 200
    with served(lambda: "# EOF\n", "0.0.0.0") as url:
        assert fetched(url, Host=socket.gethostname())[0] == 200
        assert fetched(url, Host="evil.example")[0] == 421
        # HTTP/1.0 has no Host header; a browser always sends one.
        (bare,) = _connected(url, 1)
        with bare:
            bare.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert bare.recv(12) == b"HTTP/1.0 200"


def _closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("address", ["0", "0.0.0.0:0"])
def test_it_serves_until_ctrl_c_and_on_the_loopback_unless_told(address: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gputui", "metrics", "--demo=idle", f"--serve={address}"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    try:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        if address == "0":
            assert url.startswith("http://127.0.0.1:")
        else:
            assert "warning" in process.stderr.readline()
        status, _, text = fetched(url.replace("0.0.0.0", "127.0.0.1"))
        assert status == 200 and samples(text)["gputui_waiters"] == [({}, 0)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_a_port_that_is_taken_is_one_line(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        call("metrics", "--demo=idle", f"--serve={taken.getsockname()[1]}").refused(2)
