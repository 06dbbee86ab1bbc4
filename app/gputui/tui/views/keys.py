"""The last line: the next sensible keys for the present state."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from gputui.tui.actions import BY_ID, key_of
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, Span

_ALWAYS = ("palette", "help", "quit")
"""These are at the end, and are the last to be left out."""

_ON_THEIR_WAY = ("starting", "waiting", "running")
"""States of a job that has not ended."""


def next_actions(app_state: AppState) -> tuple[str, ...]:
    """The actions that make sense now, the most sensible first; those that always do are not among them."""
    return tuple(dict.fromkeys(_next_actions(app_state)))


def _next_actions(app_state: AppState) -> Iterator[str]:
    decided, verdicts = app_state.selection.decided, app_state.verdicts
    command = bool(app_state.options.command)
    if not command:
        yield "edit"
    if decided:
        if command:
            waits = any(
                verdicts[device.key].state in _TAKEN and app_state.own_job_on(device.key) is None
                for device in app_state.selected
            )
            yield from ("wait", "launch") if waits and not app_state.label else ("launch",)
        yield "copy"
        if len(app_state.selected) > 1:
            yield "later"
        yield "clear"
    elif app_state.rows:
        full = app_state.is_full
        if command and full and not app_state.is_example:
            yield "wait"
        yield from ("select",) if full else ("select", "best")
        if command and not full:
            yield "launch"
    else:
        yield "cpu"
    if any(job.state in _ON_THEIR_WAY for job in app_state.box.jobs):
        yield "jobs"
    yield from ("best", "edit", "topology", "processes", "jobs") if app_state.rows else ("edit", "jobs")


_TAKEN = ("busy", "held", "claimed")
"""States in which somebody has the device."""


def keys(app_state: AppState, width: int) -> tuple[Line, list[tuple[int, int, str]]]:
    """The key line, and which cells a click maps to which action: (from, to, action id).

    Keys that do not fit are left out from the end; help and quit stay longest.
    """
    keymap = app_state.screen.keymap
    hints = {name: (_key(name, app_state), _hint(name, app_state)) for name in next_actions(app_state)}
    last = {name: (key_of(name, keymap), BY_ID[name].hint) for name in _ALWAYS}
    cells = {name: cell_len(f"{key} {hint}  ") for name, (key, hint) in (*hints.items(), *last.items())}
    while (hints or last) and sum(cells[name] for name in (*hints, *last)) - 1 > width:
        hints.popitem() if hints else last.pop(next(iter(last)))
    spans: list[Span] = [(" ", "")]
    places: list[tuple[int, int, str]] = []
    begin = 1
    for name, (key, hint) in (*hints.items(), *last.items()):
        spans += [(key, "key"), (f" {hint}", "dim"), ("  ", "")]
        places.append((begin, begin + cells[name] - 2, name))
        begin += cells[name]
    return tuple(spans[:-1]), places


def _key(name: str, app_state: AppState) -> str:
    keymap = app_state.screen.keymap
    if name == "later":
        return f"{key_of('later', keymap)}/{key_of('earlier', keymap)}"
    if name == "select":
        return f"{key_of(name, keymap).removesuffix('/0-9')}/0-9"
    return key_of(name, keymap)


def _hint(name: str, app_state: AppState) -> str:
    if name == "edit" and not app_state.options.command:
        return "type a command"
    return BY_ID[name].hint
