"""What the kept timelines know of a reading that is the only one of its program."""

from __future__ import annotations

from gputui.inventory.snapshot import Snapshot
from gputui.system.environment import Environ


def with_past(snapshot: Snapshot, environ: Environ) -> Snapshot:
    """The snapshot of this machine, with since when its users' devices at 0 % have been so."""
    if not any(device.utilization == 0 and device.processes for device in snapshot.devices):
        return snapshot
    # Imported where it is needed, because `pick` must start quickly.
    from gputui.timeline.keeper import with_kept_past

    return with_kept_past(snapshot, environ)
