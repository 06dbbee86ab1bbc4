"""A `docker run` line for the launch, or the user's own `docker run` with the devices in it."""

from __future__ import annotations

import re

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.quoting import change_directory, posix
from gputui.launching.argument_vector import program_name, read_options
from gputui.launching.container_command import ENGINES, RUN, SHARED, ContainerCommand, read_container
from gputui.launching.container_launch import inside_changes
from gputui.launching.exports.form import (
    DEFAULT,
    ExportError,
    ExportOptions,
    need_absolute,
    need_text,
    other_changes,
)
from gputui.launching.launch import Launch
from gputui.launching.wrappers import unwrap

NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Of a container, and of a service."""


def to_docker(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """Return one line for any POSIX shell. Raises ExportError for contradictions and devices without a
    UUID."""
    before, container = container_of(launch, options, ("--rm", "-it"))
    line = " ".join(map(posix, (*before, *container.words)))
    if _typed(launch)[1] is None or not launch.directory:
        return line
    return f"{change_directory(launch.directory, posix)} && {line}"


def container_of(
    launch: Launch, options: ExportOptions, ours: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], ContainerCommand]:
    """Return what precedes the container, and the container with its devices: the user's own, or one for a
    command that is to run in one, with the options `ours`. Raises ExportError."""
    # docker's client silently replaces bytes that are not UTF-8 by U+FFFD.
    need_text(launch, "input for a container")
    containers = launch.vendor.containers
    if containers is None:
        raise ExportError(f"gputui does not know how to give a container {launch.vendor.title} devices")
    nameless = [str(device.index) for device in launch.devices if containers.by_uuid and not device.uuid]
    if nameless:
        raise ExportError(
            f"the UUID of GPU {', '.join(nameless)} is not known, and containers are given devices by UUID"
        )
    before, typed = _typed(launch)
    if typed is not None:
        return before, _named(launch, typed, options)
    if launch.names:
        raise ExportError(
            f"the {launch.launcher} command names devices of this machine, and a container renumbers its"
            " devices; --launcher torchrun names none"
        )
    return before, _ours(launch, options, ours)


def docker_notes(launch: Launch, options: ExportOptions = DEFAULT) -> tuple[str, ...]:
    """Return notes on what the line adds to the launch, and why."""
    typed = _typed(launch)[1]
    notes = [] if typed is not None else [*image_note(options)]
    if len(launch.devices) > 1 and (typed is None or not typed.shares_memory):
        notes.append(f"{SHARED}: a container has 64 MiB of shared memory, too little for NCCL and DataLoader")
    return tuple(notes)


def image_note(options: ExportOptions) -> tuple[str, ...]:
    """Return the sentence about an image that was not given."""
    return ("IMAGE stands for your image (--image NAME)",) if options.image == DEFAULT.image else ()


def _ours(launch: Launch, options: ExportOptions, before: tuple[str, ...]) -> ContainerCommand:
    """Return a container for a command that is to run in one; it is complete."""
    need_absolute(launch)
    if not options.image or options.image.startswith("-"):
        raise ExportError(f"{options.image!r} cannot be the name of an image")
    place = ("-w", launch.directory) if launch.directory else ()
    container = read_container(("docker", "run", *place, options.image, *launch.argv))
    assert container is not None
    changes = inside_changes(launch.devices, launch.vendor, options.image, launch.argv)
    variables = {**dict(changes), **other_changes(launch)}
    return container.with_devices(launch.devices, launch.vendor, variables, (*before, *_name(options)))


def _named(launch: Launch, typed: ContainerCommand, options: ExportOptions) -> ContainerCommand:
    """Return the user's own container, which has the devices already, with a name and the other variables."""
    if options.image != DEFAULT.image:
        raise ExportError("the command names its image itself; leave --image out")
    if options.name is not None and "name" in typed.arguments:
        raise ExportError("the command names its container itself; leave --name out")
    if launch.refusal is not None:
        raise ExportError(launch.refusal)
    values = (f"{name}={value}" for name, value in other_changes(launch).items() if value is not None)
    variables = [word for value in values for word in ("-e", value)]
    # (The command's own -e follow; of several for one variable, the last counts.)
    return replace(typed, arguments=read_options((*_name(options), *variables, *typed.arguments.words), RUN))


def _name(options: ExportOptions) -> tuple[str, ...]:
    if options.name is None:
        return ()
    if not NAME.fullmatch(options.name):
        raise ExportError(f"{options.name!r} cannot be the name of a container: letters, digits and ._- can")
    return ("--name", options.name)


def _typed(launch: Launch) -> tuple[tuple[str, ...], ContainerCommand | None]:
    """Return the words before the user's own `docker run`, and that container; () and None where the command
    is to run in a container of ours. Raises ExportError for another use of docker."""
    before, command = unwrap(launch.argv)
    name = program_name(command)
    if name not in ENGINES:
        return (), None
    container = read_container(command)
    if container is None:
        raise ExportError(f"only `{name} run … IMAGE` can be given devices, not {' '.join(command[:3])!r}")
    return before, container
