"""The launch in other forms: choose one, look at it, copy it or write it to a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from textual import events

from gputui.inventory.formatting import printable
from gputui.launching.exports import DEFAULT, FORMS, ExportError
from gputui.launching.launch import Launch
from gputui.system.files import write_result
from gputui.tui.screens.line_input import LineScreen
from gputui.tui.screens.parts import PartsScreen, window
from gputui.tui.views.text import Line, clip, title, wrap

_KEYS = " esc back  ↑↓ form  ⏎ y copy  w write to a file  pgup/pgdn text"

_LEAST_TEXT = 5
"""Lines of the text that are to be seen whatever the height; the list of the forms scrolls."""

ABOUT: dict[str, str] = {
    "sh": "a line for any POSIX shell",
    "fish": "a line for fish",
    "powershell": "statements for PowerShell",
    "dotenv": "the variables as a .env file",
    "docker": "docker run; order kept by UUID",
    "sbatch": "a script for Slurm, which chooses itself",
    "accelerate": "for accelerate launch --config_file",
    "vscode": "a launch.json for VS Code",
    "json": "argv, environment, directory, devices",
}


class ExportScreen(PartsScreen):
    """`copy` puts a text on the clipboard; what it says about that is said by `told`."""

    BINDINGS = [
        ("escape,q,Y", "dismiss", "Back"),
        ("down,j", "cursor(1)", "Down"),
        ("up,k", "cursor(-1)", "Up"),
        ("pagedown", "scroll(1)", "Later in the text"),
        ("pageup", "scroll(-1)", "Earlier in the text"),
        ("enter,y", "copy", "Copy"),
        ("w", "write", "Write to a file"),
    ]

    def __init__(self, launch: Launch, copy: Callable[[str], None], told: Callable[[], str]) -> None:
        super().__init__()
        self._launch, self._copy, self._told = launch, copy, told
        self._cursor = self._first = self._top = 0
        self._room = 1
        self._message = ""

    def on_key(self) -> None:
        self._message = ""

    @property
    def _form(self) -> str:
        return list(FORMS)[self._cursor]

    def _text(self) -> tuple[str | None, str]:
        """The text of the form, or None and why there is none."""
        try:
            return FORMS[self._form].write(self._launch, DEFAULT), ""
        except ExportError as error:
            return None, str(error)

    # What is painted

    def draw(self) -> None:
        if not self.size.width:
            return
        message = self._message or self._told()
        line = ((" ▌ ", "key"), (message, "")) if message else ((_KEYS, "dim"),)
        self.paint(self._drawn, [clip(line, self.size.width)])

    def _drawn(self, width: int, height: int) -> list[Line]:
        listed = [
            clip(
                (
                    ("▸" if place == self._cursor else " ", "cursor"),
                    (f" {name:<11}", "strong"),
                    (ABOUT[name], "dim"),
                ),
                width,
            )
            for place, name in enumerate(FORMS)
        ]
        self._room = max(1, min(len(listed), height - _LEAST_TEXT - 2))
        self._first = window(self._first, self._cursor, self._room, len(listed))
        self.picture.lit = self._cursor - self._first + 1
        shown = self._shown(width)
        room = max(1, height - self._room - 2)
        self._top = min(self._top, max(0, len(shown) - room))
        below = max(0, len(shown) - self._top - room)
        return [
            title("export", width),
            *listed[self._first : self._first + self._room],
            title(self._form, width, f"{below} more below" if below else ""),
            *shown[self._top : self._top + room],
        ]

    def _shown(self, width: int) -> list[Line]:
        """The text of the form below what there is to say about it, or why there is none."""
        text, reason = self._text()
        if text is None:
            return [((f" {printable(piece)}", "warn"),) for piece in wrap(reason, width - 2)]
        notes = FORMS[self._form].notes(self._launch, DEFAULT)
        lines: list[Line] = [
            ((f" {printable(piece)}", "dim"),) for note in notes for piece in wrap(note, width - 2)
        ]
        for row in text.split("\n"):
            indented = " " * min(len(row) - len(row.lstrip(" ")), width // 2)
            pieces = wrap(printable(row.lstrip(" ")), max(1, width - 2 - len(indented)))
            lines += [((f" {indented}{piece}", ""),) for piece in pieces]
        return lines

    # What keys do

    def action_cursor(self, by: int) -> None:
        self._cursor, self._top = min(max(0, self._cursor + by), len(FORMS) - 1), 0
        self.draw()

    def action_scroll(self, by: int) -> None:
        self._top = max(0, self._top + by * 5)
        self.draw()

    def action_copy(self) -> None:
        text, reason = self._text()
        if text is None:
            self._message = f"no {self._form}: {reason}"
        else:
            self._copy(text)
            self._message = f"{self._form} goes to the clipboard"
        self.draw()

    def action_write(self) -> None:
        text, reason = self._text()
        if text is None:
            self._message = f"no {self._form}: {reason}"
            self.draw()
            return

        def answered(name: str | None) -> None:
            if name and name.strip():
                self._message = written(name.strip(), text)
            self.draw()

        prompt = f"the file for {self._form} (⏎ writes, esc leaves)"
        self.app.push_screen(LineScreen(prompt, placeholder="for example: ~/run.txt"), answered)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self.picture and 1 <= event.y <= self._room:
            self._cursor, self._top = event.y - 1 + self._first, 0
            self.draw()


def written(name: str, text: str) -> str:
    """Write it unless there is something else, as a screen has no --force; what became of it."""
    try:
        file = Path(name).expanduser()
        if os.path.lexists(file):
            return f"{file} is there already; nothing was written"
        write_result(file, text.encode(errors="surrogateescape") + b"\n")
    except RuntimeError:
        return f"there is no user {name.partition('/')[0][1:]!r}; nothing was written"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return f"cannot write {name}: {reason}"
    return f"wrote {file}"
