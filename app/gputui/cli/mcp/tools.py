"""The tools for agents: each calls the library, and returns the document that the same call prints with
`--json`.

The arguments have been checked against tools.json. All text of an answer is made harmless and shortened, and
anything that looks like a secret is left out (`clean`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import lru_cache
from threading import Event
from typing import Any

from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.waiting_loop import Progress
from gputui.cli.mcp.limits import LimitError, Limits, Room
from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import MIB, Tell, printable
from gputui.inventory.job import Job
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.typed_json import Json
from gputui.jobs.store import readable_job, stored
from gputui.library.box import read
from gputui.library.hold import pick
from gputui.library.launch import launched, options_of
from gputui.library.request import Quiet, device_request
from gputui.library.source import reading

_LONGEST, _MOST, _MOST_JOBS = 2000, 1000, 50
"""The most characters of a text, items of a list, and jobs of the list of all jobs that an agent gets."""
_SLICE = 2.0
"""Seconds between two reports of progress."""


class GoneError(GputuiError):
    """The client has left, or has cancelled the call: nobody reads what is raised."""


class Call(Quiet):
    """One call of a tool: the client that calls, and the function that reports progress to it. `gone` is set
    once nobody waits for the answer."""

    def __init__(self, client: str, tell: Tell) -> None:
        self.client, self.tell, self.gone = client, tell, Event()
        self.in_line: Callable[[], object] = bool

    def sleep(self, seconds: float) -> None:
        if self.gone.wait(seconds):
            raise GoneError("the client has left")

    def progress(self, progress: Progress) -> None:
        self.in_line()
        self.tell(printable(progress.words))


def client_name(told: object) -> str:
    """The name of a client as all lists show it: one word of at most 40 characters."""
    return re.sub(r"[^\w.@+-]+", "-", str(told or ""), flags=re.ASCII)[:40].strip("-") or "agent"


@dataclass(frozen=True)
class Tools:
    """The tools of a server, by name; `runs` says whether those that start and stop jobs are offered."""

    runs: bool
    limits: Limits
    demo: str | None = None
    recording: str | None = None

    def list_gpus(self, call: Call, links: bool = False) -> Json:
        return read(links=links, demo=self.demo, recording=self.recording).document()

    def pick_gpus(self, call: Call, **asked: Any) -> Json:
        return pick(**asked, demo=self.demo, recording=self.recording).document()

    def plan_training(
        self, call: Call, n: int | None = None, devices: str | None = None, **training: Any
    ) -> Json:
        from gputui.cli.plan import noticed, planned
        from gputui.cli.planned_training import subject_of
        from gputui.launching.launch_options import LaunchOptions
        from gputui.planning.document import to_document
        from gputui.requesting.launch_request import LaunchRequest, ModelRequest

        wanted = DeviceRequest(count=n, names=devices, demo=self.demo, recording=self.recording)
        with reading:
            subject = subject_of(LaunchRequest(LaunchOptions(), wanted, ModelRequest(**training)))
            return to_document(noticed(*planned(wanted, subject)))

    def queue(self, call: Call) -> Json:
        from gputui.cli.queue import document

        return document(read(links=False, demo=self.demo, recording=self.recording).snapshot)

    def job_status(self, call: Call, id: str | None = None, wait: float = 0) -> Json:
        from gputui.cli.jobs_text import document
        from gputui.jobs.wait import wait_for

        if id is None:
            return document(self.jobs())
        job, until = self._job(id), time.monotonic() + wait
        while not job.over and (left := until - time.monotonic()) > 0:
            call.sleep(0)
            call.tell(f"job {job.id} is {job.state}")
            job = wait_for(job, min(left, _SLICE))
        return document([job])

    def job_log(self, call: Call, id: str, lines: int = 100) -> Json:
        from gputui.cli.jobs_text import LOG
        from gputui.jobs.log_screen import Tail

        job = self._job(id)
        tail = Tail(job.log, most=MIB)
        tail.feed()
        return LOG.write(job, log=str(job.log), lines=tail.lines(lines))

    def run_job(
        self,
        call: Call,
        command: list[str],
        n: int | None = None,
        devices: str | None = None,
        min_free: str | None = None,
        max_util: int | None = None,
        hours: float | None = None,
        wait: float | None = None,
        name: str | None = None,
        **how: Any,
    ) -> Json:
        from gputui.cli.jobs_text import job_document
        from gputui.jobs.start import check_name, start_leased_job
        from gputui.requesting.launch_request import LaunchRequest
        from gputui.system.environment import given_environment

        if name is not None:
            check_name(name)
        options = options_of(command, time=self.limits.time(hours), **how)
        which = device_request(n, devices, min_free, max_util, wait=wait)
        asked = LaunchRequest(options, which, client=call.client)
        room = Room(self.limits.gpus, call.sleep)
        call.in_line = room.let_go
        try:
            with launched(asked, self.demo, listener=call, may_use=room.check) as (made, allocation):
                call.sleep(0)
                job = allocation.start(
                    lambda lease: start_leased_job(made, given_environment(), lease, name, asked)
                )
            return job_document(job)
        finally:
            room.let_go()

    def stop_job(self, call: Call, id: str) -> Json:
        from gputui.cli.jobs_text import document
        from gputui.jobs.stop import stop

        return document([stop(self._job(id)).job])

    def jobs(self) -> list[Job]:
        """The newest jobs that the agent may see, the last one first."""
        return [job for job in reversed(stored(os.environ).jobs) if self.limits.reach(job)][:_MOST_JOBS]

    def _job(self, word: str) -> Job:
        found = readable_job(word, stored(os.environ), newest=True)
        if not self.limits.reach(found):
            raise LimitError(f"job {found.id} was not started by an agent (--user-jobs-only)")
        return found


def clean(value: Any) -> Any:
    """A document as an agent may read it: its texts are cut and have no control characters or secrets."""
    if isinstance(value, str):
        # (A secret at the cut is whole here.)
        return _clean(value[: 2 * _LONGEST])
    if isinstance(value, dict):
        return {_clean(key): clean(each) for key, each in value.items()}
    return [*map(clean, value[:_MOST])] if isinstance(value, list | tuple) else value


@lru_cache(maxsize=4096)
def _clean(text: str) -> str:
    from gputui.launching.secrets import without_secrets

    ((told,), _) = without_secrets((text,))
    return printable(told[:_LONGEST]) + ("…" if len(told) > _LONGEST else "")
