"""A third-party program that reports facts that the kernel lacks (xpu-smi, hl-smi, ioreg, Slurm's programs).

Such a program can hang and can print anything: it has a deadline, its output is bounded, and after a missed
deadline it is not run for a while.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from gputui.inventory.formatting import MIB, printable
from gputui.system.root import Root

DEADLINE = 5.0
"""Seconds for one answer: hl-smi and xpu-smi take one or two on a machine with eight devices."""

PAUSE = 60.0
"""Seconds for which a program is not run after it missed its deadline."""

MOST_OUTPUT = 4 * MIB


class Program:
    """The program of that name, on the machine whose files `root` has.

    `trouble` says in one line why the last call had no answer; None where it had an answer, or where the
    machine has no such program.
    """

    def __init__(
        self,
        root: Root,
        name: str,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.monotonic,
        most: int = MOST_OUTPUT,
    ) -> None:
        self.name, self._most = name, most
        self.trouble: str | None = None
        self._root, self._deadline, self._clock = root, deadline, clock
        self._path: str | None = None
        self._looked = False
        self._not_before = float("-inf")

    @property
    def there(self) -> bool:
        """Whether the machine has it."""
        return self._where() is not None

    def _where(self) -> str | None:
        if not self._looked:
            self._looked, self._path = True, self._root.program(self.name)
        return self._path

    @property
    def silent(self) -> bool:
        """Whether it is in its pause, because it missed its deadline."""
        return self._clock() < self._not_before

    def ask(self, *words: str) -> str | None:
        """Return its output for these arguments; None where it is missing, fails, or misses its deadline."""
        path = self._where()
        if path is None or self.silent:
            return None
        # This import takes milliseconds, and most machines have none of these programs.
        from gputui.system.child_process import run

        ended = run((path, *words), {**os.environ, "LC_ALL": "C"}, None, self._deadline, most=self._most)
        self.trouble = None
        if ended.trouble is not None:
            self.trouble = f"{self.name}: {ended.trouble}; its facts are unknown"
            self._not_before = self._clock() + PAUSE
        elif ended.status != 0:
            told = ended.output.strip().splitlines()[:1] or ended.errors.strip().splitlines()[-1:]
            words_of_it = f": {printable(told[0])[:120]}" if told else ""
            self.trouble = f"{self.name} ended with status {ended.status}{words_of_it}"
        elif not ended.output.strip():
            self.trouble = f"{self.name} printed nothing"
        return ended.output if self.trouble is None else None
