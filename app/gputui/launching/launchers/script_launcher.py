"""What launchers of Python scripts have in common: options, then a script, a module or another program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from gputui.launching.launchers.options import Given
from gputui.launching.launchers.payload import Payload, by_launcher, with_interpreter


class ScriptLauncher(ABC):
    """starter    the launcher by its own name
    module     the same as a Python module: an interpreter that was named has the user's torch
    as_module  the option that says that a module follows;  as_program: that another program does
    """

    starter: tuple[str, ...]
    module: str
    as_module: str = "--module"
    as_program: str = "--no_python"

    @abstractmethod
    def prefix(self, command: Sequence[str]) -> int:
        """How many words start the launcher itself; 0 for a command that is not its own."""

    @abstractmethod
    def given(self, words: Sequence[str]) -> Given:
        """The launcher's options in the words behind its prefix; those of the script are not its own."""

    def recognises(self, command: Sequence[str]) -> bool:
        return self.prefix(command) > 0

    def payload(self, command: Sequence[str]) -> Payload:
        words = command[self.prefix(command) :]
        given = self.given(words)
        rest, left_out = given.behind(words), given.without(("module", "no-python"))
        if "no-python" in given:
            return by_launcher(command, "program", rest, left_out)
        return by_launcher(command, "module" if rest and "module" in given else "script", rest, left_out)

    def start(self, payload: Payload) -> tuple[str, ...]:
        starter = self.starter if payload.python is None else payload.by_module(self.module)
        if payload.kind == "script":
            return (*starter, *payload.words)
        return (*starter, self.as_module if payload.kind == "module" else self.as_program, *payload.words)

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        return with_interpreter(command, self.prefix(command), python, (python, "-m", self.module))
