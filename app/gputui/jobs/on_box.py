"""A launch on devices of another box: the call of `gputui run --on` that is shown, copied and started."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.inventory.formatting import printable
from gputui.jobs.queued import launch_words, this_gputui
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.quoting import quote


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
    call = (*words[:1], "--detach", "--quiet", *words[1:])
    try:
        ended = subprocess.run(
            this_gputui(call), stdin=subprocess.DEVNULL, capture_output=True, env=dict(environ), check=False
        )
    except (OSError, ValueError) as error:
        return printable(f"gputui cannot be started: {error}"), False
    out, said = (data.decode(errors="replace").strip() for data in (ended.stdout, ended.stderr))
    if ended.returncode == 0:
        job = printable(out)
        return f"job {job} started: `gputui jobs log -f {job}` follows it", True
    last = said.splitlines()[-1:] or [f"it ended with status {ended.returncode}"]
    return printable(last[0].removeprefix("gputui: ")), False
