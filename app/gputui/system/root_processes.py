"""The owners of another machine's processes, from its recorded /proc (`--root DIR`).

Users are numbers, because their names are not recorded.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from gputui.inventory.process import OWNER_UNKNOWN
from gputui.system.containers import container
from gputui.system.process_stat import stat_of
from gputui.system.processes import HostUse, Owner, ProcessTable
from gputui.system.root import Root, pairs, whole

_TICKS = 100
"""Ticks per second, on every machine that Linux runs on today (USER_HZ)."""


class RootProcesses(ProcessTable):
    """Processes below a root, each looked up once."""

    def __init__(self, root: Root) -> None:
        super().__init__(host_pids=True)
        self._root = root

    def lives(self, pid: int) -> bool:
        return pid in self._known

    def uses(self, pids: Collection[int]) -> dict[int, HostUse]:
        return {}

    def _look_up(self, pid: int) -> Owner:
        status = self._root.text(f"/proc/{pid}/status")
        if status is None:
            return Owner(note=OWNER_UNKNOWN)
        facts = pairs(status)
        uid = (facts.get("Uid", "").split() or [""])[0]
        try:
            read = self._timed.read(pid, lambda: self._root.bytes(f"/proc/{pid}/cmdline"))
        except TimeoutError:
            read = None
            self._unread.add(pid)
        words = (read or b"").rstrip(b"\0")
        command = words.replace(b"\0", b" ").decode(errors="replace") or facts.get("Name", "")
        return Owner(
            user=uid if whole(uid) is not None else None,
            command=command or None,
            started=self._started(pid),
            note=None if whole(uid) is not None else OWNER_UNKNOWN,
            container=container(self._root.text(f"/proc/{pid}/cgroup") or ""),
        )

    @cached_property
    def _booted(self) -> int | None:
        return whole(pairs(self._root.text("/proc/stat", 1 << 20), " ").get("btime", ""))

    def _started(self, pid: int) -> float | None:
        stat = stat_of(self._root.bytes(f"/proc/{pid}/stat") or b"")
        return None if stat is None or self._booted is None else self._booted + stat.ticks / _TICKS
