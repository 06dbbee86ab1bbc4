"""Taking devices: a lock (flock) a device in the shared folder, for the job to inherit.

The kernel gives it back when the last process that has it is gone.

Two files a device. `<device>.<n>.lock` belongs to whoever came first, has no content, and its lock means
that the device is taken. `<device>@<uid>.<n>.claim` is the holder's own record for others to read, locked
too, so that a reader need not touch the first. A name at which somebody planted something else is passed over
by everyone alike, and the next number is tried. Should two come to different numbers all the same, because
somebody meddles with the files, the records tell: each looks at them once his own is there.
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

from gputui.allocating.claims.files import UntrustedFileError, is_being_made, is_still, make_there, open_there
from gputui.allocating.claims.folder import VARIABLE, make_folder
from gputui.allocating.claims.read import claims, empty_ended, pid_namespace
from gputui.choosing.verdict import claimed_by
from gputui.inventory.claim import Claim
from gputui.inventory.device import is_uuid
from gputui.inventory.snapshot import Snapshot
from gputui.system.descriptors import out_of_the_way

_MOST_NAMES = 8
"""Planted names that are passed over for one device."""
_TRIES = 100
_PAUSE = 0.005
"""Seconds between two tries where somebody else is about to finish: half a second in all."""
_LONGEST_COMMAND = 1000
"""Characters; JSON writes one as twelve bytes at worst, and a record has 16 KiB."""


class TakenError(Exception):
    """A device is not to be had: another job holds it, or others are in line for it.

    `key` is the device's, `claim` who holds it where that is known, `line` who is in line.
    """

    def __init__(self, key: str, claim: Claim | None = None, line: str | None = None) -> None:
        who = f"by {claim.user}" if claim else "by another job"
        super().__init__(line or f"{key} is claimed {who}")
        self.key, self.claim, self.line = key, claim, line

    def text(self, snapshot: Snapshot) -> str:
        """The device by its number, and who has it."""
        device = snapshot.by_key.get(self.key)
        name = f"GPU {snapshot.label(device)}" if device else self.key
        if self.line:
            return f"{name}: {self.line}"
        who = claimed_by(self.claim, snapshot.time) if self.claim else "by another job"
        return f"{name} is claimed {who}"


@dataclass
class Lease:
    """Open descriptors that hold devices. They are passed to the job; closing all of them gives it up.

    keys      the devices that are held
    warnings  why some are not: the launch goes on, as claims are advisory
    """

    keys: tuple[str, ...] = ()
    descriptors: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _records: list[tuple[int, dict[str, object], Path]] = field(default_factory=list)

    @property
    def records(self) -> tuple[str, ...]:
        """The files that say who holds the devices."""
        return tuple(str(path) for _, _, path in self._records)

    def belongs_to(self, pid: int, job: str) -> None:
        """Say in the records that a job has the devices now, whose command is that process."""
        for descriptor, about, _ in self._records:
            data = json.dumps({**about, "pid": pid, "job": job}).encode()
            # (The job runs already, and what the record says is only for people.)
            with contextlib.suppress(OSError):
                os.pwrite(descriptor, data, 0)
                os.ftruncate(descriptor, len(data))

    def inherit(self) -> None:
        """Let the program that this process becomes have the descriptors."""
        for descriptor in self.descriptors:
            os.set_inheritable(descriptor, True)

    def release(self) -> None:
        """Give the devices back, as far as no other process has the descriptors."""
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        for record in self.records:
            empty_ended(record)
        self.descriptors = []
        self._records = []


def take(keys: Iterable[str], environ: Mapping[str, str], command: str, job: str | None = None) -> Lease:
    """Hold the devices with these UUIDs, all or none. Raises TakenError.

    `command` is what every user may read of it (`secrets.program_and_script`).
    Where there is no folder for it, or a device has no UUID, the lease is the less, with a warning.
    """
    lease = Lease()
    wanted = sorted(set(keys))
    known = [key for key in wanted if is_uuid(key)]
    if len(known) < len(wanted):
        lease.warnings.append("a device without a UUID cannot be claimed")
    if not known:
        return lease
    folder = make_folder(environ)
    if folder is None:
        lease.warnings.append(_no_folder(environ))
        return lease
    try:
        _keep_folder(folder, lease)
        # In one order for everybody: nobody waits for somebody who waits for him.
        for key in known:
            if _lock(folder, key, lease, environ):
                lease.keys = (*lease.keys, key)
        _nobody_else(known, environ)
        for key in lease.keys:
            _record(folder, key, lease, command, job)
        # And who has come to another name at the same time sees ours, or we see his.
        _nobody_else(known, environ)
    except TakenError:
        lease.release()
        raise
    except OSError as error:
        lease.release()
        return Lease(warnings=[*lease.warnings, f"nothing is claimed: {folder}: {error.strerror}"])
    return lease


def take_unclaimed(
    keys: Iterable[str], environ: Mapping[str, str], command: str, job: str | None = None
) -> tuple[Lease, tuple[TakenError, ...]]:
    """Hold those of the devices that no other job has claimed, and tell who has claimed the others."""
    left, taken = list(keys), list[TakenError]()
    while True:
        try:
            return take(left, environ, command, job), tuple(taken)
        except TakenError as error:
            taken.append(error)
            left.remove(error.key)


def _no_folder(environ: Mapping[str, str]) -> str:
    named = environ.get(VARIABLE)
    if named:
        return f"nothing is claimed: {VARIABLE}={named} is no folder with mode 1777, and cannot be made one"
    return "nothing is claimed: there is no folder that all users can write"


def _keep_folder(folder: Path, lease: Lease) -> None:
    """A shared lock on the folder: systemd-tmpfiles passes locked ones over when it clears /tmp of old files
    (tmpfiles.d(5))."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        lease.descriptors.append(out_of_the_way(descriptor))
        fcntl.flock(lease.descriptors[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)


def _lock(folder: Path, key: str, lease: Lease, environ: Mapping[str, str]) -> bool:
    """Take the device's lock; False where no name for it is any good. Raises TakenError, OSError."""
    for number in range(_MOST_NAMES):
        path = folder / f"{_file_name(key)}.{number}.lock"
        try:
            descriptor = _locked(path, key, environ)
        except UntrustedFileError as error:
            lease.warnings.append(f"passed over: {error}")
        else:
            lease.descriptors.append(descriptor)
            return True
    lease.warnings.append(f"{key} is not claimed: every name for it is planted")
    return False


def _locked(path: Path, key: str, environ: Mapping[str, str]) -> int:
    """The file of that name, locked. Raises PlantedError, TakenError, OSError."""
    for _ in range(_TRIES):
        descriptor = _opened(path)
        try:
            _wait_for_lock(descriptor, key, environ)
        except TakenError:
            os.close(descriptor)
            raise
        if is_still(path, descriptor):
            return descriptor
        # It was removed between opening and locking: whoever comes now would lock another file.
        os.close(descriptor)
    raise UntrustedFileError(f"{path.name} comes and goes")


def _wait_for_lock(descriptor: int, key: str, environ: Mapping[str, str]) -> None:
    """Lock the file. Raises TakenError.

    A lock without a record is one that is just being taken, perhaps along with another that cannot be had:
    that is waited for, a moment.
    """
    holder = None
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        holder = next((each for each in claims(environ)[0] if each.key == key), None)
        if holder is not None:
            break
        time.sleep(_PAUSE)
    raise TakenError(key, holder)


def _nobody_else(keys: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raises TakenError where another record of one of these devices is alive: its lock has another name, or
    is in another folder. One that is about to end may have given back the lock only: for a moment."""
    for number in range(_TRIES):
        others = {claim.key: claim for claim in claims(environ)[0]}
        taken = [key for key in keys if key in others]
        if not taken:
            return
        if number == _TRIES - 1:
            raise TakenError(taken[0], others[taken[0]])
        time.sleep(_PAUSE)


def _opened(path: Path) -> int:
    """The file of that name, made where there is none. Raises PlantedError, OSError."""
    trouble = UntrustedFileError(f"{path.name} comes and goes")
    for _ in range(_TRIES):
        try:
            descriptor = open_there(path)
        except UntrustedFileError as error:
            trouble = error
            if not is_being_made(path):
                break
            # It has its mode in a moment.
            time.sleep(_PAUSE)
            continue
        if descriptor is None:
            descriptor = make_there(path)
        if descriptor is not None:
            return out_of_the_way(descriptor)
    raise trouble


def _record(folder: Path, key: str, lease: Lease, command: str, job: str | None) -> None:
    """Write who holds the device, under a name that others cannot take from us; a warning where that cannot
    be, as the device is held all the same."""
    about: dict[str, object] = {
        "schema": 1,
        "pid": os.getpid(),
        "pids": pid_namespace(),
        "since": time.time(),
        "command": command[:_LONGEST_COMMAND],
        "job": job,
    }
    new = folder / f".{os.getpid()}.{os.urandom(6).hex()}"
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = out_of_the_way(os.open(new, flags, 0o644))
        lease.descriptors.append(descriptor)
        os.fchmod(descriptor, 0o644)
        os.write(descriptor, json.dumps(about).encode())
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for number in range(_MOST_NAMES):
            with contextlib.suppress(PermissionError, IsADirectoryError):
                # Over our own of before; another user's file cannot be replaced in a sticky folder.
                path = folder / f"{_file_name(key)}@{os.geteuid()}.{number}.claim"
                new.rename(path)
                # (Absolute: it is looked for again after this process, or another, has gone elsewhere.)
                lease._records.append((descriptor, about, path.absolute()))
                return
        lease.warnings.append(f"others cannot see who holds {key}: every name for it is planted")
    except OSError as error:
        lease.warnings.append(f"others cannot see who holds {key}: {error.strerror}")
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def _file_name(key: str) -> str:
    """A UUID has no slash but in the old form of MIG (`MIG-GPU-…/1/0`)."""
    return key.replace("/", "+")
