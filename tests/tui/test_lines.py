"""A surface of lines paints what has changed, and nothing else."""

from __future__ import annotations

from typing import Any

from textual.app import App, ComposeResult
from textual.geometry import Region

from gputui.tui.views.text import Line
from gputui.tui.widgets.lines import Lines


class Painted(Lines):
    """Lines that tell which of them were painted again; None for all of them."""

    def __init__(self) -> None:
        super().__init__("lines")
        self.painted: list[int | None] = []

    def refresh(self, *regions: Region, **more: Any) -> Any:
        self.painted += [region.y for region in regions] or [None]
        return super().refresh(*regions, **more)


class Surface(App[None]):
    def compose(self) -> ComposeResult:
        yield Painted()


def lines(*texts: str, style: str = "") -> list[Line]:
    return [((text, style),) for text in texts]


async def test_only_lines_that_have_changed_are_painted_again() -> None:
    app = Surface()
    async with app.run_test(size=(20, 5)) as pilot:
        surface = app.query_one(Painted)

        async def shown(*, of: list[Line], lit: int | None = None) -> list[int | None]:
            await pilot.pause()
            surface.painted.clear()
            surface.lit = lit
            surface.draw(lambda width, height: of)
            return list(surface.painted)

        assert await shown(of=lines("a", "b", "c")) == [None]
        assert await shown(of=lines("a", "b", "c")) == []
        assert await shown(of=lines("a", "x", "c")) == [1]
        assert await shown(of=lines("a", "x", "c", style="dim")) == [0, 1, 2]
        assert await shown(of=lines("a", "x", "c", style="dim"), lit=0) == [0], "the cursor has come"
        assert await shown(of=lines("a", "x", "c", style="dim"), lit=2) == [0, 2], "and has moved"
        assert await shown(of=lines("a", "x")) == [None]
        assert surface.texts == ["a", "x"]
