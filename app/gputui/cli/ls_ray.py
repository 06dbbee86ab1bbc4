"""`gputui ls --ray`: compare Ray's count of this machine's devices with the devices' own state."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Literal, NamedTuple

from gputui.choosing.verdict import Verdicts
from gputui.cli.common import WrongCallError
from gputui.cli.status_line import Figures
from gputui.inventory.device import Device
from gputui.inventory.formatting import UNKNOWN, printable
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import Json, View
from gputui.sources.ray import RayNode, address_of, read_nodes

Kind = Literal["absent", "idle", "unasked", "taken"]
"""absent: Ray counts more devices than there are; idle: Ray has allocated more devices than its processes
use; unasked: its processes use more than it has allocated; taken: it would allocate more than are free."""

_WORKER = "ray::"
"""The prefix of the title of every process that runs tasks (ray::IDLE, ray::Trainer.step)."""


@frozen
class Difference:
    """A difference between Ray's count and the devices, as a word for scripts and a sentence for users."""

    kind: Kind
    text: str


@frozen
class Counts:
    """Ray's count of the nodes on this machine, and the state of the devices.

    counted, given  the devices that Ray counts, and how many of them it has allocated
    devices         the devices that a program can use;  in_use: those with a process or memory in use
    by_ray          the devices with a process of Ray's tasks
    """

    counted: float
    given: float
    devices: int
    in_use: int
    by_ray: int
    differences: tuple[Difference, ...]


class Ray(NamedTuple):
    """The answer of a dashboard on its cluster."""

    address: str
    nodes: Sequence[RayNode]


_NODE = View(RayNode, "id host gpus given here", here=bool)
_COUNTS = View(
    Counts,
    "counted given devices in_use by_ray differences",
    differences=View(Difference, "kind text").list,
)
RAY = View(Ray, "address nodes here", address=str, nodes=_NODE.list, here=_COUNTS.one | None)


def asked(text: str) -> Ray:
    """Query the dashboard at this address; "" is the default one. Raises WrongCallError, NoSourceError."""
    try:
        host, port = address_of(text, os.environ)
    except ValueError as error:
        raise WrongCallError(str(error)) from None
    return Ray(f"{host}:{port}", read_nodes(host, port))


def counts(ray: Ray, box: Snapshot, judged: Verdicts) -> Counts | None:
    """Return both counts; None where none of Ray's nodes is this machine."""
    nodes = _here(ray, box)
    if not nodes:
        return None
    counted, given = sum(node.gpus for node in nodes), sum(node.given for node in nodes)
    offered = Figures(box, judged).offered
    # A process belongs to Ray where it, or one of its ancestors, is a worker of Ray.
    by_ray = sum(
        any(
            command is not None and command.startswith(_WORKER)
            for process in device.processes or ()
            for command in (process.command, *(each.command for each in process.ancestors))
        )
        for device in offered
    )
    in_use = sum(judged[device.key].state in ("busy", "held") for device in offered)
    free = sum(_to_be_had(device, box, judged) for device in offered)
    # A fraction of a device counts as one more device.
    out = math.ceil(given)
    idle = max(0, out - by_ray)
    left = math.floor(counted - given)
    found: list[Difference] = []
    if counted > len(offered):
        found.append(Difference("absent", f"Ray counts {_amount(counted)}, and there are {len(offered)}"))
    if idle:
        found.append(
            Difference("idle", f"Ray has given out {_amount(given)}, and its processes use {by_ray}")
        )
    if by_ray > out:
        found.append(
            Difference("unasked", f"Ray's processes use {by_ray}, of which it has given out {_amount(given)}")
        )
    if left > max(0, free - idle):
        found.append(
            Difference("taken", f"Ray would give out {left} more, and {max(0, free - idle)} are free")
        )
    return Counts(counted, given, len(offered), in_use, by_ray, tuple(found))


def _here(ray: Ray, box: Snapshot) -> list[RayNode]:
    return [node for node in ray.nodes if _is_here(node, box)]


def _is_here(node: RayNode, box: Snapshot) -> bool:
    return node.host is not None and node.host == box.host.name


def _to_be_had(device: Device, box: Snapshot, judged: Verdicts) -> bool:
    """Whether Ray can use the device for a task: it is free, or the claim is Ray's own (`ray start`)."""
    verdict = judged[device.key]
    if verdict.state != "claimed":
        return verdict.free
    command = box.claimed[device.key].command or ""
    return os.path.basename(command.split(" ")[0]) == "ray"  # noqa: PTH119


def _amount(value: float) -> str:
    return f"{value:g}"


def ray_text(ray: Ray, box: Snapshot, judged: Verdicts) -> list[str]:
    """Return a line with both counts, and one for each difference."""
    found = counts(ray, box, judged)
    if found is None:
        names = [printable(node.host or UNKNOWN) for node in ray.nodes]
        known = f"{', '.join(names[:8])}{', …' if len(names) > 8 else ''}" or "none"
        name = printable(box.host.name or UNKNOWN)
        return [f"Ray ({printable(ray.address)}): none of its nodes ({known}) is this machine ({name})"]
    by = f", {found.by_ray} of them by Ray" if found.in_use else ""
    head = (
        f"Ray ({printable(ray.address)}) counts {_amount(found.counted)} GPUs here,"
        f" {_amount(found.given)} given out; there are {found.devices}, {found.in_use} in use{by}"
    )
    return [head, *(f"  {each.text}" for each in found.differences)]


def ray_document(ray: Ray, box: Snapshot, judged: Verdicts) -> Json:
    """Return the same as JSON-ready values."""
    nodes = [_NODE.write(each, here=_is_here(each, box)) for each in ray.nodes]
    return RAY.write(ray, nodes=nodes, here=counts(ray, box, judged))
