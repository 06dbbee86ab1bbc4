"""The rows of the launch page: one for each setting or variable, and the effect of each key. Pure.

`gputui run` and `gputui export` have an option for every row.
"""

from __future__ import annotations

import re
from typing import Literal

from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.launching.compose import launcher_of
from gputui.launching.environment_hints import hints
from gputui.launching.launch_options import OptionError, next_choice, table, with_home, with_value
from gputui.tui.app_state import AppState

Kind = Literal["choice", "switch", "text"]

ENVIRONMENT = "environment"
"""The section of the rows of variables."""
NEW = "new variable"
"""The id of the row that adds a variable."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting or variable.

    value   the value in force
    about   its effect, in words
    kind    choice: space selects the next value; switch: space turns it on and off; text: typed
    given   whether the user has set it
    typed   the initial text of the row's editor
    section the heading that it stands below, "" for none
    box     whether it is a line with a check box: a variable, a column, a panel
    """

    id: str
    label: str
    value: str
    about: str
    kind: Kind
    given: bool = False
    typed: str = ""
    section: str = ""
    box: bool = False


def rows(app_state: AppState) -> tuple[Row, ...]:
    """The rows of the page, settings first."""
    return (*_settings(app_state), *_variables(app_state))


def _settings(app_state: AppState) -> list[Row]:
    """A row for each launch option that applies."""
    options = app_state.options
    name, count = launcher_of(options).name, max(1, len(app_state.selected))
    in_force = {"launcher": name, "started": count, "processes": "one per device"}
    if name == "python":
        in_force |= {"started": 1, "processes": "one process; torchrun starts one per device"}
    found = []
    for option, each in table().items():
        if not each.applies(options):
            continue
        value = getattr(options, option)
        given = value != each.default
        about = (each.about_given if given else None) or each.about.format(**in_force)
        shown = each.unset.format(**in_force) if not given else "on" if value is True else str(value)
        kind = each.kind if each.kind in ("choice", "switch") else "text"
        typed = str(value) if given and kind == "text" else ""
        found.append(Row(option, each.label, shown, about, kind, given, typed))
    return found


def _variables(app_state: AppState) -> list[Row]:
    """A row for each variable that is set or offered, and one row to add another."""
    given = dict(app_state.options.additions)
    hinted = hints(app_state.snapshot, app_state.selected)
    abouts = {offer.name: offer.about for offer in hinted}
    own = [name for name in given if name not in abouts]
    found = [
        Row(
            f"env {name}", name, given.get(name, value), abouts.get(name, "yours"), "switch",
            name in given, given.get(name, value), ENVIRONMENT, True,
        )
        for name, value in (*((name, given[name]) for name in own), *((o.name, o.value) for o in hinted))
    ]  # fmt: skip
    return [*found, Row(NEW, "another …", "", "NAME=VALUE", "text", section=ENVIRONMENT, box=True)]


def pressed(app_state: AppState, row: Row) -> AppState:
    """The app state after space on a row: the next choice, or the switch turned."""
    options = app_state.options
    if row.kind == "choice":
        return replace(app_state, options=next_choice(options, row.id, row.value))
    if row.kind == "switch" and not row.box:
        return replace(app_state, options=with_value(options, row.id, not row.given))
    if row.box and row.kind == "switch":
        pairs = tuple(pair for pair in options.additions if pair[0] != row.label)
        if not row.given:
            pairs = (*pairs, (row.label, row.value))
        return replace(app_state, options=replace(options, additions=pairs))
    return app_state


def cleared(app_state: AppState, row: Row) -> AppState:
    """The app state with the row at its default."""
    if row.box:
        return pressed(app_state, row) if row.given else app_state
    return replace(app_state, options=with_value(app_state.options, row.id, table()[row.id].default))


def typed(app_state: AppState, row: Row, text: str) -> AppState:
    """The app state with the typed value in a row; empty text means the default. Raises OptionError."""
    if not text.strip():
        return cleared(app_state, row)
    if row.id == NEW:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise OptionError(f"{text!r} is not NAME=VALUE")
        return _with_variable(app_state, name, value)
    if row.box:
        return _with_variable(app_state, row.label, text)
    each = table()[row.id]
    value = each.typed(with_home(text.strip()) if each.kind == "path" else text.strip())
    return replace(app_state, options=with_value(app_state.options, row.id, value))


def _with_variable(app_state: AppState, name: str, value: str) -> AppState:
    pairs = dict(app_state.options.additions) | {name: value}
    return replace(app_state, options=replace(app_state.options, additions=tuple(pairs.items())))
