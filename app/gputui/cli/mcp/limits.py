"""The limits on what agents may start. They are set when the server starts, and nothing that an agent says
changes them.

They apply to requests to gputui. A running command has the user's own rights: its confinement keeps it on its
devices, and its supervisor ends it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from gputui.allocating.claims.files import listed
from gputui.allocating.claims.read import claims
from gputui.allocating.queue import waiters
from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import devices_text, duration
from gputui.inventory.job import Job
from gputui.inventory.light_dataclasses import frozen
from gputui.jobs.record_folders import Unreadable
from gputui.jobs.store import jobs_folder
from gputui.system.files import private_folder, take_lock


class LimitError(GputuiError):
    """An agent asks for more than the user has allowed."""

    code, status = "outside_limits", 2
    remedy = "the user can start the server with other limits (--max-gpus, --max-hours)"


@frozen
class Limits:
    """What jobs of agents may use, None for no limit.

    gpus         the devices of all jobs of agents that run or wait at the same time, for all servers of this
                 user together
    seconds      the time that each job may run
    agents_only  whether only jobs that agents of this user have asked for are shown, read and stopped
    """

    gpus: int | None = None
    seconds: float | None = None
    agents_only: bool = False

    def time(self, hours: float | None) -> float | None:
        """The seconds that a job may run if it asks for so many hours (None: for as long as is allowed)."""
        asked = None if hours is None else max(1.0, hours * 3600)
        if self.seconds is not None and (asked or 0.0) > self.seconds:
            raise LimitError(f"{duration(asked or 0.0)} asked for, at most {duration(self.seconds)} allowed")
        return self.seconds if asked is None else asked

    def reach(self, job: Job | Unreadable) -> bool:
        """Whether a job may be shown, read and stopped."""
        return not self.agents_only or (isinstance(job, Job) and job.client is not None)


class Room:
    """Counts the devices of agents, while no other call to any server of this user counts them.

    A call checks before it takes its place in line, and again before it takes the devices. While it waits,
    its ticket counts and the other calls can count; once its job has started, the claims of the job count.
    """

    def __init__(self, most: int | None, sleep: Callable[[float], object]) -> None:
        self._most, self._sleep = most, sleep
        self._left: int | None = None
        self._lock: int | None = None

    def check(self, number: int) -> None:
        """Raise LimitError if a job may not have so many devices. Waits until nobody else counts."""
        if self._most is None:
            return
        if self._lock is None:
            self._lock = self._locked()
        if self._left is None:
            self._left = self._most - _devices_of_agents()
        if number > self._left:
            used = self._most - self._left
            already = f", and {used} are in use or waited for by agents" if used else ""
            raise LimitError(f"{devices_text(number)} asked for, at most {self._most} allowed{already}")

    def let_go(self) -> None:
        """Let others count."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _locked(self) -> int:
        folder = jobs_folder(os.environ).parent
        try:
            private_folder(folder)
            while (lock := take_lock(folder / "agents.lock")) is None:
                self._sleep(0.05)
        except OSError as error:
            raise LimitError(f"the limits cannot be kept: {error.strerror}: {str(folder)!r}") from None
        return lock


def _devices_of_agents() -> int:
    """The devices that agents of this user hold, and those for which they wait."""
    found = listed(os.environ)
    held = {claim.key for claim in claims(os.environ, names=found)[0] if claim.own and claim.client}
    return len(held) + sum(
        each.count for each in waiters(os.environ, found.tickets) if each.ours and each.client
    )
