"""Machines with device files for tests of confined launches, and kernels without Landlock.

A machine is a mount namespace with a /dev of its own, in which each simulated device has its files. Root can
make one, and an ordinary user can in a user namespace, where the system permits it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

import simcuda
from gputui.system.landlock import LandlockError, check
from simnvml import SimulatedNvml
from unit.claims_support import EIGHT


def _trouble() -> str | None:
    try:
        check()
    except LandlockError as error:
        return str(error.strerror)
    return None


LANDLOCK = _trouble()
"""The reason why nothing can be confined on this kernel, None where it can."""

needs_landlock = pytest.mark.skipif(LANDLOCK is not None, reason=f"nothing can be confined here: {LANDLOCK}")

_REFUSE = """
import ctypes, os, struct, sys
number, words = int(sys.argv[1]), sys.argv[2:]
def line(code, yes, no, value):
    return struct.pack("HBBI", code, yes, no, value)
# The three calls of Landlock answer the error, all others go on (linux/filter.h, seccomp.h).
program = b"".join([
    line(0x20, 0, 0, 0), line(0x35, 0, 2, 444), line(0x25, 1, 0, 446),
    line(0x06, 0, 0, 0x00050000 | number), line(0x06, 0, 0, 0x7FFF0000),
])
held = ctypes.create_string_buffer(program)
filter = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held))
library = ctypes.CDLL(None, use_errno=True)
one, zero = ctypes.c_ulong(1), ctypes.c_ulong(0)
if library.prctl(38, one, zero, zero, zero) or library.prctl(22, ctypes.c_ulong(2), filter, zero, zero):
    sys.exit(f"no seccomp here: {os.strerror(ctypes.get_errno())}")
os.execvp(words[0], words)
"""


def without_landlock(number: int) -> list[str]:
    """The words before a command for which Landlock's system calls return this error."""
    return [sys.executable, "-I", "-S", "-c", _REFUSE, str(number)]


_MACHINE = """
set -e
home=$1; shift
mount --make-rprivate /
mount -t tmpfs none "$home/dev"
for name in null zero full random urandom tty; do
    : > "$home/dev/$name"; mount --bind "/dev/$name" "$home/dev/$name"
done
mkdir "$home/dev/shm" "$home/dev/pts"
mount -t tmpfs none "$home/dev/shm"; chmod 1777 "$home/dev/shm"
mount --rbind /dev/pts "$home/dev/pts"
ln -s pts/ptmx "$home/dev/ptmx"
ln -s /proc/self/fd "$home/dev/fd"
for name in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/${name#*:}" "$home/dev/${name%:*}"; done
cp -a "$home/nodes/." "$home/dev/"
if [ -d "$home/driver" ]; then mount --bind "$home/driver" /proc/driver; fi
mount --rbind "$home/dev" /dev
exec "$@"
"""


class Machine:
    """A machine with these device files below /dev, and the lines of mig-minors; `before` are the words
    before a command that is to run on it. Skips the test where no such machine can be made."""

    def __init__(self, folder: Path, nodes: Iterable[str], minors: Sequence[str] = ()) -> None:
        (folder / "dev").mkdir(parents=True)
        for name in ("nvidiactl", "nvidia-uvm", *nodes):
            node = folder / "nodes" / name
            node.parent.mkdir(parents=True, exist_ok=True)
            node.touch()
            node.chmod(0o666)
        if minors:
            (folder / "driver" / "nvidia-caps").mkdir(parents=True)
            (folder / "driver" / "nvidia-caps" / "mig-minors").write_text(
                "".join(f"{row}\n" for row in minors)
            )
        own = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        self.folder = folder
        self.before = ["unshare", "--mount", *own, "sh", "-c", _MACHINE, "sh", str(folder)]
        if shutil.which("unshare") is None:
            pytest.skip("there is no unshare(1)")
        made = subprocess.run([*self.before, "true"], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"no mount namespace can be made here: {made.stderr.strip()[-200:]}")

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment of a simulated driver that opens these files."""
        return {**base, "SIMNVML_NODES": "/dev"}


SEEN = """
import ctypes, json, os
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
found = []
for place in range(0 if code else count.value):
    uuid = (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGetUuid_v2(ctypes.byref(uuid), place)
    found.append(bytes(uuid).hex())
print(json.dumps(found), flush=True)
"""
"""A program that uses CUDA: it prints the devices that it sees, in its order."""

MINORS = (3, 7, 0, 5, 1, 6, 2, 4)
"""The minor numbers of the eight GPUs, which differ from their indices."""


class Confined:
    """A box on a machine with device files; each call of gputui is a process there."""

    def __init__(self, machine: Machine, nvml: SimulatedNvml, environ: dict[str, str], folder: Path) -> None:
        self.machine, self.nvml, self.environ, self.folder = machine, nvml, environ, folder
        self.uuids = [
            line.split()[2] for line in nvml.box.read_text().splitlines() if line.startswith("gpu ")
        ]
        self.program = folder / "seen.py"
        self.program.write_text(SEEN)

    def in_folder(self, folder: Path) -> Confined:
        """The same box, with another folder in which commands start."""
        return Confined(self.machine, self.nvml, self.environ, folder)

    def call(self, *words: str, before: Sequence[str] = (), **more: str) -> subprocess.CompletedProcess[str]:
        return self.outside(*before, sys.executable, "-m", "gputui", *words, **more)

    def outside(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run any program on that machine."""
        return subprocess.run(
            [*self.machine.before, *words],
            env={**self.environ, **more},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def seen(self, *words: str, before: Sequence[str] = (), **more: str) -> list[int]:
        """The indices of the GPUs that a program of this call saw, in its order."""
        done = self.call(*words, before=before, **more)
        assert done.returncode == 0, done.stderr
        return self.told(done.stdout)

    def told(self, text: str) -> list[int]:
        bare = [uuid.removeprefix("GPU-").replace("-", "") for uuid in self.uuids]
        return [bare.index(uuid) for uuid in json.loads(text.strip().splitlines()[-1])]

    @property
    def python(self) -> tuple[str, str]:
        return sys.executable, str(self.program)


def confined_box(
    folder: Path, nvml: SimulatedNvml, nodes: Sequence[str], rows: Sequence[str] = ()
) -> Confined:
    machine = Machine(folder / "machine", nodes, rows)
    base = simcuda.environment(nvml.environment(), simcuda.build())
    environ = machine.environment(base) | {
        "GPUTUI_CLAIMS": str(folder / "claims"),
        "XDG_STATE_HOME": str(folder / "state"),
        "TMPDIR": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return Confined(machine, nvml, environ, folder)


def box_of_eight(folder: Path, nvml: SimulatedNvml) -> Confined:
    """Eight idle GPUs."""
    facts = {str(index): {"minor": minor} for index, minor in enumerate(MINORS)}
    nvml.show_box(EIGHT, facts=facts)
    return confined_box(folder, nvml, [f"nvidia{minor}" for minor in MINORS])


def script(box: Confined, text: str, name: str = "script.sh") -> str:
    """Write a file with this text; SEEN in it starts the program that prints the devices that it sees."""
    path = box.folder / name
    path.write_text(text.replace("SEEN", " ".join(box.python)) + "\n")
    path.chmod(0o755)
    return str(path)
