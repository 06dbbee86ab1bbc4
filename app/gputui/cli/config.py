"""`gputui config`: the settings in force and where each comes from, or a commented file of the defaults."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from gputui.allocating.settings import documents, own_file, settings
from gputui.allocating.settings_tables import DESCRIBED
from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    WrongCallError,
    add_json_option,
    print_json,
    print_lines,
    say,
)
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.text_table import aligned
from gputui.inventory.typed_json import Document, View
from gputui.system.environment import Environ

DEFAULT, VARIABLE = "default", "variable"
_OPTIONS = {
    "rules.memory": "--busy-memory",
    "rules.utilization": "--busy-util",
    "rules.window": "--window",
    "rules.ignore_users": "--ignore-user",
    "rules.mine_is_free": "--mine",
    "devices.never": "--never",
    "devices.prefer": "--prefer",
    "run.confine": "--confine",
    "screen.interval": "--interval",
    "hosts.boxes": "--hosts",
}
"""The options that set something else for one call."""
_VARIABLES = {
    "GPUTUI_CLAIMS": "the folder of the claims",
    "XDG_CONFIG_HOME": "the folder of your settings file",
    "XDG_STATE_HOME": "the folder of jobs, launches and readings",
    "NO_COLOR": "no colours",
    "FORCE_COLOR": "colours in files and pipes, too",
}


@frozen
class Row:
    """A setting in force; `source` is a file, "default" or "variable"; `option` sets another for a call."""

    name: str
    value: object
    source: str
    option: str | None


CONFIG = Document("file settings", file=str | None, settings=View(Row, "name value source option").list)


def parser() -> Parser:
    made = Parser(
        "config",
        "Show every setting: its value, where it comes from (the default, a settings file, a variable), and"
        " the option that overrides it for one call. --write makes your settings file, with all defaults as"
        " comments.",
        example="gputui config --write",
    )
    form = made.add_mutually_exclusive_group()
    add_json_option(form)
    form.add_argument("--write", action="store_true", help="write your settings file, if there is none")
    form.add_argument(
        "--unit", action="store_true", help="print a systemd user unit for `gputui record --daemon`"
    )
    return made


def main(args: Call) -> int:
    file = own_file(os.environ)
    if args.write:
        return _write(file)
    if args.unit:
        print(_unit(), end="")
        return DONE
    settings(os.environ)
    rows = list(in_force(os.environ))
    if args.json:
        print_json(CONFIG.write(file=file, settings=rows))
        return DONE
    table = [("SETTING", "VALUE", "FROM", "FOR ONE CALL")]
    table += [(row.name, printable(_shown(row)), printable(row.source), row.option or "") for row in rows]
    print_lines(aligned(table))
    if file is not None and not Path(file).exists():
        say(f"there is no {file}; `gputui config --write` writes one")
    return DONE


def in_force(environ: Environ) -> list[Row]:
    """Every setting, then the variables that are set. The settings must be valid."""
    found: dict[str, tuple[Any, str]] = {}
    for file, document in documents(environ):
        for table, values in document.items():
            found |= {f"{table}.{key}": (value, file) for key, value in values.items()}
    rows = []
    for name, told in DESCRIBED.items():
        # The defaults are written alike in TOML and in JSON.
        value, source = found.get(name) or (json.loads(told.default or "null"), DEFAULT)
        rows.append(Row(name, value, source, _OPTIONS.get(name)))
    return [*rows, *(Row(name, environ[name], VARIABLE, None) for name in _VARIABLES if name in environ)]


def template() -> str:
    """A settings file with all defaults as comments."""
    lines = [
        "# The settings of gputui, with their defaults or an example. Remove the # before a key to set it."
    ]
    table = ""
    for name, told in DESCRIBED.items():
        begins, _, key = name.partition(".")
        if begins != table:
            table = begins
            lines += ["", f"[{table}]"]
        lines += [f"# {told.about}", f"#{key} = {told.example or told.default}"]
    return "\n".join(lines) + "\n"


def _shown(row: Row) -> str:
    if row.value is None:
        return "automatic"
    return str(row.value) if row.source == VARIABLE else json.dumps(row.value, ensure_ascii=False)


_UNIT = """\
[Unit]
Description=gputui: record who uses the GPUs
Documentation=man:gputui(1)

[Service]
ExecStart="{call}" record --daemon
Nice=10
Restart=on-failure
RestartSec=60

[Install]
WantedBy=default.target
"""


def _unit() -> str:
    """A systemd unit of this gputui (systemd.service(5))."""
    program = str(Path(sys.argv[0]).absolute())
    # (The file of `python -m gputui` cannot be executed.)
    words = [program] if os.access(program, os.X_OK) else [sys.executable, "-m", "gputui"]
    escaped = [word.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"') for word in words]
    return _UNIT.format(call='" "'.join(escaped))


def _write(file: str | None) -> int:
    from gputui.system.files import write_private

    if file is None:
        raise WrongCallError("there is no home folder for the settings; set HOME or XDG_CONFIG_HOME")
    if os.path.lexists(file):
        raise WrongCallError(f"{file} already exists and is not overwritten")
    try:
        write_private(Path(file), template(), folders=True)
    except OSError as error:
        raise WrongCallError(f"cannot write {file}: {error.strerror}") from None
    say(f"wrote {file}")
    return DONE
