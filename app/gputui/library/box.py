"""`read()`: the box as one value."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gputui.inventory.light_dataclasses import dataclass

if TYPE_CHECKING:
    # Importing `read` is cheap: its dependencies are imported when it is called.
    from gputui.choosing.verdict import State, Verdicts
    from gputui.inventory.claim import Claim
    from gputui.inventory.device import Device
    from gputui.inventory.snapshot import Snapshot
    from gputui.inventory.typed_json import Json
    from gputui.inventory.waiter import Waiters
    from gputui.library.request import File


@dataclass(frozen=True)
class Box:
    """The box at one moment: immutable, like all its values.

    snapshot  all readings
    verdicts  the verdict on each device by the rules of the settings, by `Device.key`
    """

    snapshot: Snapshot
    verdicts: Verdicts

    @property
    def host(self) -> str | None:
        """The name of the machine, None where it is not known."""
        return self.snapshot.host.name

    @property
    def time(self) -> float:
        """The time of the reading, in seconds since the epoch."""
        return self.snapshot.time

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices in the box's own order, each GPU before its MIG instances."""
        return self.snapshot.devices

    @property
    def free(self) -> tuple[Device, ...]:
        """The devices that are free, in the box's own order."""
        return tuple(device for device in self.devices if self.verdicts[device.key].free)

    @property
    def waiters(self) -> Waiters:
        """The waiters for devices, in the order of the queue."""
        return self.snapshot.waiters

    @property
    def errors(self) -> tuple[str, ...]:
        """The errors of reading the box as a whole; the error of a single device is in `Device.fault`."""
        return self.snapshot.errors

    def state(self, device: Device) -> State:
        """Return "free", "busy", "held", "claimed", "unknown" or "lost"; one reading never yields
        "cooling"."""
        return self.verdicts[device.key].state

    def reason(self, device: Device) -> str:
        """Return why the device is in its state, as a phrase for users."""
        from gputui.choosing.verdict_text import reason

        return reason(self.verdicts[device.key], self.time)

    def claim(self, device: Device) -> Claim | None:
        """Return the claim on a device, None where there is none."""
        return self.snapshot.claimed.get(device.key)

    def label(self, device: Device) -> str:
        """Return the number that users see: "3", "0:1" for instance 1 of GPU 0, "amd:0" in a mixed box."""
        return self.snapshot.label(device)

    def link(self, one: Device, other: Device) -> str | None:
        """Return the link between two devices ("NV18", "PIX", …); None where it is unknown or was not
        read."""
        return self.snapshot.link(one, other)

    def document(self) -> Json:
        """Return the document of `gputui ls --json` as JSON-ready values; the schema is in `inventory/`."""
        from gputui.choosing.verdict_text import for_document
        from gputui.inventory.document import to_document

        return to_document(self.snapshot, for_document(self.verdicts, self.time))


def read(*, links: bool = True, demo: str | None = None, recording: File | None = None) -> Box:
    """Read the current state of the box, as `gputui ls --json` does.

    `links=False` leaves out the links and the CPUs near each device, which take seconds to read on some
    boxes; it is meant for callers that poll. `demo` is a simulated box ("shared", "dgx-h100", …), `recording`
    a file of `gputui record`, instead of this machine.

    Raises NoSourceError (no driver, no such box or file), SettingsError.
    """
    from gputui.allocating.settings import settings
    from gputui.choosing.verdict import verdicts
    from gputui.library.source import opened
    from gputui.sources.source import Want

    rules = settings(os.environ).rules
    with opened(demo, recording) as source:
        snapshot = source.read(Want.ALL if links else Want.ALL & ~Want.WIRING)
    return Box(snapshot, verdicts(snapshot, rules))
