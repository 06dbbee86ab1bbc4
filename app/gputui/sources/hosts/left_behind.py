"""Child processes that end when gputui ends, for whatever reason, including SIGKILL.

A shell reads the list of these processes from a pipe. When the pipe closes, it ends the processes that are
left: SIGTERM, which lets ssh end what it has started (ProxyCommand), and SIGKILL a second later.
PR_SET_PDEATHSIG is no alternative: it is sent at the end of the thread that started the process, which may be
a pool's thread, and only Linux has it.
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
    """End this child process when gputui has ended."""
    _tell(f"+ {pid}\n")


def has_ended(pid: int) -> None:
    """Remove a process that has been waited for: its pid may soon belong to another process."""
    _tell(f"- {pid}\n")


def _tell(line: str) -> None:
    global _shell
    # A failure of the shell is ignored, because it is a second line of defence.
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
