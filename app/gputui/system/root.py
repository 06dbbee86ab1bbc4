"""The root of the kernel's files: the machine's own `/`, or a folder in its place (`--root DIR`).

Everything that inspects a machine through files uses a `Root`, so that a folder with another machine's /sys,
/proc and /usr/share is read as that machine. Reading is bounded: a file that is not a regular file (a pipe
would block), is unreadable or is missing is None, and a file that is too long is truncated. Links that lead
out of the folder are not followed: their targets are this machine's.
"""

from __future__ import annotations

# ruff: noqa: PTH110, PTH114, PTH115 - quick: pathlib alone takes milliseconds
import os
import stat
from collections.abc import Callable
from itertools import islice

MOST_BYTES = 64 * 1024
"""The most bytes of one file, unless the reader asks for more: sysfs gives a page (4 KiB), a
few files more."""

MOST_ENTRIES = 65_536
"""The most entries of one folder: /proc of a large machine has some ten thousand."""

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


OnRead = Callable[[str, "bytes | None"], None]


class Root:
    """A machine's files. Paths are the machine's own, absolute ("/sys/class/drm").

    `on_read` is called with each path that was read and its content; the content is None for a folder, and
    for a path that was only looked up. `record --trees` packs what it receives.
    """

    def __init__(self, folder: str = "/", on_read: OnRead | None = None) -> None:
        self._folder = "" if folder == "/" else os.path.realpath(folder)
        self._on_read = on_read
        self._folders: dict[str, str | None] = {}

    @property
    def here(self) -> bool:
        """Whether libraries, system functions and programs may be used, too.

        They may for the machine on which gputui runs, unless its files are being packed.
        """
        return not self._folder and self._on_read is None

    @property
    def recorded(self) -> bool:
        """Whether this is a folder: another machine's files, or earlier files of this machine."""
        return bool(self._folder)

    def watched_by(self, on_read: OnRead) -> Root:
        """Return the same machine, with a callback for each path that is read."""
        return Root(self._folder or "/", on_read)

    def may_open(self, device: str) -> bool:
        """Return whether we may open a device file for reading and writing.

        It is not opened: that can wake a device up. A recorded machine has an empty file for each device file
        that could be opened.
        """
        may = self.has(device) if self._folder else os.access(device, os.R_OK | os.W_OK)
        if may and self._on_read is not None:
            self._on_read(device, b"")
        return may

    def path(self, path: str) -> str:
        """Return the local path for this path of the machine."""
        return self._folder + path

    def bytes(self, path: str, most: int = MOST_BYTES) -> bytes | None:
        """Return the first `most` bytes of a regular file; None where it is missing or unreadable."""
        where = self._inside(path)
        if where is None:
            return None
        try:
            handle = os.open(where, _FLAGS)
        except (OSError, ValueError):
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            parts: list[bytes] = []
            while most > 0 and (part := os.read(handle, min(most, MOST_BYTES))):
                # /proc returns a page or so at a time.
                parts.append(part)
                most -= len(part)
        except OSError:
            return None
        finally:
            os.close(handle)
        data = b"".join(parts)
        if self._on_read is not None:
            self._on_read(path, data)
        return data

    def text(self, path: str, most: int = MOST_BYTES) -> str | None:
        """Return the same as text, without surrounding white space and NUL bytes."""
        data = self.bytes(path, most)
        return None if data is None else data.decode(errors="replace").strip(" \t\r\n\0")

    def number(self, path: str, base: int = 10) -> int | None:
        """Return the whole number in a file, None for anything else. Base 16 accepts "0x"."""
        text = self.text(path, 64)
        return None if text is None else whole(text, base)

    def names(self, path: str) -> list[str]:
        """Return the entries of a folder in no order; [] where it is not a folder or cannot be read."""
        where = self._inside(path)
        if where is None:
            return []
        try:
            with os.scandir(where) as entries:
                found = [entry.name for entry in islice(entries, MOST_ENTRIES)]
        except (OSError, ValueError):
            return []
        if self._on_read is not None:
            self._on_read(path, None)
        return found

    def has(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        where = self._inside(path)
        there = where is not None and os.path.exists(where)
        if there and self._on_read is not None:
            self._on_read(path, None)
        return there

    def real(self, path: str) -> str | None:
        """Return the machine's path of a link's final target; None where it does not exist, or is outside."""
        where = self._inside(path)
        if where is None:
            return None
        try:
            if self._folder:
                # `_inside` has followed all links; a loop of links has no status.
                os.stat(where)  # noqa: PTH116 - paths are text here
                found = where
            else:
                found = os.path.realpath(where, strict=True)
        except (OSError, ValueError):
            return None
        if self._on_read is not None:
            self._on_read(path, None)
        return found[len(self._folder) :] or "/"

    def link(self, path: str) -> str | None:
        """Return the text of a link, None where there is none."""
        try:
            return os.readlink(self.path(path))
        except (OSError, ValueError):
            return None

    def program(self, name: str) -> str | None:
        """Return the path of a program that no other user could have put there: for a folder, one from its
        `bin`."""
        from gputui.system.trust import program, who_can_change

        if self.here:
            return program(name, os.environ.get("PATH"))
        where = self._inside(f"/bin/{name}")
        if where is None or not os.access(where, os.X_OK):
            return None
        return where if who_can_change(where) is None else None

    def _inside(self, path: str) -> str | None:
        """Return the local path; None where links lead out of the folder, or form a loop."""
        if not self._folder:
            return path
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            # Resolve from the folder above, which is mostly known.
            real = self._inside(folder) if folder else self._folder
            if len(self._folders) > MOST_ENTRIES:
                self._folders.clear()
            self._folders[folder] = real
        real = self._folders[folder]
        if real is None:
            return None
        where = f"{real}/{name}"
        # Only links are expensive: most files of a machine are not links.
        return self._resolved(where) if os.path.islink(where) or name in ("", ".", "..") else where

    def _resolved(self, where: str) -> str | None:
        found = os.path.realpath(where)
        return found if found == self._folder or found.startswith(self._folder + os.sep) else None


def whole(text: str, base: int = 10) -> int | None:
    """Return a whole number of at most 20 digits from a kernel's file; None for any other text."""
    digits = text[1:] if text[:1] == "-" else text
    if base == 16:
        digits = digits.removeprefix("0x").removeprefix("0X")
    if not digits or len(digits) > 20 or not digits.isascii() or not digits.isalnum():
        return None
    try:
        number = int(digits, base)
    except ValueError:
        return None
    return -number if text[0] == "-" else number


def pairs(text: str | None, between: str = ":") -> dict[str, str]:
    """Return the values by name of lines like "name: value"; other lines are left out."""
    lines = (line.partition(between) for line in (text or "").splitlines())
    return {name.strip(): value.strip() for name, found, value in lines if found}


HERE = Root()
"""This machine."""
