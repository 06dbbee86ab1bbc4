"""Takes leases on devices: for each device a locked record in our own folder, which the job inherits.

The kernel releases a lock when the last process that has it open has ended. No file is shared by two users,
because a user who can lock a file can also keep it locked: each holder has only their own records, which
nobody else can write, remove, or lock (record_locks.py, read.py). That no two holders ever hold the same
device follows from the order of their steps:

1. *Announce.* The launch makes a record of each device, all with one token, under its name at once, with two
   bytes of its range locked; and the same in the folder of format 1.
2. *Look.* It reads all records of these devices, in all folders. If it cannot read all of them, it stops
   (`UnsafeError`). If no other record is there, it unlocks the second byte, which says that the devices are
   its own, and holds them.
3. *Withdraw.* If somebody else holds a device, the launch removes its records and is refused. If somebody
   else is also looking, the launch with the lower token stays and looks again; the other one removes its
   records, and announces them again once nobody is there. The one that stays waits half a second at most,
   and is then refused.

Proof: let A and B hold the same device at the same time. Both have announced it before their last look, and
have kept the record since. If A announced before B's last look, B saw A's record, and did not take the
device. Otherwise B's last look was before A's announcement, so B had announced before A's last look: A saw
it. (A directory listing contains every file that exists before it begins and until it ends: readdir(3p). The
folders of users are listed before their contents, and a user's own folder exists before the record.) Tokens
only decide which of several goes on, and so does the second byte: a user who forges them, or announces a
device and never goes on, claims it, which everybody sees. Of the honest ones, the one with the lowest token
withdraws only from a device that somebody holds, or that it has waited for: no two wait for each other.

The steps inside a lease have records of their own (own_lease.py), and the rules above apply among them.
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

from gputui.allocating.claims.files import MAX_COMMAND, OPEN, create_locked, listed, new_token
from gputui.allocating.claims.folder import REMEDY, older_folder, own_place
from gputui.allocating.claims.own_lease import NO_LEASE, OwnLease, own_lease
from gputui.allocating.claims.read import ANNOUNCED, HELD, Record, range_of, records, remove_ended
from gputui.allocating.errors import UnsafeError
from gputui.choosing.verdict_text import claimed
from gputui.inventory.claim import Claim
from gputui.inventory.device import is_uuid
from gputui.inventory.light_dataclasses import dataclass, field
from gputui.inventory.snapshot import Snapshot
from gputui.system.descriptors import move_to_high_number
from gputui.system.environment import Environ
from gputui.system.lock_holders import File, file_of
from gputui.system.namespaces import pid_namespace
from gputui.system.process_stat import process_stat
from gputui.system.record_locks import unlock

_PATIENCE = 0.5
"""Seconds to wait for others that are also looking, and may release a device at once."""
_PAUSE = 0.003
"""Seconds between two looks."""


class TakenError(Exception):
    """A device cannot be claimed: another job holds it, or others are in line for it.

    `key` is the device's; `claim` is the holder's, where it is known; `line` names the waiters.
    """

    def __init__(self, key: str, claim: Claim | None = None, line: str | None = None) -> None:
        super().__init__(key)
        self.key, self.claim, self.line = key, claim, line

    def text(self, snapshot: Snapshot) -> str:
        """Return a sentence with the number of the device and its holder."""
        device = snapshot.by_key.get(self.key)
        name = f"GPU {snapshot.label(device)}" if device else self.key
        if self.line:
            return f"{name}: {self.line}"
        return claimed(name, self.claim, snapshot.time)


class _Made(NamedTuple):
    """One of our records: its content, and its path."""

    descriptor: int
    key: str
    about: dict[str, object]
    path: str


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
        return tuple(made.path for made in self._records)

    def belongs_to(self, pid: int, job: str, *others: int | None) -> None:
        """Write into the records that the devices belong to this job, whose command has this pid; `others`
        are its supervisor, and the processes of jobs that share them."""
        roots = _roots(pid, *filter(None, others))
        for made in self._records:
            data = json.dumps({**made.about, "pid": pid, "job": job, "roots": roots}).encode()
            # (The job is already running, and the content of the record is only for people.)
            with contextlib.suppress(OSError):
                os.pwrite(made.descriptor, data, 0)
                os.ftruncate(made.descriptor, len(data))

    @property
    def passed_on(self) -> list[int]:
        """The descriptors that the job inherits. A step also inherits the locks of the lease around it on its
        devices: they stay locked as long as the step lives, even if the command of that lease ends first."""
        return self.descriptors + [number for number, key in self.within.locks.items() if key in self.keys]

    def inherit(self) -> None:
        """Keep the descriptors open when this process executes the job's command.

        A step does not get the descriptors that hold the other devices of the lease around it.
        """
        for descriptor in (*self.within.descriptors, *self.descriptors):
            os.set_inheritable(descriptor, descriptor in self.passed_on)

    @property
    def files(self) -> set[File]:
        """The records."""
        return {file_of(os.fstat(made.descriptor)) for made in self._records}

    def withdraw(self) -> None:
        """Close and remove the records: the devices are free unless another process has inherited them."""
        for made in self._records:
            self.descriptors.remove(made.descriptor)
            with contextlib.suppress(OSError):
                os.close(made.descriptor)
            remove_ended(made.path)
        self._records = []

    def release(self) -> None:
        """Close the descriptors: the devices are free unless another process has inherited them."""
        self.withdraw()
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.descriptors = []


def take(
    keys: Iterable[str],
    environ: Environ,
    command: str,
    job: str | None = None,
    until: float | None = None,
    client: str | None = None,
) -> Lease:
    """Claim all devices with these UUIDs, or none. Raises TakenError, UnsafeError.

    A device of the lease inside which this process runs is taken as a step: only other steps are in the way.
    `command`, `job`, `until` and `client` are what every user may read of it (`Claim`). A device without a
    UUID is left out with a warning.
    """
    lease = Lease()
    wanted = sorted(set(keys))
    with_uuid = [key for key in wanted if is_uuid(key)]
    if len(with_uuid) < len(wanted):
        lease.warnings.append("a device without a UUID cannot be claimed")
    if not with_uuid:
        return lease
    try:
        folders = [*filter(None, (own_place(environ), older_folder(environ)))]
        lease.within = own_lease(environ)
        for folder in folders:
            _lock_folder(folder, lease)
        told = {"command": command[:MAX_COMMAND], "job": job, "until": until, "client": client}
        _take(with_uuid, folders, lease, environ, told)
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
    folders: Sequence[Path],
    lease: Lease,
    environ: Environ,
    told: Mapping[str, object],
) -> None:
    """Announce, look, and hold or withdraw: the rules are at the top. The folders are those for our records.

    Raises TakenError, UnsafeError, OSError.
    """
    token, until = new_token(), time.monotonic() + _PATIENCE
    while True:
        others = _others(keys, lease, environ)
        if not others:
            if lease.records:
                break
            for key in keys:
                _announce(folders, key, token, lease, told)
            continue
        # Those that hold a device first.
        first = min(others, key=lambda other: not other.held)
        if first.held or time.monotonic() >= until:
            raise TakenError(first.claim.key, first.claim)
        if min(other.token for other in others) < token:
            lease.withdraw()
        time.sleep(_PAUSE)
    if own_place(environ).parent != folders[0].parent:
        raise UnsafeError(
            "cannot claim devices: others now look for claims in another folder; start it again"
        )
    for made in lease._records:
        unlock(made.descriptor, range_of(made.key) + HELD, ANNOUNCED - HELD)


def _others(keys: Sequence[str], lease: Lease, environ: Environ) -> list[Record]:
    """Return the others that hold one of these devices or are looking, except those inside whose lease we
    run. Raises UnsafeError where somebody may not have been seen."""
    ours, names = lease.files, listed(environ, keys)
    there = [
        each
        for each in records(names, keys)
        if each.claim.key in keys and each.file not in ours and lease.within.is_in_the_way(each.claim)
    ]
    names.problems.refuse_if_missing()
    return there


def _lock_folder(folder: Path, lease: Lease) -> None:
    """Take a shared lock on the folder: systemd-tmpfiles leaves locked folders alone when it cleans /tmp
    (tmpfiles.d(5))."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, OPEN | os.O_DIRECTORY)
        lease.descriptors.append(move_to_high_number(descriptor))
        fcntl.flock(lease.descriptors[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)


def _announce(
    folders: Iterable[Path], key: str, token: str, lease: Lease, told: Mapping[str, object]
) -> None:
    """Make the records of a device that we want. Raises OSError."""
    step = lease.within.next_step(key)
    name = f"{key.replace('/', '+')}@{os.geteuid()}.{f'step{step}.' if step else ''}{token}.claim"
    about = {
        # (First, because a record of this name must be known to be removed: `remove_ended`.)
        "record": name,
        "schema": 1,
        "pid": os.getpid(),
        "pids": pid_namespace(),
        "since": time.time(),
        **told,
        "roots": _roots(os.getpid()),
    }
    for folder in folders:
        data = json.dumps(about).encode()
        descriptor = move_to_high_number(create_locked(folder, name, data, range_of(key), ANNOUNCED))
        lease.descriptors.append(descriptor)
        # (Absolute, because the working directory may change before the record is removed.)
        lease._records.append(_Made(descriptor, key, about, str((folder / name).absolute())))


def _roots(*pids: int) -> list[tuple[int, int]]:
    """Return the processes whose descendants belong to the job, for a record, as pids and starts (see
    `Identity`)."""
    return [(pid, stat.ticks) for pid in pids if (stat := process_stat(pid))]
