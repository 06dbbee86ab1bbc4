"""Processes that end when gputui has ended, however it did: by SIGKILL, too.

A shell reads from a pipe which processes there are. At the pipe's end it ends those that are left: SIGTERM,
which lets ssh end what it has started (ProxyCommand), and SIGKILL a second later. (PR_SET_PDEATHSIG comes at
the end of the thread that has started the process, which may be one of a pool; and only Linux has it.)
"""

from __future__ import annotations

import contextlib
import subprocess
import threading

_SCRIPT = """\
pids=
while read -r sign pid; do
  left=
  for each in $pids; do [ "$each" = "$pid" ] || left="$left $each"; done
  pids=$left
  [ "$sign" = - ] || pids="$pids $pid"
done
[ -n "$pids" ] || exit 0
kill -TERM $pids
sleep 1
kill -KILL $pids
"""
_telling = threading.Lock()
_shell: subprocess.Popen[bytes] | None = None


def end_with_us(pid: int) -> None:
    """End this child of ours when we have ended."""
    _tell(f"+ {pid}\n")


def has_ended(pid: int) -> None:
    """It has been waited for: its number may soon be another's."""
    _tell(f"- {pid}\n")


def _tell(line: str) -> None:
    global _shell
    # (Without a shell nothing is told: it is a second line of defence.)
    with _telling, contextlib.suppress(OSError):
        if _shell is None:
            _shell = subprocess.Popen(
                ("/bin/sh", "-c", _SCRIPT),
                bufsize=0,
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        assert _shell.stdin is not None
        _shell.stdin.write(line.encode())
