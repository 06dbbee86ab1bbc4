"""Find the processes of a job in /proc: the live ones, their descendants, and the writers of its log."""

from __future__ import annotations

import os
from pathlib import Path

from gputui.inventory.job import PidScope
from gputui.inventory.process import Identity
from gputui.system.namespaces import pid_namespace
from gputui.system.process_stat import exists, owner_of, pids, process_stat
from gputui.system.process_stat import family as family_of

_PROC = Path("/proc")


def own_scope() -> PidScope:
    """The scope in which this process's pids are valid."""
    return PidScope(os.uname().nodename, _text(_PROC / "sys/kernel/random/boot_id"), pid_namespace())


def identity(pid: int) -> Identity:
    """The identity of the process that has this pid now."""
    found = process_stat(pid)
    return Identity(pid, found.ticks if found else None)


def alive(process: Identity) -> bool:
    """Whether that very process still runs. A zombie does not run."""
    found = process_stat(process.pid)
    if found is not None:
        return found.runs and process.ticks in (None, found.ticks)
    return not _PROC.joinpath("self").exists() and exists(process.pid)


def family(roots: set[int]) -> set[Identity]:
    """The running processes among `roots`, and all their descendants."""
    return {Identity(pid, stat.ticks) for pid, stat in family_of(roots).items()}


def session(leader: int) -> set[int]:
    """The pids of the processes in the session of `leader`."""
    found = set()
    for pid in pids():
        try:
            if os.getsid(pid) == leader:
                found.add(pid)
        except OSError:
            continue  # it has ended, or belongs to another user
    return found


def writers(file: Path) -> set[int]:
    """The pids of our processes that have `file` open for writing: a job's processes inherit its log."""
    wanted = os.path.realpath(file)
    try:
        with file.open("rb") as own:
            inode = _facts("self", str(own.fileno())).get("ino")
    except OSError:
        return set()
    found = set()
    for pid in pids():
        try:
            # Root sees the files of all users, and a container may have another file of this name.
            if owner_of(pid) == os.geteuid() and any(
                _writes(pid, name, wanted, inode)
                for name in os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
            ):
                found.add(pid)
        except OSError:
            continue  # it has ended, or belongs to another user
    return found


def _writes(pid: int, name: str, wanted: str, inode: str | None) -> bool:
    # Not a stat of the link: that of a file on a dead file server would hang.
    if os.readlink(f"/proc/{pid}/fd/{name}") != wanted:  # noqa: PTH115
        return False
    facts = _facts(pid, name)
    writes = int(facts.get("flags", "0"), 8) & os.O_ACCMODE != os.O_RDONLY
    # (Linux has told the inode since 5.14.)
    return writes and facts.get("ino") == inode


def _facts(pid: int | str, name: str) -> dict[str, str]:
    """The facts that the kernel has about an open file, by their names; {} where it is gone."""
    lines = (_text(Path(f"/proc/{pid}/fdinfo/{name}")) or "").splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _text(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None
