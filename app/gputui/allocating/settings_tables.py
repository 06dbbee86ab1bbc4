"""The tables of a settings file, strictly parsed: unknown tables and keys are refused.

Each record has the fields of `Rules`, `Settings`, `ScreenSettings` or `HostSettings` that its table sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from gputui.choosing.named_devices import could_name
from gputui.inventory.formatting import MIB, read_size
from gputui.inventory.typed_json import (
    DocumentError,
    Form,
    Record,
    check,
    form_of,
    inside,
    number,
    one_of,
    parsed,
    whole,
    wrong,
)
from gputui.sources.hosts.alias import alias
from gputui.sources.source import INTERVALS
from gputui.vendors.visibility import CONFINE

Stray = Literal["warn", "stop"]
"""The action on a job that runs on devices which it has not claimed."""
_LEAST_LOG_CAP = 16 * MIB


def _log_cap(text: str) -> int:
    if text == "none":
        return 0
    amount = read_size(text)
    if amount < _LEAST_LOG_CAP:
        raise ValueError(f'{text!r} is less than 16M ("none": no cap)')
    return amount


def _word(value: Any) -> str:
    if value.__class__ not in (str, int):
        raise wrong(value, "a word")
    return str(value)


_Word = Annotated[str, Form(_word)]
_Words = tuple[_Word, ...]
_Name = Annotated[str, check(str, bool, "a name")]
_Names = tuple[_Name, ...]
_Devices = tuple[Annotated[str, check(_Word, could_name, "an index or a UUID (GPU-…, MIG-…)")], ...]
_ALIASES = form_of(tuple[Annotated[str, parsed(alias)], ...])

TABLES: dict[str, Record[Any]] = {
    "rules": Record(
        dict,
        "memory utilization window idle_after=idle idle_release ignore_users=ignore mine_is_free=mine",
        "*",
        memory=Annotated[int, parsed(read_size, 'a size ("20G", "512M")')],
        utilization=Annotated[int, whole(0, 100, "a percentage (0 to 100)")],
        window=Annotated[float, number(0, 86_400, "a number of seconds")],
        idle=Annotated[float, number(0, 86_400, "a number of seconds")],
        idle_release=Annotated[float, number(0, 86_400, "a number of seconds (0: never)")],
        ignore=frozenset[_Word],
        mine=bool,
    ),
    "devices": Record(dict, "never prefer", "*", never=_Devices, prefer=_Devices),
    "wait": Record(dict, "notify", "*", notify=_Words),
    "run": Record(
        dict,
        "confine stray",
        "*",
        confine=Annotated[str, one_of(CONFINE)],
        stray=Stray,
    ),
    "jobs": Record(dict, "log_cap", "*", log_cap=Annotated[int, parsed(_log_cap, 'a size ("20G", "512M")')]),
    "hosts": Record(
        dict,
        "boxes connect_timeout=timeout",
        "*",
        boxes=Annotated[tuple[str, ...], Form(lambda value: tuple(dict.fromkeys(_ALIASES.read(value))))],
        timeout=Annotated[int, whole(1, 600, "a number of seconds (1 to 600)")],
    ),
    "screen": Record(
        dict,
        "theme interval keys=keymap hidden columns sort filter",
        "*",
        theme=_Name,
        interval=Annotated[
            float, number(*INTERVALS, "a number of seconds ({:g} to {:g})".format(*INTERVALS))
        ],
        keymap=dict[str, _Name],
        hidden=_Names,
        columns=_Names,
        sort=_Name,
        filter=str,
    ),
}


class Described(NamedTuple):
    """A setting for people: its meaning, its default (None: gputui decides) and an example, as in a file."""

    about: str
    default: str | None
    example: str = ""


DESCRIBED = {
    "rules.memory": Described("free: no process, and at most this memory in use", '"512M"'),
    "rules.utilization": Described("and at most this utilization, in percent", "10"),
    "rules.window": Described("and all of that for so many seconds", "10"),
    "rules.idle_after": Described("seconds at 0 % until its holder counts as idle", "600"),
    "rules.idle_release": Described("seconds at 0 % until your job stops; 0: never", "0", "3600"),
    "rules.ignore_users": Described("processes of these users do not count", "[]", '["dcgm"]'),
    "rules.mine_is_free": Described("your own processes do not count either", "false"),
    "devices.never": Described("-n never selects these (index or UUID)", "[]", '["0"]'),
    "devices.prefer": Described("-n selects these first, in this order", "[]", '["7", "6"]'),
    "wait.notify": Described(
        "a command for the end of a wait or a job", "[]", '["notify-send", "gputui", "{message}"]'
    ),
    "run.confine": Described(
        "whether a command can open its own devices only: auto (where that is proved), always or never",
        '"auto"',
    ),
    "run.stray": Described(
        "what becomes of a job on devices that it has not claimed: warn, or stop", '"warn"'
    ),
    "jobs.log_cap": Described("the most that is kept of a job's log; none: everything", '"1G"'),
    "hosts.boxes": Described("the boxes of --hosts all, by their ssh names", "[]", '["gpu1", "gpu2"]'),
    "hosts.connect_timeout": Described("seconds to wait for the connection to a box", "10"),
    "screen.theme": Described("the colours", None, '"light"'),
    "screen.interval": Described("seconds between two readings", "1"),
    "screen.keys": Described("your own keys for actions", "{}", '{copy = "c"}'),
    "screen.hidden": Described("panels that are not shown", "[]", '["links"]'),
    "screen.columns": Described(
        "the columns of the device table", None, '["utilization", "memory", "power"]'
    ),
    "screen.sort": Described("the column that the table is sorted by", None, '"utilization"'),
    "screen.filter": Described("show only the devices that match", '""'),
}
"""Every setting that `gputui config` shows, by its table and key."""


def read_tables(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of each table, by the fields that it sets. Raises DocumentError, which names the place."""
    found = {}
    for table, values in document.items():
        record = TABLES.get(table)
        if record is None:
            raise DocumentError(f"unknown table [{table}]; the tables are {', '.join(TABLES)}")
        unknown = values.keys() - record.keys if isinstance(values, dict) else ()
        if unknown:
            raise DocumentError(
                f"unknown setting; the table has {', '.join(sorted(record.keys))}", table, min(unknown)
            )
        found[table] = inside(table, record.facts, values)
    return found


def in_file(error: DocumentError) -> str:
    """The message of an error as the settings file spells the place, with a line that works: "[rules] window:
    expected a number of seconds, found "x"; for example: window = 10"."""
    if not error.steps:
        return str(error)
    table, *place = error.steps
    message = f"[{table}] {DocumentError(error.args[0], *place)}"
    known = DESCRIBED.get(f"{table}.{place[0]}") if place else None
    return f"{message}; for example: {place[0]} = {known.example or known.default}" if known else message
