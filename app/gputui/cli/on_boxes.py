"""Launches and jobs on other boxes: `gputui run --on`, and `gputui jobs` on BOX:ID.

Claims, queue, job and log are the box's own: gputui there does what is asked here, and its output, messages
and status are those of this call. On several boxes at the same time (torchrun) each claims its devices first
(held.py), and nothing starts unless all of them have theirs; then each is told where the machines meet.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import os
import queue
import re
import secrets
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import NoReturn

from gputui.allocating.errors import NotEnoughError
from gputui.choosing.named_devices import NONE
from gputui.cli.boxes import ranked
from gputui.cli.common import DONE, NO_SOURCE, NOT_ENOUGH, WrongCallError, elsewhere, print_line, say
from gputui.cli.held import reached
from gputui.cli.hosts_options import all_boxes, box_named, boxes_named, same_directory, way, without_options
from gputui.cli.job_output import PrefixedOutput, write
from gputui.cli.launch_call import options_of, request_for
from gputui.cli.request_options import constraints_of
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import dataclass
from gputui.jobs.store import Stored
from gputui.launching.read_intent import read_intent
from gputui.sources.hosts.alias import ANYWHERE
from gputui.sources.hosts.calls import PATIENCE, ask, cannot_start, connect, of_each
from gputui.sources.hosts.remote_script import command as remote_command
from gputui.sources.hosts.sent_core import digest
from gputui.sources.hosts.session import Answer, Session
from gputui.sources.hosts.ssh import LOST, Trouble, Way, ssh_argv
from gputui.sources.source import NoSourceError

_SWITCHES = ("--attach", "--detach")
"""Options of `run` that say how the job is followed from here: the box is told another one."""
_LONGEST_LINE = 64 * 1024
_JOB_ID = 64
_STARTS_WITHIN = 60.0
"""Seconds for which a box is waited for that is to start its job."""
_LEAVES = 3
"""As many Ctrl-C within `_LEAVES_WITHIN` seconds leave a job whose box may never answer them."""
_LEAVES_WITHIN = 2.0


def run_on(args: argparse.Namespace, words: Sequence[str], command: Sequence[str]) -> int:
    """Start the command there. Its own status, of several the first that is not 0; 3 where a box cannot be
    reached, 4 where one has not enough, 255 where a connection is lost on the way (the job goes on)."""
    if elsewhere(args):
        raise WrongCallError("--demo, --from and --root do not go with --on")
    if args.saved is not None:
        raise WrongCallError("--saved does not go with --on: saved launches are those of this machine")
    counts = {} if args.on == ANYWHERE else _counts(args.on)
    inner = [word for word in without_options(words, "--on", "--hosts") if word not in _SWITCHES]
    inner += same_directory(args.directory)
    if len(counts) > 1:
        _check(args, counts, command)
    elif any(counts.values()) and (args.n is not None or args.gpus is not None):
        raise WrongCallError(f"--on {args.on} already says how many devices")
    calls = {
        box: [*inner, *(("-n", str(count)) if count else ()), "--", *command] for box, count in counts.items()
    }
    try:
        if args.on == ANYWHERE:
            return _on_the_best(args, [*inner, "--", *command], command)
        if len(calls) > 1:
            return _together(args, calls)
        ((box, call),) = calls.items()
        return _on(box, args, call)
    except ValueError as error:
        raise WrongCallError(str(error)) from None


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


def _on(box: str, args: argparse.Namespace, call: Sequence[str]) -> int:
    how = _with_prompts()
    if args.detach and not args.dry_run:
        return _tell_started(_asked_to_start(box, ("run", "--detach", *call), how), args.quiet)
    own = _reached(box, how, ("run", *call[: call.index("--")]))
    # (A dry run prints the line of a job, too.)
    return _shown(box, ("run", "--detach" if args.dry_run else "--attach", *call), how, own, not args.dry_run)


def _on_the_best(args: argparse.Namespace, call: Sequence[str], command: Sequence[str]) -> int:
    """On the best of the boxes of the settings; where somebody else took its devices after it was asked for
    them, on the next best, and so on: each is tried once. Raises NotEnoughError where none is left.

    The job is started first and followed then: by the status of a call that does both, a box that has not
    enough (4) could not be told from a command that ends so, which must not start twice.
    """
    boxes = [picked.box for picked in ranked(all_boxes(), _picking(args, command))]
    how = way()
    say(f"on {boxes[0]}")
    for box, next_best in zip_longest(boxes, boxes[1:]):
        answer = _asked_to_start(box, ("run", "--detach", *call), how)
        if answer.status != NOT_ENOUGH:
            break
        why = f"{box} has them no longer: {answer.reason}"
        if next_best is None:
            tried = f"; tried {', '.join(boxes)}" if len(boxes) > 1 else ""
            raise NotEnoughError(f"{why}{tried}")
        say(f"on {next_best}, as {why}")
    if answer.status is None or (args.detach and not args.dry_run):
        return _tell_started(answer, args.quiet)
    _tell_said(answer, args.quiet or args.dry_run)
    if args.dry_run or answer.status != DONE:
        write([answer.out])
        return answer.status
    job = _job_of(answer)
    if not args.quiet:
        _say_how_to_come_back([job])
    try:
        return _shown(box, ("jobs", "attach", job.partition(":")[2]), how, answer.own, True)
    except NoSourceError as error:
        say(f"{error}; the job goes on: `gputui jobs attach {job}` comes back to it")
        return LOST


def _picking(args: argparse.Namespace, command: Sequence[str]) -> list[str]:
    """The words of `pick` that find a set like the one that the call wants."""
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


def act(action: str, ids: Sequence[str], words: Sequence[str], jobs: Stored) -> int | None:
    """Do what `gputui jobs` is asked where the jobs are, up to a box where the status is not 0; None where
    they are ours. A job of ours may have a colon in its name: it comes first."""
    ours = {job.name for job in jobs.jobs}
    there = [word.partition(":") for word in ids if ":" in word and word not in ours]
    boxes = list(dict.fromkeys(box_named(box) for box, _, _ in there))
    if not boxes:
        return None
    if len(there) < len(ids):
        raise WrongCallError("jobs of this machine and of other boxes, in one call")
    how, status = _with_prompts(), DONE
    for box in boxes:
        others = {":".join((other, job)) for other, _, job in there if other != box}
        call = ["jobs", *(w.removeprefix(f"{box}:") if w in ids else w for w in words if w not in others)]
        if action == "rerun":
            status = _tell_started(_asked_to_start(box, call, how))
        else:
            follows = action == "attach"
            own = follows and on_a_terminal() and _reached(box, how)
            status = _shown(box, call, how, own, follows, to_job=follows)
        if status != DONE:
            break
    return status


# One call there


def _with_prompts() -> Way:
    return way(prompts=sys.stdin is not None and sys.stdin.isatty())


def on_a_terminal() -> bool:
    """Whether a person sits at both ends of a connection."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _reached(box: str, how: Way, words: Sequence[str] = ("--version",)) -> bool:
    """Raises NoSourceError for a box that cannot be reached or has no gputui; sends it there if need be.

    Whether a call with these `words`, which do nothing by themselves, must be by a copy of ours, because the
    gputui there is too old for them.
    """
    answer = ask(box, words, how)
    if answer.trouble is not None:
        raise NoSourceError(f"{box}: {answer.trouble.text}")
    return answer.own


def _asked_to_start(box: str, call: Sequence[str], how: Way) -> Answer:
    """What a call that starts a job there, and comes back, has come to. Raises NoSourceError where gputui has
    not run there."""
    try:
        answer = ask(box, call, how)
    except KeyboardInterrupt:
        say(f"{box}: interrupted; {_tells_whether_it_started(box)}")
        raise
    if answer.trouble is not None and answer.mode != "run":
        raise NoSourceError(f"{box}: {answer.trouble.text}")
    return answer


def _tells_whether_it_started(box: str) -> str:
    return f"`gputui jobs --hosts {box}` tells whether the job has started"


def _tell_started(answer: Answer, quiet: bool = False) -> int:
    """Print BOX:ID of a job that was started, and what was said there; the status."""
    if answer.status is None:
        say(f"{answer.alias}: {answer.error}; {_tells_whether_it_started(answer.alias)}")
        return LOST
    _tell_said(answer, quiet)
    if answer.status == DONE:
        job = _job_of(answer)
        print_line(job)
        if not quiet:
            say(f"job {job}: `gputui jobs log -f {job}` follows it")
    return answer.status


def _tell_said(answer: Answer, quiet: bool) -> None:
    """Print the messages of a call that starts a job; with `quiet` that call was told to be it, too."""
    said = answer.said.splitlines()
    # (The last line says how the job is followed there.)
    _pass_on(answer.alias, said[:-1] if answer.status == DONE and not quiet else said)


def _job_of(answer: Answer) -> str:
    """BOX:ID of the job that a call has started. Raises NoSourceError for what is no ID: people and scripts
    make commands of it."""
    job = _job_id(answer.out)
    if job is None:
        started = _tells_whether_it_started(answer.alias)
        raise NoSourceError(f"{answer.alias}: its answer cannot be read; {started}")
    return f"{answer.alias}:{job}"


def _job_id(said: bytes) -> str | None:
    """The ID of a job that a box has said, None where it is none."""
    job = said.decode(errors="replace").strip()
    return job if job.isascii() and job.isalnum() and len(job) <= _JOB_ID else None


def _say_how_to_come_back(jobs: Sequence[str]) -> None:
    one = len(jobs) == 1
    if jobs:
        say(
            f"{' and '.join(jobs)}: {'it outlives' if one else 'they outlive'} this terminal;"
            f" `gputui jobs attach {jobs[0] if one else 'BOX:ID'}` comes back to {'it' if one else 'one'}"
        )


def _shown(box: str, call: Sequence[str], how: Way, own: bool, in_terminal: bool, to_job: bool = True) -> int:
    """A call there whose output and status are ours; Ctrl-C is sent on to it where it is one `to_job`, and
    ends any other. Raises NoSourceError."""
    if in_terminal and on_a_terminal():
        _become_ssh(box, call, how, own)
    try:
        session = Session(box, call, how, tied=True, apart=True, own=own)
    except OSError as error:
        raise NoSourceError(cannot_start(box, error).error) from None
    with _ctrl_c(session) if to_job else contextlib.nullcontext():
        try:
            write(_output(session))
            return _status(session, f"; the job goes on (`gputui jobs --hosts {box}`)")
        finally:
            session.close()


def _become_ssh(box: str, call: Sequence[str], how: Way, own: bool) -> NoReturn:
    """Become the ssh that shows the job in this terminal: what ends this process ends the connection."""
    there = remote_command(call, digest(), marks=False, own=own, called=box)
    words = ssh_argv(box, there, how, terminal=True, quiet=True)
    sys.stdout.flush()
    os.execvp(words[0], words)


@contextmanager
def _ctrl_c(*sessions: Session) -> Iterator[None]:
    """Ctrl-C goes to the jobs there, as long as this lasts; pressed `_LEAVES` times, it leaves them."""
    pressed: deque[float] = deque(maxlen=_LEAVES)

    def interrupt(_number: int, _frame: object) -> None:
        pressed.append(time.monotonic())
        if len(pressed) == _LEAVES and pressed[-1] - pressed[0] <= _LEAVES_WITHIN:
            # (We are leaving: a fourth has nothing to add.)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt
        _tell(*sessions)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        boxes = ",".join(session.alias for session in sessions)
        say(f"left {boxes}: a job there that has not heard Ctrl-C goes on (`gputui jobs --hosts {boxes}`)")
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, before)


def _tell(*sessions: Session, line: bytes = b"") -> None:
    """A line for the input there, an empty one for Ctrl-C; one that has ended says so otherwise."""
    for session in sessions:
        with contextlib.suppress(OSError):
            session.send(line + b"\n")


def _pass_on(box: str, lines: Sequence[str]) -> None:
    """Print messages that have come from there."""
    for line in lines:
        say(f"{box}: {printable(line.removeprefix('gputui: '))}")


def _output(session: Session) -> Iterator[bytes]:
    """What a call there prints, while its messages are passed on."""
    while (data := session.receive(None, or_messages=True)) is not None:
        if session.mode == "run":
            # (What ssh says before that is in the reason why it is not reached.)
            _pass_on(session.alias, session.new_messages())
        yield data


def _status(session: Session, goes_on: str) -> int:
    """The status of a call there whose output has ended; 255 where the connection is lost. Raises
    NoSourceError where gputui has not run there."""
    session.finish()
    answer = session.answer()
    if answer.mode != "run" and answer.trouble is not None:
        raise NoSourceError(f"{answer.alias}: {answer.trouble.text}")
    _pass_on(answer.alias, session.new_messages())
    if answer.status is None:
        say(f"{answer.alias}: the connection is lost{goes_on}")
        return LOST
    return answer.status


# One launch on several boxes


@dataclass
class _Box:
    """A box that holds its devices.

    address, port  by which the others reach it, and that is free there; None where that is not known
    job            its job's id, None before it has started
    """

    session: Session
    address: str | None = None
    port: int | None = None
    job: str | None = None
    rest: bytes = b""

    @property
    def name(self) -> str:
        """Its alias."""
        return self.session.alias

    def line(self, seconds: float) -> bytes | None:
        """The next line of its output; None where none comes in so many seconds, or at its end."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.rest and len(self.rest) <= _LONGEST_LINE:
            data = self.session.receive(max(0.0, deadline - time.monotonic()))
            if not data:
                return None
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def print(self, output: PrefixedOutput) -> int:
        """Print what it prints until it ends; its status. Raises OSError."""
        output.write(self.name, self.rest)
        for data in _output(self.session):
            output.write(self.name, data)
        output.write(self.name, b"", final=True)
        return _status(self.session, f"; job {self.name}:{self.job} goes on" if self.job else "")


def _check(args: argparse.Namespace, counts: Mapping[str, int | None], command: Sequence[str]) -> None:
    """Raises WrongCallError for what no several boxes can do together."""
    if args.gpus not in (None, NONE):
        raise WrongCallError("--gpus names devices of one box: --on several takes -n")
    if args.wait is not None:
        raise WrongCallError(
            "--wait does not go with several boxes: each has a queue of its own, and the first whose turn"
            " comes would keep its devices idle until the others follow"
        )
    if (args.n is not None or args.gpus is not None) and any(counts.values()):
        raise WrongCallError("BOX:N already says how many devices")
    if args.nodes not in (1, len(counts)):
        raise WrongCallError(f"--nodes {args.nodes}, and --on names {len(counts)} boxes")
    # (With the number of machines, so that a command that is not torchrun's is refused here.)
    options_of(argparse.Namespace(**{**vars(args), "nodes": len(counts), "held": True}), command)


def _together(args: argparse.Namespace, calls: Mapping[str, Sequence[str]]) -> int:
    """Start the command on all these boxes, or on none. Raises ValueError for words that cannot be sent."""
    how, unwanted = way(), threading.Event()
    # (A dry run prints the line of a job, too.)
    first = ("run", "--held", "--detach" if args.detach or args.dry_run else "--attach")
    # (What only holds its devices gives them back when its connection ends.)
    with contextlib.ExitStack() as sessions:

        def hold(box: str, own: bool = False) -> _Box | Answer:
            call = (*first, f"--nodes={len(calls)}", *calls[box])
            try:
                session = connect(box, call, how, unwanted, apart=True, own=own, watch=unwanted)
            except OSError as error:
                return cannot_start(box, error)
            sessions.callback(session.close)
            held = _held(session, how.timeout + PATIENCE)
            # (One that is older than ours is sent a copy of ours.)
            return hold(box, own=True) if isinstance(held, Answer) and held.too_old else held

        held = of_each(list(calls), hold, unwanted)
        held = [_still(each) if isinstance(each, _Box) else each for each in held]
        boxes = [each for each in held if isinstance(each, _Box)]
        refused = [each for each in held if isinstance(each, Answer)]
        for each in refused:
            if not each.status:
                say(f"{each.alias}: {each.error or 'its answer cannot be read'}")
        if refused:
            say("nothing has started on any of the boxes")
            return refused[0].status or NO_SOURCE
        place = args.rendezvous or _place(boxes)
        with _ctrl_c(*(box.session for box in boxes)):
            return _started(args, boxes, place, how)


def _held(session: Session, seconds: float) -> _Box | Answer:
    """A box that has claimed its devices; else why not."""
    box = _Box(session)
    line = box.line(seconds)
    if line is None:
        return _refused(session)
    _pass_on(box.name, session.new_messages())
    try:
        box.address, box.port = reached(line)
    except ValueError:
        session.close()
        return session.answer(trouble=Trouble("failed", "its answer cannot be read"))
    return box


def _still(box: _Box) -> _Box | Answer:
    """The box, unless it has given its devices back while another one took its time (`held.HELD_FOR`)."""
    data = box.session.receive(0.0)
    if data is None:
        return _refused(box.session)
    box.rest += data
    return box


def _refused(session: Session) -> Answer:
    """Of a box that has ended instead of holding its devices: it has said why, or there is the trouble."""
    session.finish()
    answer = session.answer()
    if answer.trouble is None and not answer.too_old:
        _pass_on(answer.alias, session.new_messages())
    return answer


def _place(boxes: Sequence[_Box]) -> str:
    """HOST:PORT where they meet: the first box, as the connection has reached it. Raises WrongCallError."""
    first, *others = boxes
    loops = [box.address is not None and ipaddress.ip_address(box.address).is_loopback for box in boxes]
    if first.address is None or first.port is None:
        raise WrongCallError(f"the address of {first.name} is not known: --rendezvous HOST[:PORT] says it")
    if loops[0] and not all(loops[1:]):
        names = ", ".join(box.name for box in others)
        raise WrongCallError(
            f"{first.name} is reached as {first.address}, which is no address for {names}:"
            " --rendezvous HOST[:PORT] says one"
        )
    return f"[{first.address}]:{first.port}" if ":" in first.address else f"{first.address}:{first.port}"


def _started(args: argparse.Namespace, boxes: Sequence[_Box], place: str, how: Way) -> int:
    """Tell all boxes to start; what comes of it."""
    meeting = f"gputui{secrets.token_hex(4)}"
    for box in boxes:
        said = {"rendezvous": place, "id": meeting, "first": box is boxes[0]}
        _tell(box.session, line=json.dumps(said).encode())
    output = PrefixedOutput(box.name for box in boxes)
    if args.dry_run:
        statuses = [box.print(output) for box in boxes]
        return next((status for status in statuses if status != DONE), DONE)
    for box in boxes:
        box.job = _job_id(box.line(_STARTS_WITHIN) or b"")
        _pass_on(box.name, box.session.new_messages())
    jobs = [f"{box.name}:{box.job}" for box in boxes if box.job]
    if not args.detach and not args.quiet:
        _say_how_to_come_back(jobs)
    status = _follow(boxes, output, how, args.detach)
    if args.detach and status == DONE:
        print_line("\n".join(jobs))
        if not args.quiet:
            say(f"`gputui jobs --hosts {','.join(box.name for box in boxes)}` lists them")
    return status


def _follow(boxes: Sequence[_Box], output: PrefixedOutput, how: Way, detach: bool) -> int:
    """Print what the boxes print until all have ended; one that fails stops the others, also those that have
    only been started (`detach`). The first status that is not 0."""
    news: queue.SimpleQueue[tuple[_Box, int | OSError]] = queue.SimpleQueue()

    def follow(box: _Box) -> None:
        try:
            news.put((box, box.print(output)))
        except OSError as error:
            news.put((box, error))

    for box in boxes:
        threading.Thread(target=follow, args=(box,), daemon=True).start()
    left, first = [*boxes], DONE
    while left:
        try:
            box, status = news.get()
        except KeyboardInterrupt:
            # (Each thread closes its own connection, which is for one thread.)
            for box in left:
                box.session.process.kill()
            with contextlib.suppress(queue.Empty):
                for _ in left:
                    news.get(timeout=_LEAVES_WITHIN)
            raise
        if isinstance(status, OSError):
            # (Nobody reads our output any more. The jobs go on, as they do without us.)
            raise status
        left.remove(box)
        if box.job is None and status in (DONE, LOST):
            # (There is nothing there that could go on, or be done.)
            say(f"{box.name} has ended without a job")
            status = NO_SOURCE
        if first in (DONE, LOST) and status != DONE:
            first = status
            others = [each for each in boxes if each is not box] if detach else left
            if status != LOST and others:
                say(f"{box.name} has ended with status {status}: the others are stopped")
                _stop(others, how)
    return first


def _stop(boxes: Sequence[_Box], how: Way) -> None:
    """Stop jobs whose fellow has failed; their own connections tell when they have ended."""
    jobs = {box.name: box.job for box in boxes if box.job is not None}
    for answer in of_each(list(jobs), lambda name: ask(name, ("jobs", "stop", jobs[name]), how)):
        if answer.trouble is not None:
            job = f"{answer.alias}:{jobs[answer.alias]}"
            say(f"{answer.alias}: {answer.trouble.text}; `gputui jobs stop {job}`")
