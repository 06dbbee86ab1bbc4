"""A host environment set by a test: files, programs, versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gputui.launching.host_environment import HostEnvironment
from gputui.launching.wrappers import behind_env


@dataclass
class Told(HostEnvironment):
    """A `HostEnvironment` set by a test; the free port is always the same."""

    files: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    port: int | None = 29777
    interpreters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def text(self, path: str) -> str | None:
        return self.files.get(path)

    def beginning(self, path: str, most: int) -> tuple[str, bool] | None:
        text = self.files.get(path)
        return None if text is None else (text[:most], len(text) <= most)

    def is_file(self, path: str) -> bool:
        return path in self.files

    def program(self, name: str, environ: Mapping[str, str]) -> str | None:
        return self.programs.get(name)

    def version(self, package: str, program: str) -> tuple[int, ...] | None:
        return self.versions.get(package)

    def interpreter(self, path: str) -> tuple[str, ...] | None:
        first = self.files.get(path, "").partition("\n")[0]
        words = tuple(first.removeprefix("#!").split()) if first.startswith("#!") else None
        if words and words[0].endswith("/env"):
            words = behind_env(words)
        return self.interpreters.get(path, words)

    def names(self) -> tuple[str, ...]:
        return ("localhost", "127.0.0.1", "this-box")

    def free_port(self) -> int | None:
        return self.port
