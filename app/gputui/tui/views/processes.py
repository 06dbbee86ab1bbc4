"""What runs on which device, and what holds the others: whom to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.cells import cell_len

from gputui.inventory.formatting import UNKNOWN, size
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.process import Process
from gputui.tui.app_state import AppState
from gputui.tui.process_rows import Fold, Row, folded, groups
from gputui.tui.views.table import filter_in_title
from gputui.tui.views.text import Line, clip, fit, title, width_of, wrap

_WIDE = 64
_MOST_USER = 12

_COMMAND = 34
"""Cells that a command keeps before what the process uses of the host gets a column."""

_COMMAND_OF_DEVICE = 24
"""The same on a device's page, which is opened for what its processes use: 80 columns have room for that."""


# Beside the table

_MOST_LINES = 100
"""More than fit beside the table."""


def facts_of_processes(app_state: AppState) -> object:
    """All that `processes` depends on."""
    found = groups(app_state)
    shown = folded(app_state, found[:_MOST_LINES])
    filtered = app_state.screen.filter, app_state.filter_hides_all
    return shown, len(found), sum(map(len, found)), app_state.cursor, filtered


def processes(app_state: AppState, width: int, height: int) -> list[Line]:
    """A rule, and each job with its processes; commands in as many lines as fit in `height`.

    Where there are more rows than lines, the last one says how many processes are not shown, and the key.
    """
    lines = [title("processes", width, filter_in_title(app_state))]
    found = groups(app_state)
    if not found:
        none = " none: no device matches the filter" if app_state.filter_hides_all else " none"
        return [*lines, clip(((none, "dim"),), width)] if app_state.snapshot else lines
    room = max(1, height - 1)
    shown = folded(app_state, found if len(found) <= room else found[: room - 1])
    label, pid, user, memory = _cells(shown, width)
    head_width = label + pid + user + memory + 15
    whole = [wrap(_said(fold.row, pid), max(10, width - head_width)) for fold in shown]
    left = room - (len(shown) < len(found))
    # (Commands first: the advice on what is no process is on the pages, too.)
    commands = [len(each) if fold.row.process else 1 for fold, each in zip(shown, whole, strict=True)]
    most = _lines_each(list(map(len, whole)), left, _lines_each(commands, left))
    for fold, pieces, lines_of_it in zip(shown, whole, most, strict=True):
        row, style = fold.row, "strong" if app_state.cursor in fold.devices else ""
        head: Line = (
            (f" {fit(row.label, label, right=True)} ", "dim"),
            (f" {fit(row.user, user)}  {fit(row.memory, memory, right=True)}  {row.age:>6}  ", style),
            (fit(f"{row.pid}  ", pid, right=True) if pid else "", "dim"),
        )
        first, *more = _cut(pieces, lines_of_it)
        lines.append(clip((*head, (first, style or "dim")), width))
        lines += [clip(((" " * head_width, ""), (piece, style or "dim")), width) for piece in more]
        if not pid and row.process:
            lines[-1] = _with_pid(row, lines[-1], width)
    hidden = sum(len(group) for group in found[len(shown) :])
    if hidden:
        lines.append(clip(((f" + {hidden} more: ", "dim"), ("p", "key")), width))
    return lines


def _with_pid(row: Row, line: Line, width: int) -> Line:
    """The last line of a process with its number behind it, where the command has left room for that."""
    number = f"  {row.pid}" if row.pid.endswith("pids") else f"  pid {row.pid}"
    room = width - width_of(line)
    said = row.pid in "".join(text for text, _ in line)
    return line if said or cell_len(number) > room else (*line, (f"{number:>{room}}", "dim"))


def lines_of_panel(app_state: AppState, width: int) -> int:
    """How many lines `processes` fills where no command is cut."""
    found = groups(app_state)
    if not found:
        return 2
    shown = folded(app_state, found[:_MOST_LINES])
    cells = _cells(shown, width)
    text = max(10, width - sum(cells) - 15)
    return 1 + len(found) - len(shown) + sum(len(wrap(_said(fold.row, cells[1]), text)) for fold in shown)


def _said(row: Row, pid: int) -> str:
    """What a row says beside the table. Of a process without a command the number is all that there is: it
    has it also where there is no column of `pid` cells for it."""
    nameless = row.process is not None and not row.process.command
    return f"pid {row.pid}, {row.short}" if nameless and not pid else row.short


def _cells(shown: Sequence[Fold], width: int) -> tuple[int, int, int, int]:
    """Cells of the device, the pid, the user and the memory of each row beside the table."""
    label, pid, user, memory = (
        max(len(getattr(fold.row, name)) for fold in shown) for name in ("label", "pid", "user", "memory")
    )
    # Beside the table there is room for the command or for its number: the command says more.
    return label, pid + 2 if width >= _WIDE else 0, min(_MOST_USER, user), memory


def _lines_each(wanted: Sequence[int], room: int, before: Sequence[int] = ()) -> list[int]:
    """How many lines each gets: one, or what it had `before`, then one more in turn, from the top, for each
    that wants one."""
    each = list(before) or [1] * len(wanted)
    room -= sum(each)
    for line in range(1, max(wanted, default=0)):
        for place, wants in enumerate(wanted):
            if wants > line >= each[place] and room > 0:
                each[place] += 1
                room -= 1
    return each


def _cut(pieces: list[str], most: int) -> list[str]:
    """At most so many pieces; an ellipsis says that there were more."""
    return pieces if len(pieces) <= most else [*pieces[: most - 1], " ".join(pieces[most - 1 :])]


# On a page


@dataclass(frozen=True, slots=True)
class _Column:
    """A heading, what stands below it, and how it stands: at the right, in a style."""

    name: str
    text: Callable[[Row], str]
    right: bool = True
    style: str = ""


def _figure(text: Callable[[Process], str]) -> Callable[[Row], str]:
    return lambda row: text(row.process) if row.process else ""


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}%"


_DEVICE = _Column("#", lambda row: row.label, style="dim")
_PID = _Column("PID", lambda row: row.pid, style="dim")
_USER = _Column("USER", lambda row: row.user, right=False)
_GPU = _Column("GPU", _figure(lambda process: _percent(process.sm)))
_MEMORY = _Column("MEMORY", lambda row: row.memory)
_CPU = _Column("CPU", _figure(lambda process: _percent(process.host_cpu)))
_RAM = _Column("RAM", _figure(lambda p: UNKNOWN if p.host_memory is None else size(p.host_memory)))
_AGE = _Column("FOR", lambda row: row.age)
_WHERE = _Column("WHERE", lambda row: row.where, right=False, style="dim")

_ORDER = (_DEVICE, _PID, _USER, _GPU, _MEMORY, _CPU, _RAM, _AGE, _WHERE)


@dataclass(frozen=True, slots=True)
class Listing:
    """A heading, the place of the row that each line shows, and `lines(first, end)`, which draws some.

    (Of two thousand processes, fifty are on the screen.)
    """

    heading: Line
    items: tuple[int, ...]
    lines: Callable[[int, int], list[Line]]


def listed(
    found: Sequence[Row], width: int, height: int | None = None, of_one_device: bool = False
) -> Listing:
    """The rows in columns; a tree is indented. GPU, CPU, RAM and the container have columns where the command
    keeps enough room.

    Commands are wrapped where all of them then fit in `height` lines, else cut.
    """
    sheet = _sheet(found, width, of_one_device)
    if height is not None and len(found) <= height:
        pieces = [wrap(sheet.text(row), max(10, sheet.room - 2 * row.depth)) for row in found]
        if sum(map(len, pieces)) <= height:
            lines = [line for row, each in zip(found, pieces, strict=True) for line in sheet.drawn(row, each)]
            items = tuple(place for place, each in enumerate(pieces) for _ in each)
            return Listing(sheet.heading, items, lambda first, end: lines[first:end])
    return Listing(
        sheet.heading,
        tuple(range(len(found))),
        lambda first, end: [line for row in found[first:end] for line in sheet.drawn(row, [sheet.text(row)])],
    )


@dataclass(frozen=True, slots=True)
class _Sheet:
    """The columns of a list with their cells, and whether commands have the paths of their programs."""

    columns: dict[_Column, int]
    width: int
    paths: bool = True

    @property
    def heading(self) -> Line:
        names = (
            (fit(column.name, cells, column.right) + "  ", "dim") for column, cells in self.columns.items()
        )
        return clip(((" ", ""), *names, ("COMMAND", "dim")), self.width)

    @property
    def before(self) -> int:
        """Cells before the commands."""
        return 1 + sum(cells + 2 for cells in self.columns.values())

    @property
    def room(self) -> int:
        """Cells that a command has."""
        return max(10, self.width - self.before)

    def in_full(self, row: Row) -> str:
        """The command with the path of its program, and the container where that has no column."""
        return row.what if not row.where or _WHERE in self.columns else f"{row.what} ({row.where})"

    def text(self, row: Row) -> str:
        return self.in_full(row) if self.paths or not row.pid else self.in_full(replace(row, what=row.short))

    def drawn(self, row: Row, pieces: Sequence[str]) -> Iterator[Line]:
        """The row with the first piece of its command, and a line for each other piece below it."""
        cells = ((fit(c.text(row), cells, c.right) + "  ", c.style) for c, cells in self.columns.items())
        branch = "  " * (row.depth - 1) + "└ " if row.depth else ""
        style = "" if row.process else "dim"
        yield clip(((" ", ""), *cells, (branch, "rule"), (pieces[0], style)), self.width)
        indent = " " * (self.before + len(branch))
        yield from (clip(((indent, ""), (piece, style)), self.width) for piece in pieces[1:])


def _sheet(found: Sequence[Row], width: int, of_one_device: bool) -> _Sheet:
    """The columns for these rows, and paths of programs only where there is room for all of them."""
    sheet = _Sheet(_columns(found, width, of_one_device), width)
    room = sheet.room
    paths = all(len(sheet.in_full(row)) + 2 * row.depth <= room for row in found if row.what != row.short)
    return replace(sheet, paths=paths)


def _columns(found: Sequence[Row], width: int, of_one_device: bool) -> dict[_Column, int]:
    """The columns that fit, in their order, with their cells."""

    def longest(texts: Iterable[str], least: int) -> int:
        return max([least, *map(cell_len, texts)])

    # (Figures change: their columns shall not.)
    cells = {
        _DEVICE: longest((row.label for row in found), 1),
        _PID: longest((row.pid for row in found), 3),
        _USER: min(_MOST_USER, longest((row.user for row in found), 4)),
        _GPU: 4,
        _MEMORY: longest((row.memory for row in found), 6),
        _CPU: 5,
        _RAM: 6,
        _AGE: 6,
        _WHERE: longest((row.where for row in found), 5),
    }
    columns = [_PID, _USER, _MEMORY, _AGE] if of_one_device else [_DEVICE, _PID, _USER, _MEMORY, _AGE]
    optional = [_GPU, _CPU, _RAM, *([_WHERE] if any(row.where for row in found) else [])]
    least = _COMMAND_OF_DEVICE if of_one_device else _COMMAND
    for column in optional:
        if width - 1 - sum(cells[each] + 2 for each in (*columns, column)) >= least:
            columns.append(column)
    return {column: cells[column] for column in sorted(columns, key=_ORDER.index)}
