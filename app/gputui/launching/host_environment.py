"""The machine as launchers see it: files, programs and their versions, a free TCP port.

Launchers query the machine through this class only, so that they are pure functions of their arguments.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar

from gputui.inventory.others_files import TextBeginning, beginning, not_read, text_beginning
from gputui.launching.wrappers import behind_env
from gputui.system.environment import Environ

T = TypeVar("T")

READING = "the files that the command names are being read …"

Version = tuple[int, ...]
"""The numbers of a version: (2, 9, 1)."""

_MOST = 1 << 16
"""The most bytes of a configuration that are read: a file named by mistake may be of any size."""

_SURROGATE = re.compile("[\ud800-\udfff]")

_MOST_LINES = 1024
"""Bytes at the beginning of a script that are searched for its interpreter."""

_EXEC = re.compile(rb"'''exec' (.+) \"\$0\" \"\$@\"")
"""The second line that pip (distlib) and uv write where the interpreter's path is too long for the first
line, contains a space, or is relative to the script."""

_BESIDE = b'"$(dirname -- "$(realpath -- "$0")")"/'

_NOT_BESIDE = ("env", "sh")
"""Programs in the first line of a script that are not its interpreter."""


def below(directory: str | None, path: str) -> str:
    """Return a path that a command names, for a command that starts in that directory; "./x" stays "./x"."""
    return os.path.join(directory or "", path)  # noqa: PTH118


class HostEnvironment:
    """The machine as launchers see it. This base class is an unknown machine, such as a container.

    port  a free TCP port of that machine, None where there is none
    slow  whether files have been read for so long that a launch says so
    """

    slow = False

    def __init__(self, port: int | None = None) -> None:
        self._port = port

    def text(self, path: str) -> str | None:
        """Return the file's text; None where there is no file, it is not text, or it has more than 64 KiB."""
        return None

    def beginning(self, path: str, most: int) -> TextBeginning | None:
        """Return the first `most` bytes of a regular file, and whether that is all of it; None where there is
        no such file. Bytes after a NUL are not read.

        Bytes that are not UTF-8 are kept (surrogateescape), as in the words of a command.
        """
        return None

    def reading_of(self, what: Hashable, read: Callable[[], T], unread: T) -> T:
        """Return the result of `read`, which reads files; `what` is its cache key. Return `unread` where the
        files have not been read yet and the caller must not block (the screen)."""
        return read()

    def is_file(self, path: str) -> bool:
        """Whether the path is a regular file."""
        return False

    def program(self, name: str, environ: Environ) -> str | None:
        """Return the path of a program, as a shell with that environment would find it."""
        return None

    def version(self, package: str, program: str) -> Version | None:
        """Return the version of a Python package installed in the environment that the program belongs to."""
        return None

    def free_port(self) -> int | None:
        """Return a TCP port of this machine that nothing listens on; None where there is none."""
        return self._port

    def interpreter(self, path: str) -> tuple[str, ...] | None:
        """Return the interpreter that the first lines of a program name, with its options; None for none."""
        return None

    def names(self) -> tuple[str, ...]:
        """Return the names of this machine."""
        return ("localhost", "127.0.0.1", "::1")


class ThisHost(HostEnvironment):
    """This machine. `free_port` returns the same port while it is free; versions are looked up once."""

    def __init__(self) -> None:
        super().__init__()
        self._versions: dict[tuple[str, str], Version | None] = {}

    def text(self, path: str) -> str | None:
        found = self.beginning(path, _MOST)
        if found is None:
            return None
        text, whole = found
        if not whole:
            not_read(os.path.basename(path), f"it has NUL bytes, or more than {_MOST >> 10} KiB")  # noqa: PTH119
        return text if whole and not _SURROGATE.search(text) else None

    def beginning(self, path: str, most: int) -> TextBeginning | None:
        try:
            return text_beginning(path, most)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                not_read(os.path.basename(path), error.strerror)  # noqa: PTH119 - a text
        except ValueError:
            # The path contains a NUL.
            pass
        return None

    def is_file(self, path: str) -> bool:
        try:
            return Path(path).is_file()
        except (OSError, ValueError):
            return False

    def program(self, name: str, environ: Environ) -> str | None:
        return shutil.which(name, path=environ.get("PATH"))

    def version(self, package: str, program: str) -> Version | None:
        key = (package, program)
        if key not in self._versions:
            self._versions[key] = _version(package, program)
        return self._versions[key]

    def interpreter(self, path: str) -> tuple[str, ...] | None:
        return shebang(path)

    def names(self) -> tuple[str, ...]:
        own = os.uname().nodename
        return (*super().names(), own, own.partition(".")[0])

    def free_port(self) -> int | None:
        # Takes 5 ms to import, and only one launcher needs a port.
        import socket

        if self._port is None or not is_free(self._port):
            with socket.socket() as probe:
                # Binds to all addresses, as launchers do: another program may have the port on one of them.
                try:
                    probe.bind(("", 0))
                except OSError:
                    return None
                self._port = int(probe.getsockname()[1])
        return self._port


def is_free(port: int) -> bool:
    """Whether no program of this machine listens on a TCP port, on any address."""
    import socket

    with socket.socket() as probe:
        # Launchers' own sockets have this option, too: a port in TIME_WAIT can be used.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _version(package: str, program: str) -> Version | None:
    """Return the version by the folders in site-packages; the interpreter takes 20 to 60 times as long."""
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
    """Return the environments that a script may belong to: its interpreter's, then that of its own folder."""
    homes = [Path(program).parent.parent]
    named = shebang(program)
    # The path is not resolved: a virtual environment's interpreter is a link to a file outside it.
    if named is not None and "/" in named[0] and Path(named[0]).name not in _NOT_BESIDE:
        homes.insert(0, Path(named[0]).parent.parent)
    return homes


def shebang(path: str) -> tuple[str, ...] | None:
    """Return the interpreter that a script's first lines name, with its options; None where there is none.

    `#!/usr/bin/env python3` yields ("python3",), to be looked up in PATH.
    """
    try:
        head = beginning(path, _MOST_LINES)[0]
    except (OSError, ValueError):
        return None
    if not head.startswith(b"#!"):
        return None
    lines = head.splitlines()
    words = os.fsdecode(lines[0][2:].strip()).split()
    if not words:
        return None
    name = words[0].rsplit("/", 1)[-1]
    if name == "sh" and len(lines) > 1:
        trick = _EXEC.search(lines[1])
        return _of_trick(trick[1], path) if trick else tuple(words)
    if name == "env":
        return behind_env(words) or None
    # The kernel passes everything after the first space as one word.
    return tuple(os.fsdecode(lines[0][2:].strip()).split(None, 1))


def _of_trick(text: bytes, path: str) -> tuple[str, ...] | None:
    beside = text.startswith(_BESIDE)
    try:
        words = shlex.split(os.fsdecode(text.removeprefix(_BESIDE)))
    except ValueError:
        return None
    if not words:
        return None
    return (str(Path(path).resolve().parent / words[0]), *words[1:]) if beside else tuple(words)
