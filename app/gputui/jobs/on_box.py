"""Calls of gputui about other boxes: a launch there, which is shown, copied and started; a job there."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.inventory.formatting import printable
from gputui.jobs.queued import launch_words, this_gputui
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.quoting import quote

_LINES = 1000
"""Lines of a log that following it begins with: as `gputui jobs log -f` on a terminal here."""


def words_on(
    box: str, keys: Sequence[str], options: LaunchOptions, grouping: Grouping = ALL_REDUCE
) -> tuple[str, ...]:
    """The words of gputui that start the launch on exactly the devices with these keys (`Device.key`), in
    this order, and only if the box finds all of them free then."""
    return ("run", "--on", box, "--if-free", "--gpus", ",".join(keys), *launch_words(options, grouping))


def line(words: Sequence[str]) -> str:
    """The call as it is typed into a shell."""
    return " ".join(map(quote, ("gputui", *words)))


def start_detached(words: Sequence[str], environ: Mapping[str, str]) -> tuple[str, bool]:
    """The call with `--detach`, without a terminal that ssh could ask anything on: what became of it, as a
    sentence, and whether the job runs."""
    good, out, said = _called((*words[:1], "--detach", "--quiet", *words[1:]), environ)
    return (f"job {out} started: `gputui jobs log -f {out}` follows it" if good else said), good


def stop_there(job: str, environ: Mapping[str, str]) -> tuple[str, bool]:
    """Stop BOX:ID, as `gputui jobs stop` does: what became of it, and whether it has been stopped. It takes
    as long as the job takes to end."""
    good, _, said = _called(("jobs", "stop", job), environ)
    return said, good


def follow_words(job: str) -> tuple[str, ...]:
    """The words of gputui that follow the log of BOX:ID from its last lines on."""
    return ("jobs", "log", "-f", "-n", str(_LINES), job)


def _called(words: Sequence[str], environ: Mapping[str, str]) -> tuple[bool, str, str]:
    """A call without a terminal: whether its status is 0, its output, and the last line that it has said."""
    try:
        ended = subprocess.run(
            this_gputui(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(environ),
            check=False,
            # (A Ctrl-C that is for a command with our terminal is not for this.)
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return False, "", printable(f"gputui cannot be started: {error}")
    out, said = (data.decode(errors="replace").strip() for data in (ended.stdout, ended.stderr))
    last = said.splitlines()[-1:] or [f"it ended with status {ended.returncode}"]
    return ended.returncode == 0, printable(out), printable(last[0].removeprefix("gputui: "))
