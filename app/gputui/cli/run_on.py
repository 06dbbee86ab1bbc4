"""`gputui run --on BOX`: the command starts as a job of another box, and is followed from here.

Claims, queue, job and log are the box's own: gputui there does what `gputui run --attach` (or `--detach`)
does, with the words of this call.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from itertools import zip_longest

from gputui.allocating.errors import NotEnoughError
from gputui.cli.common import DONE, NOT_ENOUGH, WrongCallError, elsewhere, say
from gputui.cli.hosts_options import SWITCHES, all_boxes, boxes_named, same_directory, way, without_options
from gputui.cli.jobs import write
from gputui.cli.launch_call import options_of, request_for
from gputui.cli.pick_hosts import ranked
from gputui.cli.there import (
    asked_to_start,
    attach,
    become_ssh,
    job_of,
    on_a_terminal,
    reached,
    start_there,
    tell_said,
    tell_started,
    through,
)
from gputui.launching.read_intent import read_intent
from gputui.sources.hosts.alias import ANYWHERE
from gputui.sources.hosts.reading import reason


def run_on(args: argparse.Namespace, words: Sequence[str], command: Sequence[str]) -> int:
    """Start the command there. Its own status; 3 where the box cannot be reached, 4 where it has not enough,
    255 where the connection is lost on the way (the job goes on)."""
    if elsewhere(args):
        raise WrongCallError("--demo, --from and --root do not go with --on")
    if args.saved is not None:
        raise WrongCallError("--saved does not go with --on: saved launches are those of this machine")
    counts = {} if args.on == ANYWHERE else _counts(args.on)
    if len(counts) > 1:
        from gputui.cli.run_together import run_together

        return run_together(args, words, counts, command)
    inner = _forwarded(args, words)
    try:
        if args.on == ANYWHERE:
            return _on_the_best(args, inner, command)
        ((box, count),) = counts.items()
        if count is not None:
            if args.n is not None or args.gpus is not None:
                raise WrongCallError(f"--on {args.on} already says how many devices")
            inner += ["-n", str(count)]
        return _on(box, args, inner, command)
    except ValueError as error:
        raise WrongCallError(str(error)) from None


def _on(box: str, args: argparse.Namespace, inner: Sequence[str], command: Sequence[str]) -> int:
    how = way(prompts=sys.stdin is not None and sys.stdin.isatty())
    if args.detach and not args.dry_run:
        return start_there(box, _call("--detach", inner, command), how, args.quiet)
    call = _call("--detach" if args.dry_run else "--attach", inner, command)
    own = reached(box, how, ("run", *inner))
    if on_a_terminal() and not args.dry_run:
        become_ssh(box, call, how, own)
    return through(box, call, how, own)


def _on_the_best(args: argparse.Namespace, inner: Sequence[str], command: Sequence[str]) -> int:
    """On the best of the boxes of the settings; where somebody else took its devices after it was asked for
    them, on the next best, and so on: each is tried once. Raises NotEnoughError where none is left.

    The job is started first and followed then: by the status of a call that does both, a box that has not
    enough (4) could not be told from a command that ends so, which must not start twice.
    """
    boxes = [picked.box for picked in ranked(all_boxes(), _picking(args, command))]
    how, call = way(), _call("--detach", inner, command)
    say(f"on {boxes[0]}")
    for box, next_best in zip_longest(boxes, boxes[1:]):
        answer, own = asked_to_start(box, call, how)
        if answer.status != NOT_ENOUGH:
            break
        why = f"{box} has them no longer: {reason(answer.said)}"
        if next_best is None:
            tried = f"; tried {', '.join(boxes)}" if len(boxes) > 1 else ""
            raise NotEnoughError(f"{why}{tried}")
        say(f"on {next_best}, as {why}")
    if answer.status is None or (args.detach and not args.dry_run):
        return tell_started(answer, args.quiet)
    tell_said(answer, args.quiet or args.dry_run)
    if args.dry_run or answer.status != DONE:
        write([answer.out])
        return answer.status
    job = job_of(answer)
    if not args.quiet:
        say(f"job {job}: it outlives this terminal; `gputui jobs attach {job}` comes back to it")
    return attach(job, how, own)


def _call(as_job: str, inner: Sequence[str], command: Sequence[str]) -> list[str]:
    """What gputui is called with there. (A dry run prints the line of a job, too.)"""
    return ["run", as_job, *inner, "--", *command]


def _counts(text: str) -> dict[str, int | None]:
    """The boxes of `--on`, each with the number of devices that BOX:N says. Raises WrongCallError."""
    found: dict[str, int | None] = {}
    for word in text.split(","):
        name, colon, number = word.strip().rpartition(":")
        if not colon:
            name, number = number, ""
        elif not re.fullmatch("[1-9][0-9]{0,3}", number):
            raise WrongCallError(f"{word.strip()!r} is not BOX or BOX:N, a box and how many of its devices")
        for box in boxes_named(name):
            if box in found:
                raise WrongCallError(f"--on names {box} twice")
            found[box] = int(number) if number else None
    return found


def _forwarded(args: argparse.Namespace, words: Sequence[str]) -> list[str]:
    """The words for gputui there."""
    left = [word for word in without_options(words, "--on") if word not in SWITCHES]
    return left + same_directory(args.directory)


def _picking(args: argparse.Namespace, command: Sequence[str]) -> list[str]:
    """The words of `pick` that find a set like the one that the call wants."""
    from gputui.cli.request_options import constraints_of

    if args.gpus is not None:
        raise WrongCallError(f"--gpus names devices of one box: --on {ANYWHERE} takes -n")
    if args.wait is not None:
        raise WrongCallError(f"--wait waits in the line of one box: it does not go with --on {ANYWHERE}")
    options = options_of(args, command)
    request = request_for(args, options, read_intent(options, os.environ))
    if request.count is None:
        raise WrongCallError(f"the command names devices of one box: --on {ANYWHERE} takes a number of them")
    constraints = constraints_of(argparse.Namespace(**{**vars(args), "threads": None}))
    return ["-n", str(request.count), *constraints]
