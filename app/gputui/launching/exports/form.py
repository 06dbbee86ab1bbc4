"""What all exports share: their options, their error, and what they require of a launch."""

from __future__ import annotations

from collections.abc import Callable

from gputui.inventory.light_dataclasses import dataclass
from gputui.launching.launch import Launch


class ExportError(ValueError):
    """The form cannot express the launch. The message says why, and what can."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export besides the launch; each form takes those that it has a use for.

    image   of the container (docker)
    nodes   how many machines (sbatch); other forms have them in the launch
    name    of the job, the container or the configuration; None: one made from the command
    file    where the text will be, for a form that has to name itself
    """

    image: str = "IMAGE"
    nodes: int = 1
    name: str | None = None
    file: str | None = None


DEFAULT = ExportOptions()


@dataclass(frozen=True, slots=True)
class Form:
    """A form of export. Both functions are pure; `write` raises ExportError.

    about   what it is, in a few words: for the list on the screen and for --help
    write   the text, without a newline at its end
    notes   sentences for the person who exports, about what the form changes
    takes   the fields of `ExportOptions` that mean something to it
    utf8    its reader takes UTF-8 whatever the locale; a shell takes the bytes that we were given
    """

    about: str
    write: Callable[[Launch, ExportOptions], str]
    notes: Callable[[Launch, ExportOptions], tuple[str, ...]] = lambda launch, options: ()
    takes: frozenset[str] = frozenset()
    utf8: bool = False


def final_changes(launch: Launch) -> dict[str, str | None]:
    """The environment changes by name; of several for one name the last, as in the environment."""
    return dict(launch.changes)


def other_changes(launch: Launch) -> dict[str, str | None]:
    """The changes without those that say which devices are visible."""
    names = launch.vendor.visibility.names
    return {name: value for name, value in final_changes(launch).items() if name not in names}


def visible_devices(launch: Launch) -> str | None:
    """The list of visible devices that the launch sets; "" where it sets none, None where it unsets it."""
    return final_changes(launch).get(launch.vendor.visibility.variable, "")


def need_command(launch: Launch, what: str) -> None:
    """Raises ExportError where there is nothing to start."""
    if not launch.argv:
        raise ExportError(f"{what} starts a command, which goes after --")


def need_text(launch: Launch, what: str) -> None:
    """Raises ExportError where a word has bytes that are no text, which the form's reader cannot have."""
    values = (value for _, value in launch.changes if value is not None)
    for word in (*launch.argv, *values, launch.directory or ""):
        try:
            word.encode()
        except UnicodeEncodeError:
            raise ExportError(f"{what} is UTF-8 text, and {word!r} is not; --as sh has every byte") from None


def need_variable(launch: Launch, where: str) -> None:
    """Raises ExportError where the command itself names devices, which are others elsewhere."""
    if launch.names:
        raise ExportError(
            f"the {launch.launcher} command names devices of this machine, and {where};"
            " --launcher torchrun names none"
        )
