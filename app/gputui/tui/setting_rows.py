"""The rows of the page of settings: one for each setting, column and panel, and the effect of each key. Pure.

A change is a table of the settings file, a key of it, and its new value (None: the default).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gputui.allocating.settings import DEFAULT_INTERVAL, Settings
from gputui.allocating.settings_tables import DESCRIBED, read_tables
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.formatting import MIB
from gputui.inventory.typed_json import DocumentError
from gputui.tui.app_state import AppState
from gputui.tui.device_rows import SORTS, UNSORTED
from gputui.tui.option_rows import Kind, Row
from gputui.tui.panels import PANELS
from gputui.tui.screen_settings import THEME_NAMES
from gputui.tui.theme import default_theme
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


_RULES = {
    name.removeprefix("rules."): told.about for name, told in DESCRIBED.items() if name.startswith("rules.")
}


def _of_rules(rules: Rules) -> dict[str, str]:
    """The values in force, as they are typed."""
    return {
        "memory": f"{rules.memory // MIB}M",
        "utilization": f"{rules.utilization}",
        "window": f"{rules.window:g}",
        "idle_after": f"{rules.idle:g}",
        "idle_release": f"{rules.idle_release:g}",
        "ignore_users": " ".join(sorted(rules.ignore)),
        "mine_is_free": "on" if rules.mine is not None else "off",
    }


def rows(
    app_state: AppState, settings: Settings, order: Sequence[str], shown: Sequence[str]
) -> tuple[Row, ...]:
    """All rows. `order`: all columns in the user's order; `shown`: those with room on the main screen."""
    screen, usual = app_state.screen, _of_rules(DEFAULT_RULES)
    interval = f"{screen.interval or DEFAULT_INTERVAL:g}"
    found = [
        Row(
            "theme",
            "theme",
            screen.theme or default_theme(app_state.environ),
            "the colours; ansi: the terminal's own",
            "choice",
            screen.theme is not None,
            choices=THEME_NAMES,
        ),
        Row(
            "interval",
            "interval",
            interval,
            "seconds between two readings",
            "text",
            screen.interval is not None,
            interval,
        ),
        Row(
            "sort",
            "sort by",
            screen.sort or UNSORTED,
            "order of the devices; small changes do not reorder",
            "choice",
            screen.sort is not None,
            choices=(UNSORTED, *SORTS),
        ),
    ]
    for key, value in _of_rules(app_state.rules).items():
        kind: Kind = "switch" if key == "mine_is_free" else "text"
        found.append(
            Row(
                key,
                key.replace("_", " "),
                value or "none",
                _RULES[key],
                kind,
                value != usual[key],
                value,
                section="when a device is free",
            )
        )
    about = "a command can open its own devices only"
    found.append(
        Row(
            "confine",
            "confine",
            settings.confine,
            about,
            "choice",
            settings.confine != CONFINE[0],
            section="runs",
            choices=CONFINE,
        )
    )
    chosen = chosen_columns(app_state)
    for name in order:
        title = (
            BY_ID[name].title
            if name not in chosen or name in shown
            else f"{BY_ID[name].title}; not shown here"
        )
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


def changed(app_state: AppState, row: Row, value: Any, order: Sequence[str]) -> Change:
    """The change by another value in a row: a choice, True or False, a typed line, None for the default.
    Raises ValueError for an invalid value."""
    table = RULES if row.id in _RULES else RUN if row.id == "confine" else SCREEN
    if (row.id, value) == ("sort", UNSORTED):
        value = None
    if isinstance(value, str):
        value = _value(row, value)
        try:
            read_tables({table: {row.id: value}})
        except DocumentError as error:
            # The prompt names the setting.
            raise ValueError(error.args[0]) from None
    if row.section == "columns":
        wanted = {*chosen_columns(app_state)} ^ {row.id.removeprefix(COLUMN)}
        columns = tuple(name for name in order if name in wanted)
        return Change(SCREEN, "columns", None if value is None else columns)
    if row.section == "panels":
        name = row.id.removeprefix(PANEL)
        others = tuple(each for each in app_state.screen.hidden if each != name)
        return Change(SCREEN, "hidden", () if value is None else others if value else (*others, name))
    return Change(table, row.id, value)


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
