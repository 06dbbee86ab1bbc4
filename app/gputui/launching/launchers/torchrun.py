"""torchrun: one process per device (torch.distributed.run, 2.13)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from gputui.launching.argument_vector import Arguments, whole_number
from gputui.launching.intent import CommandContext, Intent
from gputui.launching.launch_options import Meeting
from gputui.launching.launchers.base import (
    Completed,
    LauncherRequest,
    ScriptLauncher,
    contradiction,
    count_in,
)
from gputui.launching.torchrun_options import TORCHRUN
from gputui.system.environment import Environ

OPTIONS = TORCHRUN

PORT = 29400
"""The port of a rendezvous between machines, torchrun's own default."""

RENDEZVOUS = (
    *("standalone", "nnodes", "node-rank", "master-addr", "master-port"),
    *("rdzv-backend", "rdzv-id", "rdzv-endpoint", "rdzv-conf"),
)
"""The options that say which machines take part and where the rendezvous is."""


class Torchrun(ScriptLauncher):
    """`torchrun --standalone --nproc-per-node=N train.py`.

    The count is always a number: without a device `auto` counts processors, and `gpu` fails. On one machine,
    `--standalone` is always given: otherwise older versions use port 29500 and collide.
    """

    name = "torchrun"
    options = OPTIONS
    starts = ("torchrun",)
    modules = ("torch.distributed.run", "torch.distributed.launch")
    as_module = "-m"
    as_program = "--no-python"

    def intent(self, command: Sequence[str], context: CommandContext) -> Intent:
        # `gpu` and `auto` count what they are given.
        return Intent(count=count_in(self.given(self.split(command)[1]), "nproc-per-node"))

    def complete(self, request: LauncherRequest) -> Completed:
        starter, rest = self.split(request.command)
        given, done = self.given(rest), Completed()
        added = _where(given, request, done)
        if "nproc-per-node" not in given:
            added.append(f"--nproc-per-node={request.count}")
        if request.one_each and "virtual-local-rank" not in given and gives_one_each(request, done):
            added.append("--virtual-local-rank")
            done.remark(f"--virtual-local-rank: {request.vendor.one_part}, so each process is shown its own")
        if request.numa and "numa-binding" not in given:
            added += _numa(request, done)
        if request.logs and "log-dir" not in given:
            added.append(f"--log-dir={request.logs}")
            added += [f"--{name}=3" for name in ("redirects", "tee") if name not in given]
        _warn(given, request, done)
        backend = given.get("rdzv-backend", "c10d" if request.nodes > 1 else "static")
        if backend == "static" and "standalone" not in given:
            # (MIN:MAX machines; other rendezvous number the machines themselves.)
            most = given.get("nnodes", request.environ.get("PET_NNODES", "1")).rpartition(":")[2]
            done.check_rank(given.text("node-rank"), given.get("node-rank"), whole_number(most) or 1)
        return done.as_argv((*starter, *added, *rest), ranked=True)


ONE_EACH_SINCE = (2, 10)
"""The torch that has --virtual-local-rank: a process sees one device of the list, as local rank 0
(torch/distributed/elastic/agent/server/local_elastic_agent.py, pytorch #166680)."""


def gives_one_each(request: LauncherRequest, done: Completed) -> bool:
    """Whether this torch can show each process only one of the devices; where it cannot, the launch is
    refused."""
    version = request.torch
    if version is not None and version < ONE_EACH_SINCE:
        has, needs = (".".join(map(str, each)) for each in (version, ONE_EACH_SINCE))
        done.refuse(
            f"{request.vendor.one_part}: torch {has} has no --virtual-local-rank ({needs} has),"
            " which shows each process one of them; select only one"
        )
        return False
    for warning in request.vendor.part_warnings(request.devices, request.environ):
        done.warn(warning)
    return True


def overriding(environ: Environ) -> str | None:
    """Return the variables from which torchrun takes its defaults (torch/distributed/argparse_util.py), or
    None."""
    names = sorted(name for name in environ if name.startswith("PET_"))
    return " ".join(f"{name}={environ[name]}" for name in names) or None


def several(environ: Environ) -> str | None:
    """Return the number of machines that torchrun would wait for because of its variable; None for this one
    only."""
    text = environ.get("PET_NNODES", "1")
    return None if text in ("1", "1:1") else text


def _rendezvous_id(request: LauncherRequest) -> str:
    """Return the id of the rendezvous: the same on all machines of this run, another one for another user or
    command at the same host and port."""
    parts = (
        request.environ.get("USER", ""),
        request.rendezvous or "",
        str(request.nodes),
        *request.command,
    )
    return f"gputui-{zlib.crc32(chr(0).join(parts).encode(errors='surrogateescape')):08x}"


def _where(given: Arguments, request: LauncherRequest, done: Completed) -> list[str]:
    """Return the options for the rendezvous that the command does not give."""
    if request.nodes > 1:
        wanted = {
            "nnodes": str(request.nodes),
            "rdzv-backend": "c10d",
            "rdzv-endpoint": endpoint(request.rendezvous or "HOST"),
            "rdzv-id": request.meeting.id if request.meeting else _rendezvous_id(request),
            **_agreed(request.meeting),
        }
        if request.meeting and "rdzv-conf" in given and "is_host" not in given.get("rdzv-conf", ""):
            done.remark(f"--rdzv-conf in the command is kept; torchrun finds out {_HOSTS}")
        return [f"--{name}={value}" for name, value in wanted.items() if name not in given]
    own = given.without(("nnodes",)).named(RENDEZVOUS)
    added = [] if own or given.get("nnodes", "1") not in ("1", "1:1") else ["--standalone"]
    waiting = several(request.environ)
    if waiting and "nnodes" not in given and (added or "standalone" in given):
        # No other machine can come to a rendezvous that only this machine knows.
        added.append("--nnodes=1")
        done.remark(f"--nnodes=1: torchrun would wait for the machines of PET_NNODES={waiting}")
    return added


_HOSTS = "from names and addresses which machine keeps the rendezvous"


def _agreed(meeting: Meeting | None) -> dict[str, str]:
    """Return the options for a machine that is started together with the others.

    By itself, torchrun compares names and addresses to find out whether it hosts the rendezvous, and decides
    against it on a machine whose own name means 127.0.1.1 (torch/distributed/elastic/rendezvous/utils.py,
    `_matches_machine_hostname`); the others would get its host name, which they may not be able to resolve.
    """
    if meeting is None:
        return {}
    told = {"rdzv-conf": f"is_host={'true' if meeting.first else 'false'}"}
    return {**told, "local-addr": meeting.address} if meeting.address else told


def endpoint(text: str) -> str:
    """Return HOST:PORT, with torchrun's port where none is given; an IPv6 address is in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isdigit() or port == "") or (":" in host and not host.endswith("]")):
        host, port = text, ""
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    return f"{host}:{port or PORT}"


def meeting_place(request: LauncherRequest) -> tuple[str, str]:
    """Return the host and the port of the rendezvous, as other launchers take them."""
    host, _, port = endpoint(request.rendezvous or "HOST").rpartition(":")
    return host.strip("[]"), port


def _numa(request: LauncherRequest, done: Completed) -> list[str]:
    """Return `--numa-binding`, where this torch has it (2.9) and numactl is installed; else add a remark."""
    version = request.torch
    if version is not None and version < (2, 9):
        done.remark(f"torch {'.'.join(map(str, version))} has no --numa-binding (2.9 has)")
    elif request.host_environment.program("numactl", request.environ) is None:
        done.remark("--numa-binding needs the program numactl, which is not installed")
    elif not request.devices:
        done.remark("without a device there is nothing to bind processes to")
    else:
        return ["--numa-binding=node"]
    return []


def _warn(given: Arguments, request: LauncherRequest, done: Completed) -> None:
    count = len(request.devices)
    asked = given.number("nproc-per-node")
    if asked is None and "nproc-per-node" not in given:
        asked = request.processes
    if count and asked is not None and asked != count:
        done.warn(contradiction("--nproc-per-node", asked, count))
    if "standalone" in given and request.nodes > 1:
        done.warn(f"--standalone in the command means one machine; {request.nodes} are asked for")
    if request.nodes > 1 and given.get("nnodes", str(request.nodes)) != str(request.nodes):
        done.warn(f"--nnodes={given.get('nnodes')} is in the command; {request.nodes} machines are asked for")
    variables = overriding(request.environ)
    if variables:
        done.warn(f"torchrun takes its defaults from {variables} in your environment")
