"""A job: a launch that runs detached from the process that started it; its state, and its record."""

from __future__ import annotations

import os
import signal as signals
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import nth
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.process import Identity
from gputui.inventory.quoting import posix

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Epoch, Moment, SignalNumber, SystemNumber, WordList, Words

State = Literal["starting", "waiting", "running", "done", "failed", "stopped", "ended", "elsewhere"]
"""starting   its record exists, its command has not started yet
waiting    it is in line for devices
running    its command runs
done       its command ended with status 0
failed     its command ended with another status or by a signal, or could not be started
stopped    it was asked to stop, and did
ended      none of its processes runs any more, and its end was not recorded (a crash, a reboot)
elsewhere  its record is seen through a shared folder; it belongs to another machine or container
"""

ENDED: frozenset[State] = frozenset(("done", "failed", "stopped", "ended"))


class JobError(GputuiError):
    """An operation on jobs failed; the message is one line with the cause and the remedy."""

    code, status = "bad_job", 2


class NoSuchJobError(JobError):
    """No job, or no experiment, has that id or name; or several have."""

    code = "no_such_job"


@frozen
class PidScope:
    """The scope in which a pid means one process: one machine, one boot of it, one pid namespace.

    host   its name, for display
    boot   /proc/sys/kernel/random/boot_id; None where there is none
    pids   the pid namespace as /proc/self/ns/pid names it; None where there are none
    """

    host: Words
    boot: Words | None
    pids: Words | None


@frozen
class JobDevice:
    """The facts about a device in a job's record: its names, no measurements."""

    index: int
    uuid: Words
    name: Words | None

    @property
    def label(self) -> str:
        """Its label where its box is not known."""
        # The index of a MIG instance counts within its GPU.
        return self.uuid[:9] if self.uuid.startswith("MIG-") else str(self.index)


Step = Literal["directory", "confinement", "program"]
STEPS: tuple[Step, ...] = ("directory", "confinement", "program")
"""The steps before a command runs, in this order; `supervise.py` has these names too."""


@frozen
class Trouble:
    """Why a command could not be started: the system's error number, and the step that failed."""

    step: Step
    errno: SystemNumber


@frozen
class Part:
    """The part of an experiment that a job is: one of its runs, or the job that runs the experiment.

    experiment  its id
    title       what the run varies, "lr=3e-4"; of the job that runs it, what the experiment is
    number      1 for the first run, 0 for a warm-up; of the job that runs it, how many have ended
    of          the number of all runs
    whole       whether the job runs the experiment
    """

    experiment: Words
    title: Words
    number: int
    of: int
    whole: bool = False

    @property
    def words(self) -> str:
        """ "lr=3e-4, 2nd of 4", "comparison d3a4 of lr: 2 of 4 done"."""
        if self.whole:
            return f"{self.title}: {self.number} of {self.of} done"
        return f"{self.title}, {f'{nth(self.number)} of {self.of}' if self.number else 'warm-up'}"


NOWHERE = Path(os.devnull)
"""The folder of a job whose record is not on this machine: it contains nothing."""
UNKNOWN_SCOPE = PidScope("", None, None)


@frozen(kw_only=True)
class Job:
    """A job from its record, from another box, or from a simulated box.

    All texts are untrusted. Times are seconds since the epoch; None means "not known".

    line        the launch as it was shown
    changes     the launch's environment changes; the rest of the environment is not recorded
    starter     the process that started it, which may have ended long ago
    supervisor, command   its processes; None before they exist
    created     when the record was made, 0 for not known
    started, ended
                when its process started, which may wait for its devices first (`began`), and ended
    status      the command's exit status; None also where a signal ended it
    signal      the signal that ended it
    why         why gputui itself stopped it, None where a user did; of a job that waited, why it never ran
    stop        the signal of the request to stop it
    killed      the number of its processes that then needed SIGKILL
    left        the number of processes that it left behind when its command ended
    peak_process_memory   bytes of RAM (resident): the peak of any single process of it, without processes
                that it left behind; at least the 10 MB of its supervisor, of which it began as a copy, or the
                40 MB of a reading for the usage
    launch      the launch request that it was started from; unchecked (`jobs/rerun.py` reads it)
    withheld    names of options and variables whose values were not recorded, because they look like secrets;
                `argv`, `line` and `changes` have a mark for each value
    confined    whether it can open its own devices only
    waits       the number of devices that it had to wait for, None where it had its devices at once
    taken       when it got them (`devices`, `line` and `changes` are those since then)
    time_limit  the seconds that it may run, without the time in line; None for no limit
    idle_release  the seconds at 0 % after which gputui stops it, None for never
    idle_release_at  when that is, after the warning; None while it uses its devices
    client      the agent that asked for it (docs/agents.md), None for a person or a script
    after, after_ok   the ids of the jobs whose end, and whose good end, it waits for
    part        the part of an experiment that it is, None for any other job

    Facts that no record has:

    box         the other box that it is a job of, by its ssh name; None for this box
    tail        the last lines of its log, the last one last, without escape sequences
    peak_memory bytes: the most that its processes were seen to use on any one device
    energy      J of its devices, as far as they were recorded (`gputui usage`)
    utilization the mean of its devices in percent, likewise
    """

    id: str
    folder: Path = NOWHERE
    name: Words | None = None
    line: Words = ""
    argv: WordList = ()
    changes: tuple[tuple[Words, Words | None], ...] = ()
    directory: Words | None = None
    devices: tuple[JobDevice, ...] = ()
    launcher: Words = ""
    user: Words = ""
    scope: PidScope = UNKNOWN_SCOPE
    starter: Identity | None = None
    created: Epoch = 0.0
    supervisor: Identity | None = None
    command: Identity | None = None
    started: Epoch | None = None
    ended: Epoch | None = None
    status: SystemNumber | None = None
    signal: SignalNumber | None = None
    stop: SignalNumber | None = None
    why: Words | None = None
    killed: int = 0
    left: int = 0
    peak_process_memory: int | None = None
    trouble: Trouble | None = None
    launch: object = None
    withheld: WordList = ()
    confined: bool = False
    waits: int | None = None
    taken: Epoch | None = None
    time_limit: float | None = None
    idle_release: float | None = None
    idle_release_at: Epoch | None = None
    client: Words | None = None
    after: WordList = ()
    after_ok: WordList = ()
    part: Part | None = None
    state: str
    box: str | None = None
    tail: tuple[str, ...] = ()
    peak_memory: int | None = None
    energy: float | None = None
    utilization: float | None = None

    @property
    def address(self) -> str:
        """Its id, for a job of another box BOX:ID: the form that `gputui jobs` accepts."""
        return self.id if self.box is None else f"{self.box}:{self.id}"

    @property
    def log(self) -> Path:
        """The file with the command's stdout and stderr."""
        return self.folder / LOG

    @property
    def over(self) -> bool:
        """Whether it has ended, in any way."""
        return self.state in ENDED

    @property
    def in_line_for(self) -> int | None:
        """The number of devices it waits for, None where it does not wait, or no longer waits."""
        return self.waits if self.taken is None else None

    @property
    def keys(self) -> tuple[str, ...]:
        """The `Device.key`s of its devices, in order; () while it waits."""
        return () if self.in_line_for is not None else tuple(device.uuid for device in self.devices)

    @property
    def began(self) -> float | None:
        """When its command began to run: not the wait of a job that waits, which is its process before."""
        return self.started if self.waits is None else self.taken

    @property
    def until(self) -> Moment | None:
        """When it ends at the latest, but for the seconds between SIGTERM and SIGKILL; None where that is
        not known."""
        if self.time_limit is None or self.began is None or self.over:
            return None
        return self.began + self.time_limit

    @property
    def how_ended(self) -> str:
        """How it ended: "was stopped", "gave up", or the words of `how_it_ended`."""
        if self.gave_up:
            return "gave up"
        return "was stopped" if self.state == "stopped" else how_it_ended(self.status, self.signal)

    @property
    def never_ran(self) -> bool:
        """Whether it ended in line."""
        return self.over and self.in_line_for is not None

    @property
    def gave_up(self) -> bool:
        """Whether it waited for as long as it might."""
        return self.never_ran and self.status == 124

    @property
    def exit_status(self) -> int | None:
        """The exit status in a shell: the status, 128 + n after signal n; None while it is not known."""
        return self.status if self.signal is None else 128 + self.signal

    @property
    def title(self) -> str:
        """Its title in a few words: its name, else its command."""
        return self.name or " ".join(map(posix, self.argv))

    @property
    def last_line(self) -> str | None:
        """The last line of its log."""
        return self.tail[-1] if self.tail else None


def how_it_ended(status: int | None, signal: int | None) -> str:
    """ "ended with status 1", or "ended by SIGKILL" after a signal."""
    if signal is not None:
        return f"ended by {signal_name(signal)}"
    return "ended, status unknown," if status is None else f"ended with status {status}"


def signal_name(number: int) -> str:
    """The name of a signal, "SIGTERM"; "signal 34" for a signal without a name."""
    names = {known.value: known.name for known in signals.Signals}
    return names.get(number, f"signal {number}")


LOG, GIVEN, STARTED, FINISHED, STOP = "log", "job.json", "started.json", "ended.json", "stop"
TAKEN, CLAIMS, WORDS, NOTIFY, LIMIT = "taken.json", "claims", "words.json", "notify", "limit"
IDLE = "idle.json"
"""The files of a job's folder, each written once: by its starter, by its supervisor at the start and at the
end, by the program that stops it, and by a job that has waited for its devices. `supervise.py` has these
names too.

CLAIMS lists the records of the job's claims, one path per line; the supervisor empties it at the end. WORDS
has the words of the call for a job that is gputui itself, until that job has read them. NOTIFY has the
command that the supervisor starts when the job has ended: the job's title, then the command's words, each
followed by a NUL byte. LIMIT has the seconds that the job may run, from when it has its devices. IDLE
is there from the warning of an idle job until it uses its devices again."""


def place_in_list(job: Job) -> tuple[bool, bool, float]:
    """The sort key of jobs in every list: running jobs, then waiting jobs, each the newest first, then ended
    jobs, the last to end first."""
    return job.over, job.state == "waiting", -((job.ended if job.over else None) or job.created)


def grouped(jobs: Iterable[Job]) -> list[list[Job]]:
    """The jobs as lists show them: the runs of an experiment below the job that runs it, if that is among
    them, and any other job alone."""
    groups: dict[object, list[Job]] = {}
    for job in sorted(jobs, key=place_in_list):
        groups.setdefault((job.part.experiment,) if job.part else job.address, []).append(job)
    found: list[list[Job]] = []
    for group in groups.values():
        whole = next((job for job in group if job.part is not None and job.part.whole), None)
        if whole is None:
            found += [[replace(job, part=None) if job.part is not None else job] for job in group]
        else:
            found.append(_below(whole, [job for job in group if job is not whole]))
    return found


def _below(whole: Job, runs: list[Job]) -> list[Job]:
    """The job that runs an experiment, with the devices of its runs and the number of those that have ended,
    and below it its runs. It waits while its runs wait."""
    current = [job for job in runs if not job.over] or runs
    devices = dict.fromkeys(device for job in reversed(current) for device in job.devices)
    ended = max(job.part.number for job in (whole, *runs) if job.part and (job is whole or job.over))
    part = replace(whole.part, number=ended) if whole.part else None
    waits = not whole.over and {job.state for job in current} == {"waiting"}
    state = "waiting" if waits else whole.state
    return [replace(whole, devices=tuple(devices), part=part, state=state), *runs]
