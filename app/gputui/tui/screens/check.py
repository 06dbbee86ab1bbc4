"""The proof of the launch that stands there: what the command's own Python sees, against what was chosen."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from gputui.checking.check import check
from gputui.checking.report import Report
from gputui.checking.telling import lines
from gputui.inventory.wording import duration, printable
from gputui.tui.board import Board
from gputui.tui.screens.parts import PartsScreen
from gputui.tui.views.text import Line, clip, title, wrap


class CheckScreen(PartsScreen):
    """Begins to check when it is shown; leaving it ends the check."""

    BINDINGS = [("escape,q,v,enter", "leave", "Back"), ("r", "again", "Again")]

    def __init__(self, board: Board, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._board, self._environ = board, environ
        self._report: Report | None = None
        self._cancelled = threading.Event()
        self._began = time.monotonic()

    def on_mount(self) -> None:
        super().on_mount()
        self._begin()

    def on_unmount(self) -> None:
        self._cancelled.set()

    def _begin(self) -> None:
        self._report, self._cancelled = None, threading.Event()
        self._began = time.monotonic()
        threading.Thread(target=self._check, args=(self._cancelled,), daemon=True).start()
        self.draw()

    def _check(self, cancelled: threading.Event) -> None:
        """On a thread of its own: importing torch takes seconds."""
        snapshot = self._board.snapshot
        assert snapshot is not None  # something is chosen
        report = check(self._board.launch, snapshot, self._environ, cancelled=cancelled)
        if not cancelled.is_set():
            self.app.call_from_thread(self._checked, report)

    def _checked(self, report: Report) -> None:
        self._report = report
        if self.is_attached:
            self.draw()

    def draw(self) -> None:
        if self.size.width:
            keys = " esc back" if self._report is None else " esc back  r check again"
            self.paint(self._drawn, [clip(((keys, "dim"),), self.size.width)])

    def _drawn(self, width: int, height: int) -> list[Line]:
        launch, report = self._board.launch, self._report
        found: list[Line] = [title("verify", width)]
        found += [
            ((f" {'$' if not at else ' '} {text}", ""),)
            for at, text in enumerate(wrap(launch.line, width - 4))
        ]
        if report is None:
            waited = duration(time.monotonic() - self._began)
            return [*found, (("", ""),), ((f" asking the command's own Python … {waited}", "dim"),)]
        *facts, conclusion = lines(report)
        if report.doubt:
            facts.insert(0, printable(report.doubt))
        for fact in facts:
            found += [((f" {piece}", ""),) for piece in wrap(fact, width - 2)]
        found.append((("", ""),))
        sign, style = ("✓", "free") if report.equal else ("✕", "lost")
        for at, piece in enumerate(wrap(conclusion, width - 4)):
            found.append(((f" {sign if not at else ' '} ", style), (piece, "strong")))
        return found[:height]

    def action_again(self) -> None:
        if self._report is not None:
            self._begin()

    def action_leave(self) -> None:
        self._cancelled.set()
        self.dismiss()
