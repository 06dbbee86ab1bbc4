"""What of a launch can be seen and changed on its page: settings and variables, a row each. Pure.

`gputui run` and `gputui export` have an option for every row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gputui.launching.compose import launcher_of
from gputui.launching.offers import offers
from gputui.launching.plan import AUTO, Plan
from gputui.tui.board import Board

NEW = "new variable"
"""The id of the row that adds a variable."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting or variable.

    value   what is in force; `given` says whether the user has set it
    about   what it does
    kind    choice: the next value with space; switch: on and off; text: typed
    typed   what the editor of the row begins with
    """

    id: str
    label: str
    value: str
    about: str
    kind: Literal["choice", "switch", "text"]
    given: bool = False
    typed: str = ""
    variable: bool = False


def rows(board: Board) -> tuple[Row, ...]:
    """The rows of the page, settings first."""
    return (*_settings(board), *_variables(board))


def _settings(board: Board) -> list[Row]:
    plan = board.plan
    launcher = launcher_of(plan).name
    one_each = max(1, len(board.chosen))
    auto = plan.launcher == AUTO
    found = [
        Row("launcher", "launcher", launcher, "recognised" if auto else "chosen", "choice", not auto),
        _text("processes", "processes", str(plan.processes or one_each), "one a device", plan.processes),
        _text("python", "Python", plan.python or "the command's own", "the interpreter", plan.python),
        _text("directory", "directory", plan.directory or "here", "where it is started", plan.directory),
        Row("ids", "devices by", plan.ids, "UUIDs outlive a renumbering", "choice", plan.ids != "index"),
        _text("logs", "logs", plan.logs or "none", "a folder: a log a rank", plan.logs),
        Row(
            "numa", "NUMA binding", "on" if plan.numa else "off", "CPUs near the device", "switch", plan.numa
        ),
        _text(
            "nodes",
            "machines",
            str(plan.nodes),
            "torchrun on several",
            plan.nodes if plan.nodes > 1 else None,
        ),
    ]
    if plan.nodes > 1:
        found.append(
            _text("rendezvous", "first one", plan.rendezvous or "HOST", "HOST[:PORT] of it", plan.rendezvous)
        )
    return found


def _text(name: str, label: str, value: str, about: str, given: object) -> Row:
    return Row(name, label, value, about, "text", given is not None, "" if given is None else str(given))


def _variables(board: Board) -> list[Row]:
    """Those that are set, those that are offered, and one to add another."""
    given = dict(board.plan.additions)
    offered = offers(board.snapshot, board.chosen)
    abouts = {offer.name: offer.about for offer in offered}
    own = [name for name in given if name not in abouts]
    found = [
        Row(
            f"env {name}", name, given.get(name, value), abouts.get(name, "yours"), "switch",
            name in given, given.get(name, value), True,
        )
        for name, value in (*((name, given[name]) for name in own), *((o.name, o.value) for o in offered))
    ]  # fmt: skip
    return [*found, Row(NEW, "another …", "", "NAME=VALUE", "text", variable=True)]


class PlanError(ValueError):
    """What was typed cannot be; the message says why."""


def pressed(board: Board, row: Row) -> Board:
    """The board after space on a row: the next choice, on or off."""
    plan = board.plan
    if row.id == "launcher":
        return board.next_launcher()
    if row.id == "ids":
        return board.other_ids()
    if row.id == "numa":
        return replace(board, plan=replace(plan, numa=not plan.numa))
    if row.variable and row.kind == "switch":
        pairs = tuple(pair for pair in plan.additions if pair[0] != row.label)
        if not row.given:
            pairs = (*pairs, (row.label, row.value))
        return replace(board, plan=replace(plan, additions=pairs))
    return board


def cleared(board: Board, row: Row) -> Board:
    """The board with the row as it is when nothing was ever said about it."""
    if row.variable:
        return pressed(board, row) if row.given else board
    default = getattr(Plan(), row.id)
    return replace(board, plan=replace(board.plan, **{row.id: default}))


def typed(board: Board, row: Row, text: str) -> Board:
    """The board with a row as it was typed; nothing typed is the default. Raises PlanError."""
    if not text.strip():
        return cleared(board, row)
    if row.id == NEW:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise PlanError(f"{text!r} is not NAME=VALUE")
        return _with_variable(board, name, value)
    if row.variable:
        return _with_variable(board, row.label, text)
    read = _READ.get(row.id, str)
    return replace(board, plan=replace(board.plan, **{row.id: read(text.strip())}))  # type: ignore[arg-type]


def _with_variable(board: Board, name: str, value: str) -> Board:
    pairs = dict(board.plan.additions) | {name: value}
    return replace(board, plan=replace(board.plan, additions=tuple(pairs.items())))


_MOST = 10_000
"""Processes or machines: more are a slip of the keys."""


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= _MOST):
        raise PlanError(f"{text!r} is not a number from 1 to {_MOST}")
    return int(text)


def _file(text: str) -> str:
    """A path as a person types it; there is no shell here to know what ~ is."""
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError:
        raise PlanError(f"there is no user {text.partition('/')[0][1:]!r}") from None


def _rendezvous(text: str) -> str:
    found = re.fullmatch(r"(\[[^\s\[\]]+\]|[^\s:\[\]]+)(?::([0-9]{1,5}))?", text)
    if found is None or not 1 <= int(found[2] or 1) <= 65535:
        raise PlanError(f"{text!r} is not HOST or HOST:PORT")
    return text


_READ: dict[str, Callable[[str], object]] = {
    "processes": _number,
    "nodes": _number,
    "directory": _file,
    "logs": _file,
    "python": _file,
    "rendezvous": _rendezvous,
}
