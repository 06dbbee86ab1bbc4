"""Takes leases on devices: one lock (flock) a device in the shared folder, which the job inherits.

The kernel releases a lock when the last process that has it open has ended.

Each device has two files. `<device>.<n>.lock` belongs to the user who created it first, is empty, and its
lock means that the device is taken. `<device>@<uid>.<n>.claim` is the holder's record for others to read; it
is locked, too, so that readers never touch the first file. The steps inside a lease have files of their own
(own_lease.py). A name at which there is an untrusted file is passed over by everyone alike, and the next
number is tried. If two jobs lock different numbers all the same, because somebody has changed the files
meanwhile, the records settle it: each job looks for other records after it has written its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gputui.allocating.claims.files import (
    UntrustedFileError,
    create_public,
    is_being_created,
    is_same_file,
    open_untrusted,
)
from gputui.allocating.claims.folder import VARIABLE, make_folder
from gputui.allocating.claims.own_lease import NO_LEASE, OwnLease, own_lease
from gputui.allocating.claims.read import claims, empty_ended
from gputui.choosing.verdict_text import claimed
from gputui.inventory.claim import Claim
from gputui.inventory.device import is_uuid
from gputui.inventory.snapshot import Snapshot
from gputui.system.descriptors import move_to_high_number
from gputui.system.namespaces import pid_namespace
from gputui.system.process_stat import process_stat

_MAX_NAMES = 8
"""Names of files that are tried for one device."""
_TRIES = 100
_PAUSE = 0.005
"""Seconds between two tries while another process is about to finish: half a second in all."""
_MAX_COMMAND = 1000
"""Characters; JSON writes one as twelve bytes at worst, and a record has 16 KiB."""


class TakenError(Exception):
    """A device cannot be claimed: another job holds it, or others are in line for it.

    `key` is the device's; `claim` is the holder's, where that is with_uuid; `line` says who is in line.
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


@dataclass
class Lease:
    """Open descriptors whose locks hold devices. The job inherits them; closing all of them ends the lease.

    keys      the devices that are held
    warnings  why others are not: the launch goes on without, as claims are advisory
    within    the lease inside which this one is a step
    """

    keys: tuple[str, ...] = ()
    descriptors: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    within: OwnLease = NO_LEASE
    _records: list[tuple[int, dict[str, object], Path]] = field(default_factory=list)

    @property
    def records(self) -> tuple[str, ...]:
        """The paths of the records that tell others who holds the devices."""
        return tuple(str(path) for _, _, path in self._records)

    def belongs_to(self, pid: int, job: str, supervisor: int | None = None) -> None:
        """Write into the records that the devices belong to this job, whose command has this pid."""
        roots = _roots(pid, *((supervisor,) if supervisor else ()))
        for descriptor, about, _ in self._records:
            data = json.dumps({**about, "pid": pid, "job": job, "roots": roots}).encode()
            # (The job runs already, and what the record says is only for people.)
            with contextlib.suppress(OSError):
                os.pwrite(descriptor, data, 0)
                os.ftruncate(descriptor, len(data))

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

    def release(self) -> None:
        """Close the descriptors: the devices are free unless another process has inherited them."""
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        for record in self.records:
            empty_ended(record)
        self.descriptors = []
        self._records = []


def take(keys: Iterable[str], environ: Mapping[str, str], command: str, job: str | None = None) -> Lease:
    """Claim all devices with these UUIDs, or none. Raises TakenError.

    A device of the lease inside which this process runs is taken as a step: only other steps are in the way.
    `command` is what every user may read of it (`secrets.program_and_script`). A device without a UUID is
    left out with a warning, and so are all where there is no shared folder.
    """
    lease = Lease()
    wanted = sorted(set(keys))
    with_uuid = [key for key in wanted if is_uuid(key)]
    if len(with_uuid) < len(wanted):
        lease.warnings.append("a device without a UUID cannot be claimed")
    if not with_uuid:
        return lease
    folder = make_folder(environ)
    if folder is None:
        lease.warnings.append(_why_no_folder(environ))
        return lease
    own = own_lease(environ)
    lease.within = own
    try:
        _lock_folder(folder, lease)
        # All processes lock in the same order, so that two never wait for each other.
        for key in with_uuid:
            if _lock_device(_folder_for(key, own, folder), key, lease, environ):
                lease.keys = (*lease.keys, key)
        _check_no_other_holder(with_uuid, environ, own)
        for key in lease.keys:
            _write_record(_folder_for(key, own, folder), key, lease, command, job)
        # A job that has locked another name at the same time sees our record now, or we see its record.
        _check_no_other_holder(with_uuid, environ, own)
    except TakenError:
        lease.release()
        raise
    except OSError as error:
        lease.release()
        return Lease(warnings=[*lease.warnings, f"cannot claim devices: {folder}: {error.strerror}"])
    return lease


def take_unclaimed(
    keys: Iterable[str], environ: Mapping[str, str], command: str, job: str | None = None
) -> tuple[Lease, tuple[TakenError, ...]]:
    """Claim those of the devices that nobody else has claimed; also returns who has claimed the others."""
    left, taken = list(keys), list[TakenError]()
    while True:
        try:
            return take(left, environ, command, job), tuple(taken)
        except TakenError as error:
            taken.append(error)
            left.remove(error.key)


def _why_no_folder(environ: Mapping[str, str]) -> str:
    named = environ.get(VARIABLE)
    if named:
        return f"cannot claim devices: {VARIABLE}={named} is not, and cannot become, a folder with mode 1777"
    return "cannot claim devices: no folder is writable by all users"


def _folder_for(key: str, own: OwnLease, folder: Path) -> Path:
    """The folder with a device's files: all steps of a lease use that of the lease."""
    return Path(own.folders[key]) if key in own.folders else folder


def _lock_folder(folder: Path, lease: Lease) -> None:
    """Lock the folder, shared: systemd-tmpfiles leaves locked folders alone when it cleans /tmp
    (tmpfiles.d(5))."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        lease.descriptors.append(move_to_high_number(descriptor))
        fcntl.flock(lease.descriptors[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)


def _lock_device(folder: Path, key: str, lease: Lease, environ: Mapping[str, str]) -> bool:
    """Take the device's lock; False where every name for it is untrusted. Raises TakenError, OSError."""
    for number in range(_MAX_NAMES):
        path = folder / f"{_file_name(key)}.{_step(lease.within, key)}{number}.lock"
        try:
            descriptor = _open_locked(path, key, environ, lease.within)
        except UntrustedFileError as error:
            lease.warnings.append(f"ignored: {error}")
        else:
            lease.descriptors.append(descriptor)
            return True
    lease.warnings.append(f"{key} is not claimed: another user's files block every file name for it")
    return False


def _open_locked(path: Path, key: str, environ: Mapping[str, str], own: OwnLease) -> int:
    """Open and lock the file of that name. Raises UntrustedFileError, TakenError, OSError."""
    for _ in range(_TRIES):
        descriptor = _open_or_create(path)
        try:
            _wait_for_lock(descriptor, key, environ, own)
        except TakenError:
            os.close(descriptor)
            raise
        if is_same_file(path, descriptor):
            return descriptor
        # It was removed between opening and locking: whoever comes now would lock another file.
        os.close(descriptor)
    raise UntrustedFileError(f"{path.name} keeps appearing and disappearing")


def _wait_for_lock(descriptor: int, key: str, environ: Mapping[str, str], own: OwnLease) -> None:
    """Lock the file. Raises TakenError.

    A lock without a record is just being taken, and will be released if another device of the same job cannot
    be had: this waits for that for half a second.
    """
    holder = None
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        holder = _others(environ, own).get(key)
        if holder is not None:
            break
        time.sleep(_PAUSE)
    raise TakenError(key, holder)


def _others(environ: Mapping[str, str], own: OwnLease) -> dict[str, Claim]:
    """The claims of others, by device; the first where there are several. (Ours: those we run inside of.)"""
    return {claim.key: claim for claim in reversed(claims(environ)[0]) if not own.has(claim)}


def _check_no_other_holder(keys: Sequence[str], environ: Mapping[str, str], own: OwnLease) -> None:
    """Check that no other record of these devices is alive. Raises TakenError.

    There can be one although we have the lock: it was taken under another name, or in another folder. A job
    that is ending may have released its lock before its record: this waits for that for half a second.
    """
    for number in range(_TRIES):
        others = _others(environ, own)
        taken = [key for key in keys if key in others]
        if not taken:
            return
        if number == _TRIES - 1:
            raise TakenError(taken[0], others[taken[0]])
        time.sleep(_PAUSE)


def _open_or_create(path: Path) -> int:
    """Open the file of that name, or create it. Raises UntrustedFileError, OSError."""
    problem = UntrustedFileError(f"{path.name} keeps appearing and disappearing")
    for _ in range(_TRIES):
        try:
            descriptor = open_untrusted(path)
        except UntrustedFileError as error:
            problem = error
            if not is_being_created(path):
                break
            # It has its mode in a moment.
            time.sleep(_PAUSE)
            continue
        if descriptor is None:
            descriptor = create_public(path)
        if descriptor is not None:
            return move_to_high_number(descriptor)
    raise problem


def _write_record(folder: Path, key: str, lease: Lease, command: str, job: str | None) -> None:
    """Write the record of the holder, locked before it gets its name.

    Where that fails there is a warning only: the lock holds the device all the same.
    """
    about: dict[str, object] = {
        "schema": 1,
        "pid": os.getpid(),
        "pids": pid_namespace(),
        "since": time.time(),
        "command": command[:_MAX_COMMAND],
        "job": job,
        "roots": _roots(os.getpid()),
    }
    new = folder / f".{os.getpid()}.{os.urandom(6).hex()}"
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = move_to_high_number(os.open(new, flags, 0o644))
        lease.descriptors.append(descriptor)
        os.fchmod(descriptor, 0o644)
        os.write(descriptor, json.dumps(about).encode())
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for number in range(_MAX_NAMES):
            with contextlib.suppress(PermissionError, IsADirectoryError):
                # This may replace an old record of ours; the sticky bit protects those of other users.
                step = _step(lease.within, key)
                path = folder / f"{_file_name(key)}@{os.geteuid()}.{step}{number}.claim"
                new.rename(path)
                # (Absolute, because the working directory may change before the record is emptied.)
                lease._records.append((descriptor, about, path.absolute()))
                return
        lease.warnings.append(
            f"others cannot see who holds {key}: another user's files block every file name for it"
        )
    except OSError as error:
        lease.warnings.append(f"others cannot see who holds {key}: {error.strerror}")
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def _step(own: OwnLease, key: str) -> str:
    """What a step's files have in their names: "step1."; nothing outside a lease."""
    step = own.next_step(key)
    return f"step{step}." if step else ""


def _roots(*pids: int) -> list[tuple[int, int]]:
    """For a record: the processes whose descendants are the job's, as pids and starts (see `Identity`)."""
    return [(pid, stat.ticks) for pid in pids if (stat := process_stat(pid))]


def _file_name(key: str) -> str:
    """The UUID as a part of a file name: only the old form of MIG UUIDs has slashes (`MIG-GPU-…/1/0`)."""
    return key.replace("/", "+")
