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
from typing import TYPE_CHECKING, Any, NamedTuple

from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.errors import GputuiError
from gputui.inventory.light_dataclasses import replace
from gputui.system.trust import who_can_change
from gputui.system.users import own_name
from gputui.vendors.visibility import Confine

if TYPE_CHECKING:
    from gputui.allocating.settings_tables import Stray

SYSTEM = "/etc/gputui.toml"
_MOST = 64 * 1024
_MOST_DOTS = 400
"""Of a line: the time to read a key grows with the square of its parts."""

BOM = "\ufeff"
"""Where some editors on Windows begin a file."""

CONNECT_TIMEOUT = 10
"""Seconds until another box that does not answer is given up."""

DEFAULT_LOG_CAP = 1024**3


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
    # (Imported where there is a file: `pick`, which must be quick, mostly finds none.)
    from gputui.allocating.settings_tables import read_tables
    from gputui.inventory.typed_json import DocumentError

    try:
        found = read_tables(document)
    except DocumentError as error:
        raise SettingsError(f"{file}: {error}") from None
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
