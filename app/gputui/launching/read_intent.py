"""Read the intent of a command from its variables, wrappers, launcher or program, and scripts."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.others_files import NotReadError, not_read, one_reading
from gputui.launching.argument_vector import program_name, write_options
from gputui.launching.container_command import ContainerCommand, gives_devices, read_container
from gputui.launching.container_launch import numbered_inside, started_inside
from gputui.launching.daemonizers import daemonizer_in
from gputui.launching.host_environment import READING, HostEnvironment, ThisHost
from gputui.launching.intent import (
    NO_INTENT,
    CommandContext,
    DeviceCount,
    Intent,
    NamedDevices,
    beside_each_other,
    list_of,
)
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.launchers import recognised
from gputui.launching.launchers.mpirun import parts
from gputui.launching.programs import program_of
from gputui.launching.script_intent import python_intent, shell_intent
from gputui.launching.shell_words import assignments
from gputui.launching.started_script import started_script
from gputui.launching.wrappers import assigned, handed_in, unwrap
from gputui.system.environment import Environ, Variables
from gputui.vendors.registry import vendors
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Visibility

_DEEPEST = 4
"""The limit for following scripts that start each other."""


def read_intent(
    options: LaunchOptions,
    environ: Environ,
    host_environment: HostEnvironment | None = None,
    box: Sequence[Vendor] = (),
) -> Intent:
    """Return the intent of the command of launch options. `box`: the vendors of the box's devices, where they
    are known; otherwise the variables of every vendor count.

    `environ` is the environment of gputui; a list of devices in it limits the selection and is not an intent.
    """
    possible = tuple(box) or vendors()
    host = host_environment or ThisHost()
    what = (options.command, options.additions, options.directory, tuple(each.name for each in possible))
    return host.reading_of(
        ("intent", what),
        lambda: _read(options, CommandContext(environ, host, possible, options.directory)),
        Intent(warnings=(READING,) if host.slow else ()),
    )


def _read(options: LaunchOptions, context: CommandContext) -> Intent:
    variables = dict(options.additions)
    context = context.with_variables(variables)
    typed = _listed(variables, context)
    if typed.devices is not None:
        typed = replace(typed, devices=replace(typed.devices, environ=context.environ))
    with one_reading() as unread:
        try:
            said = _intent_of(options.command, context)
        except NotReadError as error:
            said = NO_INTENT
            not_read("the command", error)
    found = typed.around(said)
    return replace(found, warnings=(*found.warnings, *unread)) if unread else found


def _intent_of(command: Sequence[str], context: CommandContext) -> Intent:
    """Return the intent of a command, including its wrappers."""
    intent = _unplaced(command, context)
    if intent.unclaimed is None and (daemonizer := daemonizer_in(command)) is not None:
        intent = replace(intent, unclaimed=daemonizer)
    if intent.devices is not None and not intent.devices.environ:
        devices = replace(intent.devices, environ=context.with_variables(dict(assigned(command))).environ)
        return replace(intent, devices=devices)
    return intent


def _unplaced(command: Sequence[str], context: CommandContext) -> Intent:
    """Return the same, but `NamedDevices.environ` may not be set yet."""
    prefix, inner = unwrap(command)
    typed = {name: context.environ[name] for name in context.typed if name in context.environ}
    variables = {**handed_in(prefix, typed), **dict(assigned(prefix))}
    context = context.with_variables(variables)
    outer = _listed(variables, context)
    if not inner:
        return outer
    container = read_container(inner)
    if container is not None:
        return outer.around(_of_container(container, context))
    launcher = recognised(inner)
    said = launcher.intent(inner, context)
    ranks = replace(context, ranks=said.count.number if said.count else 0)
    if launcher.name == "mpirun":
        started = [words for _, words in parts(inner)]
        within = beside_each_other(_of_each_rank(_intent_of(words, ranks)) for words in started)
        return outer.around(said.around(within))
    if launcher.name != "python":
        entrypoint = launcher.entrypoint(inner)
        if entrypoint.kind == "program":
            said = said.around(_of_each_rank(_intent_of(entrypoint.words, ranks)))
        elif program := program_of(entrypoint.by_python()):
            # A script sets how the processes work together (Megatron), and not how many there are.
            said = said.around(Intent(group=program.intent(entrypoint.by_python(), context).group))
        if entrypoint.kind != "program":
            said = replace(said.around(_of_script(inner, context)), trainer=False)
        return outer.around(said)
    return outer.around(said.around(_of_script(inner, context)))


def _of_script(command: Sequence[str], context: CommandContext) -> Intent:
    """Return the intent of the script that a command starts, or of the variables that `make` is given."""
    if context.depth >= _DEEPEST:
        return NO_INTENT
    if program_name(command) in ("make", "gmake"):
        given = dict(pair for word in command[1:] for pair in assignments((word,))[0])
        known = {name: value for name, value in given.items() if "$" not in value}
        return _listed(known, context).as_it_stands()
    script = started_script(command, context.host_environment, context.directory)
    if script is not None and script.kind == "shell":
        # It inherits our variable that sets the order in which lists count.
        orders = dict(each.order for each in context.visibilities if each.order is not None)
        inside = replace(context.with_variables(orders), depth=context.depth + 1)
        return shell_intent(script, inside, _intent_of)
    if script is not None:
        return python_intent(script, context)
    return NO_INTENT


def _of_container(container: ContainerCommand, context: CommandContext) -> Intent:
    """Return the intent of a container: its devices, and the count of the command in it."""
    inside = replace(context, host_environment=HostEnvironment(), depth=context.depth + 1)
    own, typed = started_inside(container)
    inner = _intent_of((*own, *typed), inside.with_variables(container.environment))
    asked = next(filter(None, (container.asked(vendor) for vendor in context.vendors)), None)
    said = Intent()
    if asked is not None:
        options = [o for o in container.options if any(gives_devices(o, v) for v in context.vendors)]
        words = " ".join(write_options(options))
        if asked.count is not None and asked.count < 0:
            # Where the command can be rewritten, these become the selected devices.
            said = Intent(all_devices=words)
        elif asked.count is not None and asked.count > 0:
            said = Intent(count=DeviceCount(words, asked.count))
        elif asked.names:
            # A container counts its devices in bus order, regardless of the order of the option.
            by_index = all(name.isdigit() for name in asked.names) and not asked.ordered
            names = sorted(asked.names, key=int) if by_index else asked.names
            said = Intent(devices=NamedDevices(words, ",".join(names)))
    return said.around(numbered_inside(inner))


def _of_each_rank(intent: Intent) -> Intent:
    """Return the intent of the command that a launcher starts in each process, without its count: that counts
    the devices of one process, not all devices."""
    return replace(intent.as_it_stands(), count=None, group=None, trainer=False)


def _listed(variables: Variables, context: CommandContext) -> Intent:
    """Return the intent of a list of devices among variables."""

    def read_by(visibility: Visibility) -> int:
        return sum(visibility.list_among({name: variables[name]}) is not None for name in variables)

    # The vendor whose variables read the most of the lists is meant.
    visibility = max(context.visibilities, key=read_by, default=None)
    found = None if visibility is None else visibility.list_among(variables)
    if visibility is None or found is None:
        return NO_INTENT
    words, listed = found
    if listed is None:
        return Intent(all_devices=words)
    return Intent(devices=NamedDevices(words, list_of(visibility, listed)))
