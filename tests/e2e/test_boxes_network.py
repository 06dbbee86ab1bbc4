"""Other boxes as machines on a network of their own: behind a jump host, and in contact with one another.

The machines are network namespaces, each with its own sshd, and the client reaches only the addresses that
the test permits. Where a test cannot make namespaces, the machines are ports of the loopback.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from box_pair import BoxPair
from e2e.ranks import need
from gputui.choosing.verdict import verdicts
from gputui.cli.ls_text import document_text
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from namespaces import Network
from ssh_boxes import PROGRAMS, CannotStartError, SshBoxes

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not PROGRAMS, reason="no sshd, ssh and ssh-keygen")]


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()


@contextlib.contextmanager
def daemons(folder: Path, client: Sequence[str]) -> Iterator[SshBoxes]:
    """Boxes whose daemons the test starts, as `client` reaches them."""
    try:
        made = SshBoxes(folder / "boxes", client)
    except CannotStartError as error:
        pytest.skip(f"sshd does not start here: {error}")
    try:
        yield made
    finally:
        made.close()


MANY = 20
MOST_AT_ONCE = 8


@pytest.fixture
def behind_jump(network: Network, tmp_path: Path) -> Iterator[tuple[SshBoxes, str]]:
    """Twenty boxes that are reached through one host only, and their names.

    The sshd of that host drops every connection beyond the eighth that has not logged in yet. The default
    drops some connections from the eleventh on (MaxStartups 10:30:100); the stricter limit leaves nothing to
    chance.
    """
    client = network.machine(1)
    jump = network.machine(1)
    inner = network.machine(MANY)
    with daemons(tmp_path, client.words) as boxes:
        strict = f"{MOST_AT_ONCE}:100:{MOST_AT_ONCE}"
        boxes.listen(jump.listens, jump.words, strict, jump.places)
        boxes.listen(inner.listens, inner.words, "100", inner.places)
        boxes.add_jump("jump", jump.places[0])
        answer = tmp_path / "answer"
        box = at(BOXES["idle"], 1.0, 1_750_000_000.0)
        answer.write_text(document_text(box, verdicts(box)) + "\n")
        names = [f"n{number}" for number in range(MANY)]
        for name, place in zip(names, inner.places, strict=True):
            home = boxes.add(name, at=place, options="  ProxyJump jump\n")
            # Starting gputui twenty times would take most of the time of the test.
            (home / "bin" / "gputui").write_text(
                f'#!/bin/sh\ncat {answer}\ncase "$*" in *--follow*) cat >/dev/null;; esac\n'
            )
        yield boxes, ",".join(names)


def dropped(boxes: SshBoxes) -> list[str]:
    """The lines of the jump host's log about connections that it has dropped."""
    return re.findall(r".*(?:drop connection|MaxStartups throttling).*", boxes.log_of(1).read_text())


@pytest.mark.thorough
def test_twenty_boxes_behind_a_jump_host_are_all_reached(behind_jump: tuple[SshBoxes, str]) -> None:
    boxes, names = behind_jump
    environ = boxes.environment(dict(os.environ))
    call = [sys.executable, "-m", "gputui", "ls", "--hosts", names, "--json"]
    said = subprocess.run(call, env=environ, capture_output=True, timeout=60, check=True).stdout
    found = json.loads(said)["boxes"]
    assert len(found) == MANY and all(each["error"] is None for each in found)
    assert dropped(boxes) == []


@pytest.mark.thorough
def test_twenty_boxes_behind_a_jump_host_are_all_followed(behind_jump: tuple[SshBoxes, str]) -> None:
    boxes, names = behind_jump
    with subprocess.Popen(
        [sys.executable, "-m", "gputui", "ls", "--hosts", names, "--json", "--follow", "--interval", "0.1"],
        env=boxes.environment(dict(os.environ)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        deadline = time.monotonic() + 60
        for line in process.stdout:
            states = [each["state"] for each in json.loads(line)["boxes"]]
            # A box that has sent one reading and no more is stale.
            if set(states) <= {"live", "stale"}:
                break
            assert "dead" not in states and time.monotonic() < deadline, states
        process.stdin.close()
        process.stdout.close()
        process.wait(30)
    assert dropped(boxes) == []


TRAINS = """\
import os, torch, torch.distributed as group
group.init_process_group("gloo")
total = torch.tensor([group.get_rank() + 1.0])
group.all_reduce(total)
print("rank", group.get_rank(), "of", group.get_world_size(), "sum", total.item(),
      "devices", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
if os.environ.get("FAILS") and group.get_rank() == 0:
    os._exit(3)
if os.environ.get("FAILS"):
    group.barrier()
group.destroy_process_group()
"""


@pytest.fixture
def machines(network: Network, tmp_path: Path, nvml_library: Path) -> Iterator[BoxPair]:
    """Two machines with torch that reach each other, and that a third reaches."""
    need("torch")
    client, *rooms = (network.machine() for _ in range(3))
    with daemons(tmp_path, client.words) as boxes:
        for room in rooms:
            boxes.listen(room.listens, room.words, reached=room.places)
        # gloo looks up the address of the host's name, which has none in a namespace.
        environ = {
            "GLOO_SOCKET_IFNAME": rooms[0].interface,
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        }
        places = [room.places[0] for room in rooms]
        made = BoxPair(boxes, tmp_path, nvml_library, "node-", places, environ)
        for home in made.homes:
            (home / "train.py").write_text(TRAINS)
        yield made
        made.close()


@pytest.mark.parametrize(
    "command",
    [
        ("torchrun",),
        pytest.param(("accelerate", "launch"), marks=pytest.mark.thorough),
        pytest.param(("deepspeed",), marks=pytest.mark.thorough),
    ],
)
def test_a_launcher_on_two_machines_meets(machines: BoxPair, command: tuple[str, ...]) -> None:
    need({"torchrun": "torch"}.get(command[0], command[0]))
    status, out, said = machines.run("-n", "2", "--", *command, "train.py")
    assert status == 0, said
    ranks = sorted(re.findall(r"(rank \d) of 4 sum 10.0 devices (?:0,1|1,0)$", "\n".join(out), re.MULTILINE))
    assert ranks == [f"rank {number}" for number in range(4)], out
    assert all(sum(each.startswith(f"{name}: rank") for each in out) == 2 for name in machines.names)
    assert machines.states() == [["done"], ["done"]] and machines.claimed() == [False, False]


def test_a_rank_that_fails_ends_both(machines: BoxPair) -> None:
    status, _, said = machines.run("--env", "FAILS=1", "-n", "1", "--", "torchrun", "train.py")
    assert status not in (0, 255), said
    assert not {"running", "done"} & {state for states in machines.states() for state in states}
    assert machines.claimed() == [False, False]
