"""DeepSpeed's own launcher (deepspeed/launcher/runner.py, 0.19.8).

Since 0.15.2 it sorts the devices; UUIDs and MIG instances are a ValueError (#5278); an empty
list of visible devices does not mean none; `--include` and the like make it ignore the list. So: ascending
indices by `--include`, without the variable; everything else through torchrun, which keeps the order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from gputui.launching.argument_vector import Arguments, option_table, program_name, write_options
from gputui.launching.launchers.base import Completed, LauncherRequest, Notices, ScriptLauncher
from gputui.launching.launchers.entrypoint import with_interpreter_beside
from gputui.launching.launchers.torchrun import Torchrun
from gputui.launching.python_command import module_prefix

_MODULE = "deepspeed.launcher.runner"
OLDER = ("elastic-training",)
"""Flags of versions before 0.19."""

OPTIONS = option_table(
    flags="help|h module no-python no-local-rank no-ssh no-ssh-check force-multi save-pid"
    f" bind-cores-to-rank quiet|q {' '.join(OLDER)}",
    valued="hostfile|H include|i exclude|e num-nodes num-gpus|num-accelerators master-port master-addr"
    " node-rank launcher launcher-args enable-each-rank-log autotuning bind-core-list ssh-port venv-script"
    " log-level",
    unlisted="value",
    abbreviations=True,
)

_DEVICES = ("include", "exclude", "num-gpus", "num-nodes")
"""Options that name devices: with one of them the variable is ignored, and then deleted."""

_FOR_TORCHRUN = ("module", "no-python", "master-port", "master-addr", "no-local-rank", "hostfile")
"""Options that need not be named as left out: torchrun has its own way, or they say what it does anyway."""

HOSTFILE = "/job/hostfile"
"""Read of itself where it exists; its machines then count, and neither variable nor `--include localhost`."""

SORTS_SINCE = (0, 15, 2)


class Deepspeed(ScriptLauncher):
    """`deepspeed --include=localhost:0,2 --master_port=P train.py`."""

    name = "deepspeed"
    options = OPTIONS
    starter = ("deepspeed",)
    module = _MODULE

    def split(self, command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """`deepspeed`, or `python -m deepspeed.launcher.runner`; and what follows."""
        module, words = module_prefix(command)
        named = program_name(command) in ("deepspeed", "deepspeed.pt", "ds")
        own = 1 if named else words if module == _MODULE else 0
        return tuple(command[:own]), tuple(command[own:])

    def complete(self, request: LauncherRequest) -> Completed:
        starter, rest = self.split(request.command)
        given, notices = self.given(rest), Notices()
        own = [name for name in _DEVICES if name in given]
        machines = _machines(given, own, request)
        counted = () if machines else _counted(given, own, request)
        if counted:
            words = " ".join(write_options(given.named(counted)))
            notices.remark(f"{words} left out: deepspeed would take the first ones, not the chosen ones")
            given, own = given.without(counted), []
            rest = given.words
            request = request.of((*starter, *rest))
        added: list[str] = []
        if own or machines:
            _contradict(given, own, machines, request, notices)
        else:
            reason = _against(request)
            if reason is not None:
                return self._through_torchrun(request, given, reason, notices)
            added.append(f"--include=localhost:{','.join(str(device.index) for device in request.devices)}")
            notices.remark(
                f"deepspeed is given the devices by --include; it ignores {request.visibility.variable} then"
            )
        if not machines:
            added += _here(given, request, notices)
        if request.logs and "enable-each-rank-log" not in given:
            added.append(f"--enable_each_rank_log={request.logs}")
        if not own and request.processes not in (None, len(request.devices)):
            notices.warn(f"deepspeed starts a process a device; {request.processes} were asked for")
        if request.numa:
            notices.remark("deepspeed has no --numa-binding (--bind_cores_to_rank is its own)")
        if request.nodes > 1:
            notices.warn("several machines are started by torchrun here: --launcher torchrun")
        return Completed(
            (*starter, *added, *rest), tuple(notices.warnings), tuple(notices.remarks), "command", notices.own
        )

    def _through_torchrun(
        self, request: LauncherRequest, given: Arguments, reason: str, notices: Notices
    ) -> Completed:
        """torchrun with the same script: what the deepspeed library does in it is the same."""
        entrypoint = with_interpreter_beside(
            self.entrypoint(request.command), request.host_environment.is_file, request.directory
        )
        torchrun = Torchrun()
        done = torchrun.complete(request.of(torchrun.start(entrypoint)))
        remarks = [*notices.remarks, f"through torchrun: {reason}"]
        left = given.without(_FOR_TORCHRUN).option_words
        if left:
            remarks.append(f"left out, as torchrun has no such options: {' '.join(left)}")
        if "no-local-rank" not in given:
            remarks.append("torchrun gives LOCAL_RANK as a variable, and no --local_rank")
        return Completed(done.argv, done.warnings, (*remarks, *done.remarks))


def _counted(given: Arguments, own: Sequence[str], request: LauncherRequest) -> tuple[str, ...]:
    """The options that only count what has been chosen (as many devices, on one machine), if all do.

    They contradict nothing. With one of them deepspeed takes the first devices of the box (all of them, with
    `--num_nodes 1`), ignores the variable, and refuses `--include`.
    """
    count = len(request.devices)
    if not count or not own or not set(own) <= {"num-gpus", "num-nodes"}:
        return ()
    if given.get("num-nodes", "1") != "1" or given.get("num-gpus", str(count)) != str(count):
        return ()
    first = request.by_index and [device.index for device in request.devices] == list(range(count))
    return () if first and list(own) == ["num-gpus"] else tuple(own)


def _machines(given: Arguments, own: Sequence[str], request: LauncherRequest) -> str | None:
    """The hostfile that says on which machines deepspeed starts; None for this one only."""
    if "hostfile" in given:
        path = os.path.join(request.directory or "", given.get("hostfile"))  # noqa: PTH118 - as deepspeed does
        # What is not a regular file does not count as one.
        return given.get("hostfile") if request.host_environment.is_file(path) else None
    here = not own or (list(own) == ["include"] and _included(given.get("include")) is not None)
    return HOSTFILE if not here and request.host_environment.is_file(HOSTFILE) else None


def _here(given: Arguments, request: LauncherRequest, notices: Notices) -> list[str]:
    """What one machine needs: a port that nothing listens on, and no hostfile."""
    added = []
    if "master-port" not in given:
        # 29500 otherwise, without another where it is taken.
        port = request.host_environment.free_port()
        if port is None:
            notices.warn("no TCP port is free here: deepspeed will try 29500 (--master_port PORT)")
        else:
            added.append(f"--master_port={port}")
    if "hostfile" not in given and request.host_environment.is_file(HOSTFILE):
        added.append("--hostfile=/dev/null")
        notices.remark(f"{HOSTFILE} would override the devices: --hostfile=/dev/null")
    return added


def _contradict(
    given: Arguments, own: Sequence[str], machines: str | None, request: LauncherRequest, notices: Notices
) -> None:
    """Say that the command's own devices are not the chosen ones, or not in this order."""
    words = " ".join(write_options(given.named(own)))
    if machines is not None:
        text = f"{machines} says on which machines and devices deepspeed starts; the chosen ones do not count"
        # (HOSTFILE is not in the command: it counts because of the command's own options.)
        hostfile = " ".join(write_options(given.named(("hostfile",))))
        notices.asks_for_others(hostfile or words, text)
        return
    chosen = [device.index for device in request.devices]
    named: list[int] | None = None
    if own == ["include"]:
        named = _included(given.get("include"))
    elif own == ["num-gpus"]:
        named = list(range(given.number("num-gpus") or 0)) or None
    listed = option = None
    if named is not None:
        listed = ",".join(map(str, named))
        option = f"-n {len(named)}" if own == ["num-gpus"] else None
        named = sorted(set(named)) if _sorts(request) else named
    text = f"{words} of the command names the devices for deepspeed; the chosen ones do not count"
    if named is None or not request.by_index or not set(named) <= set(chosen):
        notices.asks_for_others(words, text, listed, option)
    elif sorted(named) != sorted(chosen):
        notices.warn(text)
    elif named != chosen:
        order = ",".join(map(str, named))
        notices.warn(f"{words} of the command: deepspeed will run on {order}, in that order")


def _against(request: LauncherRequest) -> str | None:
    """Why deepspeed's launcher cannot start on exactly these devices in this order; None where it can."""
    if not request.devices:
        return f"for deepspeed an empty {request.visibility.variable} does not mean no GPU"
    if any(device.parent for device in request.devices):
        return "deepspeed cannot be given MIG instances"
    if not request.by_index:
        return "deepspeed cannot be given UUIDs"
    indices = [device.index for device in request.devices]
    if indices != sorted(indices) and _sorts(request):
        return f"deepspeed would sort the devices and run on {','.join(map(str, sorted(indices)))}"
    return None


def _sorts(request: LauncherRequest) -> bool:
    """Whether this deepspeed sorts the devices that it is given; where that cannot be told, it does."""
    version = request.host_environment.version("deepspeed", request.path) if request.path else None
    return version is None or version >= SORTS_SINCE


def _included(text: str) -> list[int] | None:
    """The devices of `--include localhost:0,2`; None where it says anything else."""
    match = re.fullmatch(r"localhost:(\d{1,9}(?:,\d{1,9})*)", text, re.ASCII)
    return [int(part) for part in match[1].split(",")] if match else None
