"""A `docker run` line for the launch, or the user's own `docker run` with the devices in it."""

from __future__ import annotations

from gputui.launching.argument_vector import program_name
from gputui.launching.container_command import ENGINES, SHARED, ContainerCommand, read_container
from gputui.launching.container_launch import inside_changes
from gputui.launching.exports.form import (
    DEFAULT,
    ExportError,
    ExportOptions,
    need_text,
    need_variable,
    other_changes,
)
from gputui.launching.launch import Launch
from gputui.launching.quoting import posix
from gputui.launching.wrappers import unwrap


def to_docker(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """One line for any POSIX shell. Raises ExportError for contradictions and devices without a UUID."""
    # docker's client puts U+FFFD for a byte that is no text, and says nothing.
    need_text(launch, "what docker is given")
    containers = launch.vendor.containers
    if containers is None:
        raise ExportError(f"how a container is given devices of {launch.vendor.title} is not known")
    nameless = [str(device.index) for device in launch.devices if containers.by_uuid and not device.uuid]
    if nameless:
        raise ExportError(
            f"the UUID of GPU {', '.join(nameless)} is not known, and a container is given devices by UUID"
        )
    before, typed = _typed(launch)
    if typed is None:
        need_variable(launch, "a container counts its devices anew")
    words = _ours(launch, options).words if typed is None else _named(launch, typed, options)
    line = " ".join(map(posix, (*before, *words)))
    if typed is None or not launch.directory:
        return line
    place = launch.directory if launch.directory.startswith("/") else f"./{launch.directory}"
    return f"cd -- {posix(place)} && {line}"


def docker_notes(launch: Launch, options: ExportOptions = DEFAULT) -> tuple[str, ...]:
    """What the line has besides the launch, and why."""
    typed = _typed(launch)[1]
    notes = []
    if typed is None and options.image == DEFAULT.image:
        notes.append("IMAGE stands for your image (--image NAME)")
    if len(launch.devices) > 1 and (typed is None or not typed.shares_memory):
        notes.append(f"{SHARED}: a container has 64 MiB of shared memory, too little for NCCL and DataLoader")
    return tuple(notes)


def _ours(launch: Launch, options: ExportOptions) -> ContainerCommand:
    """A container for a command that is to run in one; it is complete already."""
    if launch.directory and not launch.directory.startswith("/"):
        raise ExportError(f"a container's directory is a whole path, not {launch.directory!r}")
    if not options.image or options.image.startswith("-"):
        raise ExportError(f"{options.image!r} cannot be the name of an image")
    place = ("-w", launch.directory) if launch.directory else ()
    container = read_container(("docker", "run", *place, options.image, *launch.argv))
    assert container is not None
    changes = inside_changes(launch.devices, launch.vendor, options.image, launch.argv)
    variables = {**dict(changes), **other_changes(launch)}
    return container.with_devices(launch.devices, launch.vendor, variables, ("--rm", "-it", *_name(options)))


def _named(launch: Launch, typed: ContainerCommand, options: ExportOptions) -> tuple[str, ...]:
    """The user's own container, which has the devices already, with a name and the other variables."""
    if options.image != DEFAULT.image:
        raise ExportError("the command names its image itself: leave --image out")
    if options.name is not None and "name" in typed.arguments:
        raise ExportError("the command names its container itself: leave --name out")
    if launch.refusal is not None:
        raise ExportError(launch.refusal)
    values = (f"{name}={value}" for name, value in other_changes(launch).items() if value is not None)
    variables = [word for value in values for word in ("-e", value)]
    # (The command's own -e come later, where the last one counts.)
    return (*typed.head, *_name(options), *variables, *typed.arguments.words)


def _name(options: ExportOptions) -> tuple[str, ...]:
    return () if options.name is None else ("--name", options.name)


def _typed(launch: Launch) -> tuple[tuple[str, ...], ContainerCommand | None]:
    """What stands before the user's own `docker run`, and that; () and None where the command is to run in a
    container of ours. Raises ExportError for another use of docker."""
    before, command = unwrap(launch.argv)
    name = program_name(command)
    if name not in ENGINES:
        return (), None
    container = read_container(command)
    if container is None:
        raise ExportError(f"only `{name} run … IMAGE` can be given devices, not {' '.join(command[:3])!r}")
    return before, container
