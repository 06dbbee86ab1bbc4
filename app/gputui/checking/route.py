"""How the interpreter that will train is reached: by itself, or through a launcher that chooses too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gputui.launching.interpreter import InterpreterError, interpreter
from gputui.launching.launch import Launch
from gputui.launching.launchers import recognised
from gputui.launching.launchers.base import ScriptLauncher
from gputui.launching.start import missing_program
from gputui.launching.wrappers import unwrap
from gputui.vendors.nvidia.visibility import VISIBLE

_CHOOSING = ("accelerate", "deepspeed")
"""Launchers that change the devices' variable themselves (accelerate by its configuration, deepspeed always):
only what their processes see proves anything. torchrun hands the environment on."""


class RouteError(Exception):
    """The interpreter cannot be reached. The message is one line."""


@dataclass(frozen=True, slots=True)
class Route:
    """What to write before a script of ours.

    doubt     why it may not be the interpreter that will train
    launcher  the launcher that starts it, whose every process answers; None where there is one process
    replaced  variables of the launch that the launcher sets anew
    """

    argv: tuple[str, ...]
    doubt: str | None = None
    launcher: str | None = None
    replaced: tuple[str, ...] = ()


def route(launch: Launch, environment: Mapping[str, str], python: str | None = None) -> Route:
    """The way to the interpreter of `launch`, started with `environment`. Raises RouteError."""
    prefix, command = unwrap(launch.argv)
    launcher = recognised(command) if command else None
    if isinstance(launcher, ScriptLauncher) and launcher.name in _CHOOSING:
        missing = missing_program(launch, environment)
        if missing is not None:
            raise RouteError(missing)
        replaced = tuple(name for name, value in launch.changes if name == VISIBLE and value is None)
        return Route((*prefix, *launcher.for_script(command, ())), None, launcher.name, replaced)
    try:
        found = interpreter(launch.argv, environment, launch.directory, python)
    except InterpreterError as error:
        raise RouteError(str(error)) from None
    return Route(found.argv, found.doubt)
