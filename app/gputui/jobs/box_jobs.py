"""The jobs of other boxes, as `jobs --json` prints them there: polled, together with the log of one job."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from gputui.inventory.formatting import printable
from gputui.inventory.job import Job, place_in_list
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.typed_json import DocumentError, Json, Record, loads_of_others
from gputui.jobs.last_lines import lines_in
from gputui.jobs.record import TOLD
from gputui.sources.hosts.calls import ask
from gputui.sources.hosts.channel import Asker
from gputui.sources.hosts.reading import unreadable
from gputui.sources.hosts.session import Answer, UnwantedError
from gputui.sources.hosts.ssh import Way

EVERY = 10.0
"""Seconds from a box's answer to the next question: each question is a login there."""
_LONGEST = 60.0
"""Most seconds between two questions to a box that does not answer; the pause doubles each time."""
MOST_JOBS, MOST_ENDED = 50, 20
"""Most jobs of a box that are shown, and most ended jobs among them: the last to end."""
_MOST_TEXT = 4096
"""Characters of a launch line that are kept: nobody reads more on a page."""
_LINES = 200
"""Lines of the end of a log."""
_MOST_LOG = 64 * 1024
_LONGEST_TITLE, _LONGEST_STATE = 400, 20


@frozen
class BoxJobs:
    """The jobs of a box.

    jobs        in the order of the jobs page; None before the first answer
    more        the number of further jobs
    unreadable  the number of records that the box cannot read
    error       the reason that the jobs are not known now, None where they are
    since       when the box reported the jobs, in seconds since the epoch by our clock; None before that
    """

    alias: str
    jobs: tuple[Job, ...] | None = None
    more: int = 0
    unreadable: int = 0
    error: str | None = None
    since: float | None = None


class LogEnd(NamedTuple):
    """The last lines of the log of BOX:ID, or the reason that they are not known."""

    job: str
    lines: tuple[str, ...]
    error: str | None = None


def jobs_told(answer: Answer, now: float) -> BoxJobs:
    """Parse a box's answer to `jobs --json`; an answer that cannot be read yields the error."""
    if answer.error is not None:
        return BoxJobs(answer.alias, error=answer.error)
    try:
        said = _TOLD.read(loads_of_others(answer.out))
        read = [_job(answer.alias, TOLD.facts(each)) for each in said.jobs]
    except DocumentError as error:
        return BoxJobs(answer.alias, error=unreadable(error))
    read.sort(key=place_in_list)
    ended = [job for job in read if job.over]
    shown = (*read[: len(read) - len(ended)], *ended[:MOST_ENDED])[:MOST_JOBS]
    return BoxJobs(answer.alias, shown, len(read) - len(shown), len(said.unreadable), None, now)


@frozen
class _Told:
    jobs: tuple[object, ...]
    unreadable: tuple[object, ...] = ()


_TOLD = Record(_Told)


def _job(box: str, facts: Json) -> Job:
    """The job, with its texts cut to a length that a page shows."""
    job = Job(**{**facts, "created": facts.get("created") or 0.0}, box=box)
    return replace(
        job,
        name=job.title[:_LONGEST_TITLE],
        # A state of a newer gputui that we do not know is shown by its word.
        state=printable(job.state)[:_LONGEST_STATE],
        line=job.line[:_MOST_TEXT],
        directory=job.directory and job.directory[:_MOST_TEXT],
    )


class JobsOfBoxes:
    """Polls each box on its own thread. `states` and `log` may be read from any thread."""

    def __init__(self, boxes: Sequence[str], way: Way, every: float = EVERY) -> None:
        self._askers = [_Jobs(box, way, every) for box in boxes]
        self._looked: Job | None = None

    def start(self) -> None:
        """Begin to poll."""
        for asker in self._askers:
            asker.start()

    def stop(self) -> None:
        """Stop polling, and end the running questions soon."""
        for asker in self._askers:
            asker.stop()

    @property
    def states(self) -> tuple[BoxJobs, ...]:
        """The boxes' jobs as known now, in the order of the boxes."""
        return tuple(asker.state for asker in self._askers)

    def ask_now(self, box: str | None = None) -> None:
        """Ask one box, or all of them for None, without waiting for the next poll."""
        for asker in self._askers:
            if box in (None, asker.alias):
                asker.ask_now()

    def look_at(self, job: Job | None) -> None:
        """From now on, read the end of this job's log and of no other."""
        # The value also differs when any fact about the same job has changed.
        if job != self._looked:
            self._looked = job
            for asker in self._askers:
                asker.look_at(job if job is not None and job.box == asker.alias else None)

    @property
    def log(self) -> LogEnd | None:
        """The end of the log of the job given to `look_at`; None until it has been read."""
        looked = self._looked.address if self._looked else None
        found = (asker.log for asker in self._askers)
        return next((log for log in found if log is not None and log.job == looked), None)


class _Jobs(Asker):
    """The poller of one box."""

    def __init__(self, alias: str, way: Way, every: float) -> None:
        super().__init__(alias, f"gputui jobs of {alias}")
        self.state = BoxJobs(alias)
        self.log: LogEnd | None = None
        self._way, self._every = way, every
        self._looked: Job | None = None
        self._log_read: tuple[str, bool] | None = None
        """The job whose log was read last, and whether it had ended by then."""
        self._due = False

    def ask_now(self) -> None:
        self._due = True
        super().ask_now()

    def look_at(self, job: Job | None) -> None:
        """Also read the end of this job's log."""
        self._looked = job
        self._now.set()

    def run(self) -> None:
        """Poll the box until `stop` is called."""
        # Few connections are made at a time: a box that hangs must not take one from a page opened later.
        with contextlib.suppress(UnwantedError):
            pause = self._every
            while not self._stopped.is_set():
                told = jobs_told(self._ask("jobs", "--json"), time.time())
                if told.error is None:
                    self.state, pause = told, self._every
                    self._read_log(again=True)
                else:
                    # The known jobs stay, with the time at which they were reported.
                    self.state = replace(self.state, error=told.error)
                    pause = min(2 * pause, max(self._every, _LONGEST))
                self._rest(time.monotonic() + pause)

    def _ask(self, *words: str) -> Answer:
        # Apart: a Ctrl-C for a command that has our terminal must not reach this call.
        return ask(self.alias, words, self._way, apart=True, unwanted=self._stopped)

    def _rest(self, until: float) -> None:
        """Wait until `until` or `ask_now`; meanwhile, read the log of the job that `look_at` selects."""
        while not (self._due or self._stopped.is_set()):
            self._read_log()
            left = until - time.monotonic()
            if left <= 0:
                return
            # An infinite pause has no timeout.
            self._now.wait(None if math.isinf(left) else left)
            self._now.clear()
        self._due = False

    def _read_log(self, again: bool = False) -> None:
        """Read the log of the selected job, unless it was read already. `again` reads it again while the job
        runs or where the last read failed."""
        job = self._looked
        if job is None:
            return
        over = any(now.over for now in self.state.jobs or () if now.id == job.id)
        if self._log_read == (job.address, over) and not (
            again and (not over or self.log is None or self.log.error)
        ):
            return
        self._log_read = job.address, over
        answer = self._ask("jobs", "log", "-n", str(_LINES), job.id)
        lines = lines_in(answer.out[-_MOST_LOG:])[-_LINES:] if answer.error is None else ()
        self.log = LogEnd(job.address, lines, answer.error)
