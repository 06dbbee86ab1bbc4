"""The launch in other forms: choose one, look at it, copy it or write it to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from textual import events

from gputui.inventory.wording import printable
from gputui.launching.exports import DEFAULT, FORMS, ExportError
from gputui.launching.exports.file import write_whole
from gputui.launching.launch import Launch
from gputui.tui.screens.line import LineScreen
from gputui.tui.screens.parts import PartsScreen
from gputui.tui.views.text import Line, clip, title, wrap

_KEYS = " esc back  ↑↓ form  ⏎ y copy  w write to a file  pgup/pgdn text"

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
        self._cursor = self._top = 0
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
        lines: list[Line] = [title("export", width)]
        for place, name in enumerate(FORMS):
            point = "▸" if place == self._cursor else " "
            lines.append(clip(((point, "cursor"), (f" {name:<11}", "strong"), (ABOUT[name], "dim")), width))
        self.picture.lit = self._cursor + 1
        text, reason = self._text()
        lines.append(title(self._form, width))
        if text is None:
            return [*lines, *((((f" {piece}"), "warn"),) for piece in wrap(reason, width - 2))]
        notes = FORMS[self._form].notes(self._launch, DEFAULT)
        shown = [(f" {piece}", "dim") for note in notes for piece in wrap(note, width - 2)]
        for row in text.split("\n"):
            shown += [(f" {printable(piece)}", "") for piece in wrap(row, width - 2)]
        room = max(1, height - len(lines))
        self._top = min(self._top, max(0, len(shown) - room))
        return [*lines, *((each,) for each in shown[self._top : self._top + room])]

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
                self._message = self._written(Path(name.strip()).expanduser(), text)
            self.draw()

        self.app.push_screen(LineScreen(f"the file for {self._form} (⏎ writes, esc leaves)"), answered)

    def _written(self, file: Path, text: str) -> str:
        """Write it unless there is something else: a screen has no --force."""
        if file.exists():
            return f"{file} is there already; nothing was written"
        try:
            write_whole(file, text.encode(errors="surrogateescape") + b"\n")
        except OSError as error:
            return f"cannot write {file}: {error.strerror}"
        return f"wrote {file}"

    def on_click(self, event: events.Click) -> None:
        if event.widget is self.picture and 1 <= event.y <= len(FORMS):
            self._cursor, self._top = event.y - 1, 0
            self.draw()
