"""Complete a `docker run`: with the devices, and with the number of processes for the launcher inside it.

A container has only the devices that it is given, and counts them from 0 in bus order, regardless of their
order in the option. So a launcher inside is completed for the devices as the container numbers them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import replace
from gputui.launching.argument_vector import Split, program_name, whole_number, write_options
from gputui.launching.container_command import ContainerCommand, gives_devices
from gputui.launching.host_environment import HostEnvironment
from gputui.launching.intent import DeviceCount, Intent
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers import recognised
from gputui.launching.launchers.base import Completed, LauncherRequest
from gputui.launching.programs import PROGRAMS, program_of
from gputui.launching.programs.program import Program
from gputui.launching.python_command import is_python
from gputui.launching.wrappers import assigned, unwrap
from gputui.vendors.vendor import Vendor, renumbered
from gputui.vendors.visibility import Changes, with_changes

PORT = 29500
"""Torch's own default. It is free in a container, where no other program listens in its network."""


def complete_container(
    container: ContainerCommand,
    devices: Sequence[Device],
    vendor: Vendor,
    options: LaunchOptions,
    port: int | None,
) -> Completed:
    """Return the container on exactly `devices` in this order, with the launcher inside it completed.

    `port` is a TCP port that is free where the container listens.
    """
    own, typed_inside = started_inside(container)
    prefix, command = unwrap((*own, *typed_inside))
    launcher = recognised(command)
    environ = with_changes({}, (*container.environment.items(), *assigned(prefix)))
    done = launcher.complete(
        LauncherRequest(
            command=command,
            devices=renumbered(devices),
            environ=environ,
            host_environment=HostEnvironment(port),
            processes=options.processes,
            logs=options.logs,
            numa=options.numa,
            prefix=prefix,
            vendor=vendor,
        )
    )
    changes = inside_changes(devices, vendor, container.image, container.command)
    if done.visible == "command" or done.names:
        changes = vendor.visibility.changes_beside_own_list(devices)
    given = container.with_devices(devices, vendor, with_changes(dict(changes), done.changes))
    ours = {option.words for option in given.options}
    typed = [each for each in container.options if gives_devices(each, vendor) and each.words not in ours]
    if typed:
        words = " ".join(write_options(typed))
        done.remarks.insert(0, f"{words} replaced by the selected devices")
    if not command or (launcher.name == "python" and not is_python(command) and _is_unknown(command)):
        # `docker run IMAGE train.py` may well pass its words to the image's own program.
        done.refused = None
    else:
        given = given.with_command((*prefix, *done.argv)[len(own) :])
    return Completed(given.words, done.warnings, done.remarks, "elsewhere", done.own, refused=done.refused)


def _is_unknown(command: Sequence[str]) -> bool:
    program = program_of(command)
    return program is None or program.any_python


def inside_changes(devices: Sequence[Device], vendor: Vendor, image: str, command: Sequence[str]) -> Changes:
    """Return the variables that make a program in a container count the devices in their order."""
    if vendor.containers is None:
        return ()
    return vendor.containers.changes(devices, vendor.visibility, reads_numbers_only(image, command))


def reads_numbers_only(image: str, command: Sequence[str]) -> bool:
    """Whether the program cannot read a UUID in the list of visible devices (`Program.only_indices`).

    The program may be named in a line for a shell, which is one word, or by the image
    (`vllm/vllm-openai --model …`).
    """
    of_image = program_of_image(image)
    programs = [program for program in PROGRAMS if program.only_indices]
    begins = {begin.split()[0] for each in programs for begin in (*each.starts, *each.modules)}
    words = [program_name((part,)) for word in command for part in word.split()]
    return of_image in programs or not begins.isdisjoint(words)


def program_of_image(image: str) -> Program | None:
    """Return the program that an image starts by default (`vllm/vllm-openai:latest`), by the image's name."""
    name = re.split("[:@]", image.rsplit("/", 1)[-1])[0]
    return next((program for program in PROGRAMS if name in program.images), None)


def started_inside(container: ContainerCommand) -> Split:
    """Return the words with which the image starts its program, where the command gives only options for that
    program, and the command as it was typed."""
    command = container.command
    program = program_of_image(container.image)
    if program is None or not command or not command[0].startswith("-"):
        return (), command
    return tuple(program.starts[0].split()), command


def numbered_inside(inner: Intent) -> Intent:
    """Return the intent of a container whose command has the intent `inner`. Devices are renumbered inside,
    so numbers there say only how many devices there must be."""
    named = inner.devices
    places = [whole_number(entry) for entry in named.listed.split(",")] if named is not None else []
    if named is None or not places or None in places:
        return replace(inner, devices=None)
    if named.first_ones is not None:
        return replace(inner, devices=None, count=inner.count or named.first_ones)
    highest = max(place for place in places if place is not None)
    needs = inner.needs or DeviceCount(named.words, highest + 1, firm=False)
    return replace(inner, devices=None, needs=needs)
