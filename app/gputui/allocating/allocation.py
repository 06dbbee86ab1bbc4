"""An allocation: devices in order with the lease that holds them, and any conflicts.

Only `hold` claims devices for a launch. The caller decides whether a conflict is refused, warned about or
asked about: the command line refuses, the screen asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from gputui.allocating.errors import RequestError, UnsafeError
from gputui.allocating.request import Notice, Request
from gputui.choosing.best import Alternative
from gputui.choosing.verdict import Divided, Prohibited, State, UsedBy, Verdict, Verdicts
from gputui.choosing.verdict_text import state_and_reason
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot

if TYPE_CHECKING:
    # `pick`, which must be quick, takes no lease: flock, json and pathlib cost some milliseconds.
    from gputui.allocating.claims.lease import Lease, TakenError
    from gputui.inventory.typed_json import Json
    from gputui.inventory.waiter import Waiters
    from gputui.system.environment import Environ
from gputui.vendors.visibility import Changes, Ids, Visibility

T = TypeVar("T")

Answer = Literal["take", "warn", "force", "never"]
"""The treatment of a named device: it is taken, at once or with a warning; taken only with `--force`, because
somebody else has it; or never taken."""

_BY_STATE: dict[State, Answer] = {
    "free": "take",
    "cooling": "warn",
    "unknown": "warn",
    "busy": "force",
    "held": "force",
    "claimed": "force",
    "lost": "never",
}


def answer_to(verdict: Verdict | None, in_own_lease: bool = False) -> Answer:
    """The treatment of a named device with this verdict (None: the device is gone).

    `in_own_lease`: our own job has claimed it, so its processes belong to that job.
    """
    if verdict is None:
        return "never"
    cause, answer = verdict.cause, _BY_STATE[verdict.state]
    if verdict.state not in ("busy", "held"):
        return answer
    # The last two are not the use of any user.
    ours = in_own_lease or _is_ours(cause) or isinstance(cause, Divided | Prohibited)
    return "warn" if ours else answer


def _is_ours(cause: object) -> bool:
    """Whether all processes of a device are our own.

    A desktop is ours if one of its programs is, because its display server often runs as root.
    """
    if not isinstance(cause, UsedBy):
        return False
    quantify = any if all(process.kind == "graphics" for process in cause.processes) else all
    return quantify(process.own for process in cause.processes)


class Queue(NamedTuple):
    """The programs that wait for devices like the selected ones, the first in line first."""

    waiters: Waiters

    @property
    def for_any(self) -> bool:
        """Whether one of them takes any device of the box."""
        return any(waiter.devices is None for waiter in self.waiters)

    def wants(self, device: Device) -> bool:
        """Whether one of them could take this device."""
        return any(waiter.wants_of([device.key]) for waiter in self.waiters)

    def text(self) -> str:
        """The text with their number, and who is first."""
        from gputui.allocating.queue import in_words

        return in_words(self.waiters)


class NoLongerFree(NamedTuple):
    """The device was free when it was chosen, and at `time` (epoch seconds) it is no longer free.

    `verdict` is None where the device is gone.
    """

    key: str
    verdict: Verdict | None
    time: float

    def text(self, snapshot: Snapshot) -> str:
        """The present state of the device; `snapshot` is the one in which it was free."""
        now = state_and_reason(self.verdict, self.time) if self.verdict else "no longer present"
        return f"GPU {snapshot.label(snapshot.by_key[self.key])} was free a moment ago and is now {now}"


class Allocation(NamedTuple):
    """The result of a request.

    devices       in order: the n-th is the command's n-th device
    snapshot      the box when they were chosen
    alternatives  the best sets, the one that was taken first; () where devices were named
    lease         holds the devices; None where nothing was claimed (`pick`, another machine's devices)
    conflicts     the devices that others have claimed, which are not in the lease
    notices       the notices that the caller received on the way
    """

    request: Request
    devices: tuple[Device, ...]
    snapshot: Snapshot
    alternatives: tuple[Alternative, ...] = ()
    lease: Lease | None = None
    conflicts: tuple[TakenError, ...] = ()
    notices: tuple[Notice, ...] = ()

    @property
    def reason(self) -> str | None:
        """Why these devices were chosen, as a phrase; None where nothing was compared."""
        return self.alternatives[0].reason if self.alternatives else None

    @property
    def weakest_link(self) -> str | None:
        """The weakest link between them, None where that is not known or does not matter."""
        return self.alternatives[0].weakest if self.alternatives else None

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the devices on this box, in their order."""
        return tuple(map(self.snapshot.label, self.devices))

    @property
    def visibility(self) -> Visibility:
        """The visibility of the vendor of the devices; without devices, of the first in the box."""
        from gputui.vendors.registry import vendor_of, vendors_of

        return vendor_of(self.devices, vendors_of(self.snapshot.devices)).visibility

    def changes(self, environ: Environ, ids: Ids = "index") -> Changes:
        """The changes of `environ` that make exactly the devices visible, in their order.

        Raises RequestError where no variable can do so: without one, a program would use every device.
        """
        changes = self.visibility.changes(self.devices, ids)
        if not changes:
            raise RequestError("no environment variable can make exactly these devices visible")
        return (*self.visibility.changes_here(environ), *changes) if self.devices else changes

    def document(self, ids: Ids) -> Json:
        """The document of `pick --json`."""
        from gputui.inventory.document import PICK, picked

        return PICK.write(
            devices=[*map(picked, self.devices)],
            environment=dict(self.visibility.changes(self.devices, ids)),
            weakest_link=self.weakest_link,
            reason=self.reason,
            ids=self.visibility.identifiers(self.devices, ids),
        )

    def recheck(self, later: Snapshot, judged: Verdicts, before: Verdicts) -> tuple[NoLongerFree, ...]:
        """The devices that were free by the verdicts `before`, and are not free in `later`, as `judged`."""
        found = []
        for device in self.devices:
            now = judged.get(device.key)
            if before[device.key].free and (now is None or not now.free):
                found.append(NoLongerFree(device.key, now, later.time))
        return tuple(found)

    def start(self, how: Callable[[Lease | None], T]) -> T:
        """Start a launch on the devices with `how`, which passes the lease on to it, and release our lease.

        A process that inherited the lease keeps the devices. A `how` that replaces this process does not
        return; if it raises, the devices are free again.
        """
        try:
            return how(self.lease)
        finally:
            self.release()

    def release(self) -> None:
        """Give the devices back, unless a started process has inherited the lease."""
        if self.lease is not None:
            self.lease.release()


def queue_for(devices: Sequence[Device], snapshot: Snapshot, environ: Environ) -> Queue | None:
    """The queue of the programs that wait for devices like these; None where none waits.

    The devices of our own lease are left out, because nobody else can have them before it ends.
    """
    from gputui.allocating.claims.files import seen

    keys = [device.key for device in devices if device.key not in snapshot.own_lease]
    if not keys or not seen(environ).tickets:
        return None
    from gputui.allocating.queue import in_line_for

    waiters = in_line_for(keys, environ, snapshot)
    return Queue(waiters) if waiters else None


def hold(allocation: Allocation, environ: Environ, partly: bool = False) -> Allocation:
    """The allocation with a lease on its devices, and with the conflicting claims of others.

    Either all devices are leased or none. With `partly`, those that nobody else has claimed are leased, and
    none where no lease can be made. Without it, raises UnsafeError where no lease can be made.
    """
    from gputui.allocating.claims.lease import TakenError, take

    request, conflicts = allocation.request, [*allocation.conflicts]
    until = None if request.time_limit is None else time.time() + request.time_limit
    left, lease = [device.key for device in allocation.devices], None
    while lease is None:
        try:
            lease = take(left, environ, request.purpose, request.job, until, request.client)
        except UnsafeError as error:
            if not partly:
                raise
            conflicts += [TakenError(key, line=str(error)) for key in left]
            left = []
        except TakenError as error:
            conflicts.append(error)
            if not partly:
                return allocation._replace(conflicts=tuple(conflicts))
            left.remove(error.key)
    return allocation._replace(
        lease=lease,
        conflicts=tuple(conflicts),
        notices=(*allocation.notices, *map(Notice, lease.warnings)),
    )
