"""Takes leases on devices: a locked record a device in our own folder, which the job inherits.

The kernel releases a lock when the last process that has it open has ended. No file is common to two users,
since what one can lock he could keep locked: each holder has records of his own only, which nobody else can
write, remove, or lock (record_locks.py, read.py). That no two ever hold a device follows from the order of
what each of them does:

1. *Announce.* He makes a record of each device, all with one token, under its name at once, with two bytes of
   its range locked; and the same in the folder of format 1.
2. *Look.* He reads all records of these devices, in all folders. What he cannot read whole, he does not go on
   with (`UnsafeError`). Nobody else's there: he gives the second
   byte back, which says that the devices are his, and has them.
3. *Withdraw.* Somebody else has a device: he removes his records and is refused. Somebody else just looks,
   too: who has the lower token stays and looks again, and the other one removes his records, and announces
   them again once nobody is there. Who stays waits half a second at most, and is refused then.

Proof: let A and B hold the same device at the same time. Both have announced it before their last look, and
have kept the record since. If A announced before B's last look, B saw A's record, and did not take the
device. Else B's last look was before A's announcement, so B had announced before A's last look: A saw it. (A
folder shows a file that is there before the listing begins and stays until it ends: readdir(3p). The folders
of users are listed before what is in them, and a user's own is there before his record.) Tokens
decide only who of several goes on, and so does the second byte: whoever lies in them, or announces a device
and never goes on, claims it for himself, which everybody sees. Of those who are honest the one with the
lowest token withdraws only from a device that somebody has, or that he has waited for: no two wait for each
other.

The steps inside a lease have records of their own (own_lease.py), and what is above counts among them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gputui.allocating.claims.files import create_locked, new_token
from gputui.allocating.claims.folder import REMEDY, Problems, bases, older_folder, own_place
from gputui.allocating.claims.own_lease import NO_LEASE, OwnLease, own_lease
from gputui.allocating.claims.read import ANNOUNCED, HELD, Record, range_of, records, remove_ended
from gputui.allocating.errors import UnsafeError
from gputui.choosing.verdict_text import claimed
from gputui.inventory.claim import Claim
from gputui.inventory.device import is_uuid
from gputui.inventory.light_dataclasses import dataclass, field
from gputui.inventory.snapshot import Snapshot
from gputui.system.descriptors import move_to_high_number
from gputui.system.lock_holders import File, file_of
from gputui.system.namespaces import pid_namespace
from gputui.system.process_stat import process_stat
from gputui.system.record_locks import unlock

_PATIENCE = 0.5
"""Seconds for which others are waited for who may give a device back at once, as they just look."""
_PAUSE = 0.003
"""Seconds between two looks."""
_MAX_COMMAND = 1000
"""Characters; JSON writes one as twelve bytes at worst, and a record has 16 KiB."""


class TakenError(Exception):
    """A device cannot be claimed: another job holds it, or others are in line for it.

    `key` is the device's; `claim` is the holder's, where that is known; `line` says who is in line.
    """

    def __init__(self, key: str, claim: Claim | None = None, line: str | None = None) -> None:
        super().__init__(key)
        self.key, self.claim, self.line = key, claim, line

    def text(self, snapshot: Snapshot) -> str:
        """A sentence with the number of the device and who has it."""
        device = snapshot.by_key.get(self.key)
        name = f"GPU {snapshot.label(device)}" if device else self.key
        if self.line:
            return f"{name}: {self.line}"
        return claimed(name, self.claim, snapshot.time)


class _Made(NamedTuple):
    """A record of ours: what it says, and where it is."""

    descriptor: int
    key: str
    about: dict[str, object]
    path: Path


@dataclass
class Lease:
    """Open descriptors whose locks hold devices. The job inherits them; closing all of them ends the lease.

    keys      the devices that are held
    warnings  why others are not: a device without a UUID cannot be claimed
    within    the lease inside which this one is a step
    """

    keys: tuple[str, ...] = ()
    descriptors: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    within: OwnLease = NO_LEASE
    _records: list[_Made] = field(default_factory=list)

    @property
    def records(self) -> tuple[str, ...]:
        """The paths of the records that tell others who holds the devices."""
        return tuple(str(made.path) for made in self._records)

    def belongs_to(
        self, pid: int, job: str, supervisor: int | None = None, others: Sequence[int] = ()
    ) -> None:
        """Write into the records that the devices belong to this job, whose command has this pid; `others`
        are the processes of jobs that share them."""
        roots = _roots(pid, *((supervisor,) if supervisor else ()), *others)
        for made in self._records:
            data = json.dumps({**made.about, "pid": pid, "job": job, "roots": roots}).encode()
            # (The job runs already, and what the record says is only for people.)
            with contextlib.suppress(OSError):
                os.pwrite(made.descriptor, data, 0)
                os.ftruncate(made.descriptor, len(data))

    @property
    def passed_on(self) -> list[int]:
        """The descriptors that the job inherits. A step also inherits the locks of the lease around it on its
        devices: they stay locked as long as the step lives, even if the lease's own command ends first."""
        return [
            *self.descriptors,
            *(number for key in self.keys for number in self.within.locks.get(key, ())),
        ]

    def inherit(self) -> None:
        """Keep the descriptors open when this process executes the job's command.

        A step does not get those that hold the other devices of the lease around it.
        """
        passed_on = self.passed_on
        for descriptor in self.within.descriptors:
            os.set_inheritable(descriptor, descriptor in passed_on)
        for descriptor in passed_on:
            os.set_inheritable(descriptor, True)

    @property
    def files(self) -> frozenset[File]:
        """The records."""
        return frozenset(file_of(os.fstat(made.descriptor)) for made in self._records)

    def withdraw(self) -> None:
        """Close and remove the records: the devices are free unless another process has inherited them."""
        for made in self._records:
            self.descriptors.remove(made.descriptor)
            with contextlib.suppress(OSError):
                os.close(made.descriptor)
            remove_ended(str(made.path))
        self._records = []

    def release(self) -> None:
        """Close the descriptors: the devices are free unless another process has inherited them."""
        self.withdraw()
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.descriptors = []


def take(keys: Iterable[str], environ: Mapping[str, str], command: str, job: str | None = None) -> Lease:
    """Claim all devices with these UUIDs, or none. Raises TakenError, UnsafeError.

    A device of the lease inside which this process runs is taken as a step: only other steps are in the way.
    `command` is what every user may read of it (`secrets.program_and_script`). A device without a UUID is
    left out with a warning.
    """
    lease = Lease()
    wanted = sorted(set(keys))
    with_uuid = [key for key in wanted if is_uuid(key)]
    if len(with_uuid) < len(wanted):
        lease.warnings.append("a device without a UUID cannot be claimed")
    if not with_uuid:
        return lease
    try:
        folders = {own_place(environ): True}
        lease.within = own_lease(environ)
        if (older := older_folder(environ)) is not None:
            # (Where root has set up the base, nobody can keep us from a device by filling another folder.)
            folders[older] = not any(bases(environ).values())
        for folder in folders:
            _lock_folder(folder, lease)
        _take(with_uuid, folders, lease, environ, command[:_MAX_COMMAND], job)
    except (TakenError, UnsafeError):
        lease.release()
        raise
    except OSError as error:
        lease.release()
        raise UnsafeError(f"cannot claim devices: {error.filename}: {error.strerror}. {REMEDY}") from None
    lease.keys = tuple(with_uuid)
    return lease


def _take(
    keys: Sequence[str],
    folders: Mapping[Path, bool],
    lease: Lease,
    environ: Mapping[str, str],
    command: str,
    job: str | None,
) -> None:
    """Announce, look, and hold or withdraw: the rules are at the top. The folders are those for our records,
    each with whether none may be missing there.

    Raises TakenError, UnsafeError, OSError.
    """
    token, until = new_token(), time.monotonic() + _PATIENCE
    while True:
        others = _others(keys, lease, environ)
        for other in others:
            if other.held:
                raise TakenError(other.claim.key, other.claim)
        if not others:
            if lease.records:
                break
            for key in keys:
                _announce(folders, key, token, lease, command, job)
            continue
        if time.monotonic() >= until:
            raise TakenError(others[0].claim.key, others[0].claim)
        if min(other.token for other in others) < token:
            lease.withdraw()
        time.sleep(_PAUSE)
    for made in lease._records:
        unlock(made.descriptor, range_of(made.key) + HELD, ANNOUNCED - HELD)


def _others(keys: Sequence[str], lease: Lease, environ: Mapping[str, str]) -> list[Record]:
    """Whoever else has one of these devices or just looks, but for those inside whose lease we run. Raises
    UnsafeError where somebody may not have been seen."""
    ours, problems = lease.files, Problems()
    there = [record for record in records(environ, problems, keys) if record.file not in ours]
    problems.refuse_if_missing()
    return [record for record in there if lease.within.is_in_the_way(record.claim)]


def take_unclaimed(
    keys: Iterable[str], environ: Mapping[str, str], command: str, job: str | None = None
) -> tuple[Lease, tuple[TakenError, ...]]:
    """Claim those of the devices that nobody else has claimed.

    Also returns who has claimed the others, or why none can be claimed.
    """
    left, taken = list(keys), list[TakenError]()
    while True:
        try:
            return take(left, environ, command, job), tuple(taken)
        except UnsafeError as error:
            return Lease(), (*taken, *(TakenError(key, line=str(error)) for key in left))
        except TakenError as error:
            taken.append(error)
            left.remove(error.key)


def _lock_folder(folder: Path, lease: Lease) -> None:
    """Lock the folder, shared: systemd-tmpfiles leaves locked folders alone when it cleans /tmp
    (tmpfiles.d(5))."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        lease.descriptors.append(move_to_high_number(descriptor))
        fcntl.flock(lease.descriptors[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)


def _announce(
    folders: Mapping[Path, bool], key: str, token: str, lease: Lease, command: str, job: str | None
) -> None:
    """Make the records of a device that we want. Raises OSError."""
    step = lease.within.next_step(key)
    name = f"{key.replace('/', '+')}@{os.geteuid()}.{f'step{step}.' if step else ''}{token}.claim"
    about: dict[str, object] = {
        # (First, as what is removed must be known for a record of this name: `remove_ended`.)
        "record": name,
        "schema": 1,
        "pid": os.getpid(),
        "pids": pid_namespace(),
        "since": time.time(),
        "command": command,
        "job": job,
        "roots": _roots(os.getpid()),
    }
    for folder, is_needed in folders.items():
        try:
            new = create_locked(folder, name, json.dumps(about).encode(), range_of(key), ANNOUNCED)
            descriptor = move_to_high_number(new)
        except OSError as error:
            if is_needed:
                raise
            lease.warnings.append(f"gputui 0.1.0 cannot see who holds {key}: {error.strerror}")
            continue
        lease.descriptors.append(descriptor)
        # (Absolute, because the working directory may change before the record is removed.)
        lease._records.append(_Made(descriptor, key, about, (folder / name).absolute()))


def _roots(*pids: int) -> list[tuple[int, int]]:
    """For a record: the processes whose descendants are the job's, as pids and starts (see `Identity`)."""
    return [(pid, stat.ticks) for pid in pids if (stat := process_stat(pid))]
