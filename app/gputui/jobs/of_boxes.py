"""The jobs of other boxes, as `jobs --json` tells them there: read again and again, with the log of one."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from gputui.inventory.formatting import printable
from gputui.inventory.job_summary import JobSummary
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.typed_json import DocumentError, Moment, Record, check, loads
from gputui.jobs.last_lines import lines_in
from gputui.jobs.source import place
from gputui.launching.quoting import quote
from gputui.sources.hosts.calls import ask
from gputui.sources.hosts.channel import Asker
from gputui.sources.hosts.reading import unreadable
from gputui.sources.hosts.session import Answer, UnwantedError
from gputui.sources.hosts.ssh import Way

EVERY = 10.0
"""Seconds from one answer of a box to the next question: each is a login there."""
_LONGEST = 60.0
"""Seconds at most, where a box does not answer: doubled each time."""
MOST_JOBS, MOST_ENDED = 50, 20
"""Jobs of a box that are shown, and how many of them may have ended: the last ones."""
_MOST_TEXT = 4096
"""Characters of a launch line that are kept: nobody reads more of it on a page."""
_LINES = 200
"""Lines of the end of a log."""
_MOST_LOG = 64 * 1024
_LONGEST_TITLE, _LONGEST_STATE = 400, 20
_ID = re.compile("[a-z0-9]{1,64}")


@dataclass(frozen=True, slots=True)
class BoxJob:
    """A job of another box. All texts are strangers'.

    summary    with its id there
    devices    their numbers there, "0,1"; "" for none
    line       its launch line;  directory: where it runs, None where that is not known
    """

    box: str
    summary: JobSummary
    devices: str
    line: str
    directory: str | None = None

    @property
    def name(self) -> str:
        """BOX:ID, as `gputui jobs` takes it."""
        return f"{self.box}:{self.summary.id}"


@dataclass(frozen=True, slots=True)
class BoxJobs:
    """The jobs of a box.

    jobs    in the order of the jobs page; None before the first answer
    more    how many others it has;  unreadable: records that it cannot read
    error   why they are not known now, None where they are
    since   seconds since the epoch, by our clock: when the jobs were told, None before
    """

    alias: str
    jobs: tuple[BoxJob, ...] | None = None
    more: int = 0
    unreadable: int = 0
    error: str | None = None
    since: float | None = None


class LogEnd(NamedTuple):
    """The last lines of the log of BOX:ID, or why they are not known."""

    job: str
    lines: tuple[str, ...]
    error: str | None = None


def jobs_told(answer: Answer, now: float) -> BoxJobs:
    """What a box has answered to `jobs --json`; why it is not known, where it cannot be read."""
    if answer.error is not None:
        return BoxJobs(answer.alias, error=answer.error)
    try:
        said = _TOLD.read(loads(answer.out))
        read = [_job(answer.alias, each) for each in said.jobs]
    except DocumentError as error:
        return BoxJobs(answer.alias, error=unreadable(error))
    read.sort(key=lambda job: place(job.summary))
    ended = [job for job in read if job.summary.over]
    shown = (*read[: len(read) - len(ended)], *ended[:MOST_ENDED])[:MOST_JOBS]
    return BoxJobs(answer.alias, shown, len(read) - len(shown), len(said.unreadable), None, now)


@dataclass(frozen=True, slots=True)
class _Device:
    index: int | None
    uuid: str | None

    @property
    def label(self) -> str:
        # (The index of a MIG instance is one within its GPU.)
        if self.uuid and self.uuid.startswith("MIG-"):
            return self.uuid[:9]
        return "?" if self.index is None else str(self.index)


@dataclass(frozen=True, slots=True)
class _Job:
    id: Annotated[str, check(str, _ID.fullmatch, "a job's id")]
    argv: tuple[str, ...]
    devices: tuple[_Device, ...]
    name: str | None
    state: str
    line: str
    directory: str | None = None
    created: Moment | None = None
    started: Moment | None = None
    ended: Moment | None = None
    status: int | None = None
    signal: int | None = None
    peak_process_memory: int | None = None


@dataclass(frozen=True, slots=True)
class _Told:
    jobs: tuple[_Job, ...]
    unreadable: tuple[object, ...] = ()


_TOLD = Record(_Told)


def _job(box: str, job: _Job) -> BoxJob:
    summary = JobSummary(
        id=job.id,
        title=(job.name if job.name is not None else " ".join(map(quote, job.argv)))[:_LONGEST_TITLE],
        # (One of a newer gputui that we do not know yet is shown by its word.)
        state=printable(job.state)[:_LONGEST_STATE],
        keys=tuple(device.uuid for device in job.devices if device.uuid is not None),
        created=job.created,
        started=job.started,
        ended=job.ended,
        status=job.status,
        signal=job.signal,
        peak_process_memory=job.peak_process_memory,
    )
    labels = ",".join(device.label for device in job.devices)
    where = job.directory and job.directory[:_MOST_TEXT]
    return BoxJob(box, summary, labels, job.line[:_MOST_TEXT], where)


class JobsOfBoxes:
    """Asks each box on a thread of its own. `states` and `log` are for any thread."""

    def __init__(self, boxes: Sequence[str], way: Way, every: float = EVERY) -> None:
        self._askers = [_Jobs(box, way, every) for box in boxes]
        self._looked: BoxJob | None = None

    def start(self) -> None:
        """Begin to ask."""
        for asker in self._askers:
            asker.start()

    def stop(self) -> None:
        """Ask no more, and end the questions that are on their way, soon."""
        for asker in self._askers:
            asker.stop()

    @property
    def states(self) -> tuple[BoxJobs, ...]:
        """The boxes as they are known now, in their order."""
        return tuple(asker.state for asker in self._askers)

    def ask_now(self, box: str | None = None) -> None:
        """Wait no longer before a box, or each of them, is asked again."""
        for asker in self._askers:
            if box in (None, asker.alias):
                asker.ask_now()

    def look_at(self, job: BoxJob | None) -> None:
        """Read the end of the log of this job from now on, and no other's."""
        # (It is another value where anything about it has changed, too.)
        if job != self._looked:
            self._looked = job
            for asker in self._askers:
                asker.look_at(job if job is not None and job.box == asker.alias else None)

    @property
    def log(self) -> LogEnd | None:
        """That log; None until it has been read."""
        looked = self._looked.name if self._looked else None
        found = (asker.log for asker in self._askers)
        return next((log for log in found if log is not None and log.job == looked), None)


class _Jobs(Asker):
    """One box."""

    def __init__(self, alias: str, way: Way, every: float) -> None:
        super().__init__(alias, f"gputui jobs of {alias}")
        self.state = BoxJobs(alias)
        self.log: LogEnd | None = None
        self._way, self._every = way, every
        self._looked: BoxJob | None = None
        self._log_read: tuple[str, bool] | None = None
        """The job whose log was read last, and whether it had ended by then."""
        self._due = False

    def ask_now(self) -> None:
        self._due = True
        super().ask_now()

    def look_at(self, job: BoxJob | None) -> None:
        """Read the end of the log of this job, too."""
        self._looked = job
        self._now.set()

    def run(self) -> None:
        """Ask until it is stopped."""
        # (A box that hangs must not keep one of the few connections that are made at a time from a page that
        # is opened after this one.)
        with contextlib.suppress(UnwantedError):
            pause = self._every
            while not self._stopped.is_set():
                told = jobs_told(self._ask("jobs", "--json"), time.time())
                if told.error is None:
                    self.state, pause = told, self._every
                    self._read_log(again=True)
                else:
                    # (What was known stays, with the time at which it was so.)
                    self.state = replace(self.state, error=told.error)
                    pause = min(2 * pause, max(self._every, _LONGEST))
                self._rest(time.monotonic() + pause)

    def _ask(self, *words: str) -> Answer:
        # (Apart: a Ctrl-C that is for a command with our terminal is not for this.)
        return ask(self.alias, words, self._way, apart=True, unwanted=self._stopped)

    def _rest(self, until: float) -> None:
        """Until it is time, or somebody asks; meanwhile the log of a job that one goes to is read."""
        while not (self._due or self._stopped.is_set()):
            self._read_log()
            left = until - time.monotonic()
            if left <= 0:
                return
            # (A pause without an end has none.)
            self._now.wait(None if math.isinf(left) else left)
            self._now.clear()
        self._due = False

    def _read_log(self, again: bool = False) -> None:
        """Read the log of the job that is looked at, unless it has been; `again`, if the job runs on."""
        job = self._looked
        if job is None:
            return
        over = any(now.summary.over for now in self.state.jobs or () if now.summary.id == job.summary.id)
        if self._log_read == (job.name, over) and not (
            again and (not over or self.log is None or self.log.error)
        ):
            return
        self._log_read = job.name, over
        answer = self._ask("jobs", "log", "-n", str(_LINES), job.summary.id)
        lines = lines_in(answer.out[-_MOST_LOG:])[-_LINES:] if answer.error is None else ()
        self.log = LogEnd(job.name, lines, answer.error)
