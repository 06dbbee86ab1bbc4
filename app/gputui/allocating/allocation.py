"""An allocation: devices in order with the lease that holds them, and whatever stands in its way.

`hold` is the only place where devices are claimed for a launch. Whether a conflict is refused, warned of, or
asked about is for the caller: the command line refuses, the screen asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from gputui.allocating.errors import RequestError
from gputui.allocating.request import Notice, Request
from gputui.choosing.best import Alternative
from gputui.choosing.verdict import Divided, Prohibited, State, UsedBy, Verdict
from gputui.choosing.verdict_text import state_and_reason
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot

if TYPE_CHECKING:
    # (`pick`, which must be quick, takes no lease: flock, json and pathlib cost some milliseconds.)
    from gputui.allocating.claims.lease import Lease, TakenError
    from gputui.inventory.waiter import Waiter
    from gputui.vendors.visibility import Changes, Ids, Visibility

T = TypeVar("T")

Answer = Literal["take", "warn", "force", "never"]
"""What becomes of a device that is named: it is taken, at once or with a warning; taken with `--force` only,
as somebody else has it; or never taken."""

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
    """What becomes of a device with this verdict (None: it is gone) if it is named. `in_own_lease`: our own
    job has claimed it, and what is on it is that job's."""
    if verdict is None:
        return "never"
    cause, answer = verdict.cause, _BY_STATE[verdict.state]
    if verdict.state not in ("busy", "held"):
        return answer
    # (The last two are nobody's use, whoever asks.)
    ours = in_own_lease or _is_ours(cause) or isinstance(cause, Divided | Prohibited)
    return "warn" if ours else answer


def _is_ours(cause: object) -> bool:
    """Whether all processes of a device are our own. (A desktop is ours if one of its programs is: its
    display server often runs as root.)"""
    if not isinstance(cause, UsedBy):
        return False
    quantify = any if all(process.kind == "graphics" for process in cause.processes) else all
    return quantify(process.own for process in cause.processes)


class Queue(NamedTuple):
    """Those who wait for devices like the selected ones, the first of them first."""

    waiters: tuple[Waiter, ...]

    @property
    def for_any(self) -> bool:
        """Whether one of them takes any device of the box."""
        return any(waiter.devices is None for waiter in self.waiters)

    def wants(self, device: Device) -> bool:
        """Whether one of them could take this device."""
        return any(waiter.wants_of([device.key]) for waiter in self.waiters)

    def text(self) -> str:
        """How many they are, and who is the first."""
        from gputui.allocating.queue import in_words

        return in_words(self.waiters)


class NoLongerFree(NamedTuple):
    """The device was free when it was chosen, and at `time` (epoch seconds) it is not any more.

    `verdict` is None where it is gone.
    """

    key: str
    verdict: Verdict | None
    time: float

    def text(self, snapshot: Snapshot) -> str:
        """What became of it; `snapshot` is the one in which it was free."""
        now = state_and_reason(self.verdict, self.time) if self.verdict else "no longer present"
        return f"GPU {snapshot.label(snapshot.by_key[self.key])} was free a moment ago and is now {now}"


class Allocation(NamedTuple):
    """What a request came to.

    devices       in order: the n-th is what the command sees as its n-th device
    snapshot      the box as it was when they were chosen
    alternatives  the best sets, the one that was taken first; () where devices were named
    lease         holds the devices; None where nothing was to be claimed (`pick`, another machine's devices)
    conflicts     the devices that others have claimed, which are not in the lease
    notices       what the caller was told on the way
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
        """Why these devices, as a phrase; None where nothing was compared."""
        return self.alternatives[0].reason if self.alternatives else None

    @property
    def weakest_link(self) -> str | None:
        """The weakest link between them, None where that is not known or does not matter."""
        return self.alternatives[0].weakest if self.alternatives else None

    @property
    def labels(self) -> tuple[str, ...]:
        """How the devices are called on this box, in their order."""
        return tuple(map(self.snapshot.label, self.devices))

    @property
    def visibility(self) -> Visibility:
        """Of the vendor whose devices they are; of none, of whose they would have been."""
        from gputui.vendors.registry import vendor_of, vendors_of

        return vendor_of(self.devices, vendors_of(self.snapshot.devices)).visibility

    def changes(self, environ: Mapping[str, str], ids: Ids = "index") -> Changes:
        """The changes of `environ` that make exactly the devices visible, in their order.

        Raises RequestError where no variable can: without one, a program would run on every device.
        """
        changes = self.visibility.changes(self.devices, ids)
        if not changes:
            raise RequestError("no environment variable can make exactly these devices visible")
        return (*self.visibility.changes_here(environ), *changes) if self.devices else changes

    def recheck(
        self, later: Snapshot, judged: Mapping[str, Verdict], before: Mapping[str, Verdict]
    ) -> tuple[NoLongerFree, ...]:
        """The devices that were free by the verdicts `before`, and are not as `later` is judged."""
        found = []
        for device in self.devices:
            now = judged.get(device.key)
            if before[device.key].free and (now is None or not now.free):
                found.append(NoLongerFree(device.key, now, later.time))
        return tuple(found)

    def start(self, how: Callable[[Lease | None], T]) -> T:
        """Start a launch on the devices by `how`, which hands the lease on to it, and give ours back.

        What inherited the lease keeps the devices. A `how` that becomes the command does not come back;
        whatever it raises, the devices are free again.
        """
        try:
            return how(self.lease)
        finally:
            self.release()

    def release(self) -> None:
        """Give the devices back, as far as nothing that was started has inherited the lease."""
        if self.lease is not None:
            self.lease.release()


def queue_for(devices: Sequence[Device], snapshot: Snapshot, environ: Mapping[str, str]) -> Queue | None:
    """The queue of those who wait for devices like these; None where nobody does.

    The devices of our own lease are left out: nobody else can have them before it ends.
    """
    from gputui.allocating.claims.files import seen
    from gputui.allocating.claims.folder import Problems

    keys = [device.key for device in devices if device.key not in snapshot.own_lease]
    if not keys or not seen(environ, Problems()).tickets:
        return None
    from gputui.allocating.queue import in_line_for

    waiters = in_line_for(keys, environ, snapshot)
    return Queue(waiters) if waiters else None


def hold(allocation: Allocation, environ: Mapping[str, str], partly: bool = False) -> Allocation:
    """The allocation with a lease on its devices, and with the claims of others that are in its way.

    All devices are leased or none; with `partly` those that nobody else has claimed, and none where no lease
    can be made. Raises UnsafeError without it.
    """
    from gputui.allocating.claims.lease import TakenError, take, take_unclaimed

    request = allocation.request
    keys = [device.key for device in allocation.devices]
    try:
        if partly:
            lease, taken = take_unclaimed(keys, environ, request.purpose, request.job)
        else:
            lease, taken = take(keys, environ, request.purpose, request.job), ()
    except TakenError as error:
        return allocation._replace(conflicts=(*allocation.conflicts, error))
    return allocation._replace(
        lease=lease,
        conflicts=(*allocation.conflicts, *taken),
        notices=(*allocation.notices, *map(Notice, lease.warnings)),
    )
