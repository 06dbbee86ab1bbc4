"""`gputui run --on A,B`: torchrun on several boxes at the same time, started, followed and stopped from here.

Every box claims its devices first (cli/held.py), and nothing starts unless all of them have theirs. Then each
is told where the machines meet and starts its job. Claims, job and log are the box's own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from gputui.choosing.named_devices import NONE
from gputui.cli.common import DONE, NO_SOURCE, WrongCallError, print_line, say
from gputui.cli.held import reached
from gputui.cli.hosts_options import SWITCHES, same_directory, way, without_options
from gputui.cli.launch_call import options_of
from gputui.cli.prefixed_output import PrefixedOutput
from gputui.cli.there import pass_on
from gputui.inventory.light_dataclasses import dataclass, field
from gputui.sources.hosts.calls import PATIENCE, ask, connect, of_each
from gputui.sources.hosts.session import Session
from gputui.sources.hosts.ssh import LOST, Way

_LONGEST_LINE = 64 * 1024
_JOB_ID = 64
_STARTS_WITHIN = 60.0
"""Seconds for which a box is waited for that is to start its job."""


@dataclass
class _Box:
    """A box that holds its devices.

    address, port  by which the others reach it, and that is free there; None where that is not known
    job            its job's id, None before it has started
    """

    name: str
    session: Session
    address: str | None = None
    port: int | None = None
    job: str | None = None
    rest: bytes = b""

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

    def tell(self, line: bytes) -> None:
        """A line for its input; one that has ended says so otherwise."""
        with contextlib.suppress(OSError):
            self.session.send(line + b"\n")


@dataclass(frozen=True)
class _Refused:
    """A box that does not hold its devices: the status of the call, and why where it has not said so."""

    name: str
    status: int
    why: str | None


@dataclass
class _Ends:
    """How the boxes end: the status of the call, the first that is not 0; `left` are those that have not."""

    left: dict[str, _Box]
    status: int = DONE
    news: queue.SimpleQueue[tuple[_Box, int | OSError]] = field(default_factory=queue.SimpleQueue)


def run_together(
    args: argparse.Namespace, words: Sequence[str], counts: Mapping[str, int | None], command: Sequence[str]
) -> int:
    """Start the command on all these boxes, on so many devices each (None: as `words` say), or on none.

    The first status that is not 0; 3 where a box cannot be reached, 4 where one has not enough, 255 where a
    connection is lost on the way (the jobs go on).
    """
    _check(args, counts, command)
    how = way()
    calls = {box: _call(args, words, count, len(counts), command) for box, count in counts.items()}
    sessions = _Sessions()
    try:
        with sessions.ended_by_ctrl_c():
            held = of_each(list(calls), lambda box: _hold(box, calls[box], how, sessions))
    except ValueError as error:
        raise WrongCallError(str(error)) from None
    held = [_still(each) if isinstance(each, _Box) else each for each in held]
    boxes = [each for each in held if isinstance(each, _Box)]
    refused = [each for each in held if isinstance(each, _Refused)]
    try:
        if sessions.ended:
            raise KeyboardInterrupt
        for each in refused:
            if each.why is not None:
                say(f"{each.name}: {each.why}")
        if refused:
            say("nothing has started on any of the boxes")
            return refused[0].status
        place = args.rendezvous or _place(boxes)
        with _interrupting(boxes):
            return _started(args, boxes, place, how)
    finally:
        # (What only holds its devices gives them back then.)
        for box in boxes:
            box.session.close()


def _check(args: argparse.Namespace, counts: Mapping[str, int | None], command: Sequence[str]) -> None:
    """Raises WrongCallError for what no several boxes can do together."""
    if args.gpus not in (None, NONE):
        raise WrongCallError("--gpus names devices of one box: --on several takes -n")
    if args.wait is not None:
        raise WrongCallError(
            "--wait does not go with several boxes: each has a queue of its own, and the first whose turn"
            " comes would keep its devices idle until the others follow"
        )
    if (args.n is not None or args.gpus is not None) and any(count is not None for count in counts.values()):
        raise WrongCallError("BOX:N already says how many devices")
    if args.nodes not in (1, len(counts)):
        raise WrongCallError(f"--nodes {args.nodes}, and --on names {len(counts)} boxes")
    # (With the number of machines, so that a command that is not torchrun's is refused here.)
    options_of(argparse.Namespace(**{**vars(args), "nodes": len(counts), "held": True}), command)


def _call(
    args: argparse.Namespace, words: Sequence[str], count: int | None, boxes: int, command: Sequence[str]
) -> list[str]:
    """What one of the boxes is called with."""
    left = without_options(words, "--on", "--rendezvous", "--nodes")
    left = [word for word in left if word not in SWITCHES]
    # (A dry run prints the line of a job, too.)
    as_job = "--detach" if args.detach or args.dry_run else "--attach"
    call = ["run", "--held", as_job, f"--nodes={boxes}", *left]
    if count is not None:
        call += ["-n", str(count)]
    return [*call, *same_directory(args.directory), "--", *command]


class _Sessions:
    """The connections while devices are claimed: Ctrl-C ends them, and what runs there with them.

    (They are not in our process group, so that later it goes to the jobs instead.)
    """

    def __init__(self) -> None:
        self._all: list[Session] = []
        self.ended = False

    @contextmanager
    def ended_by_ctrl_c(self) -> Iterator[None]:
        """As long as it lasts."""
        before = signal.signal(signal.SIGINT, self._end)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def add(self, session: Session) -> Session:
        """One that has just been made."""
        self._all.append(session)
        if self.ended:
            self._end_one(session)
        return session

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self.ended = True
        for session in [*self._all]:
            self._end_one(session)

    def _end_one(self, session: Session) -> None:
        session.end_input()
        if session.mode is None:
            # (Still connecting: nobody else can use that connection.)
            session.process.kill()


def _hold(
    name: str, words: Sequence[str], how: Way, sessions: _Sessions, own: bool = False
) -> _Box | _Refused:
    """Have a box claim its devices. Raises ValueError for words that cannot be sent."""
    try:
        session = sessions.add(connect(name, words, how, apart=True, own=own))
    except OSError as error:
        return _Refused(name, NO_SOURCE, f"ssh cannot be started: {error.strerror}")
    box = _Box(name, session)
    line = box.line(how.timeout + PATIENCE)
    if line is not None:
        pass_on(session, name)
        try:
            box.address, box.port = reached(line)
        except ValueError:
            session.close()
            return _Refused(name, NO_SOURCE, "its answer cannot be read")
        return box
    status = session.finish()
    if session.too_old:
        # (It is older than this one: a copy of this one is sent.)
        return _hold(name, words, how, sessions, own=True)
    trouble = session.trouble()
    if trouble is not None:
        return _Refused(name, NO_SOURCE, trouble.text)
    pass_on(session, name)
    if status is None:
        return _Refused(name, NO_SOURCE, "no answer in time")
    if status <= 0:
        why = "the connection is lost" if status else "its answer cannot be read"
        return _Refused(name, NO_SOURCE, why)
    return _Refused(name, status, None)


def _still(box: _Box) -> _Box | _Refused:
    """The box, unless it has given its devices back while another one took its time (`held.HELD_FOR`)."""
    data = box.session.receive(0.0)
    if data is not None:
        box.rest += data
        return box
    status = box.session.finish()
    pass_on(box.session, box.name)
    if status is None or status <= 0 or status == LOST:
        return _Refused(box.name, NO_SOURCE, "the connection is lost")
    return _Refused(box.name, status, None)


def _place(boxes: Sequence[_Box]) -> str:
    """HOST:PORT where they meet: the first box, as the connection has reached it. Raises WrongCallError."""
    first, *others = boxes
    loops = [box.address is not None and _is_loopback(box.address) for box in boxes]
    if first.address is None or first.port is None:
        raise WrongCallError(f"the address of {first.name} is not known: --rendezvous HOST[:PORT] says it")
    if loops[0] and not all(loops[1:]):
        names = ", ".join(box.name for box in others)
        raise WrongCallError(
            f"{first.name} is reached as {first.address}, which is no address for {names}:"
            " --rendezvous HOST[:PORT] says one"
        )
    return f"[{first.address}]:{first.port}" if ":" in first.address else f"{first.address}:{first.port}"


def _is_loopback(address: str) -> bool:
    import ipaddress

    return ipaddress.ip_address(address).is_loopback


@contextmanager
def _interrupting(boxes: Sequence[_Box]) -> Iterator[None]:
    """Ctrl-C goes to all jobs."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for box in boxes:
            box.tell(b"")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _started(args: argparse.Namespace, boxes: Sequence[_Box], place: str, how: Way) -> int:
    """Tell all boxes to start; what comes of it."""
    meeting = f"gputui{secrets.token_hex(4)}"
    for box in boxes:
        first = box is boxes[0]
        said = {"rendezvous": place, "id": meeting, "first": first}
        box.tell(json.dumps(said).encode())
    ends = _Ends({box.name: box for box in boxes})
    if args.dry_run:
        output = PrefixedOutput(ends.left)
        statuses = [_printed(box, output) for box in boxes]
        return next((status for status in statuses if status != DONE), DONE)
    for box in boxes:
        box.job = _job(box)
        pass_on(box.session, box.name)
    if args.detach:
        return _left(boxes, how, args.quiet)
    if not args.quiet:
        _say_how_to_come_back([f"{box.name}:{box.job}" for box in boxes if box.job])
    _follow(ends, how)
    return ends.status


def _say_how_to_come_back(jobs: Sequence[str]) -> None:
    if len(jobs) == 1:
        say(f"{jobs[0]}: it outlives this terminal; `gputui jobs attach {jobs[0]}` comes back to it")
    elif jobs:
        say(
            f"{' and '.join(jobs)}: they outlive this terminal; `gputui jobs attach BOX:ID` comes back to one"
        )


def _left(boxes: Sequence[_Box], how: Way, quiet: bool) -> int:
    """Leave the jobs to themselves; where one has not started, no other one stays."""
    statuses = [box.session.finish() for box in boxes]
    for box in boxes:
        pass_on(box.session, box.name)
    if not all(box.job for box in boxes):
        for box in boxes:
            _stop(box, how)
        return next((status for status in statuses if status), NO_SOURCE)
    for box in boxes:
        print_line(f"{box.name}:{box.job}")
    if not quiet:
        say(f"`gputui jobs --hosts {','.join(box.name for box in boxes)}` lists them")
    return DONE


def _job(box: _Box) -> str | None:
    """The id of the job that it has started; None where it has not."""
    line = box.line(_STARTS_WITHIN)
    job = (line or b"").decode(errors="replace")
    return job if 0 < len(job) <= _JOB_ID and job.isalnum() else None


def _follow(ends: _Ends, how: Way) -> None:
    """Print what the boxes print until all have ended; one that fails stops the others."""
    output = PrefixedOutput(ends.left)
    for box in list(ends.left.values()):
        threading.Thread(target=_read, args=(box, output, ends.news), daemon=True).start()
    while ends.left:
        box, status = ends.news.get()
        if isinstance(status, OSError):
            # (Nobody reads our output any more. The jobs go on, as they do without us.)
            raise status
        del ends.left[box.name]
        if box.job is None and status in (DONE, LOST):
            # (There is nothing there that could go on, or be done.)
            say(f"{box.name} has ended without a job")
            status = NO_SOURCE
        failed = status not in (DONE, LOST)
        if failed and ends.status in (DONE, LOST) and ends.left:
            say(f"{box.name} has ended with status {status}: the others are stopped")
            of_each([*ends.left], lambda name: _stop(ends.left[name], how))
        if status != DONE and ends.status in (DONE, LOST):
            ends.status = status


def _printed(box: _Box, output: PrefixedOutput) -> int:
    """Print what a box prints until it ends; its status. Raises OSError."""
    output.write(box.name, box.rest)
    while (data := box.session.receive(None, or_messages=True)) is not None:
        pass_on(box.session, box.name)
        output.write(box.name, data)
    output.write(box.name, b"", final=True)
    status = box.session.finish()
    pass_on(box.session, box.name)
    if status is not None and 0 <= status != LOST:
        return status
    # (Less than 0: a signal has ended our ssh.)
    goes_on = f"; job {box.name}:{box.job} goes on" if box.job else ""
    say(f"{box.name}: the connection is lost{goes_on}")
    return LOST


def _read(box: _Box, output: PrefixedOutput, news: queue.SimpleQueue[tuple[_Box, int | OSError]]) -> None:
    """That on a thread of its own."""
    try:
        news.put((box, _printed(box, output)))
    except OSError as error:
        news.put((box, error))


def _stop(box: _Box, how: Way) -> None:
    """Stop a job whose fellow has failed; its own connection tells when it has ended."""
    if box.job is None:
        return
    answer = ask(box.name, ("jobs", "stop", box.job), how, own=box.session.own)
    if answer.trouble is not None:
        say(f"{box.name}: {answer.trouble.text}; `gputui jobs stop {box.name}:{box.job}`")
