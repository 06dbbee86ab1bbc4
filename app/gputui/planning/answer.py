"""The answer of a plan in one sentence: which strategy to use on these devices, else what would help."""

from __future__ import annotations

from gputui.inventory.formatting import counted, size
from gputui.planning.devices import PlannedDevices
from gputui.planning.plan import Plan, listed


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
    if row.serving is not None:
        held = f"{row.serving.requests:.1f} requests of {row.serving.context:,} tokens fit at once"
    else:
        held = f"fits with {size(row.margin)} to spare{' on each' if count > 1 else ''}"
        held += ", which fragmentation may use up" if row.tight else ""
    busy = any(device in found.in_use for device in found.devices[:count])
    then = f" once {'it is' if count == 1 else 'they are'} free" if busy else ""
    return f"Use {row.name} on {counted(count, 'GPU')}{then}: {held}"
