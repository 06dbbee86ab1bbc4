"""The rows of the launch page: one for each setting or variable, and the effect of each key. Pure.

`gputui run` and `gputui export` have an option for every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gputui.allocating.settings import Settings
from gputui.inventory.formatting import duration
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.launching.compose import launcher_of
from gputui.launching.environment_hints import hints
from gputui.launching.launch_options import (
    AUTO,
    NEVER,
    VARIABLE,
    OptionError,
    table,
    with_home,
    with_value,
)
from gputui.launching.wrappers import unwrap
from gputui.tui.app_state import AppState
from gputui.tui.cycle import following
from gputui.vendors.visibility import Confine

Kind = Literal["choice", "switch", "text"]

ENVIRONMENT, MORE = "environment", "more options"
"""The sections of the user's own variables, and of what few launches need."""
_FOLDED, _UNFOLDED = "▸", "▾"
_USUAL = ("launcher", "processes", "python", "directory", "time")
_CONFINE = Settings().confine
NEW = "new variable"
"""The id of the row that adds a variable."""


@frozen
class Row:
    """One setting or variable.

    value   the value in force
    about   its effect, in words
    kind    choice: space selects the next value; switch: space turns it on and off; text: typed
    given   whether the user has set it
    typed   the initial text of the row's editor
    section the heading that it stands below, "" for none
    box     whether it is a line with a check box: a variable, a column, a panel
    choices what space selects, one after the other
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
    choices: Sequence[str] = ()

    @property
    def pressed(self) -> str | bool | None:
        """The value after space: the next choice, or the switch turned."""
        return following(self.choices, self.value) if self.kind == "choice" else not self.given


def rows(app_state: AppState, confine: Confine = _CONFINE) -> tuple[Row, ...]:
    """The rows of the page, those that most launches need first. `confine` is the value of the settings."""
    settings, (own, offered) = _settings(app_state, confine), _variables(app_state)
    usual = [row for row in settings if row.id in _USUAL]
    more = [row for row in settings if row.id not in _USUAL]
    return (*usual, *own, *(replace(row, section=MORE) for row in (*more, *offered)))


def given_of_more(every: Sequence[Row]) -> int:
    """How many rows of the section MORE are given."""
    return sum(row.given for row in every if row.section == MORE)


def folded(every: Sequence[Row], unfolded: bool) -> tuple[Row, ...]:
    """The rows with one before the section MORE that folds it, and those of the section if `unfolded`."""
    given = given_of_more(every)
    fold = Row(
        MORE,
        MORE,
        (_UNFOLDED if unfolded else _FOLDED) + (f" ({given} set)" if given else ""),
        "" if unfolded else "⏎ shows them: logs, machines, NCCL, …",
        "switch",
        given=unfolded,
        section=MORE,
    )
    usual = [row for row in every if row.section != MORE]
    return (*usual, fold, *(every[len(usual) :] if unfolded else ()))


def _settings(app_state: AppState, confine: Confine) -> list[Row]:
    """A row for each launch option that applies."""
    options, release = app_state.options, app_state.rules.idle_release
    launcher, count = launcher_of(options), max(1, len(app_state.selected))
    own = launcher.recognises(unwrap(options.command)[1])
    in_force = {
        "launcher": launcher.name if own else "none",
        "recognised": "starts the processes; as the command says"
        if own
        else "the command runs as it is; space: others",
        "started": count,
        "processes": "how many to start; x: one per device",
        "confine": confine,
        "idle_release": duration(release) if release else NEVER,
    }
    if launcher.name == "python":
        in_force |= {"started": 1, "processes": "only one: torchrun starts one per device"}
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
        choices = [choice for choice in each.choices() if choice != AUTO]
        found.append(Row(option, each.label, shown, about, kind, given, typed, choices=choices))
    return found


def _variables(app_state: AppState) -> tuple[list[Row], list[Row]]:
    """A row for each variable of the user's own, with one row to add another; and one for each that is
    offered."""
    given = dict(app_state.options.additions)
    offered = {hint.name: hint for hint in hints(app_state.snapshot, app_state.selected)}
    found = []
    for name in (*(name for name in given if name not in offered), *offered):
        hint = offered.get(name)
        value, about = (hint.value, hint.about) if hint is not None else ("", "yours")
        value = given.get(name, value)
        found.append(
            Row(f"env {name}", name, value, about, "switch", name in given, value, ENVIRONMENT, box=True)
        )
    another = Row(NEW, "another …", "", "type NAME=VALUE", "text", section=ENVIRONMENT, box=True)
    own = [row for row in found if row.label not in offered]
    return [*own, another], found[len(own) :]


def changed(app_state: AppState, row: Row, value: Any) -> AppState:
    """The app state with another value in a row: a choice, True or False, a typed text, None for the default.
    Raises OptionError."""
    options = app_state.options
    if row.box:
        additions, name = dict(options.additions), row.label
        if row.id == NEW and value is not None:
            name, equals, text = value.partition("=")
            name = name.strip()
            if not equals or not VARIABLE.fullmatch(name):
                raise OptionError(f"{value!r} is not NAME=VALUE")
            value = text
        if value in (None, False):
            additions.pop(name, None)
        else:
            additions[name] = row.value if value is True else value
        return replace(app_state, options=replace(options, additions=tuple(additions.items())))
    option = table()[row.id]
    if value is None:
        value = option.default
    elif isinstance(value, str):
        value = option.typed(with_home(value.strip()) if option.kind == "path" else value.strip())
    return replace(app_state, options=with_value(options, row.id, value))
