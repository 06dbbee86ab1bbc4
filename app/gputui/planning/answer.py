"""A plan in words: its answer, which says what to use or else what would help, its devices and its work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.inventory.device import Device
from gputui.inventory.formatting import devices_text, size
from gputui.planning.devices import PlannedDevices
from gputui.planning.plan import Plan, listed, workload_words
from gputui.planning.serving import Serving, served
from gputui.planning.workload import Workload


def answer(made: Plan, found: PlannedDevices) -> str:
    """ "Use fsdp2 on 4 GPUs: fits with 12.0G to spare on each"; where nothing fits that a launcher starts,
    what would help."""
    row = made.able
    if row is None:
        first, then = made.rows[0], ""
        if made.changes:
            then = f"; would fit with {listed(made.changes, 'or')}"
        elif first.margin is not None and first.margin < 0:
            then = f"; the least that is missing is {size(-first.margin)} of each ({first.name})"
        return f"{made.shortage[:1].upper()}{made.shortage[1:]}{then}"
    count = row.strategy.devices
    then = _once_free(found, found.devices[:count])
    if row.serving is not None:
        held = f"{row.serving.requests:.1f} requests of {row.serving.context:,} tokens fit at once"
    else:
        held = f"fits with {size(row.margin)} to spare{' on each' if count > 1 else ''}"
        held += ", which fragmentation may use up" if row.tight else ""
        held += "; it fits on one, too: more are for speed" if made.needs_one and not then else ""
    return f"Use {row.name} on {devices_text(count)}{then}: {held}"


def _once_free(found: PlannedDevices, devices: Sequence[Device]) -> str:
    """ " once GPU 6,7 are free", of those of the devices that are in use; "" where none is."""
    busy = [found.snapshot.label(device) for device in devices if device in found.in_use]
    return f" once GPU {','.join(busy)} {'is' if len(busy) == 1 else 'are'} free" if busy else ""


def device_words(made: Plan, found: PlannedDevices) -> Iterator[str]:
    """Yield "4× RTX 3090", "23.7G free on each", "NV4, PHB 24 GB/s", "host memory 239.0G"."""
    box = made.box
    machines = f"{box.nodes} machines, {box.network * 8:g} Gbit/s, each " if box.nodes > 1 else ""
    yield f"{machines}{len(found.devices)}× {found.names}"
    yield f"{box.free_words}{_once_free(found, found.devices)}"
    if box.link_words:
        yield box.link_words
    if box.host_memory is not None:
        yield f"host memory {size(box.host_memory)}"


def work_words(work: Workload | Serving, devices: int) -> tuple[tuple[str, str], ...]:
    """The parts of what the command does in words, each with its field of a workload."""
    return (("", served(work)),) if isinstance(work, Serving) else workload_words(work, devices)
