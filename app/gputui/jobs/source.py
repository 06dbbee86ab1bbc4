"""A source that adds the user's own jobs to every snapshot of another source.

To the box of a demo or a recording it adds only the jobs that were started there: other jobs run on this
machine's devices. Such jobs hold no claims there; their devices are shown as claimed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from gputui.inventory.claim import Claim
from gputui.inventory.device import Among
from gputui.inventory.formatting import YOU
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import Source, Want
from gputui.system.file_stamp import stamp_of
from gputui.system.files import NoHomeError, state_folder
from gputui.system.users import own_name

if TYPE_CHECKING:
    from pathlib import Path

    from gputui.inventory.job import Job
    from gputui.jobs.store import Stored
    from gputui.system.environment import Environ

_EVERY = 1.0
"""Seconds between two reads of the jobs."""
_RECENT = 86_400.0
"""Seconds that a job is shown after its end."""
_MOST_ENDED = 20
_LINES = 10
"""Lines of a log that are shown next to the devices."""
_SETTLED = 2.0
"""Seconds after which a folder's timestamp shows reliably whether an entry was added or removed."""


class WithJobs:
    """Another source with our user's jobs: all jobs that have not ended, and the last ones that have.

    For a user who has never started a job it costs one stat(2) a second. It remembers the peak device memory
    of each job, which no record has.

    `early` is called with each snapshot before the jobs are read: the first frame does not wait for them
    (50 ms), and the screen that follows the frame has them from its beginning.
    """

    def __init__(
        self,
        source: Source,
        environ: Environ,
        early: Callable[[Snapshot], object] = lambda snapshot: None,
    ) -> None:
        self._early = early
        self.label = source.label
        self.simulated = getattr(source, "simulated", None)
        self._source, self._environ = source, environ
        self._folder: Path | None = None
        self._user = own_name()
        self._looked = float("-inf")
        self._listed: tuple[int, float] | None = None
        self._stored: Stored | None = None
        self._tails: dict[str, tuple[object, tuple[str, ...]]] = {}
        self._peaks: dict[str, int] = {}
        self._jobs: tuple[Job, ...] = ()

    def open(self) -> None:
        self._source.open()

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        snapshot = self._source.read(want, among)
        self._early(snapshot)
        now = time.monotonic()
        if now - self._looked >= _EVERY:
            self._looked = now
            self._look(time.time(), snapshot)
        if not self._jobs:
            return snapshot
        self._note_peaks(snapshot)
        jobs = tuple(replace(job, peak_memory=self._peaks.get(job.id)) for job in self._jobs)
        if not self.label:
            return replace(snapshot, jobs=jobs)
        claims = (*snapshot.claims, *self._claims(snapshot))
        return replace(snapshot, jobs=(*jobs, *snapshot.jobs), claims=claims)

    def _claims(self, snapshot: Snapshot) -> Iterator[Claim]:
        """The claims that the jobs would hold if the box were this machine."""
        # On a simulated box, everything else of the person is called so, too.
        user = self._user if self.simulated is None else YOU
        for job in self._jobs:
            for key in () if job.over else job.keys:
                if key in snapshot.by_key and key not in snapshot.claimed:
                    yield Claim(key, user, job.began, job.title, job=job.id, own=True)

    def close(self) -> None:
        self._source.close()

    def _look(self, now: float, box: Snapshot) -> None:
        try:
            if self._folder is None:
                self._folder = state_folder(self._environ) / "jobs"
            changed = os.stat(self._folder).st_mtime_ns  # noqa: PTH116 - every second
        except (OSError, NoHomeError):
            self._jobs, self._listed = (), None
            return
        # Imported here: most users have never started a job.
        from gputui.inventory.job import JobError
        from gputui.jobs.process_tree import own_scope
        from gputui.jobs.record import read_job
        from gputui.jobs.record_folders import RecordError
        from gputui.jobs.store import Stored, stored

        try:
            before = self._listed
            if self._stored is None or before is None or before[0] != changed or before[1] < _SETTLED:
                self._stored = stored(self._environ, self._stored, now - _RECENT)
                self._listed = (changed, now - changed / 1e9)
            else:
                jobs, scope = [], own_scope()
                for job in self._stored.jobs:
                    try:
                        jobs.append(job if job.over else read_job(job.folder, scope))
                    except RecordError:
                        self._listed = None  # it is forgotten, or about to be
                self._stored = Stored(tuple(jobs), self._stored.unreadable)
        except JobError:
            # The jobs page shows the reason.
            self._jobs, self._stored = (), None
            return
        shown = _shown([job for job in self._stored.jobs if not self.label or was_started_on(box, job)], now)
        self._jobs = tuple(replace(job, tail=self._tail(job)) for job in shown)
        ids = {job.id for job in shown}
        for known in (self._tails, self._peaks):
            for gone in known.keys() - ids:
                del known[gone]

    def _tail(self, job: Job) -> tuple[str, ...]:
        """The last lines of the job's log, read again when the log has changed."""
        from gputui.jobs.last_lines import last_lines

        state = stamp_of(job.log)
        before = self._tails.get(job.id)
        if before is None or before[0] != state:
            before = self._tails[job.id] = (state, last_lines(job.log, _LINES))
        return before[1]

    def _note_peaks(self, snapshot: Snapshot) -> None:
        """Update each job's peak of device memory from its processes in this snapshot."""
        for claim in snapshot.claims:
            device = snapshot.by_key.get(claim.key)
            # Another user's record may say anything.
            if claim.job is None or claim.user != self._user or not claim.pids or device is None:
                continue
            used = [process.memory for process in device.processes or () if process.pid in claim.pids]
            known = [amount for amount in used if amount is not None]
            if known:
                self._peaks[claim.job] = max(sum(known), self._peaks.get(claim.job, 0))


def _shown(jobs: Collection[Job], now: float) -> list[Job]:
    """The jobs that have not ended, and the last ones that have."""
    # Imported here: not needed without jobs.
    from gputui.inventory.job import place_in_list

    recent = [job for job in jobs if not job.over or now - (job.ended or job.created) < _RECENT]
    return sorted(recent, key=place_in_list)[: _MOST_ENDED + sum(not job.over for job in jobs)]


def was_started_on(box: Snapshot, job: Job) -> bool:
    """Whether the job was started on a box that is not this machine: by this process, which shows the box, or
    on the devices of a demo."""
    if job.starter is not None and job.starter.pid == os.getpid():
        return True
    from gputui.jobs.rerun import demo_of

    return not box.by_key.keys().isdisjoint(job.keys) and demo_of(job) is not None
