"""The common parts of all exports: their options, their error, and their requirements."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from gputui.inventory.light_dataclasses import frozen
from gputui.launching.launch import Launch
from gputui.system.environment import Variables


class ExportError(ValueError):
    """The form cannot express the launch. The message gives the reason, and a form that can."""


@frozen
class ExportOptions:
    """Options of an export besides the launch; each form uses those that apply to it.

    image   the container's image (docker, compose, kubernetes)
    nodes   the number of machines (sbatch); other forms take it from the launch
    name    the name of the job, the container or the configuration; None: one made from the command
    file    where the text will be, for a form that has to name its own file
    """

    image: str = "IMAGE"
    nodes: int = 1
    name: str | None = None
    file: str | None = None


DEFAULT = ExportOptions()


@frozen
class Form:
    """A form of export. Both functions are pure; `write` raises ExportError.

    about   what it is, in a few words: for the list on the screen and for --help
    write   returns the text, without a newline at its end
    notes   sentences for the user about what the form changes
    takes   the fields of `ExportOptions` that apply to it
    utf8    whether its reader takes UTF-8 whatever the locale is; a shell takes the bytes that we were given
    """

    about: str
    write: Callable[[Launch, ExportOptions], str]
    notes: Callable[[Launch, ExportOptions], tuple[str, ...]] = lambda launch, options: ()
    takes: frozenset[str] = frozenset()
    utf8: bool = False


def final_changes(launch: Launch) -> Variables:
    """Return the environment changes by name; of several for one name the last, as in the environment."""
    return dict(launch.changes)


def other_changes(launch: Launch) -> Variables:
    """Return the changes except those that select the visible devices."""
    names = launch.vendor.visibility.names
    return {name: value for name, value in final_changes(launch).items() if name not in names}


def visible_devices(launch: Launch) -> str | None:
    """Return the list of visible devices that the launch sets; "" where it sets none, None where it unsets
    it."""
    return final_changes(launch).get(launch.vendor.visibility.variable, "")


def selected_by(scheduler: str, asks: str, launch: Launch) -> str:
    """Return the note that a scheduler selects the devices itself; `asks`: what the form asks it for."""
    return f"{scheduler} selects the devices: {asks}, not for {visible_devices(launch) or 'these'}"


def need_command(launch: Launch, what: str) -> None:
    """Raise ExportError where there is no command to start."""
    if not launch.argv:
        raise ExportError(f"{what} starts a command, which goes after --")


def need_text(launch: Launch, what: str) -> None:
    """Raise ExportError where a word has bytes that are not UTF-8, which the form's reader cannot take."""
    values = (value for _, value in launch.changes if value is not None)
    for word in (*launch.argv, *values, launch.directory or ""):
        try:
            word.encode()
        except UnicodeEncodeError:
            raise ExportError(f"{what} is UTF-8 text, and {word!r} is not; --as sh has every byte") from None


def need_absolute(launch: Launch) -> None:
    """Raise ExportError where the directory would be looked for below another one in a container."""
    if launch.directory and not launch.directory.startswith("/"):
        raise ExportError(f"a container's directory is an absolute path, not {launch.directory!r}")


_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]+")
"""The strings that are left without quotes: no reader parses them as numbers, as some do `1e-4` and `0o17`.
PyYAML quotes those that are keywords of YAML, such as `yes`."""


def yaml_text(document: object) -> str:
    """Return the document as YAML for readers of version 1.1 and 1.2, which differ in what needs quotes."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def quoted(dumper: Any, text: str) -> Any:
        style = None if _PLAIN.fullmatch(text) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)

    Dumper.add_representer(str, quoted)
    return yaml.dump(document, None, Dumper, sort_keys=False, allow_unicode=True, width=math.inf).rstrip("\n")
