"""The permanent settings of the user and of the box's administrator: a TOML file, strictly parsed.

[rules]
memory = "512M"            # a device without a process is free up to this memory in use
utilization = 10           # and up to this utilization, in percent
window = 10                # seconds that it must have been free, where it is watched
idle_after = 600           # seconds at 0 % after which the holder of memory counts as idle
idle_release = 3600        # seconds at 0 % after which an own job is stopped; 0: never
ignore_users = ["dcgm"]    # users whose processes do not count
mine_is_free = false       # whether the user's own processes do not count either

[devices]
never = ["0"]              # not taken, by index or UUID
prefer = ["7", "6"]        # taken first, in this order

[wait]
notify = ["notify-send", "gputui", "{message}"]

[run]
confine = "auto"           # a command can open only its own devices, where this is proved; "always", "never"
stray = "warn"             # report a job that runs on devices it has not claimed; "stop": stop it

[jobs]
log_cap = "1G"             # remove the middle of a longer log; "none": never

[hosts]
boxes = ["gpu1", "gpu2"]   # the boxes of `--hosts all` and `run --on anywhere`, by their ssh names
connect_timeout = 10       # seconds to wait for the connection to a box

[screen]
theme = "light"            # or "dark", "ansi"
interval = 2               # seconds between two readings
hidden = ["links"]         # panels that are not shown
[screen.keys]
copy = "c"                 # the key of an action, by its id; several keys are separated by commas
cpu = "y"
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.errors import GputuiError
from gputui.inventory.formatting import GIB
from gputui.inventory.light_dataclasses import replace
from gputui.system.environment import Environ
from gputui.system.trust import how_changed, who_can_change
from gputui.system.users import own_name
from gputui.vendors.visibility import Confine

if TYPE_CHECKING:
    from gputui.allocating.settings_tables import Stray

SYSTEM = "/etc/gputui.toml"
_MOST = 64 * 1024
_MOST_DOTS = 400
"""The most dots in a line: the time to read a key grows with the square of its parts."""

BOM = "\ufeff"
"""The byte order mark with which some editors on Windows begin a file."""

CONNECT_TIMEOUT = 10
"""Seconds until another box that does not answer is given up."""

DEFAULT_INTERVAL = 1.0
"""Seconds between two readings of the screen."""

DEFAULT_LOG_CAP = GIB


class SettingsError(GputuiError):
    """A settings file is invalid; the message names the file and the place."""

    code, status = "bad_settings", 2
    remedy = "`gputui docs rules` explains the settings"


Keymap = Mapping[str, str]
"""The keys of actions by their ids (`tui/actions.py`), where they are not the defaults."""


class ScreenSettings(NamedTuple):
    """The look of the screen; the user's changes on the screen are kept here.

    theme     its name, None for the default
    interval  seconds between readings, None for the default
    keymap    the user's own keys
    hidden    names of panels that are not shown
    columns   names of the device table's columns, in order; None: as many as fit
    sort      the column that the device table is sorted by; None: the box's own order
    filter    shows only the devices that match, "" for all
    """

    theme: str | None = None
    interval: float | None = None
    keymap: Keymap = {}
    hidden: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    sort: str | None = None
    filter: str = ""


DEFAULT_SCREEN = ScreenSettings()


class HostSettings(NamedTuple):
    """boxes: the boxes that "all" means, by their ssh names; timeout: seconds until a box is given up."""

    boxes: tuple[str, ...] = ()
    timeout: int = CONNECT_TIMEOUT


class Settings(NamedTuple):
    """rules    the rules for verdicts
    notify   a command that runs when waiting is over; "{message}" in it becomes the outcome
    screen   the look of the screen
    confine  whether commands are confined to their devices
    stray    the action on a job that runs on devices which it has not claimed
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


def settings(environ: Environ, unsaved: Mapping[tuple[str, str], object] = MappingProxyType({})) -> Settings:
    """The administrator's settings, overridden by the user's, and these by values that are not saved, by
    table and key (None: the default). Raises SettingsError."""
    found = Settings()
    for file, document in documents(environ):
        for table, key in unsaved:
            if isinstance(document.get(table), dict):
                document[table].pop(key, None)
        found = _with(found, document, file)
    for (table, key), value in unsaved.items():
        if value is not None:
            found = _with(found, {table: {key: value}}, key)
    return found


def documents(environ: Environ) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the settings files that there are, the administrator's first, with their parsed TOML. Raises
    SettingsError."""
    for file in (SYSTEM, own_file(environ)):
        if file is None:
            continue
        try:
            with open(file, "rb", opener=_at_once) as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise SettingsError(f"{file}: not a regular file")
                data = stream.read(_MOST + 1)
                # The path may lead to another file by now, or to none.
                reason = how_changed(os.fstat(stream.fileno()), stream.fileno())
                _refuse(file, reason and f"{reason} {file!r}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise SettingsError(f"{file}: {error.strerror}") from None
        if len(data) > _MOST:
            raise SettingsError(f"{file}: longer than {_MOST} bytes")
        refuse_of_others(file)
        yield file, _parsed(file, data)


def refuse_of_others(file: str) -> None:
    """Raise SettingsError where others could have changed a file.

    They would choose the commands that we start, and the devices that count as free.
    """
    _refuse(file, who_can_change(file))


def _refuse(file: str, reason: str | None) -> None:
    if reason is not None:
        raise SettingsError(f"{file} is not used, because others could have changed it: {reason}")


def _at_once(file: str, flags: int) -> int:
    """Open a file without waiting, even a named pipe that nobody writes to. Returns the descriptor."""
    return os.open(file, flags | os.O_NONBLOCK)


def own_file(environ: Environ) -> str | None:
    """`$XDG_CONFIG_HOME/gputui/config.toml` (XDG Base Directory Specification); None without a home."""
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
        # A number of more than 4,300 digits is a ValueError too.
        raise SettingsError(f"{file}: {error}") from None
    return found


def _with(before: Settings, document: Mapping[str, Any], file: str) -> Settings:
    # Imported only where there is a file, because `pick` must be quick and mostly finds none.
    from gputui.allocating.settings_tables import in_file, read_tables
    from gputui.inventory.typed_json import DocumentError

    try:
        found = read_tables(document)
    except DocumentError as error:
        raise SettingsError(f"{file}: {in_file(error)}") from None
    rules = found.get("rules", {}) | found.get("devices", {})
    if "mine" in rules:
        rules["mine"] = own_name() if rules["mine"] else None
    screen = found.get("screen", {})
    if "keymap" in screen:
        screen["keymap"] = {**before.screen.keymap, **screen["keymap"]}
    return before._replace(
        rules=replace(before.rules, **rules),
        screen=before.screen._replace(**screen),
        hosts=before.hosts._replace(**found.get("hosts", {})),
        **found.get("wait", {}),
        **found.get("run", {}),
        **found.get("jobs", {}),
    )
