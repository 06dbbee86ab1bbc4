"""A surface of styled lines that repaints only the changed ones.

Such a widget costs 0.3 % CPU at 1 Hz where a DataTable costs 2 % (measured, Textual 8.2.8): every live part
of the screen consists of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.css.scalar import Scalar
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputui.inventory.formatting import printable
from gputui.tui.looks import look
from gputui.tui.views.text import Line

_OWN_BACKGROUND = ("-on", "here", "brand", "slot")

Build = Callable[[int, int], Sequence[Line]]
"""Returns the lines to show for a width and a height in cells."""


class Lines(Widget):
    """Lines of spans, shown from the top; `lit` is the line to paint on the cursor's background.

    `draw` sets a builder, which is called again whenever the size changes: the first painting after a layout
    is already right.
    """

    ALLOW_SELECT = False

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._shown: list[tuple[Line, bool]] = []
        self._looks: dict[tuple[str, bool], Style] = {}
        self._build: Build | None = None
        self._height: int | None = None
        self.lit: int | None = None

    def draw(self, build: Build) -> None:
        """Show the lines that `build` returns, now and after every change of size."""
        self._build = build
        if size := self.size:
            # A new height takes effect at the next layout: the lines that are built now are painted after it.
            self._show(build(size.width, size.height if self._height is None else self._height))

    def draw_all(self, lines: Sequence[Line]) -> None:
        """Show these lines and take exactly their height."""
        self.set_height(len(lines))
        self.draw(lambda width, height: lines)

    def set_height(self, lines: int) -> None:
        """Set the height in lines; each change costs a layout, so an equal height changes nothing."""
        self._height = lines
        if self.styles.height != Scalar.parse(str(lines)):
            self.styles.height = lines

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._restyle())

    def on_unmount(self) -> None:
        # Otherwise the signal's callback keeps this widget, and through it the whole page: 60 KiB each time.
        self.app.theme_changed_signal.unsubscribe(self)

    def _restyle(self) -> None:
        self._looks.clear()
        self.refresh()

    def on_resize(self) -> None:
        if self._build is not None:
            self.draw(self._build)

    def _show(self, lines: Sequence[Line]) -> None:
        """Show these lines; only the lines that differ are painted again."""
        before = self._shown
        self._shown = [(line, place == self.lit) for place, line in enumerate(lines)]
        if len(before) != len(self._shown):
            self.refresh()
            return
        changed = [y for y, pair in enumerate(zip(before, self._shown, strict=True)) if pair[0] != pair[1]]
        if changed:
            width = self.size.width
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    @property
    def texts(self) -> list[str]:
        """The lines without styles, as they were last shown."""
        return ["".join(text for text, _ in line) for line, _ in self._shown]

    def notify_style_update(self) -> None:
        self._looks.clear()
        super().notify_style_update()

    def get_line_filters(self) -> Sequence[LineFilter]:
        # Themes have no colors of the terminal: this filter would copy every painted line in vain.
        return [each for each in super().get_line_filters() if not isinstance(each, ANSIToTruecolor)]

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._shown):
            return Strip.blank(width, self._style("", False))
        line, lit = self._shown[y]
        segments = [Segment(printable(text), self._style(name, lit)) for text, name in line if text]
        return Strip(segments).adjust_cell_length(width, self._style("", lit))

    def _style(self, name: str, lit: bool) -> Style:
        key = (name, lit)
        if key not in self._looks:
            plain, variables = name.removesuffix("-on"), self.app.theme_variables
            style = self.rich_style
            if plain:
                style += look(plain, variables)
            if plain != name:
                style += look("on", variables)
            if lit and not name.endswith(_OWN_BACKGROUND):
                style += look("lit", variables)
            self._looks[key] = style
        return self._looks[key]
