"""A `docker run` line for the launch, or the user's own `docker run` with the devices added.

A container numbers its devices from 0 in bus order, whatever order `--gpus` has. UUIDs are the same
inside, so the list of visible devices by UUID keeps the order there.
`--ipc=host`: ranks that talk through NCCL and DataLoader workers share memory in /dev/shm, of which a
container has 64 MiB unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.launching.argument_vector import Arguments, option_table, program_name, read_options
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
from gputui.vendors.vendor import Vendor

_RUN = option_table(
    flags="detach|d init interactive|i tty|t no-healthcheck oom-kill-disable privileged publish-all|P quiet|q"
    " read-only rm sig-proxy disable-content-trust help use-api-socket no-hosts no-hostname read-only-tmpfs"
    " replace rmi tls-verify rootfs env-host http-proxy passwd unsetenv-all",
    valued="env|e workdir|w",
    unlisted="value",
)
"""The options of `run` (docker 28, podman 5)."""


@dataclass(frozen=True, slots=True)
class _Run:
    """The user's own `docker run`: the words up to `run`, and those behind it, read."""

    head: tuple[str, ...]
    arguments: Arguments
    podman: bool


def to_docker(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """One line for any POSIX shell. Raises ExportError for contradictions and devices without a UUID."""
    need_variable(launch, "a container counts its devices anew")
    # docker's client puts U+FFFD for a byte that is no text, and says nothing.
    need_text(launch, "what docker is given")
    visibility, containers = launch.vendor.visibility, launch.vendor.containers
    if containers is None or (launch.devices and not visibility.uuid_prefixes):
        raise ExportError(f"how a container is given devices of {launch.vendor.title} is not known")
    nameless = [str(device.index) for device in launch.devices if not device.uuid]
    if nameless:
        raise ExportError(
            f"the UUID of GPU {', '.join(nameless)} is not known, and docker keeps order by UUID"
        )
    given = _given(launch.argv)
    if given is None:
        if launch.directory and not launch.directory.startswith("/"):
            raise ExportError(f"a container's directory is a whole path, not {launch.directory!r}")
        if not options.image or options.image.startswith("-"):
            raise ExportError(f"{options.image!r} cannot be the name of an image")
        own = ["docker", "run", "--rm", "-it"]
        rest = [*(["-w", launch.directory] if launch.directory else []), options.image, *launch.argv]
    else:
        _no_contradiction(given, options, launch.vendor)
        own, rest = list(given.head), list(given.arguments.words)
    if options.name is not None:
        own += ["--name", options.name]
    words = [*own, *_devices(launch, given), *_variables(launch), *rest]
    line = " ".join(posix(word) for word in words)
    if given is None or not launch.directory:
        return line
    place = launch.directory if launch.directory.startswith("/") else f"./{launch.directory}"
    return f"cd -- {posix(place)} && {line}"


def docker_notes(launch: Launch, options: ExportOptions = DEFAULT) -> tuple[str, ...]:
    """What the line has besides the launch, and why."""
    given = _given(launch.argv)
    notes = []
    if given is None and options.image == DEFAULT.image:
        notes.append("IMAGE stands for your image (--image NAME)")
    if "--ipc=host" in _devices(launch, given):
        notes.append(
            "--ipc=host: a container has 64 MiB of shared memory, too little for NCCL and DataLoader"
        )
    return tuple(notes)


def _devices(launch: Launch, given: _Run | None) -> list[str]:
    containers, devices = launch.vendor.containers, launch.devices
    if containers is None or not devices:
        return []
    by_podman = given is not None and given.podman
    words = containers.podman(devices) if by_podman else containers.docker(devices)
    shared = given is not None and bool(given.arguments.named(("ipc", "shm-size")))
    return [*words, *(["--ipc=host"] if len(devices) > 1 and not shared else [])]


def _variables(launch: Launch) -> list[str]:
    """`-e` words. A variable that is to be unset is not there inside in the first place."""
    visible = dict(launch.vendor.visibility.changes(launch.devices, "uuid"))
    # The user's own -e come later in the line, where docker lets the last one count, as the launch does.
    return [
        word
        for name, value in {**visible, **other_changes(launch)}.items()
        if value is not None
        for word in ("-e", f"{name}={value}")
    ]


def _no_contradiction(given: _Run, options: ExportOptions, vendor: Vendor) -> None:
    ours = (*vendor.visibility.names, *vendor.visibility.also)
    for option in given.arguments.options:
        name, value = option.name, option.value
        if vendor.containers is not None and vendor.containers.gives_devices(name, value):
            raise ExportError(f"--{name} {value} of the command names devices already: leave it out")
        if name == "env" and value.partition("=")[0] in ours:
            raise ExportError(f"-e {value} of the command names devices already: leave it out")
    if options.image != DEFAULT.image:
        raise ExportError("the command names its image itself: leave --image out")
    if options.name is not None and "name" in given.arguments:
        raise ExportError("the command names its container itself: leave --name out")


def _given(argv: Sequence[str]) -> _Run | None:
    """The user's own `docker run`, None where the command is to run in a container of ours.

    Raises ExportError for another use of docker.
    """
    before, command = unwrap(argv)
    name = program_name(command)
    if name not in ("docker", "podman"):
        return None
    head = command[: 2 if command[1:2] == ("container",) else 1]
    if command[len(head) : len(head) + 1] != ("run",):
        raise ExportError(f"only `{name} run …` can be given devices, not {' '.join(command[:3])!r}")
    arguments = read_options(command[len(head) + 1 :], _RUN)
    return _Run((*before, *head, "run"), arguments, podman=name == "podman")
