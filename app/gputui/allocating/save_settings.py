"""save_screen: keeps what a person has changed on the screen, in place, in their own settings file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gputui.allocating.settings import ScreenSettings, SettingsError, own_file
from gputui.system.files import make_folder, write_private

_KEYS = {"keymap": "keys"}
"""What a field of ScreenSettings is called in the file, where that is not its name."""


def save_screen(environ: Mapping[str, str], before: ScreenSettings, after: ScreenSettings) -> None:
    """Write what differs between the two into the user's settings file; all else in it stays as it is.

    Raises SettingsError: there is no home folder, the file is not TOML, or it cannot be written.
    """
    # (Imported only here: it takes 30 ms.)
    import tomlkit
    from tomlkit.exceptions import ParseError, TOMLKitError

    named = own_file(environ)
    if named is None:
        raise SettingsError("there is no home folder to save the settings in")
    # (A settings file is often a link into a repository of such files: the link stays one.)
    file = Path(os.path.realpath(named))
    try:
        text = file.read_bytes().decode() if os.path.lexists(file) else ""
        document = tomlkit.parse(text)
        if "screen" not in document:
            document["screen"] = tomlkit.table()
        table = document["screen"]
        if not isinstance(table, dict):
            raise SettingsError(f"{named}: [screen] is not a table")
        for field, old, new in zip(ScreenSettings._fields, before, after, strict=True):
            key = _KEYS.get(field, field)
            if old == new:
                continue
            if new is None:
                table.pop(key, None)
            else:
                table[key] = list(new) if isinstance(new, tuple) else new
        make_folder(file.parent)
        write_private(file, tomlkit.dumps(document), synced=True)
    except OSError as error:
        raise SettingsError(f"{named}: {error.strerror}") from None
    except (UnicodeDecodeError, ParseError, TOMLKitError, RecursionError) as error:
        raise SettingsError(f"{named}: {error}") from None
