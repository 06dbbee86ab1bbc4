"""A surface of styled lines that repaints only the changed ones.

Such a widget costs 0.3 % CPU at 1 Hz where a DataTable costs 2 % (measured, Textual 8.2.8): every live part
of the screen consists of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.css.scalar import Scalar
from textual.errors import NoWidget
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputui.inventory.formatting import printable
from gputui.tui.styles import look
from gputui.tui.views.text import Line, cells_of

_OWN_BACKGROUND = ("-on", "here", "brand", "slot")

_NOTHING: tuple[Line, bool] = ((), False)
"""Shown below the last line."""

Piece = tuple[int, int, int, Iterable[Segment]]
"""A painted line of the terminal, or a part of one: its line, its first cell, its cells, and their text."""

Build = Callable[[int, int], Sequence[Line]]
"""Returns the lines to show for a width and a height in cells."""


class Lines(Widget):
    """Lines of spans, shown from the top; `lit` is the line to paint on the cursor's background.

    `draw` sets a builder, which is called again whenever the size changes: the first painting after a layout
    is already right.

    take  called with itself and the lines that have changed; returns whether they will be painted by `pieces`
    """

    ALLOW_SELECT = False

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._shown: list[tuple[Line, bool]] = []
        self._looks: dict[tuple[str, bool], Style] = {}
        self._painted: dict[int, tuple[object, Strip]] = {}
        self._build: Build | None = None
        self._height: int | None = None
        self.lit: int | None = None
        self.take: Callable[[Lines, list[int]], bool] = lambda lines, changed: False

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
        self._painted.clear()

    def _restyle(self) -> None:
        self._forget_looks()
        self.refresh()

    def _forget_looks(self) -> None:
        self._looks.clear()
        self._painted.clear()

    def on_resize(self) -> None:
        if self._build is not None:
            self.draw(self._build)

    def _show(self, lines: Sequence[Line]) -> None:
        """Show these lines; only the lines that differ are painted again."""
        shown = [(line, place == self.lit) for place, line in enumerate(lines)]
        if len(shown) != len(self._shown):
            self._shown = shown
            self.refresh()
            return
        changed = [y for y, pair in enumerate(zip(self._shown, shown, strict=True)) if pair[0] != pair[1]]
        for y in changed:
            self._shown[y] = shown[y]
        if changed and not self.take(self, changed):
            self.refresh_lines(changed)

    def refresh_lines(self, changed: Sequence[int]) -> None:
        """Have Textual paint these lines."""
        width = self.size.width
        self.refresh(*(Region(0, y, width, 1) for y in changed))

    def pieces(self, changed: Sequence[int]) -> list[Piece]:
        """These lines at their places on the terminal; [] where the widget is not wholly visible."""
        try:
            place = self.screen.find_widget(self)
        except NoWidget:
            return []
        x, y, width, _ = place.region
        whole = place.clip.contains_region(place.region)
        return [(y + each, x, width, self._segments(each, width)) for each in changed] if whole else []

    @property
    def texts(self) -> list[str]:
        """The lines without styles, as they were last shown."""
        return ["".join(text for text, _ in line) for line, _ in self._shown]

    def notify_style_update(self) -> None:
        self._forget_looks()
        super().notify_style_update()

    def get_line_filters(self) -> Sequence[LineFilter]:
        # Themes have no colours of the terminal: this filter would copy every painted line in vain.
        return [each for each in super().get_line_filters() if not isinstance(each, ANSIToTruecolor)]

    def render_lines(self, crop: Region) -> list[Strip]:
        # Textual's method looks for borders, padding and opacity in each frame, and filters every line again.
        width = self.size.width
        strips = [self._strip(y, width) for y in crop.line_range]
        first, last = crop.column_span
        return strips if (first, last) == (0, width) else [strip.crop(first, last) for strip in strips]

    def _strip(self, y: int, width: int) -> Strip:
        """The painted line, made anew only where what it shows has changed."""
        shown = self._shown[y] if y < len(self._shown) else _NOTHING
        before = self._painted.get(y)
        if before is not None and before[0] is shown and before[1].cell_length == width:
            return before[1]
        strip = Strip(self._segments(y, width), width)
        self._painted[y] = shown, strip
        return strip

    def _segments(self, y: int, width: int) -> list[Segment]:
        """The line in exactly `width` cells."""
        line, lit = self._shown[y] if y < len(self._shown) else _NOTHING
        segments = [Segment(printable(text), self._style(name, lit)) for text, name in line if text]
        missing = width - sum([cells_of(text) for text, _, _ in segments])
        if missing > 0:
            segments.append(Segment(" " * missing, self._style("", lit)))
        elif missing:
            segments = list(Strip(segments).crop(0, width))
        for each in self.get_line_filters():
            segments = each.apply(segments, self.background_colors[1])
        return segments

    def _style(self, name: str, lit: bool) -> Style:
        key = (name, lit)
        if key not in self._looks:
            plain, variables = name.removesuffix("-on"), self.app.theme_variables
            style = self.rich_style
            if plain:
                style += look(plain, variables, not self.app.no_color)
            if plain != name:
                style += look("on", variables)
            if lit and not name.endswith(_OWN_BACKGROUND):
                style += look("lit", variables)
            self._looks[key] = style
        return self._looks[key]
