"""A snapshot as JSON, schema 1: the output of `ls --json` and `record`.

`document_reader.py` reads it back with the same records. Bytes, percent, °C, W, MHz, ISO 8601; unknown is
null. Keys that recordings of older versions lack are `later`; `details` are written by `ls --details`.
`parent` is the UUID of a MIG instance's GPU, or the bus id of the GPU of a partition with its own index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from gputui.inventory.claim import Claim
from gputui.inventory.device import Device, FaultKind
from gputui.inventory.errors import GputuiError
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.link import PEER_WORDS, SELF, is_link
from gputui.inventory.process import Ancestor, Process
from gputui.inventory.snapshot import HostLoad, Snapshot
from gputui.inventory.telemetry import Telemetry
from gputui.inventory.topology import Locality, Nic, Topology, from_ranges, ranges
from gputui.inventory.typed_json import (
    SCHEMA,
    SCHEMA_KEY,
    Document,
    DocumentError,
    Form,
    Json,
    Moment,
    Positive,
    Record,
    View,
    check,
    few,
    list_of,
    one_of,
    text,
    wrong,
)
from gputui.inventory.waiter import Waiter

MOST_NUMBERS = 262_144
"""The most CPUs and NUMA nodes of all devices together: 72 devices of a machine with 3,600."""


@frozen
class Trouble:
    """A fact that could not be read: of the device at that place in the list, or of the box as a whole."""

    device: int | None
    message: str
    kind: FaultKind = "error"
    since: Moment | None = None


def _cpus(value: Any) -> tuple[int, ...]:
    try:
        return from_ranges(text(value)) if value != "" else ()
    except ValueError:
        raise wrong(value, "a list of numbers (0-3,8)") from None


def _places(value: Any) -> tuple[Locality, ...]:
    left = MOST_NUMBERS

    def place(each: Any) -> Locality:
        nonlocal left
        found = LOCALITY.read(each)
        left -= len(found.cpus or ()) + len(found.memory_nodes or ())
        if left < 0:
            raise DocumentError(f"at most {MOST_NUMBERS} CPUs and nodes in all are read")
        return found

    return list_of(place, value)


_Numbers = Annotated[str, Form(_cpus, ranges)]
_Link = Annotated[str, check(str, is_link, "a link (X, NVn, XGMI, MDF, XLn, XL*, PIX, PXB, PHB, NODE, SYS)")]
_Peer = Annotated[str, one_of((SELF, *PEER_WORDS))]
_Links = tuple[tuple[_Link | None, ...], ...]

ANCESTOR = Record(Ancestor, later="")
PROCESS = Record(
    Process,
    "pid user kind memory command started note container ancestors",
    later="note container ancestors",
    details="sm host_cpu host_memory",
)
TELEMETRY = Record(Telemetry, throttle=few(str, 32) | None)
CLAIM = Record(Claim, "user own since command pid job pids until client", later="own pids until client")
DEVICE = Record(
    Device,
    "index uuid uuid_usable name vendor pci_bus_id parent partition apart render pci_id runtime module mig"
    " memory_total memory_used memory_free memory_idle utilization idle_since memory_utilization temperature"
    " power power_limit sm_clock compute_capability cores max_sm_clock compute_mode display unified numa_node"
    " verdict claim processes",
    later="uuid_usable partition apart render pci_id runtime module mig memory_idle idle_since cores"
    " max_sm_clock compute_mode display unified verdict claim",
    details="telemetry",
    index=int | None,
    uuid=str | None,
    verdict=object,
    claim=Annotated[Claim, Form(CLAIM.facts, CLAIM.write)] | None,
)
WAITER = Record(
    Waiter,
    "place user count devices since command job ours silent client min_free max_util step",
    later="silent client min_free max_util",
    place=Positive,
)
NIC = Record(Nic, later="")
LOCALITY = Record(Locality, later="", cpus=_Numbers | None, memory_nodes=_Numbers | None)
TOPOLOGY = Record(
    Topology,
    "places=localities nics nic_links between_cpus",
    later="",
    localities=Annotated[tuple[Locality, ...], Form(_places, lambda found: [*map(LOCALITY.write, found)])],
    nic_links=_Links,
)
HOST_LOAD = Record(HostLoad)
TROUBLE = Record(Trouble, "device kind message since", later="kind since")
BOX = Record(
    Snapshot,
    "schema host time driver cuda devices links pcie peers link_weights link_bandwidths topology waiters"
    " errors",
    later="pcie peers link_weights link_bandwidths topology waiters",
    details="host_load",
    schema=SCHEMA_KEY,
    host=str | None,
    driver=str | None,
    cuda=str | None,
    devices=tuple[Annotated[Device, Form(DEVICE.facts)], ...],
    links=_Links,
    pcie=_Links,
    peers=tuple[tuple[_Peer | None, ...], ...],
    waiters=tuple[Annotated[Waiter, Form(WAITER.facts)], ...],
    errors=tuple[Trouble, ...],
    host_load=HostLoad | None,
)
ERROR = Document(
    "error",
    error=View(
        None, "code message remedy devices", code=str, message=str, remedy=str | None, devices=tuple[str, ...]
    ).one,
)
"""What a call with `--json` prints where it fails."""


def error_document(error: GputuiError, remedy: str | None) -> Json:
    """The failure as JSON-ready values."""
    told = {"code": error.code, "message": str(error), "remedy": remedy, "devices": error.devices}
    return ERROR.write(error=told)


_PICKED = View(Device, "index uuid name pci_bus_id parent memory_total memory_free", parent=str | None)
PICK = Document(
    "devices environment weakest_link reason ids",
    devices=_PICKED.list,
    environment=dict[str, str | None],
    weakest_link=_Link | None,
    reason=str | None,
    ids=str,
)
"""What `pick --json` prints."""


def picked(device: Device) -> Json:
    """A device of `PICK`."""
    return _PICKED.write(device, parent=device.parent or device.board)


def to_document(snapshot: Snapshot, verdicts: Mapping[str, tuple[str, str]], details: bool = False) -> Json:
    """The snapshot as JSON-ready values; `verdicts` gives (state, reason) by `Device.key`."""
    troubles = [Trouble(None, message) for message in snapshot.errors]
    for place, device in enumerate(snapshot.devices):
        if device.fault is not None:
            fault = device.fault
            troubles.append(Trouble(place, fault.message, fault.kind, fault.since))
    return BOX.write(
        snapshot,
        details,
        schema=SCHEMA,
        host=snapshot.host.name,
        driver=snapshot.host.driver,
        cuda=snapshot.host.cuda,
        devices=[_device(snapshot, device, verdicts[device.key], details) for device in snapshot.devices],
        waiters=[WAITER.write(waiter, place=place) for place, waiter in enumerate(snapshot.waiters, 1)],
        errors=troubles,
        host_load=snapshot.host.load,
    )


def _device(snapshot: Snapshot, device: Device, verdict: tuple[str, str], details: bool) -> Json:
    facts = DEVICE.write(
        snapshot.with_memory(device),
        details,
        uuid=device.uuid or None,
        index=None if device.index < 0 else device.index,
        parent=device.parent or device.board,
        verdict={"state": verdict[0], "reason": verdict[1]},
        claim=snapshot.claimed.get(device.key),
    )
    if details and device.processes:
        facts["processes"] = [PROCESS.write(process, details) for process in device.processes]
    return facts
