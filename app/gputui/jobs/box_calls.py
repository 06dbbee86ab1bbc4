"""Calls of gputui, mostly about other boxes: a launch there, which is shown, copied and started; a job."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from gputui.inventory.formatting import printable
from gputui.inventory.quoting import quote
from gputui.jobs.own_call import this_gputui
from gputui.launching.launch import Launch
from gputui.requesting.launch_request import LaunchRequest, sent
from gputui.system.environment import SENT_WORDS, WORDS, Environ

_LINES = 1000
"""Lines of a log at which following begins, as `gputui jobs log -f` does on a terminal here."""


def line(words: Sequence[str]) -> str:
    """The shell command line of a call of gputui with these words."""
    return " ".join(map(quote, ("gputui", *words)))


def line_on(box: str, request: LaunchRequest) -> str:
    """The shell command line that starts a launch on that box."""
    return line(("run", "--on", box, *request.words))


def launch_on(box: str, request: LaunchRequest, *more: str) -> Launch:
    """The call of gputui that starts the launch that `line_on` shows. Its words are not on its command line,
    which others can read: the command or its variables may hold secrets."""
    words = ("run", "--on", box, "--request", sent(request), *more)
    return Launch(this_gputui(SENT_WORDS), changes=((WORDS, json.dumps(words)),))


def start_detached(box: str, request: LaunchRequest, environ: Environ) -> tuple[str, bool]:
    """Start the launch with `--detach` and without a terminal, so that ssh cannot ask a question. Returns the
    outcome as a sentence, and whether the job runs."""
    good, out, said = called(launch_on(box, request, "--detach", "--quiet"), environ)
    return (f"job {out} started: `gputui jobs log -f {out}` follows it" if good else said), good


def stop_there(job: str, environ: Environ) -> tuple[str, bool]:
    """Stop BOX:ID as `gputui jobs stop` does, and return the outcome as a sentence, and whether the job has
    been stopped. The call blocks until the job has ended."""
    good, _, said = called(Launch(this_gputui(("jobs", "stop", job))), environ)
    return said, good


def follow_words(job: str) -> tuple[str, ...]:
    """The arguments of gputui that follow the log of BOX:ID, beginning with its last lines."""
    return ("jobs", "log", "-f", "-n", str(_LINES), job)


def called(call: Launch, environ: Environ) -> tuple[bool, str, str]:
    """Call gputui without a terminal: whether its status is 0, its output, and the last line of its
    stderr, "" for none."""
    try:
        ended = subprocess.run(
            call.argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=call.environment(environ),
            check=False,
            # A Ctrl-C for a command that has our terminal must not reach this call.
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return False, "", printable(f"gputui cannot be started: {error}")
    out, said = (data.decode(errors="replace").strip() for data in (ended.stdout, ended.stderr))
    good = ended.returncode == 0
    last = said.splitlines()[-1:] or ["" if good else f"it ended with status {ended.returncode}"]
    return good, printable(out), printable(last[0].removeprefix("gputui: "))
