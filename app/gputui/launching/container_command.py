"""Parse `docker run`, `podman run` and `nerdctl run`: their options, the image, and the command in it.

Pure, and independent of launchers: `container_launch.py` handles the needs of the command inside. Sources:
the help texts of docker 28, podman 5 and nerdctl 2; `--gpus` as docker's client reads it (cli/opts/gpus.go).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Literal

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.launching.argument_vector import (
    Arguments,
    Option,
    OptionTable,
    program_name,
    read_options,
    whole_number,
)
from gputui.system.environment import Variables
from gputui.vendors.vendor import Vendor

Engine = Literal["docker", "podman", "nerdctl"]
ENGINES: tuple[Engine, ...] = ("docker", "podman", "nerdctl")

ALL = -1
"""The count that means every device of the machine (docker's own number for it)."""

RUN = OptionTable(
    flags="detach|d init interactive|i tty|t no-healthcheck oom-kill-disable privileged publish-all|P quiet|q"
    " read-only rm sig-proxy disable-content-trust help use-api-socket no-hosts no-hostname read-only-tmpfs"
    " replace rmi tls-verify rootfs env-host http-proxy passwd unsetenv-all insecure-registry",
    valued="env|e workdir|w network|net entrypoint name ipc shm-size gpus device runtime",
    unlisted="value",
)
"""The options of `run`; an option that is not listed has a value."""

_GLOBAL = OptionTable(
    flags="debug|D tls tlsverify help|h version|v remote|r syslog noout transient-store debug-full"
    " insecure-registry kube-hide-dupe",
    unlisted="value",
)
"""The options before `run`. `-v` and `-h` start nothing."""


@frozen
class GpuRequest:
    """The devices that a container is to be given.

    count    the number of devices, chosen by the engine, or `ALL`; None where the devices are named
    names    indices or UUIDs on the box
    ordered  whether a program counts the devices in the order of `names`; otherwise it counts in bus order
    """

    count: int | None = None
    names: tuple[str, ...] = ()
    ordered: bool = False


@frozen
class ContainerCommand:
    """A `docker run` as it was typed.

    head       the words up to and including `run`, with the engine's own options
    arguments  the options of `run`, followed by the image and its arguments
    """

    engine: Engine
    head: tuple[str, ...]
    arguments: Arguments

    @property
    def options(self) -> tuple[Option, ...]:
        return self.arguments.options

    @property
    def image(self) -> str:
        return self.arguments.operands[0]

    @property
    def command(self) -> tuple[str, ...]:
        """The command inside, with `--entrypoint` in front; without it, the words as typed, which may be
        arguments of the image's own program."""
        inner = self.arguments.operands[1:]
        entrypoint = self.arguments.get("entrypoint")
        return (entrypoint, *inner) if entrypoint else inner

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.head, *self.arguments.words)

    @property
    def gpus(self) -> str | None:
        """The value of `--gpus` as it was typed."""
        return self.arguments.get("gpus") or None

    @property
    def shares_memory(self) -> bool:
        """Whether the command itself sets the shared memory of its processes."""
        return bool(self.arguments.named(("ipc", "shm-size")))

    @property
    def environment(self) -> Variables:
        """The variables of `-e`; None means the value in the engine's own environment (`-e NAME`)."""
        found: dict[str, str | None] = {}
        for option in self.arguments.named(("env",)):
            name, equals, value = option.value.partition("=")
            found[name] = value if equals else None
        return found

    def with_command(self, command: Sequence[str]) -> ContainerCommand:
        """Return the same container with another command inside."""
        arguments, inner = self.arguments, tuple(command)
        if arguments.get("entrypoint"):
            options = tuple(
                replace(option, values=inner[:1]) if option.name == "entrypoint" else option
                for option in arguments.options
            )
            arguments, inner = replace(arguments, options=options), inner[1:]
        before = arguments.rest[: len(arguments.rest) - len(arguments.operands)]
        return replace(self, arguments=replace(arguments, rest=(*before, self.image, *inner)))

    def asked(self, vendor: Vendor) -> GpuRequest | None:
        """Return the vendor's devices that the command itself requests; None where it requests none.

        The vendor's list in `-e` counts the devices of the container, in bus order.
        """
        given = self._given(vendor)
        listed = self.environment.get(vendor.visibility.variable)
        if listed is None:
            return given
        entries = vendor.visibility.entries(listed)
        if given is None or given.count == ALL or not all(map(str.isdigit, entries)):
            return GpuRequest(None, entries, ordered=True)
        if given.names and all(map(str.isdigit, given.names)):
            inside = sorted(given.names, key=int)
            named = [inside[int(entry)] for entry in entries if int(entry) < len(inside)]
            return GpuRequest(None, tuple(named), ordered=True)
        return given if given.names else GpuRequest(len(entries))

    def _given(self, vendor: Vendor) -> GpuRequest | None:
        """Return the devices of the container, regardless of the vendor's list in `-e`."""
        containers = vendor.containers
        names: list[str] = []
        if containers is None:
            return None
        given = read_gpus(self.gpus) if self.gpus is not None else None
        if given is not None and given.count != ALL:
            return given
        for option in self.options:
            names += containers.named_by(option.name, option.value)
        for name in vendor.visibility.also:
            value = self.environment.get(name)
            names += vendor.visibility.entries(value) or (value,) if value else ()
        if "all" in names or not names or names == ["none"]:
            return GpuRequest(ALL) if "all" in names else given
        return GpuRequest(None, tuple(names))

    def with_devices(
        self,
        devices: Sequence[Device],
        vendor: Vendor,
        variables: Variables,
        before: Sequence[str] = (),
    ) -> ContainerCommand:
        """Return the same container with exactly these devices, in place of those that it requests itself.

        variables  for the programs inside; a variable with None needs no option, as a container starts
                   without it. The command's own `-e` come later and win; but its `-e` that name devices are
                   removed
        before     more options of `run`
        """
        kept = tuple(option for option in self.options if not gives_devices(option, vendor))
        left = replace(self.arguments, options=kept)
        typed = {option.name for option in self.options if gives_devices(option, vendor)}
        by_cdi = self.engine == "podman" or ("device" in typed and "gpus" not in typed)
        words = [*before, *device_words(by_cdi, devices, vendor, self.gpus or "")]
        for name, value in variables.items():
            if value is not None:
                words += ["-e", f"{name}={value}"]
        if len(devices) > 1 and not self.shares_memory and SHARED not in words:
            words.append(SHARED)
        return replace(self, arguments=read_options((*words, *left.words), RUN))


SHARED = "--ipc=host"
"""Ranks that communicate through NCCL and DataLoader workers share memory in /dev/shm, which has 64 MiB in a
container by default."""


def read_container(words: Sequence[str]) -> ContainerCommand | None:
    """Parse the `run` of a container engine; None for other commands, for other uses of an engine
    (`docker compose`), and without an image. The caller removes words before the engine (`sudo`)."""
    name = program_name(words)
    engine = next((each for each in ENGINES if each == name), None)
    if engine is None:
        return None
    rest = read_options(words[1:], _GLOBAL).rest
    rest = rest[1:] if rest[:1] == ("container",) else rest
    if rest[:1] != ("run",):
        return None
    head = tuple(words[: len(words) - len(rest) + 1])
    arguments = read_options(rest[1:], RUN)
    return ContainerCommand(engine, head, arguments) if arguments.operands else None


def read_gpus(value: str) -> GpuRequest:
    """Parse the value of `--gpus`: "all", "2", '"device=0,1"', 'device=GPU-u,capabilities=utility'.

    docker refuses 'device=0,1' without the inner quotes; here it means the same as with them.
    """
    count: int | None = None
    names: tuple[str, ...] = ()
    for field in next(csv.reader([value]), []):
        key, equals, text = field.partition("=")
        if not equals and names:
            names = (*names, field)
        elif not equals or key == "count":
            number = text if equals else key
            count = ALL if number in ("all", str(ALL)) else whole_number(number)
        elif key == "device":
            names = tuple(text.split(","))
    if names:
        return GpuRequest(None, names)
    # docker gives one device where no count is set.
    return GpuRequest(1 if count is None else count)


def device_words(by_cdi: bool, devices: Sequence[Device], vendor: Vendor, typed: str = "") -> list[str]:
    """Return the options that give a container the devices, by the container device interface or docker's own
    `--gpus`. The other fields of the user's own `--gpus` (capabilities, a driver) are kept."""
    if vendor.containers is None or not devices:
        return []
    if by_cdi:
        return vendor.containers.podman(devices)
    words = vendor.containers.docker(devices)
    kept = [
        f'"{field}"' if "," in field else field
        for field in next(csv.reader([typed]), [])
        if field.partition("=")[0] in _BESIDE_DEVICES
    ]
    return [*words[:-1], ",".join((words[-1], *kept))]


_BESIDE_DEVICES = ("capabilities", "driver", "options")
"""The fields of `--gpus` that do not select devices (cli/opts/gpus.go)."""


def gives_devices(option: Option, vendor: Vendor) -> bool:
    """Whether an option of `run` selects the vendor's devices: `--gpus`, `-e` with one of its variables."""
    name, value = option.name, option.value
    if vendor.containers is not None and vendor.containers.gives_devices(name, value):
        return True
    visibility = vendor.visibility
    return name == "env" and value.partition("=")[0] in (*visibility.names, *visibility.also)
