"""What Ray counts: the GPUs of each of its nodes and how many it has allocated, as its dashboard reports.

The dashboard of the head node answers over HTTP (`ray start --head`, package ray[default]); Ray itself is not
imported. Checked with Ray 2.60: /api/cluster_status has `usageByNode`, with the allocated amount and the
total of each resource, whose sums `ray status` prints. /nodes?view=summary has the names of the machines.
"""

from __future__ import annotations

import re
import socket
import time
from typing import Annotated

from gputui.inventory.errors import reason_of
from gputui.inventory.formatting import MIB
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.typed_json import DocumentError, Record, few, form_of, loads_of_others, number, within
from gputui.sources.source import NoSourceError
from gputui.system.environment import Environ

ADDRESS = "127.0.0.1:8265"
"""The dashboard's default address (DEFAULT_DASHBOARD_PORT of ray_constants.py)."""
_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
"""As `ray job submit` reads them; the second may also be Ray's own address, which has no "http://"."""
_WEB = ("http://", "https://")
_ADDRESS = re.compile(
    r"(?:http://)?(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})/?"
)
_PATIENCE = 10.0
"""Seconds to wait for an answer, as for Slurm."""
_MOST_BYTES, _MOST_VALUES = 8 * MIB, 250_000
"""Of an answer: a cluster of 3,000 nodes has less. Any program of any user may listen at that address."""
_MOST_GPUS, _MOST_NODES = 1e6, 4096


@frozen
class RayNode:
    """A live node. `host` and `id` are untrusted text.

    host   the machine's name; None where the dashboard does not report it
    gpus   the number of devices that Ray counts there
    given  the number of those that Ray has allocated (0.5 is half a device)
    """

    id: str
    host: str | None
    gpus: float
    given: float


def address_of(text: str, environ: Environ) -> tuple[str, int]:
    """Return host and port of a dashboard: as given, else as Ray's own variables say. Raise ValueError."""
    if not text:
        told = [environ[name] for name in _VARIABLES if environ.get(name, "").startswith(_WEB)]
        text = told[0] if told else ADDRESS
    match = _ADDRESS.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise ValueError(
            f"{text!r} is not the address of Ray's dashboard: HOST:PORT or http://HOST:PORT (no https)"
        )
    return match["host"].strip("[]"), int(match["port"])


def netloc(host: str, port: int) -> str:
    """Return the form that URLs and the header Host use: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_nodes(host: str, port: int) -> tuple[RayNode, ...]:
    """Return the current nodes. Raise NoSourceError for no answer, or for one that is not a dashboard's."""
    end = time.monotonic() + _PATIENCE
    status = _asked(host, port, "/api/cluster_status", end)
    summary = _asked(host, port, "/nodes?view=summary", end)
    try:
        return nodes_of(status, summary)
    except DocumentError as error:
        raise NoSourceError(f"{netloc(host, port)} is not a Ray dashboard: {error}") from None


Counted = Annotated[float, number(most=_MOST_GPUS)]


@frozen
class _Usage:
    """Allocated and total devices, by Ray's names: NVIDIA's, AMD's and Intel's devices are GPUs; Gaudi's
    devices are a resource of their own."""

    GPU: tuple[Counted, Counted] = (0, 0)
    HPU: tuple[Counted, Counted] = (0, 0)


@frozen
class _Raylet:
    node: str | None = None


@frozen
class _Node:
    """A node that has just come or gone may lack some fields."""

    raylet: _Raylet = _Raylet()
    hostname: str | None = None


_RAYLET = Record(_Raylet, "nodeId=node", later="node")
_NODES, _USAGE = form_of(few(_Node, _MOST_NODES)), form_of(dict[str, _Usage])


def nodes_of(status: bytes, summary: bytes) -> tuple[RayNode, ...]:
    """Return the nodes in two answers of a dashboard. Raise DocumentError."""
    rows = _NODES.read(within(loads_of_others(summary, _MOST_VALUES), "data", "summary"))
    hosts = {row.raylet.node: row.hostname for row in rows}
    metrics = within(
        loads_of_others(status, _MOST_VALUES), "data", "clusterStatus", "loadMetricsReport", "usageByNode"
    )
    if isinstance(metrics, dict) and len(metrics) > _MOST_NODES:
        raise DocumentError(f"{len(metrics)} nodes, at most {_MOST_NODES} are read")
    found = []
    for name, usage in _USAGE.read(metrics).items():
        used, total = (one + other for one, other in zip(usage.GPU, usage.HPU, strict=True))
        found.append(RayNode(name, hosts.get(name), total, used))
    return tuple(found)


def _asked(host: str, port: int, path: str, end: float) -> bytes:
    """Return the answer of a dashboard, without a proxy, before the time `end`. Raise NoSourceError."""
    where = f"Ray's dashboard at {netloc(host, port)}"
    try:
        with socket.create_connection((host, port), max(0.1, end - time.monotonic())) as connection:
            asked = (
                f"GET {path} HTTP/1.0",
                f"Host: {netloc(host, port)}",
                "Accept: application/json",
                "",
                "",
            )
            connection.sendall("\r\n".join(asked).encode())
            data = bytearray()
            while True:
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                connection.settimeout(left)
                piece = connection.recv(1 << 16)
                data += piece
                if not piece:
                    break
                if len(data) > _MOST_BYTES:
                    raise NoSourceError(f"{where} sends too much")
    except TimeoutError:
        raise NoSourceError(f"{where} has not answered for {_PATIENCE:.0f} seconds") from None
    except (OSError, UnicodeError) as error:
        raise NoSourceError(
            f"{where} cannot be queried: {reason_of(error)}; `ray start --head` with the package ray[default]"
            " starts one, and --ray HOST:PORT names another"
        ) from None
    # (http.client takes seconds for a large answer in pieces of one byte.)
    head, _, body = data.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] ([0-9]{3})\b", head)
    if status is None or b"\ntransfer-encoding:" in head.lower():
        raise NoSourceError(f"{netloc(host, port)} is not a Ray dashboard")
    if status[1] != b"200":
        raise NoSourceError(f"{where} refuses: HTTP status {status[1].decode()}")
    return bytes(body)
