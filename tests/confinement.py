"""Machines with device files for tests of confined launches, and kernels that have no Landlock.

A machine is a mount namespace with a /dev of its own, in which each simulated device has its files: where
root, or an ordinary user in a user namespace, may make one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from gputui.system.landlock import LandlockError, check


def _trouble() -> str | None:
    try:
        check()
    except LandlockError as error:
        return str(error.strerror)
    return None


LANDLOCK = _trouble()
"""Why nothing can be confined on this kernel, None where it can."""

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
    """What stands before a command for which Landlock's system calls answer this error."""
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
    """A machine with these device files below /dev, and the lines of mig-minors; `before` stands before a
    command that is to run on it. Skips the test where no such machine can be made."""

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
        """That of a simulated driver that opens these files."""
        return {**base, "SIMNVML_NODES": "/dev"}
