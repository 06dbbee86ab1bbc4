"""Programs whose command outlives its lease: they return at once, or start the command with our descriptors
closed. The devices would be free for others while the command runs on them, so it is not started."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.inventory.light_dataclasses import frozen
from gputui.launching.argument_vector import OptionTable, program_name, read_options
from gputui.launching.container_command import ENGINES, RUN, read_container
from gputui.launching.wrappers import WRAPPERS, unwrap, wrappers


@frozen
class _Daemonizer:
    """`only_by`: the options that make the program a daemonizer, () for always; `unless`: the options with
    which it is not a daemonizer."""

    options: OptionTable
    only_by: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


_AT = OptionTable(valued="f q t")

_DAEMONIZERS: dict[str, _Daemonizer] = {
    # screen(1). Its server closes all descriptors; an attached client has them until the session is detached.
    "screen": _Daemonizer(WRAPPERS["screen"].options, unless=WRAPPERS["screen"].never),
    # systemd-run(1): the service manager starts the command.
    "systemd-run": _Daemonizer(WRAPPERS["systemd-run"].options, unless=("scope", "version", "help")),
    # daemonize(1), start-stop-daemon(8): they close all descriptors.
    "daemonize": _Daemonizer(OptionTable(valued="c e E o p l u")),
    "start-stop-daemon": _Daemonizer(
        OptionTable(
            flags="background|b start|S stop|K",
            valued="exec|x pidfile|p name|n user|u group|g chuid|c chroot|r chdir|d startas|a nicelevel|N"
            " procsched|P iosched|I umask|k signal|s retry|R output|O notify-timeout ppid pid",
        ),
        only_by=("background",),
    ),
    # at(1): atd starts the command.
    "at": _Daemonizer(_AT, unless=("l", "d", "r", "c", "V")),
    "batch": _Daemonizer(_AT),
    **dict.fromkeys(map(str, ENGINES), _Daemonizer(RUN, only_by=("detach",))),
}


def daemonizer_in(command: Sequence[str]) -> str | None:
    """Return the words of a command that leave its lease ("screen", "docker run --detach"); None for none.

    Scripts are not read here: `read_intent` calls this for each command of a script.
    """
    inner = unwrap(command)[1]
    for words in (*(call.words for call in wrappers(command)), inner):
        name = program_name(words)
        row = _DAEMONIZERS.get(name)
        # A project's own ./batch is another program.
        if row is None or (words[0] != name and not words[0].startswith(("/usr/", "/bin/", "/sbin/"))):
            continue
        container = read_container(words)
        if row.options is RUN and container is None:
            continue
        given = container.options if container is not None else read_options(words[1:], row.options).options
        by = next((option.name for option in given if option.name in row.only_by), None)
        if any(option.name in row.unless for option in given) or (row.only_by and by is None):
            continue
        return name if by is None else f"{name}{' run' if container is not None else ''} --{by}"
    return None


def refusal_of(daemonizer: str) -> str:
    """Return why a command with these words is not started, and the command to use instead."""
    left_out = daemonizer.rpartition(" ")[2] if " --" in daemonizer else daemonizer
    return (
        f"{daemonizer} would leave the program running without the claim on its devices: leave {left_out} out"
        " and use gputui run --detach"
    )
