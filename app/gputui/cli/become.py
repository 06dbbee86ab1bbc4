"""Replace this process by the command: the end of `gputui run` and of the screen.

This is a separate file, because the screen starts without the options of `run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from gputui.launching.launch import Launch
from gputui.launching.start import replace_process
from gputui.system.environment import Environ

if TYPE_CHECKING:
    from gputui.allocating.claims.lease import Lease


def become(launch: Launch, environ: Environ, lease: Lease | None = None) -> NoReturn:
    """Replace this process by the command, which inherits the lease on its devices. Raises StartError."""
    if lease is not None:
        lease.inherit()
    replace_process(launch, environ)
