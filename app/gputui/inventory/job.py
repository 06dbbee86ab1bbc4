"""A job: a launch that runs detached from whoever started it; its state, what its record says."""

from __future__ import annotations

import os
import shlex
import signal as signals
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gputui.inventory.errors import GputuiError
from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.process import Identity

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Epoch, SignalNumber, Words

State = Literal["starting", "waiting", "running", "done", "failed", "stopped", "ended", "elsewhere"]
"""starting   its record is there, its command not yet
waiting    it is in line for devices
running    its command runs
done       its command ended with status 0
failed     its command ended with another status or by a signal, or could not be started
stopped    it was asked to stop, and did
ended      nothing of it runs any more, and how it ended was not written down (a crash, a reboot)
elsewhere  its record is seen through a shared folder; it belongs to another machine or container
"""

ENDED: frozenset[State] = frozenset(("done", "failed", "stopped", "ended"))


class JobError(GputuiError):
    """Something that cannot be done with jobs; the message is one line with the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class PidScope:
    """Where a pid means one process: on one machine, in one boot of it, in one pid namespace.

    host   its name, for people
    boot   /proc/sys/kernel/random/boot_id; None where there is none
    pids   the pid namespace as /proc/self/ns/pid names it; None where there are none
    """

    host: Words
    boot: Words | None
    pids: Words | None


@dataclass(frozen=True, slots=True)
class JobDevice:
    """What a job's record keeps of a device: how it is named, never what it measured."""

    index: int
    uuid: Words
    name: Words | None

    @property
    def label(self) -> str:
        """How it is called where its box is not known."""
        # (The index of a MIG instance is one within its GPU.)
        return self.uuid[:9] if self.uuid.startswith("MIG-") else str(self.index)


Step = Literal["directory", "confinement", "program"]
STEPS: tuple[Step, ...] = ("directory", "confinement", "program")
"""What is done before a command runs, in this order; `supervise.py` has these names too."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a command could not be started: the system's error number, and what it was for."""

    step: Step
    errno: int


NOWHERE = Path(os.devnull)
"""The folder of a job whose record is not on this machine: there is nothing in it."""
UNKNOWN_SCOPE = PidScope("", None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as its record was read, as another box tells of it, or as a simulated box has it. All texts are
    untrusted. Times are seconds since the epoch; None is "not known".

    line        the launch as it was shown
    changes     the launch's environment changes; what the rest of the environment was, is not kept
    starter     the process that started it, which may be long gone
    supervisor, command   its processes; None before they are there
    created     when the record was made, 0 for not known;  started: its command;  ended: its command
    status      the command's exit status; None also where a signal ended it
    signal      the signal that ended it
    why         why gputui itself stopped it, None where a person did;
    stop        the signal it was asked to stop with;  killed: how many of its processes needed SIGKILL then
    left        how many processes it left behind when its command ended
    peak_process_memory   bytes of RAM (resident): the most that any one of its processes had, without those
                that it left behind; never less than the 10 MB of its supervisor, of which it began as a copy
    launch      what it was started from, as the launch history writes it; unchecked (`jobs/again.py`)
    constraints the words of `gputui run` that said which devices will do: --group, --order, --wait …
    withheld    what was not kept of the command, as it looks like a secret: names of options, variables; in
                `argv`, `line` and `changes` stands a mark for each value
    confined    whether it can open its own devices only
    waits       how many devices it had to wait for, None for a job that had its devices at once;  taken: when
                it got them (then `devices`, `line` and `changes` are what they are since)

    What no record has:

    box         the other box that it is a job of, as ssh calls it; None for this one
    tail        the last lines of its log, the last one last, without escape sequences
    peak_memory bytes: the most that its processes had on any one device while somebody watched
    """

    id: str
    folder: Path = NOWHERE
    name: Words | None = None
    line: Words = ""
    argv: tuple[Words, ...] = ()
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
    status: int | None = None
    signal: SignalNumber | None = None
    stop: SignalNumber | None = None
    why: Words | None = None
    killed: int = 0
    left: int = 0
    peak_process_memory: int | None = None
    trouble: Trouble | None = None
    launch: object = None
    constraints: tuple[Words, ...] = ()
    withheld: tuple[Words, ...] = ()
    confined: bool = False
    waits: int | None = None
    taken: Epoch | None = None
    state: str
    box: str | None = None
    tail: tuple[str, ...] = ()
    peak_memory: int | None = None

    @property
    def address(self) -> str:
        """Its id, of a job of another box BOX:ID: as `gputui jobs` takes it."""
        return self.id if self.box is None else f"{self.box}:{self.id}"

    @property
    def log(self) -> Path:
        """What the command writes to stdout and stderr."""
        return self.folder / LOG

    @property
    def over(self) -> bool:
        """Whether it has ended, however."""
        return self.state in ENDED

    @property
    def in_line_for(self) -> int | None:
        """How many devices it waits for, None where it does not, or not any more."""
        return self.waits if self.taken is None else None

    @property
    def keys(self) -> tuple[str, ...]:
        """`Device.key` of the devices that it has, in its order; () while it waits."""
        return () if self.in_line_for is not None else tuple(device.uuid for device in self.devices)

    @property
    def began(self) -> float | None:
        """Since when it has run, the time in line left out; of a job that is in line, since when it is."""
        return self.taken or self.started

    @property
    def exit_status(self) -> int | None:
        """What a shell would end with: the status, 128 + n after signal n; None while it is not known."""
        return self.status if self.signal is None else 128 + self.signal

    @property
    def title(self) -> str:
        """How it is called where there is room for a few words: its name, else its command."""
        return self.name or shlex.join(self.argv)

    @property
    def last_line(self) -> str | None:
        """The last line of its log."""
        return self.tail[-1] if self.tail else None


def how_it_failed(status: int, signal: int | None) -> str:
    """ "status 1", or "ended by SIGKILL" of what a signal has ended."""
    return f"status {status}" if signal is None else f"ended by {signal_name(signal)}"


def signal_name(number: int) -> str:
    """A signal by its name, "SIGTERM"; "signal 34" for one without a name."""
    names = {known.value: known.name for known in signals.Signals}
    return names.get(number, f"signal {number}")


LOG, GIVEN, STARTED, FINISHED, STOP = "log", "job.json", "started.json", "ended.json", "stop"
TAKEN, CLAIMS, WORDS, NOTIFY = "taken.json", "claims", "words.json", "notify"
"""The files of a job's folder, each written once: by who starts it, by its supervisor at the start and at
the end, by who stops it, and by a job that has waited for its devices. `supervise.py` has these names too.

CLAIMS lists the records of the job's claims, a path a line, which its supervisor empties at the end. WORDS
has the words of `gputui run` for a job that waits for devices, until that job has read them. NOTIFY has the
command that its supervisor starts when it has ended: the job's title, then the command's words, each followed
by a null byte."""
