"""Reports in one sentence that gputui's files were replaced while it ran, wherever that is first noticed.

Pages and many other modules are imported when they are first needed. After an update (`pip install -U`) such
a module does not match the loaded ones, and fails with unreadable errors. So from the first frame on, each of
our modules is looked up here: none is loaded once the package has changed, and a failed import is assumed to
have the same cause.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

import gputui
from gputui.system.file_stamp import stamp_of

_PACKAGE = gputui.__name__


class UpdatedError(ImportError):
    """The files of gputui are not those that this program was started from.

    Textual exits with the text of `__rich__` in place of a traceback, and with status 1.
    """

    def __init__(self, name: str) -> None:
        super().__init__("gputui was updated while it ran: start it again", name=name)

    def __rich__(self) -> str:
        return f"gputui: {self}"


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except UpdatedError:
            raise
        except ImportError as error:
            raise UpdatedError(module.__name__) from error


class _Finder:
    def __init__(self, stamp: object) -> None:
        self._stamp = stamp

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{_PACKAGE}."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or stamp_of_package() != self._stamp:
            raise UpdatedError(name)
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def stamp_of_package() -> object:
    """A value that changes with a new installation, which replaces a file and never overwrites it."""
    return stamp_of(gputui.__file__)


def guard_imports(stamp: object) -> None:
    """Make imports of our modules raise UpdatedError from now on where they do not match the loaded ones: the
    package no longer has this stamp, or the module cannot be imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(stamp))
