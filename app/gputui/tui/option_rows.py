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
from gputui.launching.environment_hints import hints
from gputui.launching.launch_options import AUTO, LaunchOptions
from gputui.tui.app_state import AppState

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


def rows(app_state: AppState) -> tuple[Row, ...]:
    """The rows of the page, settings first."""
    return (*_settings(app_state), *_variables(app_state))


def _settings(app_state: AppState) -> list[Row]:
    options = app_state.options
    launcher = launcher_of(options).name
    one_each = max(1, len(app_state.selected))
    auto = options.launcher == AUTO
    found = [
        Row("launcher", "launcher", launcher, "recognised" if auto else "chosen", "choice", not auto),
        _text(
            "processes", "processes", str(options.processes or one_each), "one a device", options.processes
        ),
        _text("python", "Python", options.python or "the command's own", "the interpreter", options.python),
        _text(
            "directory", "directory", options.directory or "here", "where it is started", options.directory
        ),
        Row(
            "ids", "devices by", options.ids, "UUIDs outlive a renumbering", "choice", options.ids != "index"
        ),
        _text("logs", "logs", options.logs or "none", "a folder: a log a rank", options.logs),
        Row(
            "numa",
            "NUMA binding",
            "on" if options.numa else "off",
            "CPUs near the device",
            "switch",
            options.numa,
        ),
        _text(
            "nodes",
            "machines",
            str(options.nodes),
            "torchrun on several",
            options.nodes if options.nodes > 1 else None,
        ),
    ]
    if options.nodes > 1:
        found.append(
            _text(
                "rendezvous",
                "first one",
                options.rendezvous or "HOST",
                "HOST[:PORT] of it",
                options.rendezvous,
            )
        )
    return found


def _text(name: str, label: str, value: str, about: str, given: object) -> Row:
    return Row(name, label, value, about, "text", given is not None, "" if given is None else str(given))


def _variables(app_state: AppState) -> list[Row]:
    """Those that are set, those that are offered, and one to add another."""
    given = dict(app_state.options.additions)
    hinted = hints(app_state.snapshot, app_state.selected)
    abouts = {offer.name: offer.about for offer in hinted}
    own = [name for name in given if name not in abouts]
    found = [
        Row(
            f"env {name}", name, given.get(name, value), abouts.get(name, "yours"), "switch",
            name in given, given.get(name, value), True,
        )
        for name, value in (*((name, given[name]) for name in own), *((o.name, o.value) for o in hinted))
    ]  # fmt: skip
    return [*found, Row(NEW, "another …", "", "NAME=VALUE", "text", variable=True)]


class OptionError(ValueError):
    """What was typed cannot be; the message says why."""


def pressed(app_state: AppState, row: Row) -> AppState:
    """The app state after space on a row: the next choice, on or off."""
    options = app_state.options
    if row.id == "launcher":
        return app_state.next_launcher()
    if row.id == "ids":
        return app_state.other_ids()
    if row.id == "numa":
        return replace(app_state, options=replace(options, numa=not options.numa))
    if row.variable and row.kind == "switch":
        pairs = tuple(pair for pair in options.additions if pair[0] != row.label)
        if not row.given:
            pairs = (*pairs, (row.label, row.value))
        return replace(app_state, options=replace(options, additions=pairs))
    return app_state


def cleared(app_state: AppState, row: Row) -> AppState:
    """The app state with the row as it is when nothing was ever said about it."""
    if row.variable:
        return pressed(app_state, row) if row.given else app_state
    default = getattr(LaunchOptions(), row.id)
    return replace(app_state, options=replace(app_state.options, **{row.id: default}))


def typed(app_state: AppState, row: Row, text: str) -> AppState:
    """The app state with a row as it was typed; nothing typed is the default. Raises PlanError."""
    if not text.strip():
        return cleared(app_state, row)
    if row.id == NEW:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise OptionError(f"{text!r} is not NAME=VALUE")
        return _with_variable(app_state, name, value)
    if row.variable:
        return _with_variable(app_state, row.label, text)
    read = _READ.get(row.id, str)
    return replace(app_state, options=replace(app_state.options, **{row.id: read(text.strip())}))  # type: ignore[arg-type]


def _with_variable(app_state: AppState, name: str, value: str) -> AppState:
    pairs = dict(app_state.options.additions) | {name: value}
    return replace(app_state, options=replace(app_state.options, additions=tuple(pairs.items())))


_MOST = 10_000
"""Processes or machines: more are a slip of the keys."""


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= _MOST):
        raise OptionError(f"{text!r} is not a number from 1 to {_MOST}")
    return int(text)


def _file(text: str) -> str:
    """A path as a person types it; there is no shell here to know what ~ is."""
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError:
        raise OptionError(f"there is no user {text.partition('/')[0][1:]!r}") from None


def _rendezvous(text: str) -> str:
    found = re.fullmatch(r"(\[[^\s\[\]]+\]|[^\s:\[\]]+)(?::([0-9]{1,5}))?", text)
    if found is None or not 1 <= int(found[2] or 1) <= 65535:
        raise OptionError(f"{text!r} is not HOST or HOST:PORT")
    return text


_READ: dict[str, Callable[[str], object]] = {
    "processes": _number,
    "nodes": _number,
    "directory": _file,
    "logs": _file,
    "python": _file,
    "rendezvous": _rendezvous,
}
