"""save: writes the user's changes of settings in place, into their own settings file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from gputui.allocating.settings import BOM, SettingsError, own_file, refuse_of_others
from gputui.system.environment import Environ
from gputui.system.files import NoHomeError, alone, private_folder, state_folder, write_private


def save(environ: Environ, changes: Iterable[tuple[tuple[str, str], object]]) -> None:
    """Write the changes (table and key, new value; None: the default) into the user's settings file;
    everything else in it stays as it is.

    Raises SettingsError where there is no home folder, the file is not TOML, or it cannot be written.
    """
    # Imported here, because it takes 30 ms.
    from tomlkit.exceptions import ParseError, TOMLKitError

    named = own_file(environ)
    if named is None:
        raise SettingsError("there is no home folder for the settings; set HOME or XDG_CONFIG_HOME")
    refuse_of_others(named)
    try:
        # A settings file is often a link into a repository of such files; it stays a link.
        file = Path(os.path.realpath(named))
        state = state_folder(environ)
        private_folder(state)
        # Two screens that save at once would undo each other's changes. The lock is not in the file's own
        # folder: others can often read that folder, so they could take the lock and keep it.
        with alone(state / ".settings.lock"):
            is_there = file.exists()
            mode = file.stat().st_mode & 0o777 if is_there else 0o600
            if not mode & 0o222:
                # A rename would replace it nevertheless, and so would root.
                raise SettingsError(f"{named}: the file is read-only")
            text = file.read_bytes().decode() if is_there else ""
            changed = text.removeprefix(BOM)
            for (table, key), value in changes:
                changed = _with(changed, table, key, value, named)
            if "\r\n" in text:
                changed = re.sub(r"(?<!\r)\n", "\r\n", changed)
            if text.startswith(BOM):
                changed = BOM + changed
            write_private(file, changed, synced=True, mode=mode, folders=True)
    except NoHomeError as error:
        raise SettingsError(str(error)) from None
    except OSError as error:
        raise SettingsError(f"{named}: {error.strerror}") from None
    except (UnicodeDecodeError, ParseError, TOMLKitError, RuntimeError) as error:
        # RuntimeError: links in a circle, or nested too deep.
        raise SettingsError(f"{named}: {error}") from None


def _with(text: str, name: str, key: str, value: object, named: str) -> str:
    """The text with one setting of the table called `name` changed, or removed (None)."""
    import tomlkit

    # Parsed again for each key: once a key has been removed from a dotted table, tomlkit 0.15 misses others.
    document = tomlkit.parse(text)
    if name not in document:
        document[name] = tomlkit.table()
    table = document[name]
    if not isinstance(table, dict):
        raise SettingsError(f"{named}: [{name}] is not a table")
    if value is None:
        table.pop(key, None)
    else:
        table[key] = list(value) if isinstance(value, tuple) else value
    return tomlkit.dumps(document)
