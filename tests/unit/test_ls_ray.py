"""`ls --ray`: Ray's counts next to the devices that gputui sees. The dashboard's answers are those of Ray
2.60, shortened."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.choosing.verdict import verdicts
from gputui.cli.ls_ray import Ray, counts
from gputui.inventory.claim import Claim
from gputui.inventory.device import Device
from gputui.inventory.process import Ancestor
from gputui.inventory.typed_json import DocumentError
from gputui.sources import ray as ray_source
from gputui.sources.ray import RayNode, address_of, netloc, nodes_of
from table_tests import each_row
from unit.builders import box, busy, gpu, job, recording
from unit.calling import Call, Ended
from unit.test_json_schema import CHECK

HERE, OTHER = "41bf2bb5", "77aa01c3"


def status(used: float, total: float) -> bytes:
    """The answer of /api/cluster_status for two nodes, of which one has no devices."""
    by_node = {
        HERE: {
            "CPU": [2.0, 2.0],
            "GPU": [used, total],
            "memory": [0.0, 16689876583.0],
            "node:192.0.2.2": [0, 1],
        },
        OTHER: {"CPU": [0.0, 8.0]},
    }
    report = {"usage": {"GPU": [used, total]}, "nodeTypes": [[{"GPU": total}, 1]], "usageByNode": by_node}
    data = {"autoscalingStatus": "…", "clusterStatus": {"time": 1795387104.1, "loadMetricsReport": report}}
    return json.dumps({"result": True, "msg": "Got cluster status.", "data": data}).encode()


def summary(*hosts: str) -> bytes:
    """The answer of /nodes?view=summary for the nodes on these machines, and for one that has just left."""
    rows: list[dict[str, Any]] = [
        {"hostname": host, "ip": "192.0.2.2", "raylet": {"nodeId": node, "state": "ALIVE"}}
        for host, node in zip(hosts, (HERE, OTHER), strict=False)
    ]
    return json.dumps({"result": True, "msg": "…", "data": {"summary": [*rows, {"raylet": {}}]}}).encode()


Dashboard = Callable[..., str]


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    """Start a dashboard that gives these answers; return its address."""
    answers: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.get(self.path.split("?")[0])
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()

    def started(used: float = 0, total: float = 4, host: str = "testbox") -> str:
        answers["/api/cluster_status"] = status(used, total)
        answers["/nodes"] = summary(host, "elsewhere")
        return f"127.0.0.1:{server.server_address[1]}"

    yield started
    server.shutdown()
    server.server_close()


Ask = Callable[..., Any]


@pytest.fixture
def ask(call: Call, tmp_path: Path, dashboard: Dashboard) -> Ask:
    """The result of `ls --ray --json` for a box with these devices, of which Ray counts `total`."""

    def asked(*devices: Device, used: float = 0, total: float = 4) -> Any:
        file = recording(tmp_path, box(*devices))
        document = call("ls", "--from", file, "--ray", dashboard(used, total), "--json").json
        CHECK.validate(document)
        return document["ray"]["here"]

    return asked


def kinds(found: Any) -> list[str]:
    return [each["kind"] for each in found["differences"]]


FREE = [gpu(n) for n in range(4)]
RAYS = [busy(gpu(n), job(command="ray::Trainer.step")) for n in range(4)]
OTHERS = [busy(gpu(n)) for n in range(4)]


@pytest.mark.parametrize(
    ("devices", "used", "total", "expected"),
    [
        (FREE, 0, 4, []),
        ([*RAYS[:2], *FREE[2:]], 2, 4, []),
        ([*RAYS[:2], *FREE[2:]], 1.5, 4, []),
        (FREE, 2, 4, ["idle"]),
        (FREE[:2], 0, 4, ["absent", "taken"]),
        ([*RAYS[:2], *FREE[2:]], 1, 4, ["unasked", "taken"]),
        ([*OTHERS[:1], *FREE[1:]], 0, 4, ["taken"]),
        ([*OTHERS[:1], *FREE[1:]], 2, 4, ["idle", "taken"]),
        ([*OTHERS[:1], *FREE[1:]], 0, 3, []),
        (OTHERS, 4, 4, ["idle"]),
    ],
)
def test_where_the_counts_differ_it_is_named(
    ask: Ask, devices: list[Device], used: float, total: float, expected: list[str]
) -> None:
    found = ask(*devices, used=used, total=total)
    assert kinds(found) == expected
    assert (found["counted"], found["given"], found["devices"]) == (total, used, len(devices))


def test_what_a_task_has_started_is_rays(ask: Ask) -> None:
    started = job(ancestors=(Ancestor(7, "sh -c x"), Ancestor(5, "ray::JobSupervisor.run")))
    found = ask(busy(gpu(0), started), *FREE[1:], used=1)
    assert (found["in_use"], found["by_ray"], kinds(found)) == (1, 1, [])


@pytest.mark.parametrize(("command", "expected"), [("/opt/bin/ray start", []), ("python t.py", ["taken"])])
def test_a_claim_of_ray_start_is_rays_own(command: str, expected: list[str]) -> None:
    claims = tuple(Claim(each.key, "ana", command=command) for each in FREE)
    snapshot = replace(box(*FREE), claims=claims)
    found = counts(Ray("x", [RayNode(HERE, "testbox", 4, 0)]), snapshot, verdicts(snapshot))
    assert found is not None and [each.kind for each in found.differences] == expected


def test_the_table_has_both_counts(call: Call, tmp_path: Path, dashboard: Dashboard) -> None:
    words = ("ls", "--from", recording(tmp_path, box(*RAYS[:3], gpu(3))), "--ray")
    assert "counts 4 GPUs here, 2 given out; there are 4, 3 in use, 3 of them by Ray" in (
        call(*words, dashboard(used=2)).text
    )
    elsewhere = call(*words, dashboard(host="x\x1b[2J\nx"))
    assert elsewhere.status == 0 and "\x1b" not in elsewhere.out
    assert "none of its nodes" in elsewhere.out.splitlines()[-1]


def test_the_address_is_rays_own(call: Call, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.2:6379")
    assert address_of("", {"RAY_ADDRESS": "192.0.2.2:6379"}) == ("127.0.0.1", 8265)
    assert address_of("http://[::1]:9/", {}) == ("::1", 9)
    with pytest.raises(ValueError, match="https"):
        # No other address is used in its place.
        address_of("", {"RAY_ADDRESS": "https://ray.example:443"})
    assert (netloc("::1", 9), netloc("h", 9)) == ("[::1]:9", "h:9")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://{dashboard()}")
    elsewhere = call("ls", "--demo", "--ray", "--json").json
    CHECK.validate(elsewhere)
    assert elsewhere["ray"]["here"] is None


@each_row(
    "words",
    [
        ("--ray", "https://h:1"),
        ("--ray", "h"),
        ("--ray", "h:0"),
        ("--ray", "a b:1"),
        ("--ray", "--slurm"),
        ("--ray", "--format", "{free}"),
        ("--ray", "--json", "--follow"),
    ],
)
def test_what_is_no_address_or_does_not_go_together_is_a_wrong_call(
    call: Call, words: tuple[str, ...]
) -> None:
    source = () if "--slurm" in words else ("--demo",)
    call("ls", *source, *words).refused(2)


# A dashboard that is not Ray's


def _answered(call: Call, data: bytes, dashboard_ends: bool = True) -> Ended:
    """The result of the call where a server replies with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                # (Who has read enough hangs up.)
                with contextlib.suppress(OSError):
                    connection.recv(4096)
                    connection.sendall(data)
                if dashboard_ends:
                    connection.close()

        threading.Thread(target=answer, daemon=True).start()
        try:
            return call("ls", "--demo", "--ray", f"127.0.0.1:{server.getsockname()[1]}")
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for each in held:
                each.close()


_OK = b"HTTP/1.0 200 OK\r\n\r\n"


@each_row(
    "data",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        _OK,
        _OK + b"{}",
        _OK + b"[" * 100_000,
        _OK + b"\xff",
        b"HTTP/1.0 401 Unauthorized\r\n\r\n",
        b"HTTP/1.0 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\nContent-Length: -9\r\n\r\n{}",
    ],
)
def test_another_answer_is_no_source(call: Call, data: bytes) -> None:
    _answered(call, data).refused(3)


def test_a_dashboard_that_hangs_is_given_up(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_source, "_PATIENCE", 0.05)
    _answered(call, _OK + b"{", dashboard_ends=False).refused(3)


def test_one_that_says_too_much_is_given_up(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_source, "_MOST_BYTES", 1000)
    _answered(call, _OK + b" " * 2000).refused(3)


def test_an_answer_of_very_many_values_or_bytes_is_not_read(call: Call) -> None:
    """60 MB of a neighbour at the dashboard's address took up to 386 MiB."""
    _answered(call, _OK + b'{"data":{"summary":[' + b"{}," * 300_000 + b"{}]}}").refused(3)
    _answered(call, _OK + b'{"data":"' + b"a" * (9 << 20) + b'"}').refused(3)


def test_an_answer_of_more_nodes_than_a_cluster_has_is_not_read() -> None:
    """40,000 nodes of a neighbour's, all with this machine's name, took minutes in JSON."""
    rows = [{"hostname": "h", "raylet": {"nodeId": str(number)}} for number in range(5000)]
    by_node = {str(number): {"GPU": [0.0, 1.0]} for number in range(5000)}
    few = json.dumps({"data": {"summary": rows[:9]}}).encode()
    usage = {"data": {"clusterStatus": {"loadMetricsReport": {"usageByNode": by_node}}}}
    with pytest.raises(DocumentError, match="nodes"):
        nodes_of(json.dumps(usage).encode(), few)
    with pytest.raises(DocumentError):
        nodes_of(status(0, 8), json.dumps({"data": {"summary": rows}}).encode())


def test_an_answer_in_millions_of_pieces_costs_little(call: Call) -> None:
    """Any user may listen at the dashboard's address: an answer in such pieces took a minute."""
    pieces = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n[\r\n" * 4_000_000
    assert_costs(3.0, lambda: cpu_seconds(lambda: _answered(call, pieces).refused(3), time.process_time))


def test_nobody_there_is_no_source(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    call("ls", "--demo", "--ray", f"127.0.0.1:{port}").refused(3)


def test_gaudi_is_a_resource_of_its_own() -> None:
    data = status(2, 4).replace(b'"GPU": [2, 4]', b'"HPU": [2, 4]')
    assert [(node.gpus, node.given) for node in nodes_of(data, summary("a", "b"))] == [(4, 2), (0, 0)]
