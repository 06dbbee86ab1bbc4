"""`gputui jobs` on other boxes: the list of `--hosts`, and actions on BOX:ID."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from gputui.cli.common import DONE, NO_SOURCE, WrongCallError, output_width, print_line, say
from gputui.cli.hosts_options import answers, way, why_not
from gputui.cli.there import become_ssh, on_a_terminal, reached, start_there, through
from gputui.inventory.formatting import printable
from gputui.inventory.text_table import cut
from gputui.jobs.record import SCHEMA
from gputui.jobs.store import Stored
from gputui.sources.hosts.alias import AliasError, alias
from gputui.sources.hosts.calls import Answer
from gputui.sources.hosts.reading import reason


def list_jobs(boxes: Sequence[str], as_json: bool) -> int:
    """Print the jobs of each box; one that cannot be reached is there with the reason. 3 where none can."""
    found = answers(boxes, ("jobs", "--json") if as_json else ("jobs",))
    if as_json:
        entries = [_entry(answer) for answer in found]
        print(json.dumps({"schema": SCHEMA, "boxes": entries}))
        failed = [entry["error"] is not None for entry in entries]
    else:
        for answer in found:
            _print(answer)
        failed = [why_not(answer) is not None for answer in found]
    if all(failed):
        say("no box can be reached")
        return NO_SOURCE
    return DONE


def _entry(answer: Answer) -> dict[str, Any]:
    """The box's own document with `host` and `error`."""
    error = why_not(answer)
    own: object = {}
    if error is None:
        try:
            own = json.loads(answer.out)
        except (ValueError, RecursionError):
            own = None
        if not isinstance(own, dict) or not isinstance(own.get("jobs"), list):
            error, own = "its answer cannot be read", {}
    named = {"host": answer.alias, "error": error}
    assert isinstance(own, dict)
    return {**named, **{key: value for key, value in own.items() if key not in named and key != "schema"}}


def _print(answer: Answer) -> None:
    error = why_not(answer)
    lines = answer.out.decode(errors="replace").splitlines()
    if error is not None:
        print_line(f"{answer.alias}  cannot be shown: {error}")
    elif not lines:
        print_line(f"{answer.alias}  {reason(answer.said).partition(';')[0]}")
    else:
        width = output_width()
        print_line(answer.alias)
        for line in lines:
            print_line(cut(f"  {printable(line)}", width))


def act(action: str, ids: Sequence[str], words: Sequence[str], jobs: Stored) -> int | None:
    """Do it where the jobs are; the status of the first that is not 0, None where they are our own.

    A job of ours may have a colon in its name: it comes first.
    """
    named = [_there(word, jobs) for word in ids]
    boxes = list(dict.fromkeys(box for box, _ in named if box is not None))
    if not boxes:
        return None
    if any(box is None for box, _ in named):
        raise WrongCallError("jobs of this machine and of other boxes, in one call")
    status = DONE
    for box in boxes:
        own = {f"{box}:{job}": job for each, job in named if each == box}
        others = {word for word in ids if word not in own}
        call = ["jobs", *(own.get(word, word) for word in words if word not in others)]
        status = status or _act(action, box, call)
    return status


def _there(word: str, jobs: Stored) -> tuple[str | None, str]:
    """The box and the job of BOX:ID; no box where it is a job of ours."""
    box, colon, job = word.partition(":")
    if not colon or any(own.name == word for own in jobs.jobs):
        return None, word
    try:
        return alias(box), job
    except AliasError as error:
        raise WrongCallError(str(error)) from None


def _act(action: str, box: str, call: Sequence[str]) -> int:
    how = way(prompts=sys.stdin is not None and sys.stdin.isatty())
    if action == "rerun":
        return start_there(box, call, how)
    if action == "attach" and on_a_terminal():
        reached(box, how)
        become_ssh(box, call, how)
    return through(box, call, how, to_job=action == "attach")
