"""A process that uses a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from gputui.inventory.light_dataclasses import field, frozen

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Moment, Positive

Kind = Literal["compute", "graphics", "compute+graphics", "mps"]
"""The use of a device by a process. NVML has a list for each; a process on the first two lists is
`compute+graphics`."""

ANOTHER_NAMESPACE = "outside this container"
"""The note of a process of another pid namespace: its pid means nothing here."""

ENDED = "ended"
"""The note of a process that the driver still lists, but the system no longer has, or does not show."""

_IN_CONTAINER = "is in a container that cannot be seen"

OWNER_UNKNOWN = "no visible owner"
"""The note of a process that exists but whose owner may not be read (hidepid): its device is occupied."""


@frozen
class Identity:
    """One process and no other: a pid alone is reused sooner or later.

    `pid` is above 0: 0 and -1 are groups of processes to kill(2). `ticks` is its start in clock ticks since
    the boot (proc(5), /proc/PID/stat, field 22); None where the system has no /proc.
    """

    pid: Positive
    ticks: int | None


@frozen
class Ancestor:
    """A process that started another; users recognise a job by it (`torchrun`, a shell, tmux)."""

    pid: int
    command: str | None = None


@frozen
class Process:
    """One process on one device, as reported by NVML and the operating system.

    `memory` is bytes of device memory, None where the driver does not report it (Windows' WDDM, WSL2).
    `command` is the whole command line, untrusted text.
    `started` is seconds since the epoch.
    `note` gives the reason why `user` and `command` are missing; None when they are known.
    `container` is the process's container ("docker 3f2a9c01d4e5"), None on the host or where it is not known.
    `ancestors` started it, the nearest first, as far as they belong to the same user.
    `sm` is percent of the device's multiprocessors' time since the last reading, `host_cpu` percent of one
    CPU (several threads: more than 100), `host_memory` bytes of RAM: read only for devices on display.
    `own` says that it is our own user's. It is never set for another machine, where the same name may be
    somebody else.
    """

    pid: int
    kind: Kind
    user: str | None = None
    memory: int | None = None
    command: str | None = None
    started: Moment | None = None
    note: str | None = None
    container: str | None = None
    ancestors: tuple[Ancestor, ...] = ()
    sm: int | None = None
    host_cpu: float | None = None
    host_memory: int | None = None
    own: bool = field(default=False, compare=False)

    @property
    def told(self) -> str | None:
        """The command, or why it is missing; None where that is not known either."""
        return self.command or (f"{ENDED}, or {_IN_CONTAINER}" if self.note == ENDED else self.note)


def earliest(times: Iterable[float | None]) -> float | None:
    """The earliest of the known times; None if none is known."""
    return min((time for time in times if time is not None), default=None)


def known_sum(amounts: Iterable[int | None]) -> int | None:
    """The sum of the known amounts; None if none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
