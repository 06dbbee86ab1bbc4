"""torchrun: a process a device (torch.distributed.run, 2.13)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from gputui.launching.launchers.base import Completed, Request, Saying, contradiction
from gputui.launching.launchers.options import Given, read
from gputui.launching.launchers.payload import module_of, program
from gputui.launching.launchers.script_launcher import ScriptLauncher

_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_FLAGS = frozenset(
    ("standalone", "no-python", "run-path", "module", "virtual-local-rank", "use-env", "h", "help")
)
"""torchrun's options that take no value; every other one takes the next word unless it has a "="."""
_ALIASES = {"m": "module", "r": "redirects", "t": "tee"}
_VALUED = frozenset(
    (
        *("nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"),
        *("max-restarts", "monitor-interval", "start-method", "event-log-handler", "role", "log-dir"),
        *("redirects", "tee", "local-ranks-filter", "duplicate-stdout-filters", "duplicate-stderr-filters"),
        *("node-rank", "master-addr", "master-port", "local-addr", "logs-specs", "numa-binding"),
        *("signals-to-handle", "shutdown-timeout"),
    )
)
"""Those that take one: argparse understands a beginning of any of them."""

PORT = 29400
"""The port of a rendezvous between machines, torchrun's own default."""

_OWN_PLACE = ("standalone", "rdzv-endpoint", "rdzv-backend", "rdzv-id", "rdzv-conf")
_OWN_PLACE_TOO = ("master-addr", "master-port", "node-rank")


class Torchrun(ScriptLauncher):
    """`torchrun --standalone --nproc-per-node=N train.py`.

    The count is always a number: without a device `auto` counts processors, and `gpu` fails. Always
    `--standalone` on one machine: older versions meet on port 29500 and collide.
    """

    name = "torchrun"
    starter = ("torchrun",)
    module = _MODULES[0]
    as_module = "-m"
    as_program = "--no-python"

    def prefix(self, command: Sequence[str]) -> int:
        """How many words start it: `torchrun`, or `python -m torch.distributed.run`; 0 for none."""
        if program(command) == "torchrun":
            return 1
        module, end = module_of(command)
        return end if module in _MODULES else 0

    def given(self, words: Sequence[str]) -> Given:
        """torchrun's options that the user gave; those of the script are not ours."""
        return read(words, _FLAGS, _ALIASES, _FLAGS | _VALUED)

    def complete(self, request: Request) -> Completed:
        prefix = self.prefix(request.command)
        starter, rest = request.command[:prefix], request.command[prefix:]
        given, said = self.given(rest), Saying()
        added = _where(given, request, said)
        if "nproc-per-node" not in given:
            added.append(f"--nproc-per-node={request.count}")
        if request.numa and "numa-binding" not in given:
            added += _numa(request, said)
        if request.logs and "log-dir" not in given:
            added.append(f"--log-dir={request.logs}")
            added += [f"--{name}=3" for name in ("redirects", "tee") if name not in given]
        _warn(given, request, said)
        return Completed((*starter, *added, *rest), tuple(said.warnings), tuple(said.remarks))


def overriding(environ: Mapping[str, str]) -> str | None:
    """The variables that torchrun takes its defaults from (torch/distributed/argparse_util.py), or None."""
    names = sorted(name for name in environ if name.startswith("PET_"))
    return " ".join(f"{name}={environ[name]}" for name in names) or None


def several(environ: Mapping[str, str]) -> str | None:
    """The number of machines that torchrun would wait for because of its variable; None for this one only."""
    text = environ.get("PET_NNODES", "1")
    return None if text in ("1", "1:1") else text


def _meeting(request: Request) -> str:
    """A name for the meeting that all machines of this run come to, and no other run: one of another user,
    or of another command, at the same place and port is another meeting."""
    said = (request.environ.get("USER", ""), request.rendezvous or "", str(request.nodes), *request.command)
    return f"gputui-{zlib.crc32(chr(0).join(said).encode(errors='surrogateescape')):08x}"


def _where(given: Given, request: Request, said: Saying) -> list[str]:
    """Where the processes meet."""
    if request.nodes > 1:
        wanted = {
            "nnodes": str(request.nodes),
            "rdzv-backend": "c10d",
            "rdzv-endpoint": _endpoint(request.rendezvous or "HOST"),
            "rdzv-id": _meeting(request),
        }
        return [f"--{name}={value}" for name, value in wanted.items() if name not in given]
    own = any(name in given for name in (*_OWN_PLACE, *_OWN_PLACE_TOO))
    added = [] if own or given.get("nnodes", "1") not in ("1", "1:1") else ["--standalone"]
    waiting = several(request.environ)
    if waiting and "nnodes" not in given and (added or "standalone" in given):
        # Nobody else can come to a meeting place that only this machine knows.
        added.append("--nnodes=1")
        said.remarks.append(f"--nnodes=1: torchrun would wait for the machines of PET_NNODES={waiting}")
    return added


def _endpoint(text: str) -> str:
    """HOST:PORT with torchrun's port where none is given; an IPv6 address is in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isdigit() or port == "") or (":" in host and not host.endswith("]")):
        host, port = text, ""
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    return f"{host}:{port or PORT}"


def _numa(request: Request, said: Saying) -> list[str]:
    """`--numa-binding`, where this torch has it (2.9) and numactl is there: else a remark."""
    version = request.host_environment.version("torch", request.path) if request.path else None
    if version is not None and version < (2, 9):
        said.remarks.append(f"torch {'.'.join(map(str, version))} has no --numa-binding (2.9 has)")
    elif request.host_environment.program("numactl", request.environ) is None:
        said.remarks.append("--numa-binding needs the program numactl, which is not installed")
    elif not request.devices:
        said.remarks.append("without a device there is nothing to bind processes to")
    else:
        return ["--numa-binding=node"]
    return []


def _warn(given: Given, request: Request, said: Saying) -> None:
    count, text = len(request.devices), given.get("nproc-per-node")
    if not count and text in ("auto", "gpu"):
        said.warnings.append(f"the command asks for --nproc-per-node={text}, and there is no device to count")
    if count and text in ("cpu", "xpu"):
        said.warnings.append(f"--nproc-per-node={text} of the command does not count the chosen devices")
    asked = given.number("nproc-per-node")
    if asked is None and "nproc-per-node" not in given:
        asked = request.processes
    if count and asked is not None and asked != count:
        said.warnings.append(contradiction("--nproc-per-node", asked, count))
    if "standalone" in given and request.nodes > 1:
        said.warnings.append(
            f"--standalone of the command keeps to one machine; {request.nodes} are asked for"
        )
    if request.nodes > 1 and given.get("nnodes", str(request.nodes)) != str(request.nodes):
        said.warnings.append(f"--nnodes={given.get('nnodes')} of the command; {request.nodes} are asked for")
    variables = overriding(request.environ)
    if variables:
        said.warnings.append(f"torchrun takes its defaults from {variables} in your environment")
