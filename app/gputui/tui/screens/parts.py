"""A screen of two parts: a picture that takes what room there is, and what is told below it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.screen import ModalScreen

from gputui.tui.views.text import Line
from gputui.tui.widgets.lines import Build, Lines


class PartsScreen(ModalScreen[None]):
    """Is drawn every second, after every change of size, and whenever `draw` is called."""

    CSS_PATH = "parts.tcss"
    SURFACE = Lines

    def __init__(self) -> None:
        super().__init__(classes="parts")

    def compose(self) -> ComposeResult:
        yield self.SURFACE(id="picture")
        yield self.SURFACE(id="told")

    def on_mount(self) -> None:
        self.set_interval(1.0, self.draw)

    def on_resize(self) -> None:
        self.draw()

    @abstractmethod
    def draw(self) -> None:
        """Show things as they are now."""

    def paint(self, build: Build, told: Sequence[Line]) -> None:
        """Show the picture and what is told below it, which is as high as its lines."""
        self.query_one("#told", Lines).draw_all(told)
        self.picture.draw(build)

    @property
    def picture(self) -> Lines:
        """The part above."""
        return self.query_one("#picture", Lines)


def window(top: int, place: int, room: int, count: int) -> int:
    """The first line to show so that the one at `place` is to be seen, near to where it was before."""
    return min(max(top, place - room + 1), place, max(0, count - room))
