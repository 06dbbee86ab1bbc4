"""What launchers ask of the machine: files, programs and their versions, a free TCP port.

Launchers ask the machine through this only, so that they are pure functions of what they are given.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

_MOST = 1 << 16
"""Characters of a file that are read at most: a file named by mistake may be of any size."""

_NOT_BESIDE = ("env", "sh")
"""Programs in the first line of a script that are not its interpreter."""


class HostEnvironment(Protocol):
    """The machine as launchers see it."""

    def text(self, path: str) -> str | None:
        """The file's text; None where there is none, it is not text, or has more than 64 Ki characters."""

    def beginning(self, path: str, most: int) -> tuple[str, bool] | None:
        """The first `most` bytes of a regular file, and whether that is all of it; None where there is none.

        Bytes that are no UTF-8 are kept (surrogateescape), as in the words of a command.
        """

    def is_file(self, path: str) -> bool:
        """Whether the path is a regular file."""

    def program(self, name: str, environ: Mapping[str, str]) -> str | None:
        """The path of a program, as a shell with that environment would find it."""

    def version(self, package: str, program: str) -> tuple[int, ...] | None:
        """The version of an installed Python package in the environment that the program belongs to."""

    def free_port(self) -> int | None:
        """A TCP port of this machine that nothing listens on; None where there is none to be had."""

    def interpreter(self, path: str) -> tuple[str, ...] | None:
        """The interpreter that the first lines of a program name, with its options; None where none do."""

    def names(self) -> tuple[str, ...]:
        """The names of this machine."""


class ThisHost:
    """This machine. `free_port` gives the same port while it is free; versions are looked up once."""

    def __init__(self) -> None:
        self._port: int | None = None
        self._versions: dict[tuple[str, str], tuple[int, ...] | None] = {}

    def text(self, path: str) -> str | None:
        # First, as opening a pipe would wait for a writer.
        if not self.is_file(path):
            return None
        try:
            with Path(path).open(encoding="utf-8") as file:
                text = file.read(_MOST + 1)
        except (OSError, ValueError):
            return None
        return text if len(text) <= _MOST else None

    def beginning(self, path: str, most: int) -> tuple[str, bool] | None:
        try:
            # Without waiting, where it is a pipe: whether it is one is asked of what was opened.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except (OSError, ValueError):
            return None
        # (A directory cannot become a file object.)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            return None
        with os.fdopen(handle, "rb") as file:
            try:
                found = file.read(most + 1)
            except OSError:
                return None
        return found[:most].decode("utf-8", "surrogateescape"), len(found) <= most

    def is_file(self, path: str) -> bool:
        try:
            return Path(path).is_file()
        except (OSError, ValueError):
            return False

    def program(self, name: str, environ: Mapping[str, str]) -> str | None:
        return shutil.which(name, path=environ.get("PATH"))

    def version(self, package: str, program: str) -> tuple[int, ...] | None:
        key = (package, program)
        if key not in self._versions:
            self._versions[key] = _version(package, program)
        return self._versions[key]

    def interpreter(self, path: str) -> tuple[str, ...] | None:
        # (That module knows the launchers, and they ask here.)
        from gputui.launching.interpreter import shebang

        return shebang(path)

    def names(self) -> tuple[str, ...]:
        own = os.uname().nodename
        return ("localhost", "127.0.0.1", "::1", own, own.partition(".")[0])

    def free_port(self) -> int | None:
        # 5 ms to import, for the one launcher that needs a port.
        import socket

        if self._port is None or not is_free(self._port):
            with socket.socket() as probe:
                # On all addresses, as launchers listen: on one of them another program may have it.
                try:
                    probe.bind(("", 0))
                except OSError:
                    return None
                self._port = int(probe.getsockname()[1])
        return self._port


def is_free(port: int) -> bool:
    """Whether nothing of this machine listens on a TCP port, on any address."""
    import socket

    with socket.socket() as probe:
        # As the launchers' own sockets: a port in TIME_WAIT can be taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _version(package: str, program: str) -> tuple[int, ...] | None:
    """The version by the folders in site-packages; starting the interpreter takes 20 to 60 times as long."""
    for home in _environments(program):
        for pattern in (
            "lib/python3*/site-packages",
            "lib64/python3*/site-packages",
            "lib/python3*/dist-packages",
        ):
            for found in sorted(home.glob(f"{pattern}/{package}-*.dist-info")):
                numbers = re.match(r"(\d+(?:\.\d+)*)", found.name[len(package) + 1 :])
                if numbers:
                    return tuple(int(part) for part in numbers[1].split("."))
    return None


def _environments(program: str) -> list[Path]:
    """The environments that a script may belong to: its interpreter's, then that of its own folder."""
    homes = [Path(program).parent.parent]
    try:
        with Path(program).open("rb") as file:
            first = file.readline(512)
    except OSError:
        first = b""
    if first.startswith(b"#!"):
        interpreter = os.fsdecode(first[2:].strip().split(b" ")[0])
        if Path(interpreter).name not in _NOT_BESIDE:
            # Not resolved: a virtual environment's interpreter is a link out of it.
            homes.insert(0, Path(interpreter).parent.parent)
    return homes
