"""The files that the readers read of a machine, as an archive, so that a user's machine becomes a test.

Nothing else is packed. The archive unpacks to a folder for `--root`: files at their real paths, and the links
by which they were found, made relative.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from pathlib import PurePosixPath

from gputui.sources.source import NoSourceError, Want
from gputui.system.root import Root
from gputui.vendors.box import BoxSource, sources_of

_PRIVATE = re.compile(r"/proc/(sys/kernel/hostname|\d+/(cmdline|status|stat|cgroup))")
"""The host's name, and the owners and commands of its processes."""
_CLIENT_NAME = re.compile(rb"^drm-client-name:.*\n?", re.MULTILINE)
_MOST_LINKS = 40
_NOTHING = (
    "no device here is read from files; `gputui record FILE` records what libraries and programs report"
)


class Trees:
    """The files, links and folders of the machine that were read, by their paths."""

    def __init__(self, root: Root, anonymous: bool = False) -> None:
        self._plain = root
        self._anonymous = anonymous
        self.root = root.watched_by(self._note)
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.folders: set[str] = set()

    def read(self) -> None:
        """Make every vendor's reader read all that it can of the machine. Raise NoSourceError where none of
        them finds devices."""
        box = BoxSource(sources_of(self.root), self.root, nothing=_NOTHING)
        box.open()
        try:
            box.read(Want.ALL | Want.DETAILS | Want.HOST | Want.SPEED | Want.ORDER)
        finally:
            box.close()

    def _note(self, path: str, data: bytes | None) -> None:
        if self._anonymous and _PRIVATE.fullmatch(path):
            return
        real = self._followed(path)
        if real is None:
            return
        if data is None:
            if os.path.isdir(self._plain.path(real)):  # noqa: PTH112 - paths are text here
                self.folders.add(real)
            return
        if self._anonymous:
            data = _CLIENT_NAME.sub(b"", data)
        known = self.files.get(real)
        if known is None or len(data) > len(known):
            self.files[real] = data

    def _followed(self, path: str) -> str | None:
        """Return the real path of a path of the machine; None for a loop. Note the links on the way."""
        parts = [part for part in path.split("/") if part]
        at, followed = "", 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                at = at.rpartition("/")[0]
                continue
            here = f"{at}/{part}"
            target = self._plain.link(here)
            if target is None:
                at = here
                continue
            followed += 1
            if followed > _MOST_LINKS:
                return None
            rest = [word for word in target.split("/") if word and word != "."]
            if target.startswith("/"):
                base = os.path.relpath(target, at or "/")
                at, self.links[here] = "", base
            else:
                self.links[here] = target
            parts = rest + parts
        return at

    def archive(self, compression: str) -> bytes:
        """Return the archive; `compression` is "xz", "gz" or ""."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode=f"w:{compression}") as tar:  # type: ignore[call-overload]
            inside = {
                str(parent) for path in (*self.files, *self.links) for parent in PurePosixPath(path).parents
            }
            for path in sorted((self.folders | inside) - self.links.keys() - {"/"}):
                self._add(tar, path, tarfile.DIRTYPE, 0o755)
            for path, target in sorted(self.links.items()):
                self._add(tar, path, tarfile.SYMTYPE, 0o777, target)
            for path, data in sorted(self.files.items()):
                self._add(tar, path, tarfile.REGTYPE, 0o644, data=data)
        return packed.getvalue()

    @staticmethod
    def _add(
        tar: tarfile.TarFile, path: str, kind: bytes, mode: int, to: str = "", data: bytes = b""
    ) -> None:
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type, entry.mode, entry.linkname, entry.size = kind, mode, to, len(data)
        tar.addfile(entry, io.BytesIO(data))


def packed_trees(root: Root, anonymous: bool, compression: str) -> tuple[bytes, int]:
    """Return the archive of a machine and the number of files in it. Raise NoSourceError
    where no device is read from files."""
    trees = Trees(root, anonymous)
    trees.read()
    if not trees.files:
        raise NoSourceError(_NOTHING)
    return trees.archive(compression), len(trees.files)
