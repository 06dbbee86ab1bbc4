"""The processes of a job, from /proc: which are alive, their descendants, which write to its log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gputui.jobs.job import Identity, PidScope
from gputui.system.namespaces import pid_namespace

_PROC = Path("/proc")


def here() -> PidScope:
    """The scope of this very process's pids."""
    return PidScope(os.uname().nodename, _text(_PROC / "sys/kernel/random/boot_id"), pid_namespace())


def identity(pid: int) -> Identity:
    """The process that has this pid now."""
    facts = _facts(pid)
    return Identity(pid, facts[2] if facts else None)


def alive(process: Identity) -> bool:
    """Whether that very process still runs. One that has ended and was not collected does not."""
    facts = _facts(process.pid)
    if facts is not None:
        state, _, ticks = facts
        return state not in "ZX" and process.ticks in (None, ticks)
    if _PROC.joinpath("self").exists():
        return False
    try:
        os.kill(process.pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def family(roots: set[int]) -> set[Identity]:
    """The processes `roots`, where they run, with all their descendants."""
    running = {pid: facts for pid in _pids() if (facts := _facts(pid)) and facts[0] not in "ZX"}
    found = roots & running.keys()
    while more := {pid for pid, (_, parent, _) in running.items() if parent in found} - found:
        found |= more
    return {Identity(pid, running[pid][2]) for pid in found}


def session(leader: int) -> set[int]:
    """The processes of the session that `leader` made."""
    found = set()
    for pid in _pids():
        try:
            if os.getsid(pid) == leader:
                found.add(pid)
        except OSError:
            continue  # it ended meanwhile, or is somebody else's
    return found


def writers(file: Path) -> set[int]:
    """Our processes that have `file` open for writing: a job's processes inherit its log."""
    wanted = os.path.realpath(file)
    found = set()
    for pid in _pids():
        try:
            if any(_writes(pid, name, wanted) for name in os.listdir(f"/proc/{pid}/fd")):  # noqa: PTH208
                found.add(pid)
        except OSError:
            continue  # it ended meanwhile, or is somebody else's
    return found


def _writes(pid: int, name: str, wanted: str) -> bool:
    # The names are compared, not the files: to look at another one on a dead file server would hang.
    if os.readlink(f"/proc/{pid}/fd/{name}") != wanted:  # noqa: PTH115
        return False
    lines = (_text(Path(f"/proc/{pid}/fdinfo/{name}")) or "").splitlines()
    flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _pids() -> Iterator[int]:
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - twice as fast as making a Path of each
    except OSError:
        return
    yield from (int(name) for name in names if name.isdigit())


def _facts(pid: int) -> tuple[str, int, int] | None:
    """State, parent and start of a process (proc(5)); None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - a Path for each would cost more
            # The name in the second field may have spaces and parentheses of its own.
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[1]), int(fields[19])
    except (OSError, IndexError):
        return None


def _text(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None
