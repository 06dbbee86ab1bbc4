"""Turns a request into devices, at once or in turn: the one way for all subcommands and for jobs.

The screen, where a person selects the devices, uses its second half (allocation.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Allocator, Approve
from gputui.allocating.request import Request
from gputui.sources.source import Source

if TYPE_CHECKING:
    # (Waiting takes milliseconds to import, and few requests wait.)
    from gputui.allocating.allocate_in_turn import TurnListener


def allocate(
    request: Request,
    source: Source,
    environ: Mapping[str, str],
    listener: TurnListener,
    holds: bool = False,
    approve: Approve | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Allocation:
    """The devices that a request asks for, in order; `source` is open.

    With `holds` they are leased, read again under the lease, and chosen anew if they are not as they were.
    What `approve` does not let through is neither leased nor waited for. With `request.wait` it comes back
    when it is our turn, and rests by `sleep`, which may
    raise what ends the wait. Raises RequestError, NotEnoughError, WaitedTooLongError.
    """
    allocator = Allocator(request, source, environ, listener, holds, approve)
    if request.wait is None or request.cpu_only:
        return allocator.allocate()
    from gputui.allocating.allocate_in_turn import allocate_in_turn

    return allocate_in_turn(allocator, listener, sleep)
