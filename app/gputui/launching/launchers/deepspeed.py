"""DeepSpeed's own launcher (deepspeed/launcher/runner.py, 0.19.8).

Since 0.15.2 it sorts the devices; UUIDs and MIG instances are a ValueError (#5278); an empty
CUDA_VISIBLE_DEVICES does not mean none; `--include` and the like make it ignore the variable. So: ascending
indices by `--include`, without the variable; everything else through torchrun, which keeps the order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.launching.launchers.base import Completed, Request, Saying
from gputui.launching.launchers.options import Given, read
from gputui.launching.launchers.payload import Payload, module_of, program
from gputui.launching.launchers.torchrun import Torchrun

_FLAGS = frozenset(
    (
        *("help", "h", "module", "no-python", "no-local-rank", "no-ssh", "no-ssh-check", "force-multi"),
        *("save-pid", "bind-cores-to-rank", "quiet", "q"),
    )
)
_ALIASES = {"H": "hostfile", "i": "include", "e": "exclude", "num-accelerators": "num-gpus"}
_LONG = ("include", "exclude", "hostfile", "num-nodes", "num-gpus", "master-port", "module", "no-python")
_DEVICES = ("include", "exclude", "num-gpus", "num-nodes")
"""Options that name devices: with one of them the variable is ignored, and then deleted."""

_PORTS = ("master-port", "master-addr")

HOSTFILE = "/job/hostfile"
"""Read of itself where it exists; its machines then count, and neither variable nor `--include localhost`."""

SORTS_SINCE = (0, 15, 2)


class Deepspeed:
    """`deepspeed --include=localhost:0,2 --master_port=P train.py`."""

    name = "deepspeed"

    def recognises(self, command: Sequence[str]) -> bool:
        return _prefix(command) > 0

    def payload(self, command: Sequence[str]) -> Payload:
        prefix = _prefix(command)
        given = _given(command[prefix:])
        rest = tuple(command[prefix + given.end :])
        left_out = given.without(("module", "no-python"))
        python = command[0] if module_of(command)[0] else None
        if "no-python" in given:
            return Payload("program", rest, left_out=left_out)
        return Payload("module" if "module" in given else "script", rest, python, left_out)

    def start(self, payload: Payload) -> tuple[str, ...]:
        starter = ("deepspeed",) if payload.python is None else _by_module(payload.python)
        if payload.kind == "script":
            return (*starter, *payload.words)
        return (*starter, "--module" if payload.kind == "module" else "--no_python", *payload.words)

    def with_python(self, command: Sequence[str], python: str) -> tuple[str, ...]:
        return (*_by_module(python), *command[_prefix(command) :])

    def complete(self, request: Request) -> Completed:
        prefix = _prefix(request.command)
        starter, rest = request.command[:prefix], request.command[prefix:]
        given, said = _given(rest), Saying()
        own = [name for name in _DEVICES if name in given]
        if own or "hostfile" in given:
            return self._as_given(request, given, own)
        reason = _against(request)
        if reason is not None:
            return self._through_torchrun(request, given, reason)
        added = [f"--include=localhost:{','.join(str(device.index) for device in request.devices)}"]
        if "master-port" not in given:
            added.append(f"--master_port={request.surroundings.free_port()}")
        if request.surroundings.is_file(HOSTFILE):
            # What is not a regular file does not count as one.
            added.append("--hostfile=/dev/null")
            said.remarks.append(f"{HOSTFILE} would override the devices: --hostfile=/dev/null")
        if request.logs and "enable-each-rank-log" not in given:
            added.append(f"--enable_each_rank_log={request.logs}")
        if request.processes not in (None, len(request.devices)):
            said.warnings.append(f"deepspeed starts a process a device; {request.processes} were asked for")
        if request.numa:
            said.remarks.append("deepspeed has no --numa-binding (--bind_cores_to_rank is its own)")
        if request.nodes > 1:
            said.warnings.append("several machines are started by torchrun here: --launcher torchrun")
        said.remarks.append(
            "deepspeed is given the devices by --include; it ignores CUDA_VISIBLE_DEVICES then"
        )
        return Completed(
            (*starter, *added, *rest), tuple(said.warnings), tuple(said.remarks), visible="command"
        )

    def _as_given(self, request: Request, given: Given, own: Sequence[str]) -> Completed:
        """The user has named devices to deepspeed: kept, and compared."""
        if "hostfile" in given:
            words = f"--hostfile={given.get('hostfile')}"
            told = f"{words} of the command says which machines and devices; the chosen ones do not count"
        else:
            words = " ".join(word for name, group in given.words if name in own for word in group)
            told = f"{words} of the command names the devices for deepspeed; the chosen ones do not count"
        chosen = sorted(device.index for device in request.devices)
        same = own == ["include"] and request.by_index and _included(given.get("include")) == chosen
        warnings = () if same and "hostfile" not in given else (told,)
        return Completed(request.command, warnings, visible="command")

    def _through_torchrun(self, request: Request, given: Given, reason: str) -> Completed:
        """torchrun with the same script: what the deepspeed library does in it is the same."""
        payload = self.payload(request.command)
        torchrun = Torchrun()
        command = torchrun.start(payload)
        done = torchrun.complete(request.of(command))
        remarks = [f"through torchrun: {reason}"]
        left = given.without(("module", "no-python", *_PORTS, "no-local-rank"))
        if left:
            remarks.append(f"left out, as torchrun has no such options: {' '.join(left)}")
        if "no-local-rank" not in given:
            remarks.append("torchrun gives LOCAL_RANK as a variable, and no --local_rank")
        return Completed(done.argv, done.warnings, (*remarks, *done.remarks))


def _against(request: Request) -> str | None:
    """Why deepspeed's launcher cannot start on exactly these devices in this order; None where it can."""
    if not request.devices:
        return "for deepspeed an empty CUDA_VISIBLE_DEVICES does not mean no GPU"
    if any(device.parent for device in request.devices):
        return "deepspeed cannot be given MIG instances"
    if not request.by_index:
        return "deepspeed cannot be given UUIDs"
    indices = [device.index for device in request.devices]
    if indices != sorted(indices):
        path = request.surroundings.program(request.command[0], request.environ)
        version = request.surroundings.version("deepspeed", path) if path else None
        if version is None or version >= SORTS_SINCE:
            return f"deepspeed would sort the devices and run on {','.join(map(str, sorted(indices)))}"
    return None


def _included(text: str) -> list[int] | None:
    """The devices of `--include localhost:0,2`, ascending, as deepspeed takes them."""
    match = re.fullmatch(r"localhost:(\d+(?:,\d+)*)", text)
    return sorted({int(part) for part in match[1].split(",")}) if match else None


def _prefix(command: Sequence[str]) -> int:
    """How many words start deepspeed itself; 0 for none."""
    if program(command) in ("deepspeed", "deepspeed.pt", "ds"):
        return 1
    module, end = module_of(command)
    return end if module == "deepspeed.launcher.runner" else 0


def _by_module(python: str) -> tuple[str, ...]:
    return (python, "-m", "deepspeed.launcher.runner")


def _given(words: Sequence[str]) -> Given:
    return read(words, _FLAGS, _ALIASES, _LONG)
