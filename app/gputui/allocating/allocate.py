"""Turns a request into devices, at once or in turn. All subcommands and jobs use it.

The screen, where the user selects the devices, uses only the second half (allocation.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gputui.allocating.allocation import Allocation
from gputui.allocating.allocator import Allocator, Approve
from gputui.allocating.request import Request
from gputui.sources.source import Source

if TYPE_CHECKING:
    # Waiting takes milliseconds to import, and few requests wait.
    from gputui.allocating.allocate_in_turn import TurnListener
    from gputui.system.environment import Environ


def allocate(
    request: Request,
    source: Source,
    environ: Environ,
    listener: TurnListener,
    holds: bool = False,
    approve: Approve | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Allocation:
    """The devices for a request, in order; `source` is open.

    With `holds` they are leased, read again under the lease, and chosen again if they have changed. Devices
    that `approve` rejects are neither leased nor waited for. With `request.wait` the function returns when it
    is our turn; it pauses with `sleep`, which may raise an exception that ends the wait. Raises RequestError,
    NotEnoughError, WaitedTooLongError.
    """
    allocator = Allocator(request, source, environ, listener, holds, approve)
    if request.wait is None or request.cpu_only:
        return allocator.allocate()
    from gputui.allocating.allocate_in_turn import allocate_in_turn

    return allocate_in_turn(allocator, listener, sleep)
