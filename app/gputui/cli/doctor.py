"""`gputui doctor`: what gputui needs here and what it can use, each with its remedy where it is missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gputui.allocating.claims.folder import Problems, own_place, places
from gputui.allocating.errors import UnsafeError
from gputui.allocating.named_source import named_source
from gputui.allocating.settings import Settings, SettingsError, settings
from gputui.cli.common import CHECK_FAILED, DONE, Call, Parser, add_json_option, print_json, print_lines
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.text_table import aligned
from gputui.inventory.typed_json import Document, View
from gputui.launching.clipboard import tools
from gputui.launching.confine import against_here, no_landlock
from gputui.launching.confine_proof import NOT_YET
from gputui.sources.in_time import InTime
from gputui.sources.source import NoSourceError, Want
from gputui.system.environment import Environ
from gputui.system.namespaces import in_initial_namespace
from gputui.system.root import HERE
from gputui.system.terminal_abilities import ascii_only, can_draw, coloured, is_terminal
from gputui.system.trust import program
from gputui.system.users import own_name
from gputui.vendors.registry import vendor_of

_PATIENCE = 1.2
"""Seconds in which the driver must answer, so that the call ends within two."""
_NO_TERMINAL = "no terminal here: output goes to a file or a pipe"


@frozen
class Finding:
    """What was found about one thing.

    good    whether it works; None where that is not known
    remedy  what helps; None where all is well, where the detail says it, or where nothing helps
    needed  whether gputui cannot start commands on devices without it
    """

    name: str
    good: bool | None
    detail: str
    remedy: str | None = None
    needed: bool = False

    @property
    def word(self) -> str:
        """ "limited": it does not work, and gputui works without it."""
        if self.good is None:
            return "unknown"
        return "ok" if self.good else "problem" if self.needed else "limited"


DOCTOR = Document("good checks", good=bool, checks=View(Finding, "name good detail remedy needed").list)


def parser() -> Parser:
    made = Parser(
        "doctor",
        "Check what gputui needs here (the driver, the device files, the claims and the settings; status 5"
        " if one fails: a problem) and what it can use besides (limited where that does not work), and print"
        " what to do. It takes two seconds at most, and starts nothing.",
        example="gputui doctor",
    )
    add_json_option(made)
    return made


def main(args: Call) -> int:
    found = list(findings(os.environ))
    if args.json:
        print_json(DOCTOR.write(good=not _failed(found), checks=found))
    else:
        print_lines(_lines(found))
    return CHECK_FAILED if _failed(found) else DONE


def findings(environ: Environ) -> Iterator[Finding]:
    """Yield what is found, the needed things first."""
    driver, snapshot = _driver()
    yield driver
    if snapshot is not None:
        yield _device_files(snapshot)
    if not in_initial_namespace():
        told = "processes outside it are not listed here; a device with their memory is shown as held"
        yield Finding("container", True, told)
    yield _claims(environ)
    own, finding = _settings(environ)
    yield finding
    yield _confinement(snapshot, environ)
    yield _ssh(environ, own)
    yield _clipboard(environ)
    yield _notification(environ, own)
    yield _terminal(environ)


def _failed(found: Sequence[Finding]) -> bool:
    return any(each.word == "problem" for each in found)


def _lines(found: Sequence[Finding]) -> list[str]:
    rows = []
    for each in found:
        rows.append((each.name, each.word, printable(each.detail)))
        if each.remedy is not None:
            rows.append(("", "", f"→ {printable(each.remedy)}"))
    return aligned(rows)


def _driver() -> tuple[Finding, Snapshot | None]:
    """Return the finding, and a snapshot where the driver answers."""
    source = InTime(named_source(None, None), _PATIENCE)
    try:
        source.open()
        snapshot = source.read(Want.NAMES | Want.NODES)
        source.close()
    except NoSourceError as error:
        cause, _, remedy = str(error).partition("; ")
        if source.hangs:
            remedy = (
                "`gputui ls` waits longer; a driver that is loaded anew for each call is slow"
                " (see persistence mode)"
            )
        return Finding("driver", False, cause, remedy or None, needed=True), None
    host, count = snapshot.host, len(snapshot.devices)
    parts = (f"driver {host.driver}" if host.driver else "", f"CUDA {host.cuda}" if host.cuda else "")
    told = ", ".join(part for part in (snapshot.models or "no devices", *parts) if part)
    return Finding("driver", count > 0, told, "see `gputui ls`" if not count else None, True), snapshot


def _device_files(snapshot: Snapshot) -> Finding:
    files = {file for each in snapshot.devices for file in vendor_of((each,)).nodes(each, HERE)}
    closed = sorted(file for file in files if not os.access(file, os.R_OK | os.W_OK))
    name = "device files"
    if not files:
        remedy = "in a container: start it with the devices (`docker run --gpus all`)"
        return Finding(name, None, "none of these devices is found in /dev", remedy, needed=True)
    if not closed:
        return Finding(name, True, f"all {len(files)} can be opened", needed=True)
    return Finding(name, False, f"you cannot open {', '.join(closed)}", _opens(closed[0]), needed=True)


def _opens(file: str) -> str:
    """Return the remedy for a device file that we cannot open."""
    ask = f"ask the administrator to let you open {file}"
    try:
        facts, group = Path(file).stat(), Path(file).group()
    except (OSError, KeyError):
        return ask
    joins = facts.st_mode & 0o060 == 0o060 and facts.st_gid
    return f"`sudo usermod -aG {group} {own_name()}`, and log in again" if joins else ask


def _claims(environ: Environ) -> Finding:
    problems = Problems([], [])
    try:
        for _ in places(environ, problems):
            pass
        problems.refuse_if_missing()
        return Finding("claims", True, str(own_place(environ)), needed=True)
    except UnsafeError as error:
        return Finding("claims", False, str(error), needed=True)


def _settings(environ: Environ) -> tuple[Settings, Finding]:
    try:
        own = settings(environ)
    except SettingsError as error:
        return Settings(), Finding("settings", False, str(error), needed=True)
    return own, Finding("settings", True, "`gputui config` shows them", needed=True)


def _confinement(snapshot: Snapshot | None, environ: Environ) -> Finding:
    if snapshot is not None and snapshot.devices:
        why = against_here(snapshot.devices[0], snapshot, environ, HERE)
    else:
        why = no_landlock()
    if why is None:
        return Finding("confinement", True, "a command can open only its own devices")
    if why is NOT_YET:
        return Finding(
            "confinement",
            False,
            "until it is proved here, commands start unconfined",
            "`gputui check --confine` proves it",
        )
    return Finding("confinement", False, f"commands start unconfined: {why}")


def _ssh(environ: Environ, own: Settings) -> Finding:
    found = program("ssh", environ.get("PATH"))
    if found is None:
        return Finding(
            "ssh",
            False,
            "PATH has no `ssh` that no other user can change",
            "install the OpenSSH client, for --hosts and --on",
        )
    boxes = ", ".join(own.hosts.boxes)
    told = (
        f"{found}; boxes: {boxes} (`gputui ls --hosts all` queries them)"
        if boxes
        else f"{found}; no boxes in the settings"
    )
    return Finding("ssh", True, told)


def _clipboard(environ: Environ) -> Finding:
    names = [name for name, _ in tools(environ)]
    if names:
        return Finding("clipboard", True, f"with {' or '.join(names)}")
    return _through_terminal("clipboard", " (OSC 52), if it allows that")


def _through_terminal(name: str, how: str) -> Finding:
    there = is_terminal(sys.stdin) or is_terminal(sys.stderr)
    return Finding(name, there or None, f"through the terminal{how}" if there else _NO_TERMINAL)


def _notification(environ: Environ, own: Settings) -> Finding:
    if not own.notify:
        return _through_terminal("notification", "; the setting `notify` adds a command")
    name = own.notify[0]
    if program(name, environ.get("PATH")) is None:
        why = f"no program {name!r} that no other user can change"
        return Finding("notification", False, why, "install it, or change [wait] notify")
    return Finding("notification", True, f"with {name}")


def _terminal(environ: Environ) -> Finding:
    name, screen = "terminal", sys.stdout
    if not is_terminal(screen):
        return Finding(name, None, _NO_TERMINAL)
    if not can_draw(environ):
        remedy = "set TERM to the name of your terminal, such as xterm-256color"
        return Finding(name, False, f"TERM={environ.get('TERM', '')} cannot show the screen", remedy)
    if ascii_only(screen, environ):
        remedy = "set LANG to a UTF-8 locale, such as C.UTF-8, and TERM to the name of your terminal"
        return Finding(name, False, "ASCII only: states and charts are shown by letters", remedy)
    colours = "colours" if coloured(screen, environ) else "no colours (NO_COLOR)"
    return Finding(name, True, f"{environ['TERM']}, UTF-8, {colours}")
