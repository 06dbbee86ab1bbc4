"""The script for the shell of a box: it finds gputui there, or requests a copy, and then becomes gputui.

The login shell may be any (fish and csh too), so its command line has no word that any shell parses
differently: `exec sh -c 'eval "$(printf %b "$0")"' 'SCRIPT'`, with every unusual byte of the script in octal
form. Lines of its output that begin with `MARK` report its progress; the first one reports that the login is
over. A .bashrc may print before it.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from gputui.sources.hosts.nvidia_smi import QUERY
from gputui.sources.hosts.sent_core import NAMES, START
from gputui.system import trust
from gputui.system.environment import CALLED, SENT_WORDS, WORDS

MARK = "gputui-hosts:"
Mode = Literal["run", "send", "nvidia-smi", "none"]
"""gputui runs; the script waits for `sent_core.zipped()`; nvidia-smi reports what it can;
nothing is there."""
MODES: tuple[Mode, ...] = ("run", "send", "nvidia-smi", "none")

MOST = 120_000
"""The most bytes of the command: Linux takes 128 KiB as one argument (MAX_ARG_STRLEN)."""

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./ -")

KEPT_DAYS = 30
"""Days for which an unused copy stays on a box."""

_UNSAFE = 9
"""The exit status where other users could have changed the copy."""

_PREPARE = f"""\
{Path(trust.__file__).read_text(encoding="utf-8")}
import glob, io, re, shutil, sys, tempfile, time, zipfile
os.umask(0o077)
folder = sys.argv[1]

def refuse_what_others_can_change(reason):
    if reason is not None:
        sys.stderr.write("its copy of gputui is not used: " + reason + chr(10))
        sys.exit({_UNSAFE})

def whole():
    try:
        with open(os.path.join(folder, "{NAMES}")) as names:
            files = [os.path.join(folder, name) for name in names.read().split()]
        if not all(map(os.path.isfile, files)):
            return False
    except OSError:
        return False
    for place in {{*files, *map(os.path.dirname, files)}}:
        reason = how_changed(os.stat(place), place)
        refuse_what_others_can_change(reason and f"{{reason}} {{place!r}}")
    return True

above = os.path.dirname(folder)
refuse_what_others_can_change(who_can_change(folder))
os.makedirs(above, 0o700, exist_ok=True)
refuse_what_others_can_change(who_can_change(folder))
if whole():
    sys.exit(0)
if sys.argv[2]:
    print(sys.argv[2], flush=True)
head = b""
while not head.endswith(b"\\n"):
    part = os.read(0, 1)
    if not part:
        sys.exit("gputui could not be received")
    head += part
data, left = b"", int(head)
while len(data) < left:
    part = os.read(0, min(65536, left - len(data)))
    if not part:
        sys.exit("gputui could not be received")
    data += part
made = tempfile.mkdtemp(dir=above)
zipfile.ZipFile(io.BytesIO(data)).extractall(made)
try:
    if os.path.lexists(folder) and not whole():
        # Some of its files were removed. A gputui that runs from it finds the new copy at the same place.
        aside = tempfile.mkdtemp(dir=above)
        os.rename(folder, os.path.join(aside, "old"))
        shutil.rmtree(aside, ignore_errors=True)
    os.rename(made, folder)
except OSError:
    # Another connection was quicker.
    shutil.rmtree(made)

def of_process(file):
    try:
        with open(file, "rb") as opened:
            # (Another user's says nothing of ours, and may have gigabytes.)
            own = os.fstat(opened.fileno()).st_uid == os.geteuid()
            return os.fsdecode(opened.read()) if own else ""
    except OSError:
        return ""

def long_ago(place, days):
    try:
        return time.time() - os.stat(place).st_mtime > days * 86400
    except OSError:
        return False

calls = [of_process(file) for file in glob.glob("/proc/[0-9]*/cmdline")]
for name in os.listdir(above):
    old = os.path.join(above, name)
    if re.fullmatch("[0-9a-f]{{16}}", name):
        gone = long_ago(os.path.join(old, "{START}"), {KEPT_DAYS})
    else:
        gone = name.startswith("tmp") and long_ago(old, 1)
    if gone and calls and not any(name in call for call in calls):
        shutil.rmtree(old, ignore_errors=True)
"""
"""Runs on the box, and ensures a complete copy of gputui that no other user could have changed: the name of
the copy is the same for everybody, so another user who knows it could put another program there.

It requests a missing copy. It reads a line with the size, and then not a byte more than the file, because the
rest of the input is for gputui.

It removes earlier copies that nothing has started for `KEPT_DAYS` and no process runs from: a process that
does (a call, a waiting job, a sweep) has the path on its command line. Without /proc nothing is removed. The
folder of an interrupted transfer is removed after a day. A copy is moved into place in one step, so a copy
that lacks a file was damaged later, and is replaced.
"""

_FIND = """\
tell() {{ {tell}; }}
find_gputui() {{
  if {installed} && command -v gputui >/dev/null 2>&1; then
    program=gputui
    return 0
  fi
  core="${{XDG_CACHE_HOME:-$HOME/.cache}}/gputui/{digest}"
  for python in python3 python3.15 python3.14 python3.13 python3.12 python3.11 python3.10; do
    if "$python" -ISc 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      program=$python
      break
    fi
  done
  [ -n "$program" ] || return 1
  "$program" -ISc {prepare} "$core" {send}
  case $? in
  0) return 0 ;;
  {unsafe}) exit 3 ;;
  esac
  return 1
}}
become_gputui() {{
  if [ "$program" = gputui ]; then
    exec gputui "$@"
  fi
  exec "$program" "$core/{start}" "$@"
}}
tell there
program=
if find_gputui; then
  tell run
  {receive}{run}
fi
{otherwise}
exit 3
"""

_BECOME = 'become_gputui "$@"'

_RECEIVE = f"""\
IFS= read -r {WORDS}
  [ "${WORDS}" ] || exit 130
  export {WORDS}
  """
"""Without words, somebody has pressed Ctrl-C, or the other side is gone: nothing starts."""

_TIED = """\
exec 3<&0
(become_gputui "$@") </dev/null 3<&- &
child=$!
{
  while read -r line; do kill -INT "$child"; done
  kill -HUP "$child"
} <&3 3<&- >/dev/null 2>&1 &
watch=$!
exec 3<&-
wait "$child"
status=$?
kill "$watch" 2>/dev/null
exit "$status"
"""
"""A line of input is Ctrl-C. The end of the input, because the local side is gone, is the end
of a terminal."""

_VIEW = """\
if command -v nvidia-smi >/dev/null 2>&1; then
  tell nvidia-smi
  while nvidia-smi --query-gpu={query} --format=csv,noheader,nounits; do
    echo
    {again}
  done
  exit 3
fi
tell none
"""


def command(
    words: Sequence[str],
    digest: str,
    tied: bool = False,
    follows: bool = False,
    views: bool = False,
    marks: bool = True,
    own: bool = False,
    called: str = "",
) -> str:
    """Return the command for ssh that runs gputui with these words on the box.

    words    the arguments of gputui; those that `private_line` sends are on no command line
    digest   of the core that is sent where gputui is missing
    tied     end it when the connection ends, and interrupt it at a line of input; else gputui has the input
    marks    report the progress; not on a terminal, where an earlier call has looked for gputui
    views    where gputui cannot run, run nvidia-smi instead, repeatedly with `follows`
    own      run the core that is sent, even where an (older) gputui is installed
    called   the local name of the box: its messages name its jobs as they must be typed here

    Raise ValueError for words that are too long for a command line.
    """
    private = private_line(words)
    view = _VIEW.format(query=QUERY, again="sleep 2" if follows else "exit 0") if views else "tell none\n"
    script = _FIND.format(
        tell=f"printf '%s\\n' \"{MARK} $1\"" if marks else ":",
        digest=digest,
        start=START,
        prepare=shlex.quote(_PREPARE),
        send=shlex.quote(f"{MARK} send" if marks else ""),
        unsafe=_UNSAFE,
        installed="false" if own else "true",
        receive=_RECEIVE if private else "",
        run=_TIED if tied else _BECOME,
        otherwise=view,
    )
    name = f"{CALLED}={shlex.quote(called)}\nexport {CALLED}\n" if called else ""
    shown = SENT_WORDS if private else words
    return in_any_shell(f"{name}set -- {' '.join(map(shlex.quote, shown))}\n{script}")


def private_line(words: Sequence[str]) -> bytes:
    """Return the first line of input of a call that starts a command, which may hold secrets: the words; b""
    for another call. Raise ValueError."""
    if words[0] != "run" and "rerun" not in words[1:2]:
        return b""
    line = json.dumps(words)
    if len(line) > MOST:
        raise ValueError("the command is too long to be sent")
    return line.encode() + b"\n"


def in_any_shell(script: str) -> str:
    """Return the command line that runs a script of sh in whatever shell reads the line. Raise ValueError."""
    data = os.fsencode(script)
    if 0 in data:
        raise ValueError("an argument contains a NUL byte")
    encoded = "".join(chr(byte) if byte in _PLAIN else f"\\0{byte:03o}" for byte in data)
    if len(encoded) > MOST:
        raise ValueError("the command is too long to be sent")
    # exec: a shell that stayed as the parent would die of the Ctrl-C that is meant for the command.
    return f"""exec sh -c 'eval "$(printf %b "$0")"' '{encoded}'"""
