"""ExportScreen: the launch in other forms: select one, view it, copy it or write it to a file."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from pathlib import Path

from gputui.inventory.errors import reason_of
from gputui.inventory.formatting import TextWriter, printable
from gputui.launching.exports import DEFAULT, FORMS, ExportError
from gputui.launching.secrets import secret_in
from gputui.system.files import write_result
from gputui.tui.main_view import MainView
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.page import ListPage, shown, worded
from gputui.tui.views.text import Line, clip, title, told_lines, wrap

_LEAST_TEXT = 5
"""Lines of the text that are visible at any height; the list of the forms scrolls."""


class ExportScreen(ListPage):
    """Exports the launch at the opening of the page. `copy_text` puts a text on the clipboard."""

    BINDINGS = [
        shown("enter,y", "copy", "copy", "⏎ y", "Copy this form"),
        worded("save", "write", "to a file", "Save to a file", key_line=True),
    ]

    def __init__(self, view: MainView, copy_text: TextWriter) -> None:
        super().__init__(view)
        self._launch, self._copy_text = view.app_state.launch, copy_text
        self._text_of = ""

    def item_keys(self) -> Sequence[Hashable]:
        return list(FORMS)

    @property
    def _form(self) -> str:
        return list(FORMS)[self.cursor]

    def _text(self) -> tuple[str | None, str]:
        """The text of the form, or None and why there is none."""
        try:
            return FORMS[self._form].write(self._launch, DEFAULT), ""
        except ExportError as error:
            return None, str(error)

    # Painting

    def lines(self, width: int, height: int) -> list[Line]:
        listing = [
            clip(
                ((f"  {name:<11}", "strong"), (form.about, "dim")),
                width,
            )
            for name, form in FORMS.items()
        ]
        list_room = max(1, min(len(listing), height - _LEAST_TEXT - 2))
        visible = self.window(listing, range(len(listing)), list_room, above=1)
        text = self._text_lines(width)
        if self._form != self._text_of:
            self._text_of, self.below = self._form, 0
        room = max(1, height - list_room - 2)
        shown = self.text_below(text, room)
        below = len(text) - self.below - len(shown)
        return [
            title("export", width),
            *visible,
            title(self._form, width, f"▼ {below} more" if below else ""),
            *shown,
        ]

    def _text_lines(self, width: int) -> list[Line]:
        """The text of the form below the notes on it, or why there is no text."""
        text, reason = self._text()
        if text is None:
            return told_lines(reason, "warn", width)
        notes = FORMS[self._form].notes(self._launch, DEFAULT)
        lines = [line for note in notes for line in told_lines(note, "dim", width)]
        for row in text.split("\n"):
            indented = " " * min(len(row) - len(row.lstrip(" ")), width // 2)
            pieces = wrap(printable(row.lstrip(" ")), max(1, width - 2 - len(indented)))
            lines += [((f" {indented}{piece}", ""),) for piece in pieces]
        return lines

    # Key actions

    def action_page(self, by: int) -> None:
        self.below = max(0, self.below + by * 5)
        self.draw()

    def action_copy(self) -> None:
        text, reason = self._text()
        if text is None:
            self.show_message(f"no {self._form}: {reason}")
        else:
            self._copy_text(text)

    def action_write(self) -> None:
        text, reason = self._text()
        if text is None:
            self.show_message(f"no {self._form}: {reason}")
            return

        def write(name: str) -> None:
            if name.strip():
                secret = secret_in(self._launch.argv, self._launch.changes)
                self.show_message(written(name.strip(), text, secret is not None))

        prompt = f"file for {self._form}"
        line = LineScreen(prompt, placeholder="for example: ~/run.txt", keys=(("⏎", "write"),))
        self.type_line(line, write)


def written(name: str, text: str, private: bool = False) -> str:
    """Write the text unless the file exists, as a screen has no --force; return a message about the outcome.

    `private`: the text contains a secret, so that only the owner may read the file."""
    try:
        file = Path(name).expanduser()
        if os.path.lexists(file):
            return f"{file} already exists; nothing was written"
        write_result(file, text.encode(errors="surrogateescape") + b"\n", private)
    except RuntimeError:
        return f"there is no user {name.partition('/')[0][1:]!r}; nothing was written"
    except (OSError, ValueError) as error:
        return f"cannot write {name}: {reason_of(error)}"
    return f"wrote {file}"
