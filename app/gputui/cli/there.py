"""Calls of gputui on another box whose output, messages and status are those of this call."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import NoReturn

from gputui.cli.common import DONE, print_line, say
from gputui.cli.jobs import write
from gputui.inventory.formatting import printable
from gputui.sources.hosts.calls import Answer, ask
from gputui.sources.hosts.remote_script import command as remote_command
from gputui.sources.hosts.sent_core import digest
from gputui.sources.hosts.session import Session
from gputui.sources.hosts.ssh import LOST, Way, ssh_argv
from gputui.sources.source import NoSourceError


def on_a_terminal() -> bool:
    """Whether a person sits at both ends of a connection."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def reached(box: str, how: Way, words: Sequence[str] = ("--version",)) -> bool:
    """Raises NoSourceError for a box that cannot be reached or has no gputui; sends it there if need be.

    Whether a call with these `words`, which do nothing by themselves, must be by a copy of ours, because the
    gputui there is too old for them.
    """
    answer = ask(box, words, how)
    own = answer.too_old
    if own:
        answer = ask(box, words, how, own=True)
    if answer.trouble is not None:
        raise NoSourceError(f"{box}: {answer.trouble.text}")
    return own


def asked_to_start(box: str, call: Sequence[str], how: Way) -> tuple[Answer, bool]:
    """What a call that starts a job there, and comes back, has come to; whether a copy of ours has answered,
    because the gputui there is too old for it. Raises NoSourceError where gputui has not run there."""
    try:
        answer = ask(box, call, how)
        own = answer.too_old
        if own:
            answer = ask(box, call, how, own=True)
    except KeyboardInterrupt:
        say(f"{box}: interrupted; {_tells_whether_it_started(box)}")
        raise
    if answer.trouble is not None and answer.mode != "run":
        raise NoSourceError(f"{box}: {answer.trouble.text}")
    return answer, own


def start_there(box: str, call: Sequence[str], how: Way, quiet: bool = False) -> int:
    """A call that starts a job there and comes back: BOX:ID on stdout. Raises NoSourceError."""
    answer, _ = asked_to_start(box, call, how)
    return tell_started(answer, quiet)


def tell_started(answer: Answer, quiet: bool) -> int:
    """Print BOX:ID of a job that was started, and what was said there; the status."""
    if answer.status is None:
        return _tell_lost(answer)
    tell_said(answer, quiet)
    if answer.status == DONE:
        job = job_of(answer)
        print_line(job)
        if not quiet:
            say(f"job {job}: `gputui jobs log -f {job}` follows it")
    return answer.status


def _tell_lost(answer: Answer) -> int:
    """Say that it was not heard whether a job has started; the status of a connection that is lost."""
    why = answer.trouble.text if answer.trouble is not None else "no answer"
    say(f"{answer.alias}: {why}; {_tells_whether_it_started(answer.alias)}")
    return LOST


def _tells_whether_it_started(box: str) -> str:
    return f"`gputui jobs --hosts {box}` tells whether the job has started"


def tell_said(answer: Answer, quiet: bool) -> None:
    """Print the messages of a call that starts a job; with `quiet` that call was told to be it, too."""
    said = answer.said.splitlines()
    if answer.status == DONE and not quiet:
        # (The last line says how the job is followed there.)
        del said[-1:]
    for line in said:
        say(f"{answer.alias}: {printable(line.removeprefix('gputui: '))}")


def job_of(answer: Answer) -> str:
    """BOX:ID of the job that a call has started."""
    return f"{answer.alias}:{printable(answer.out.decode(errors='replace').strip())}"


def become_ssh(box: str, call: Sequence[str], how: Way, own: bool = False) -> NoReturn:
    """Become the ssh that shows the job in this terminal: what ends this process ends the connection."""
    there = remote_command(call, digest(), marks=False, own=own, called=box)
    words = ssh_argv(box, there, how, terminal=True, quiet=True)
    sys.stdout.flush()
    os.execvp(words[0], words)


def attach(job: str, how: Way, own: bool) -> int:
    """Follow a job that was started just now, BOX:ID; its status, 255 where its box is no longer reached."""
    box, _, name = job.partition(":")
    call = ("jobs", "attach", name)
    if on_a_terminal():
        become_ssh(box, call, how, own)
    try:
        return through(box, call, how, own)
    except NoSourceError as error:
        say(f"{error}; the job goes on: `gputui jobs attach {job}` comes back to it")
        return LOST


def through(box: str, call: Sequence[str], how: Way, own: bool = False, to_job: bool = True) -> int:
    """A call there whose output and status are ours; Ctrl-C is sent on to it where it is one `to_job`, and
    ends any other. Raises NoSourceError."""
    try:
        session = Session(box, call, how, tied=True, apart=True, own=own)
    except OSError as error:
        raise NoSourceError(f"ssh cannot be started: {error.strerror}") from None

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            session.send(b"\n")

    before = signal.signal(signal.SIGINT, interrupt) if to_job else None
    try:
        write(_output(session, box))
        session.end_input()
        status = session.process.wait()
    finally:
        if to_job:
            signal.signal(signal.SIGINT, before)
        session.close()
    trouble = session.trouble()
    if trouble is not None and session.mode != "run":
        raise NoSourceError(f"{box}: {trouble.text}")
    pass_on(session, box)
    if status == LOST or status < 0:
        # (Less than 0: a signal has ended our ssh.)
        say(f"{box}: the connection is lost; the job goes on (`gputui jobs --hosts {box}`)")
        return LOST
    return status


def _output(session: Session, box: str) -> Iterator[bytes]:
    while (data := session.receive(None, or_messages=True)) is not None:
        if session.mode == "run":
            # (What ssh says before that is in the reason why it is not reached.)
            pass_on(session, box)
        yield data


def pass_on(session: Session, box: str) -> None:
    """Print the messages that have come from there, line by line."""
    for line in session.new_messages():
        say(f"{box}: {printable(line.removeprefix('gputui: '))}")
