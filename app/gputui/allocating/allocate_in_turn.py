"""Allocates for a request that waits: draws a ticket, waits for its turn and for devices, claims them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Allocator, Listener
from gputui.allocating.errors import NotEnoughError, RequestError, UnsafeError, WaitedTooLongError
from gputui.allocating.queue import Ticket
from gputui.allocating.request import Notice
from gputui.allocating.shortage import waits_for_ever
from gputui.allocating.waiting_loop import Progress, TooLongError, Wait
from gputui.choosing.capacity import most_ever
from gputui.choosing.named_devices import keys_named
from gputui.choosing.pick import Constraints
from gputui.inventory.device import Among
from gputui.inventory.formatting import duration
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import Source, Want

_LOOK = (Want.MONITOR & ~Want.SENSORS) | Want.MODES


class TurnListener(Listener, Protocol):
    """A listener that also receives the progress of waiting."""

    def progress(self, progress: Progress) -> None:
        """Receive the present progress; often the same as before."""

    def waited(self, allocation: Allocation | None, seconds: float) -> None:
        """Receive the end of waiting after `seconds`; None: without an allocation."""


def refuse_elsewhere(source: Source) -> None:
    """Raise RequestError for devices that are not this machine's: nobody gives them back."""
    if source.label:
        raise RequestError("--wait cannot be used with --demo or --from: those devices never become free")


def awaited(allocator: Allocator) -> tuple[Snapshot, frozenset[str] | None, int]:
    """The box, the keys of the devices that a request may wait for (None: any), and how many it waits for.

    Raises RequestError, and NotEnoughError where the box could not give so many if nobody used any.
    """
    request = allocator.request
    if request.wait is not None:
        refuse_elsewhere(allocator.source)
    allocator.want |= _LOOK
    if request.min_free is not None:
        # The shortest reading leaves out the memory of devices in use: some are always too small.
        allocator.want &= ~Want.VERDICT
    snapshot = allocator.read()
    keys = _eligible(allocator, snapshot)
    count = request.count if request.count is not None else len(allocator.named(snapshot))
    can = most_ever(snapshot, _each(allocator, snapshot, keys))
    if count > can:
        raise NotEnoughError(waits_for_ever(count, can), waiting_helps=False)
    allocator.agree(count if request.picks else allocator.named(snapshot), snapshot)
    return snapshot, keys, count


def allocate_in_turn(
    allocator: Allocator, listener: TurnListener, sleep: Callable[[float], None]
) -> Allocation:
    """The devices of a request, as soon as they are available. Raises what `allocate` and `sleep` raise.

    The place in line is kept until the devices are held, so that nobody behind us can take them first.
    """
    request, began = allocator.request, time.monotonic()
    snapshot, keys, count = awaited(allocator)
    step = _step(snapshot, keys)
    wait = Wait(
        allocator.environ,
        _ticket(allocator, count, keys, listener, step),
        lambda box: _each(allocator, box, keys),
        count,
        # Inside our own lease a device can be taken as soon as the step before has ended.
        replace(request.rules, window=0.0) if step else request.rules,
        listener.progress,
        None if request.wait in (None, math.inf) else began + (request.wait or 0.0),
        sleep=sleep,
        box=snapshot,
        keys=keys,
    )
    allocation = None
    try:
        while allocation is None:
            _, ready = wait.devices(allocator.read)
            only = {device.key for device in ready}
            try:
                chosen = allocator.choose(only=only)
                allocation = allocator.held(chosen, only) if allocator.holds else chosen
            except UnsafeError:
                raise
            except NotEnoughError:
                # A program that is not in line took them first; our place in line is still ours.
                continue
        return allocation
    except TooLongError:
        raise WaitedTooLongError(f"gave up after {duration(time.monotonic() - began)}") from None
    finally:
        if wait.ticket is not None:
            wait.ticket.leave()
        listener.waited(allocation, time.monotonic() - began)


def _eligible(allocator: Allocator, snapshot: Snapshot) -> frozenset[str] | None:
    """The keys of the suitable devices, None for all."""
    if allocator.request.names is not None:
        return frozenset(device.key for device in allocator.named(snapshot))
    within, least = allocator.reach(snapshot), allocator.request.min_free or 0
    never = set(keys_named(allocator.request.rules.never, snapshot))
    # Those behind us are given the devices that are too small for us.
    never |= {device.key for device in snapshot.devices if (device.memory_total or least) < least}
    if within is None and not never:
        return None
    return frozenset(key for key in (snapshot.by_key if within is None else within) if key not in never)


def _step(snapshot: Snapshot, keys: Among) -> int:
    """The step of our own lease that this call waits for (`Claim.step`); 0 where it may get other devices."""
    if keys is None or not snapshot.own_lease.issuperset(keys):
        return 0
    return 1 + max((claim.step for claim in snapshot.claims if claim.ours and claim.key in keys), default=-1)


def _each(allocator: Allocator, snapshot: Snapshot, keys: Among) -> Constraints:
    """The constraints on each device. Named devices may be several MIG instances."""
    return replace(allocator.constraints(snapshot, keys), count=allocator.request.count or 1)


def _ticket(
    allocator: Allocator, count: int, keys: frozenset[str] | None, listener: TurnListener, step: int
) -> Ticket | None:
    """Our place in line; where none is possible, None and a notice."""
    try:
        asked = allocator.request
        about = asked.purpose, step, asked.job, asked.client, asked.min_free, asked.max_util
        return Ticket.draw(allocator.environ, count, keys, *about)
    except UnsafeError as error:
        if not allocator.request.force:
            raise
        listener.notice(Notice(f"cannot join the queue: {error}"))
    except OSError as error:
        listener.notice(Notice(f"cannot join the queue: {error.strerror}"))
    return None
