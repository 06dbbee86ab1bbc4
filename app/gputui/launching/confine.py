"""Confined launches: whether and how a command is started so that it can open its own devices only.

The driver does not show a device whose file the process may not open, so a confined command runs on the
claimed devices, whatever it sets or reads (system/landlock.py). It numbers them from 0, in the order of their
indices, and the launch is composed a second time for these numbers (`Launch.inside`); the launch that is
shown, copied and exported keeps the machine's own numbers. No launch is confined where confinement is not
proved (confine_proof.py).

The table `AGAINST` holds the reasons not to confine a launch, each with its sentence.
"""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from gputui.inventory.device import Device, has_instances
from gputui.inventory.errors import RequestError
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.launching.argument_vector import program_name
from gputui.launching.confine_proof import is_proved, left_out, proved
from gputui.launching.intent import Intent
from gputui.launching.launch import Inside, Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.shell_script import read_shell
from gputui.launching.shells import shell_of
from gputui.launching.wrappers import unwrap, wrappers
from gputui.system.environment import Environ
from gputui.system.landlock import LandlockError, check
from gputui.system.root import HERE, Root
from gputui.vendors.registry import vendor_of, vendors_here
from gputui.vendors.vendor import renumbered
from gputui.vendors.visibility import CONFINED, Confine


class CannotConfineError(RequestError):
    """The launch cannot be confined; the message is a sentence."""

    code = "not_confined"


class Case(NamedTuple):
    """A launch that could be confined.

    inside    the launch as composed for the numbers of its devices inside the confinement
    left_out  the files of the other devices; None where the file of a device is not known
    environ   the environment that the command will inherit
    """

    launch: Launch
    inside: Launch
    intent: Intent
    left_out: tuple[str, ...] | None
    environ: Environ
    root: Root


def confined(
    devices: tuple[Device, ...],
    made: Callable[[tuple[Device, ...], Intent], Launch],
    intent: Intent,
    snapshot: Snapshot,
    environ: Environ,
    how: Confine,
    prove: bool = True,
    again: bool = False,
    asking: Callable[[], object] | None = None,
) -> Launch:
    """Return the launch on the devices, with `inside` set where it is to be confined.

    `made` composes the launch; where it is confined, a second time: for the renumbered devices and the intent
    of a confined command. Warnings that do not hold for a confined launch are removed.

    Without `prove` no driver is asked, and a launch is confined only where an earlier proof is kept; `again`
    repeats the proof; `asking` is called before a driver is asked, which can take seconds. A launch on the
    CPU is confined only where `how` is "always": a step inside it may take devices of its own. Raises
    CannotConfineError where `how` is "always" and the launch cannot be confined.
    """
    launch = made(devices, intent)
    if how == "never" or (how == "auto" and not launch.devices):
        return launch
    others = left_out(launch.devices, snapshot, HERE)
    if others == ():
        # There are no other devices to hide.
        return launch
    inside = made(_alone(launch.devices), intent.confined())
    case = Case(launch, inside, intent, others, environ, HERE)
    for of_command, reason in AGAINST:
        why = reason(case)
        if why is not None:
            return _not_confined(launch, how, why, of_command)
    assert others is not None  # the first reason in AGAINST
    # (Of a process without devices, the driver has nothing to report: the kernel's refusal is enough.)
    if launch.devices:
        first, own = launch.devices[0], launch.environment(environ)
        why = proved(first, snapshot, own, case.root, prove, again, asking)
        if why is not None:
            return _not_confined(launch, how, why, False)
    names = ", ".join(map(launch.vendor.device, range(len(launch.devices))))
    labels = ",".join(map(snapshot.label, launch.devices))
    sees = f"sees only GPU {labels} ({names})" if launch.devices else "sees no GPU"
    changes = (*inside.changes, (CONFINED, "1"))
    void = (intent.doubt, launch.own.warning if launch.own and not inside.own else None)
    return replace(
        launch,
        inside=Inside(inside.argv, changes, others, sees),
        own=inside.own,
        refused=inside.refused,
        warnings=tuple(warning for warning in launch.warnings if warning not in void),
        remarks=(*launch.remarks, sees),
    )


def expecting(intent: Intent, options: LaunchOptions, how: Confine, environ: Environ) -> Intent:
    """Return the intent of a command, `relative` where the command is expected to be confined; its devices
    are not known yet. Numbers in its script then count the claimed devices."""
    named = intent.devices
    if how == "never" or named is None or named.rewritable or not named.listed:
        return intent
    against = no_landlock() or _program(options.command, {**environ, **dict(options.additions)})
    if against is not None or not any(is_proved(vendor, environ, HERE) for vendor in vendors_here()):
        return intent
    return replace(intent, relative=True)


def against_here(device: Device, snapshot: Snapshot, environ: Environ, root: Root) -> str | None:
    """Return why launches on devices like this one are not confined on this machine; None where they are, and
    where there is no other device. No driver is asked."""
    others = left_out((device,), snapshot, root)
    if not others:
        return _NO_FILES if others is None else None
    why = vendor_of((device,)).unready_to_confine(root) or no_landlock() or _mounted_on_demand(root)
    return why or proved(device, snapshot, environ, root, ask=False)


def _alone(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices as a confined program numbers them; instances are named by UUID anyway."""
    return devices if has_instances(devices) else renumbered(devices)


def _not_confined(launch: Launch, how: Confine, why: str, said: bool) -> Launch:
    if how == "always":
        raise CannotConfineError(f"cannot be confined: {why}")
    remarks = (*launch.remarks, f"not confined: {why}") if said else launch.remarks
    return replace(launch, unconfined=why, remarks=remarks)


_NO_FILES = "the device files are not known"
_SETUID = "{} cannot become another user in a confined process"
_MOUNTS = "{} changes mounts, which the kernel refuses a confined process"
_SERVER = "{} may pass the command to a running server, which is not confined"
_DAEMON = "{} lets another process start the command, which is not confined"
_OWN_LIST = "{} gives its containers devices itself: the selected ones"

_PROGRAMS: dict[str, str] = {
    **dict.fromkeys(("sudo", "su", "doas", "pkexec"), _SETUID),
    **dict.fromkeys(
        (
            "apptainer",
            "singularity",
            "bwrap",
            "unshare",
            "nsenter",
            "firejail",
            "flatpak",
            "enroot",
            "ch-run",
        ),
        _MOUNTS,
    ),
    **dict.fromkeys(("mount", "umount", "fusermount", "fusermount3", "chroot", "systemd-nspawn"), _MOUNTS),
    **dict.fromkeys(("tmux", "screen", "byobu", "zellij"), _SERVER),
    **dict.fromkeys(("systemd-run", "at", "batch", "srun", "sbatch", "salloc", "ssh", "qsub"), _DAEMON),
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose", "udocker"), _OWN_LIST),
}
"""Programs that do not work in a confined process, or that start their command outside it."""


def _program(argv: Sequence[str], environ: Environ) -> str | None:
    """Return why a program of the command does not work in a confined process or leaves it; None for none."""
    command = unwrap(argv)[1]
    for word in (*(call.words[0] for call in wrappers(argv)), *command[:1]):
        name = program_name((word,))
        why = _PROGRAMS.get(name) or (_SETUID if _takes_rights(word, environ) else None)
        if why is not None:
            return why.format(name)
    shell = shell_of(command)
    # Only the commands of `bash -c` are read; any other such program fails loudly inside.
    started = read_shell(shell.command, shell.arguments, environ)[0] if shell and shell.command else ()
    return next(filter(None, (_program(each.words, environ) for each in started)), None)


def _takes_rights(word: str, environ: Environ) -> bool:
    """Whether a program is set to run as its owner (chmod(1), "u+s")."""
    path = shutil.which(word, path=environ.get("PATH"))
    try:
        return path is not None and bool(Path(path).stat().st_mode & stat.S_ISUID)
    except OSError:
        return False


_EXPLAINED = (
    ("no new privileges", "", "sudo and other setuid programs have no effect in a confined command"),
    (
        r"/dev/(?:nvidia\d|nvidia-caps/|dri/|accel/)",
        "Permission denied|EACCES",
        "a confined command cannot open the files of other devices",
    ),
    (
        r"\b(?:fusermount3?|bwrap|apptainer|singularity|unshare)\b",
        "Operation not permitted|EPERM",
        "a confined command cannot change mounts",
    ),
)
"""Two expressions that both match one line of a command's output, and the explanation of such a line."""


def explained(lines: Sequence[str]) -> str | None:
    """Return why a confined command has failed, by the last lines of its output; None where confinement does
    not explain the failure, which is usual."""
    for line in reversed(lines):
        for what, how, why in _EXPLAINED:
            if re.search(what, line) and re.search(how, line):
                return f"{why} (--no-confine starts it without confinement): {printable(line)}"
    return None


def _own_numbers(case: Case) -> str | None:
    """Return a reason where the command has device numbers of the whole machine that cannot be rewritten."""
    own, named = case.inside.own, case.intent.devices
    if named is not None and not named.rewritable and named.listed:
        inside = _alone(case.launch.devices)
        if not case.launch.vendor.visibility.names_these(named.listed, inside):
            return f"{named.words} counts all devices of the machine and cannot be rewritten"
    if own is not None and case.launch.own is None:
        return f"{own.words} counts all devices of the machine and cannot be rewritten"
    if case.inside.refused is not None and case.launch.refused is None:
        return case.inside.refused
    return None


def no_landlock() -> str | None:
    """Return why this kernel confines no process; None where it does."""
    try:
        check()
    except LandlockError as error:
        return error.strerror
    return None


def _mounted_on_demand(root: Root) -> str | None:
    """Return a reason where a folder directly below `/` is mounted on its first access: the new mount is not
    the folder that was allowed (proc_pid_mountinfo(5)). An "indirect" map mounts below its folder, which is
    allowed."""
    for line in (root.text("/proc/self/mountinfo", 2**20) or "").splitlines():
        before, _, after = line.partition(" - ")
        words, options = before.split(" "), after.split(" ")
        if len(words) > 4 and options[0] == "autofs" and ",direct" in after:
            place = words[4]
            if place.count("/") == 1 and place != "/":
                return f"{place} is mounted on demand (autofs), and cannot be read in a confined process"
    return None


AGAINST: tuple[tuple[bool, Callable[[Case], str | None]], ...] = (
    (False, lambda case: _NO_FILES if case.left_out is None else None),
    (True, lambda case: _program(case.launch.argv, case.launch.environment(case.environ))),
    (True, _own_numbers),
    (False, lambda case: case.launch.vendor.unready_to_confine(case.root)),
    (False, lambda case: no_landlock()),
    (False, lambda case: _mounted_on_demand(case.root)),
)
"""The reasons against confining a launch, the cheapest check first: whether the reason lies in the command,
not in the machine (then each launch reports it), and the function that returns the sentence, or None. A
missing proof is checked after these."""
