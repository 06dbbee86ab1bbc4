"""The rows of the page of settings: one for each setting, column and panel, and the effect of each key. Pure.

A change is a table of the settings file, a key of it, and its new value (None: the default).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gputui.allocating.settings import Settings
from gputui.allocating.settings_tables import DESCRIBED, read_tables
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.formatting import MIB
from gputui.tui.app_state import AppState
from gputui.tui.device_rows import SORTS
from gputui.tui.option_rows import Kind, Row
from gputui.tui.panels import PANELS
from gputui.tui.screen_settings import THEME_NAMES
from gputui.tui.views.columns import BY_ID, COLUMNS, USUAL
from gputui.vendors.visibility import CONFINE

SCREEN, RULES, RUN = "screen", "rules", "run"
COLUMN, PANEL = "column ", "panel "
"""What the ids of these rows begin with."""


class Change(NamedTuple):
    """One change of the settings file."""

    table: str
    key: str
    value: Any


_RULES = {name.removeprefix("rules."): told.about for name, told in DESCRIBED.items() if name[:6] == "rules."}


def _of_rules(rules: Rules) -> dict[str, str]:
    """The values in force, as they are typed."""
    return {
        "memory": f"{rules.memory // MIB}M",
        "utilization": f"{rules.utilization}",
        "window": f"{rules.window:g}",
        "idle_after": f"{rules.idle:g}",
        "ignore_users": " ".join(sorted(rules.ignore)),
        "mine_is_free": "on" if rules.mine is not None else "off",
    }


def rows(
    app_state: AppState, settings: Settings, order: Sequence[str], shown: Sequence[str]
) -> tuple[Row, ...]:
    """All rows. `order`: all columns in the user's order; `shown`: those with room on the main screen."""
    screen, usual = app_state.screen, _of_rules(DEFAULT_RULES)
    found = [
        Row("theme", "theme", screen.theme or "default", "colours", "choice", screen.theme is not None),
        Row(
            *("interval", "interval", f"{screen.interval or 1:g}", "seconds between two readings", "text"),
            given=screen.interval is not None,
            typed=f"{screen.interval or 1:g}",
        ),
        Row(
            "sort",
            "sort",
            screen.sort or "the box's order",
            "of the devices",
            "choice",
            screen.sort is not None,
        ),
    ]
    for key, value in _of_rules(app_state.rules).items():
        kind: Kind = "switch" if key == "mine_is_free" else "text"
        found.append(
            Row(
                key,
                key.replace("_", " "),
                value or "nobody",
                _RULES[key],
                kind,
                value != usual[key],
                value,
                section="when a device is free",
            )
        )
    about = "whether a command can open its own devices only"
    found.append(
        Row(
            "confine",
            "confine",
            settings.confine,
            about,
            "choice",
            settings.confine != CONFINE[0],
            section="runs",
        )
    )
    chosen = chosen_columns(app_state)
    for name in order:
        title = BY_ID[name].title if name not in chosen or name in shown else f"{BY_ID[name].title}; no room"
        found.append(
            Row(
                f"{COLUMN}{name}",
                BY_ID[name].heading,
                "",
                title,
                "switch",
                name in chosen,
                section="columns",
                box=True,
            )
        )
    found += [
        Row(
            f"{PANEL}{each.name}",
            each.title,
            "",
            "",
            "switch",
            each.name not in screen.hidden,
            section="panels",
            box=True,
        )
        for each in PANELS
    ]
    return tuple(found)


def chosen_columns(app_state: AppState) -> tuple[str, ...]:
    """The columns that the user has chosen, or the usual ones, in their order."""
    columns = app_state.screen.columns
    return USUAL if columns is None else tuple(dict.fromkeys(name for name in columns if name in BY_ID))


def columns_in_order(app_state: AppState) -> list[str]:
    """The chosen columns in their order; each other column follows its predecessor in `COLUMNS`."""
    order = list(chosen_columns(app_state))
    for place, column in enumerate(COLUMNS):
        if column.id not in order:
            order.insert(order.index(COLUMNS[place - 1].id) + 1 if place else 0, column.id)
    return order


def table_of(row: Row) -> str:
    """The table of the settings file that a row belongs to."""
    return RULES if row.id in _RULES else RUN if row.id == "confine" else SCREEN


def pressed(app_state: AppState, row: Row, order: Sequence[str]) -> Change:
    """The change by space: the next choice, or the switch turned."""
    screen = app_state.screen
    if row.box and row.section == "columns":
        wanted = {*chosen_columns(app_state)} ^ {row.id.removeprefix(COLUMN)}
        return Change(SCREEN, "columns", tuple(name for name in order if name in wanted))
    if row.box:
        name = row.id.removeprefix(PANEL)
        others = tuple(each for each in screen.hidden if each != name)
        return Change(SCREEN, "hidden", (*others, name) if row.given else others)
    if row.kind == "switch":
        return Change(table_of(row), row.id, not row.given)
    if row.id == "sort":
        return Change(SCREEN, "sort", _next(SORTS, screen.sort))
    return Change(table_of(row), row.id, _next(THEME_NAMES if row.id == "theme" else CONFINE, row.value))


def _next(choices: Sequence[str | None], now: str | None) -> str | None:
    return choices[(choices.index(now) + 1) % len(choices) if now in choices else 0]


def cleared(row: Row) -> Change:
    """The change to the default."""
    if row.box:
        return Change(SCREEN, "columns", None) if row.section == "columns" else Change(SCREEN, "hidden", ())
    return Change(table_of(row), row.id, None)


def typed(row: Row, line: str) -> Change:
    """The change by a typed value. Raises ValueError for an invalid value."""
    if not line.strip():
        return cleared(row)
    change = Change(table_of(row), row.id, _value(row, line))
    read_tables({change.table: {change.key: change.value}})
    return change


def _value(row: Row, line: str) -> object:
    """A typed value as the settings file has it."""
    if row.id == "ignore_users":
        return line.replace(",", " ").split()
    for number in (int, float):
        try:
            return number(line)
        except ValueError:
            continue
    return line.strip()
