"""A cache of the files of a command for the screen: they are read on other threads than the painting one.

A file may contain 100 KB of nested brackets, or be on a server that does not answer: no key must wait.
The thread that paints looks up what has been read. A miss is noted, read in the background, and the screen
is drawn again with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

from gputui.inventory.others_files import TextBeginning
from gputui.launching.host_environment import HostEnvironment, Version
from gputui.system.environment import Environ
from gputui.system.file_stamp import stamp_of

T = TypeVar("T")


class RememberedFiles(HostEnvironment):
    """This machine as launchers see it (`HostEnvironment`): the main thread sees only what other threads have
    read before.

    missing  whether the main thread has asked for something that was not read
    """

    def __init__(self, host: HostEnvironment, on_missing: Callable[[], object]) -> None:
        """`on_missing` is called on the main thread when something is missing for the first time."""
        super().__init__()
        self._host, self._on_missing = host, on_missing
        self._known: dict[Hashable, object] = {}
        self._seen: dict[str, object] = {}
        """The state of each path when it was read: see `_state`."""
        self.missing = False

    def forget_changed(self) -> bool:
        """Forget everything if a file has changed; return whether one has. Everything, because the result
        from one file may depend on another. Do not call on the main thread."""
        if all(stamp_of(path) == before for path, before in self._seen.copy().items()):
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
            # The state is taken before the read, so that a change during the read counts as a change.
            self._seen.setdefault(path, stamp_of(path))
        return self.reading_of((how, path), read, unread)

    def text(self, path: str) -> str | None:
        return self._of(path, "text", lambda: self._host.text(path), None)

    def beginning(self, path: str, most: int) -> TextBeginning | None:
        return self._of(path, f"beginning {most}", lambda: self._host.beginning(path, most), None)

    def version(self, package: str, program: str) -> Version | None:
        return self._of(program, f"version of {package}", lambda: self._host.version(package, program), None)

    def interpreter(self, path: str) -> tuple[str, ...] | None:
        return self._of(path, "interpreter", lambda: self._host.interpreter(path), None)

    # Lookups that open no file.

    def is_file(self, path: str) -> bool:
        return self._host.is_file(path)

    def program(self, name: str, environ: Environ) -> str | None:
        return self._host.program(name, environ)

    def names(self) -> tuple[str, ...]:
        return self._host.names()

    def free_port(self) -> int | None:
        return self._host.free_port()
