"""torchrun: a process a device (torch.distributed.run)."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.launching.launchers.base import Completed, Request, Saying, contradiction
from gputui.launching.launchers.options import Given, read
from gputui.launching.launchers.payload import Payload, module_of, program

_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_FLAGS = frozenset(
    (
        *("standalone", "no-python", "run-path", "module", "virtual-local-rank", "use-agent-store"),
        *("use-env", "h", "help"),
    )
)
"""torchrun's options that take no value; every other one takes the next word unless it has a "="."""
_ALIASES = {"m": "module", "r": "redirects", "t": "tee"}

PORT = 29400
"""The port of a rendezvous between machines, torchrun's own default."""

_OWN_PLACE = ("standalone", "rdzv-endpoint", "rdzv-backend", "rdzv-id", "rdzv-conf")
_OWN_PLACE_TOO = ("master-addr", "master-port", "node-rank")


class Torchrun:
    """`torchrun --standalone --nproc-per-node=N train.py`.

    The count is always a number: without CUDA `auto` counts processors, and `gpu` fails. Always
    `--standalone` on one machine: older versions meet on port 29500 and collide.
    """

    name = "torchrun"

    def recognises(self, command: Sequence[str]) -> bool:
        return _prefix(command) > 0

    def payload(self, command: Sequence[str]) -> Payload:
        words = command[_prefix(command) :]
        given = _given(words)
        rest = tuple(words[given.end :])
        left_out = given.without(("module", "no-python"))
        if "no-python" in given:
            return Payload("program", rest, left_out=left_out)
        python = None if program(command) == "torchrun" else command[0]
        if rest and "module" in given:
            return Payload("module", rest, python, left_out)
        return Payload("script", rest, python, left_out)

    def start(self, payload: Payload) -> tuple[str, ...]:
        starter = _starter(payload.python)
        if payload.kind == "script":
            return (*starter, *payload.words)
        return (*starter, "-m" if payload.kind == "module" else "--no-python", *payload.words)

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        return (*_starter(python, always=True), *command[_prefix(command) :])

    def complete(self, request: Request) -> Completed:
        prefix = _prefix(request.command)
        starter, rest = request.command[:prefix], request.command[prefix:]
        given, said = _given(rest), Saying()
        added = _where(given, request)
        if "nproc-per-node" not in given:
            added.append(f"--nproc-per-node={request.count}")
        if request.numa and "numa-binding" not in given:
            added += _numa(request, starter, said)
        if request.logs and "log-dir" not in given:
            added.append(f"--log-dir={request.logs}")
            added += [f"--{name}=3" for name in ("redirects", "tee") if name not in given]
        _warn(given, request, said)
        return Completed((*starter, *added, *rest), tuple(said.warnings), tuple(said.remarks))


def _where(given: Given, request: Request) -> list[str]:
    """Where the processes meet."""
    if request.nodes > 1:
        host, _, port = (request.rendezvous or "HOST").partition(":")
        wanted = {
            "nnodes": str(request.nodes),
            "rdzv-backend": "c10d",
            "rdzv-endpoint": f"{host}:{port or PORT}",
            "rdzv-id": "gputui",
        }
        return [f"--{name}={value}" for name, value in wanted.items() if name not in given]
    own = any(name in given for name in (*_OWN_PLACE, *_OWN_PLACE_TOO))
    return [] if own or given.get("nnodes", "1") not in ("1", "1:1") else ["--standalone"]


def _numa(request: Request, starter: Sequence[str], said: Saying) -> list[str]:
    """`--numa-binding`, where this torch has it (2.9) and numactl is there: else a remark."""
    found = request.surroundings.program(starter[0], request.environ) if starter else None
    version = request.surroundings.version("torch", found) if found else None
    if version is not None and version < (2, 9):
        said.remarks.append(f"torch {'.'.join(map(str, version))} has no --numa-binding (2.9 has)")
    elif request.surroundings.program("numactl", request.environ) is None:
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
    asked = given.number("nproc-per-node")
    if asked is None and "nproc-per-node" not in given:
        asked = request.processes
    if count and asked is not None and asked != count:
        said.warnings.append(contradiction("--nproc-per-node", asked, count))
    if "standalone" in given and request.nodes > 1:
        said.warnings.append(
            f"--standalone of the command keeps to one machine; {request.nodes} are asked for"
        )
    overriding = sorted(name for name in request.environ if name.startswith("PET_"))
    if overriding:
        shown = " ".join(f"{name}={request.environ[name]}" for name in overriding)
        said.warnings.append(f"torchrun takes its defaults from {shown} in your environment")


def _starter(python: str | None, always: bool = False) -> tuple[str, ...]:
    """What starts torchrun: an interpreter that was named is the one that has the user's torch."""
    if python is None and not always:
        return ("torchrun",)
    return (python or "python", "-m", "torch.distributed.run")


def _prefix(command: Sequence[str]) -> int:
    """How many words start torchrun itself: `torchrun`, or `python -m torch.distributed.run`; 0 for none."""
    if program(command) == "torchrun":
        return 1
    module, end = module_of(command)
    return end if module in _MODULES else 0


def _given(words: Sequence[str]) -> Given:
    """torchrun's options that the user gave; those of the script are not ours."""
    return read(words, _FLAGS, _ALIASES, ("nproc-per-node", "standalone", "nnodes", "rdzv-endpoint"))
