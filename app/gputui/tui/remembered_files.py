"""The files of a command as the screen knows them: read on other threads than the one that paints.

A file may be 100 KB of somebody else's brackets, or lie on a server that does not answer: no key waits.
On the thread that paints, what has been read is looked up; what has not is noted, read in the background, and
the screen is drawn again with it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar, cast

from gputui.launching.host_environment import HostEnvironment

T = TypeVar("T")


class RememberedFiles(HostEnvironment):
    """This machine as launchers see it (`HostEnvironment`): on the main thread only what other threads have
    read before.

    missing  whether anything has been asked for on the main thread that was not read
    """

    def __init__(self, host: HostEnvironment, on_missing: Callable[[], object]) -> None:
        """`on_missing` is called on the main thread when something is missing for the first time."""
        super().__init__()
        self._host, self._on_missing = host, on_missing
        self._known: dict[Hashable, object] = {}
        self._seen: dict[str, tuple[int, ...]] = {}
        """Of each path that was read, what it was then: see `_state`."""
        self.missing = False

    def forget_changed(self) -> bool:
        """Forget everything if a file is not what it was; whether it is so. (What was made of one file may
        depend on another.) Not on the main thread."""
        if all(_state(path) == before for path, before in self._seen.copy().items()):
            return False
        self._seen, self._known = {}, {}
        return True

    def reading_of(self, what: Hashable, read: Callable[[], T], unread: T) -> T:
        key = ("reading", what)
        known = self._known
        if key in known:
            return cast(T, known[key])
        if threading.current_thread() is not threading.main_thread():
            found = read()
            known[key] = found
            return found
        if not self.missing:
            self.missing = True
            self._on_missing()
        return unread

    def _of(self, path: str, how: str, read: Callable[[], T], unread: T) -> T:
        if threading.current_thread() is not threading.main_thread():
            # (Before it is read: what changes while it is read has changed.)
            self._seen.setdefault(path, _state(path))
        return self.reading_of((how, path), read, unread)

    def text(self, path: str) -> str | None:
        return self._of(path, "text", lambda: self._host.text(path), None)

    def beginning(self, path: str, most: int) -> tuple[str, bool] | None:
        return self._of(path, f"beginning {most}", lambda: self._host.beginning(path, most), None)

    def version(self, package: str, program: str) -> tuple[int, ...] | None:
        return self._of(program, f"version of {package}", lambda: self._host.version(package, program), None)

    def interpreter(self, path: str) -> tuple[str, ...] | None:
        return self._of(path, "interpreter", lambda: self._host.interpreter(path), None)

    # What opens no file.

    def is_file(self, path: str) -> bool:
        return self._host.is_file(path)

    def program(self, name: str, environ: Mapping[str, str]) -> str | None:
        return self._host.program(name, environ)

    def names(self) -> tuple[str, ...]:
        return self._host.names()

    def free_port(self) -> int | None:
        return self._host.free_port()


def _state(path: str) -> tuple[int, ...]:
    """What changes when a file does; () for none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a text
    except (OSError, ValueError):
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
