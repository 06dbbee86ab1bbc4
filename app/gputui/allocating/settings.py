"""What the user, or the box's administrator, has set for good: a TOML file, strictly read.

[rules]
memory = "512M"            # a device without a process may have so much in use and be free
utilization = 10           # and be so busy, in percent
window = 10                # seconds that it must have been free, where somebody watches
ignore_users = ["dcgm"]    # whose processes do not count
mine_is_free = false       # whether one's own do not either

[devices]
never = ["0"]              # not taken, by index or UUID
prefer = ["7", "6"]        # taken first, in this order

[wait]
notify = ["notify-send", "gputui", "{message}"]

[run]
confine = "auto"           # a command can open its own devices only: where that is proved; "always", "never"
stray = "warn"             # a job that runs on devices that it has not claimed is named, or "stop": stopped

[jobs]
log_cap = "1G"             # of a longer log the middle is removed; "none": never

[hosts]
boxes = ["gpu1", "gpu2"]   # what `--hosts all` and `run --on anywhere` mean, as ssh names them
connect_timeout = 10       # seconds until one that does not answer is given up

[screen]
theme = "light"            # or "dark", "ansi"
interval = 2               # seconds between two readings
hidden = ["links"]         # panels that are not shown
[screen.keys]
copy = "c"                 # the key of an action, by its id; several are separated by commas
cpu = "y"
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from itertools import repeat
from typing import Any, Literal, NamedTuple, TypeVar

from gputui.choosing.named_devices import could_name
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import read_size
from gputui.inventory.light_dataclasses import replace
from gputui.sources.hosts.alias import alias
from gputui.system.trust import who_can_change
from gputui.system.users import own_name
from gputui.vendors.visibility import CONFINE, Confine

Word = TypeVar("Word", bound=str)
Stray = Literal["warn", "stop"]
STRAY: tuple[Stray, ...] = ("warn", "stop")

SYSTEM = "/etc/gputui.toml"
_MOST = 64 * 1024
_MOST_DOTS = 400
"""Of a line: the time to read a key grows with the square of its parts."""

BOM = "\ufeff"
"""Where some editors on Windows begin a file."""

INTERVALS = (0.1, 3600.0)
"""The shortest and the longest time between two readings, in seconds."""

CONNECT_TIMEOUT = 10
"""Seconds until another box that does not answer is given up."""

DEFAULT_LOG_CAP = 1024**3
_LEAST_LOG_CAP = 16 * 1024**2


class SettingsError(GputuiError):
    """A file that cannot be what is meant; the message names it and the place."""


class ScreenSettings(NamedTuple):
    """How the screen looks; what a person changes there is kept here.

    theme     its name, None for the default
    interval  seconds between readings, None for the default
    keymap    the keys of actions by their ids (`tui/actions.py`), where they are not the usual ones
    hidden    panels that are not shown, by name
    columns   of the device table by name, in their order; None: as many as there is room for
    sort      the column that the device table is sorted by; None: the box's own order
    filter    shows only the devices that match, "" for all
    """

    theme: str | None = None
    interval: float | None = None
    keymap: Mapping[str, str] = {}
    hidden: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    sort: str | None = None
    filter: str = ""


DEFAULT_SCREEN = ScreenSettings()


class HostSettings(NamedTuple):
    """boxes: the boxes that "all" means, as ssh names them; timeout: seconds until one is given up."""

    boxes: tuple[str, ...] = ()
    timeout: int = CONNECT_TIMEOUT


class Settings(NamedTuple):
    """rules    what counts as free
    notify   a command that is told when waiting is over; "{message}" in it is what happened
    screen   how the screen looks
    confine  whether commands are confined to their devices
    stray    what is done with a job that runs on devices which it has not claimed
    log_cap  the most bytes of a job's log that are kept, 0 for all
    hosts    other boxes
    """

    rules: Rules = DEFAULT_RULES
    notify: tuple[str, ...] = ()
    screen: ScreenSettings = DEFAULT_SCREEN
    log_cap: int = DEFAULT_LOG_CAP
    confine: Confine = "auto"
    stray: Stray = "warn"
    hosts: HostSettings = HostSettings()


def settings(environ: Mapping[str, str]) -> Settings:
    """The administrator's settings with the user's over them. Raises SettingsError."""
    found = Settings()
    for file in (SYSTEM, own_file(environ)):
        if file is None:
            continue
        try:
            with open(file, "rb", opener=_at_once) as stream:
                if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
                    raise SettingsError(f"{file}: a named pipe, not a file")
                data = stream.read(_MOST + 1)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise SettingsError(f"{file}: {error.strerror}") from None
        if len(data) > _MOST:
            raise SettingsError(f"{file}: longer than {_MOST} bytes")
        refuse_of_others(file)
        found = _with(found, _parsed(file, data), file)
    return found


def refuse_of_others(file: str) -> None:
    """Raises SettingsError where others could have changed a file: they would choose what we start, and which
    devices count as free."""
    reason = who_can_change(file)
    if reason is not None:
        raise SettingsError(f"{file} is not used, as others could have changed it: {reason}")


def _at_once(file: str, flags: int) -> int:
    """A descriptor of a file; never waits, as for a named pipe that nobody writes to."""
    return os.open(file, flags | getattr(os, "O_NONBLOCK", 0))


def own_file(environ: Mapping[str, str]) -> str | None:
    """`$XDG_CONFIG_HOME/gputui/config.toml` (XDG Base Directory Specification)."""
    config, home = environ.get("XDG_CONFIG_HOME", ""), environ.get("HOME", "")
    if not config.startswith("/"):
        if not home.startswith("/"):
            return None
        config = f"{home}/.config"
    return f"{config}/gputui/config.toml"


def _parsed(file: str, data: bytes) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if max(map(bytes.count, data.split(b"\n"), repeat(b"."))) > _MOST_DOTS:
        raise SettingsError(f"{file}: a line with more than {_MOST_DOTS} dots")
    try:
        found: dict[str, Any] = tomllib.loads(data.decode().removeprefix(BOM))
    except (ValueError, RecursionError) as error:
        # (ValueError: also a number of more than 4,300 digits.)
        raise SettingsError(f"{file}: {error}") from None
    return found


def _with(before: Settings, document: Mapping[str, Any], file: str) -> Settings:
    reader = _Reader(file, document)
    rules = before.rules
    mine = reader.get("rules", "mine_is_free", _yes)
    given = {
        "memory": reader.get("rules", "memory", _memory),
        "utilization": reader.get("rules", "utilization", _percent),
        "window": reader.get("rules", "window", _seconds),
        "ignore": reader.get("rules", "ignore_users", lambda value: frozenset(_words(value))),
        "never": reader.get("devices", "never", _devices),
        "prefer": reader.get("devices", "prefer", _devices),
    }
    rules = replace(rules, **{name: value for name, value in given.items() if value is not None})
    if mine is not None:
        rules = replace(rules, mine=own_name() if mine else None)
    notify = reader.get("wait", "notify", _words)
    log_cap = reader.get("jobs", "log_cap", _log_cap)
    confine = reader.get("run", "confine", lambda value: _one_of(value, CONFINE))
    stray = reader.get("run", "stray", lambda value: _one_of(value, STRAY))
    boxes = reader.get("hosts", "boxes", _boxes)
    timeout = reader.get("hosts", "connect_timeout", _connect_timeout)
    on_screen = {
        "theme": reader.get("screen", "theme", _name),
        "interval": reader.get("screen", "interval", _interval),
        "keymap": reader.get("screen", "keys", _keymap),
        "hidden": reader.get("screen", "hidden", _names),
        "columns": reader.get("screen", "columns", _names),
        "sort": reader.get("screen", "sort", _name),
        "filter": reader.get("screen", "filter", _text),
    }
    reader.check()
    given = {name: value for name, value in on_screen.items() if value is not None}
    if "keymap" in given:
        given["keymap"] = {**before.screen.keymap, **given["keymap"]}
    return before._replace(
        rules=rules,
        notify=before.notify if notify is None else notify,
        log_cap=before.log_cap if log_cap is None else log_cap,
        confine=confine or before.confine,
        stray=stray or before.stray,
        screen=before.screen._replace(**given),
        hosts=HostSettings(
            before.hosts.boxes if boxes is None else boxes,
            before.hosts.timeout if timeout is None else timeout,
        ),
    )


class _Reader:
    """Values by table and key; `check` refuses what nobody asked for."""

    def __init__(self, file: str, document: Mapping[str, Any]) -> None:
        self._file, self._document = file, document
        self._known: dict[str, set[str]] = {}

    def get(self, table: str, key: str, read: Any) -> Any:
        """The value, None where there is none. Raises SettingsError."""
        self._known.setdefault(table, set()).add(key)
        inner = self._document.get(table, {})
        if not isinstance(inner, dict):
            raise SettingsError(f"{self._file}: [{table}] is not a table")
        if key not in inner:
            return None
        try:
            return read(inner[key])
        except ValueError as error:
            raise SettingsError(f"{self._file}: {table}.{key}: {error}") from None

    def check(self) -> None:
        """Raises SettingsError for a table or key that means nothing."""
        for table, inner in self._document.items():
            known = self._known.get(table)
            if known is None:
                raise SettingsError(f"{self._file}: unknown table [{table}]")
            for key in inner:
                if key not in known:
                    raise SettingsError(f"{self._file}: unknown setting {table}.{key}")


def _memory(value: object) -> int:
    if isinstance(value, str):
        return read_size(value)
    raise ValueError(f'{value!r} is not a size ("20G", "512M")')


def _log_cap(value: object) -> int:
    if value == "none":
        return 0
    amount = _memory(value)
    if amount < _LEAST_LOG_CAP:
        raise ValueError(f'{value!r} is less than 16M ("none": no cap)')
    return amount


def _one_of(value: object, words: tuple[Word, ...]) -> Word:
    for word in words:
        if value == word:
            return word
    raise ValueError(f"{value!r} is not one of {', '.join(words)}")


def _percent(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100:
        return value
    raise ValueError(f"{value!r} is not a percentage (0 to 100)")


def _seconds(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 86_400:
        return float(value)
    raise ValueError(f"{value!r} is not a number of seconds")


def _interval(value: object) -> float:
    least, most = INTERVALS
    if isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise ValueError(f"{value!r} is not a number of seconds ({least} to {most:.0f})")


def _connect_timeout(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 600:
        return value
    raise ValueError(f"{value!r} is not a number of seconds (1 to 600)")


def _boxes(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(alias, _names(value))))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is not a string")


def _name(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError(f"{value!r} is not a name")


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(map(_name, value))
    raise ValueError(f"{value!r} is not a list of names")


def _keymap(value: object) -> dict[str, str]:
    if isinstance(value, dict):
        return {action: _name(key) for action, key in value.items()}
    raise ValueError(f"{value!r} is not a table of actions and keys")


def _yes(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is neither true nor false")


def _devices(value: object) -> tuple[str, ...]:
    words = _words(value)
    for word in words:
        if not could_name(word):
            raise ValueError(f"{word!r} is neither an index nor a UUID (GPU-…, MIG-…)")
    return words


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(
        isinstance(word, (str, int)) and not isinstance(word, bool) for word in value
    ):
        return tuple(str(word) for word in value)
    raise ValueError(f"{value!r} is not a list of words")
