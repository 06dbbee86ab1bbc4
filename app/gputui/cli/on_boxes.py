"""Launches and jobs on other boxes: `gputui run --on`, and `gputui jobs` on BOX:ID.

Claims, queue, job and log belong to the box: gputui there executes the call, and its output, messages and
status become those of this call. For several boxes at the same time (torchrun), each box claims its devices
first (run_held.py), and nothing starts unless all have theirs; then each receives the rendezvous
address.
"""

from __future__ import annotations

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
from gputui.cli.common import (
    DONE,
    NO_SOURCE,
    NOT_ENOUGH,
    Call,
    WrongCallError,
    elsewhere,
    print_json,
    print_line,
    say,
)
from gputui.cli.hosts_options import all_boxes, boxes_named, way
from gputui.cli.job_output import PrefixedOutput, say_how_to_come_back, write
from gputui.cli.launch_call import check_machines, prepared_call
from gputui.cli.run_held import reached
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import dataclass, frozen, replace
from gputui.inventory.typed_json import Json, loads_of_others, within
from gputui.jobs.record import JOB_ID
from gputui.launching.compose import launcher_of
from gputui.requesting.launch_request import LaunchRequest, sent
from gputui.sources.hosts.alias import ANYWHERE, alias
from gputui.sources.hosts.calls import PATIENCE, ask, cannot_start, connect, of_each
from gputui.sources.hosts.remote_script import command as remote_command
from gputui.sources.hosts.sent_core import digest
from gputui.sources.hosts.session import Answer, Session
from gputui.sources.hosts.ssh import LOST, Trouble, Way, ssh_argv
from gputui.sources.source import NoSourceError, UnreachableError
from gputui.system.terminal_abilities import is_terminal
from gputui.system.trust import who_can_change

_LONGEST_LINE = 64 * 1024
_STARTS_WITHIN = 60.0
"""Seconds that a box may take to start its job."""
_LEAVES = 3
"""So many presses of Ctrl-C within `_LEAVES_WITHIN` seconds leave a job whose box may never answer."""
_LEAVES_WITHIN = 2.0


def run_on(args: Call, asked: LaunchRequest) -> int:
    """Start the command on the boxes of `--on`. Returns the command's own status, of several boxes the first
    that is not 0; 3 where a box cannot be reached, 4 where a box has too few devices, 255 where a connection
    is lost on the way (the job keeps running)."""
    if elsewhere(asked.devices):
        raise WrongCallError("--demo, --from and --root cannot be used with --on")
    counts = {} if args.on == ANYWHERE else _counts(args.on)
    if asked.awaited and len(counts) != 1:
        raise WrongCallError(f"--after names jobs of one box: it cannot be used with --on {args.on}")
    devices = asked.devices
    said = devices.auto or devices.count is not None or devices.names is not None
    if len(counts) > 1:
        if args.json:
            raise WrongCallError("--json cannot be used with several boxes: each has a launch of its own")
        _check(asked, counts, said)
        asked = replace(asked, options=replace(asked.options, nodes=len(counts)))
    elif any(counts.values()) and said:
        raise WrongCallError(f"--on {args.on} already gives the number of devices")
    call = _Call(args, *in_this_directory(asked))
    calls = {box: call.counting(count) for box, count in counts.items()}
    try:
        if args.on == ANYWHERE:
            return _on_the_best(call)
        if len(calls) > 1:
            return _together(args, calls)
        ((box, call),) = calls.items()
        # There, BOX:ID is ID.
        after, good = (jobs and jobs.replace(f"{box}:", "") for jobs in (asked.after, asked.after_ok))
        return _on(box, replace(call, asked=replace(call.asked, after=after, after_ok=good)))
    except ValueError as error:
        raise WrongCallError(str(error)) from None


@frozen
class _Call:
    """A `run` call for a box. With `own_directory`, the box refuses a directory that others can change."""

    args: Call
    asked: LaunchRequest
    own_directory: bool = False

    def counting(self, count: int | None) -> _Call:
        """The same call for `count` devices; None keeps the call's own number."""
        if count is None:
            return self
        return replace(self, asked=replace(self.asked, devices=replace(self.asked.devices, count=count)))

    def words(self, *how: str) -> tuple[str, ...]:
        """The arguments of gputui there; the options `how` say how the job is followed from here."""
        flags = {"--dry-run": self.args.dry_run, "--json": self.args.json, "--quiet": self.args.quiet}
        flags |= {"--own-directory": self.own_directory or self.args.own_directory}
        name = () if self.args.name is None else (f"--name={self.args.name}",)
        given = (flag for flag, on in flags.items() if on)
        return ("run", *how, *given, *name, "--request", sent(self.asked))

    @property
    def starting_nothing(self) -> tuple[str, ...]:
        """A call with the same request but without a command, which does nothing."""
        return (
            "run",
            "--request",
            sent(replace(self.asked, options=replace(self.asked.options, command=()))),
        )


def in_this_directory(asked: LaunchRequest) -> tuple[LaunchRequest, bool]:
    """The launch with our working directory's path as its directory, unless it gives one; and whether the box
    must refuse that directory where others can change it.

    The box must refuse it where others cannot change ours: below a folder in which everybody can write
    (/scratch), another user may have made the directory there.
    """
    if asked.options.directory is not None:
        return asked, False
    here = os.getcwd()  # noqa: PTH109 - as it is called, through links
    options = replace(asked.options, directory=here)
    return replace(asked, options=options), who_can_change(here) is None


def _counts(text: str) -> dict[str, int | None]:
    """The boxes of `--on`, each with the number of devices of BOX:N, else None. Raises WrongCallError."""
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


def _on(box: str, call: _Call) -> int:
    how, dry_run = _with_prompts(), call.args.dry_run
    if (call.args.detach or on_a_terminal()) and not dry_run:
        # A terminal can send no words that its ssh does not show (`ps`): the job is started before.
        return _followed(_asked_to_start(box, call.words("--detach"), how), call.args, how)
    own = _reached(box, how, call.starting_nothing)
    # A dry run also prints the launch line of a job.
    return _shown(box, call.words("--detach" if dry_run else "--attach"), how, own)


def _on_the_best(call: _Call) -> int:
    """Start on the best box of the settings. Where another user took its devices after the question, try the
    next best box, and each box once. Raises NotEnoughError where none is left."""
    args, how = call.args, way()
    boxes = [picked.box for picked in ranked(all_boxes(), _picking(call.asked))]
    say(f"on {boxes[0]}")
    for box, next_best in zip_longest(boxes, boxes[1:]):
        answer = _asked_to_start(box, call.words("--detach"), how)
        if answer.status != NOT_ENOUGH:
            break
        why = f"{box} no longer has them: {answer.reason}"
        if next_best is None:
            tried = f"; tried {', '.join(boxes)}" if len(boxes) > 1 else ""
            raise NotEnoughError(f"{why}{tried}")
        say(f"on {next_best}, because {why}")
    return _followed(answer, args, how)


def _followed(answer: Answer, args: Call, how: Way) -> int:
    """Print a dry run, or follow the job that a call has started, unless it is detached. Returns the
    status."""
    if answer.status is None or (args.detach and not args.dry_run):
        return _tell_started(answer, args.quiet, args.json)
    _tell_said(answer, args.quiet or args.dry_run)
    if args.dry_run or answer.status != DONE:
        write([answer.out])
        return answer.status
    job = _job_of(answer)
    if not args.quiet:
        say_how_to_come_back([job])
    try:
        call = ("jobs", "attach", job.partition(":")[2])
        if on_a_terminal():
            _become_ssh(answer.alias, call, how, answer.own)
        return _shown(answer.alias, call, how, answer.own)
    except NoSourceError as error:
        say(f"{error}; the job keeps running: `gputui jobs attach {job}` returns to it")
        return LOST


def _picking(asked: LaunchRequest) -> list[str]:
    """The arguments of `pick` that find a set of devices as the call needs it."""
    if asked.devices.names is not None:
        raise WrongCallError(f"--gpus names devices of one box; with --on {ANYWHERE}, use -n")
    if asked.devices.wait is not None:
        raise WrongCallError(f"--wait cannot be used with --on {ANYWHERE}: it waits in the queue of one box")
    prepared = prepared_call(asked, confine="never")
    count = prepared.request.count
    if count is None:
        raise WrongCallError(f"the command names devices of one box: --on {ANYWHERE} takes a number of them")
    return replace(asked.devices, auto=False, count=count, if_free=False, force=False, explain=False).words


def act(action: str, ids: Sequence[str], words: Sequence[str]) -> int:
    """Run the action of `gputui jobs` on the boxes of the jobs, up to the first status that is not 0."""
    there = [word.partition(":") for word in ids if ":" in word]
    boxes = list(dict.fromkeys(alias(box) for box, _, _ in there))
    if len(there) < len(ids):
        raise WrongCallError("jobs of this machine and of other boxes, in one call")
    if any(job.startswith("-") for _, _, job in there):
        raise WrongCallError("no job's name begins with -: it would be an option there")
    how, status = _with_prompts(), DONE
    for box in boxes:
        others = {":".join((other, job)) for other, _, job in there if other != box}
        call = ["jobs", *(w.removeprefix(f"{box}:") if w in ids else w for w in words if w not in others)]
        if action == "rerun":
            status = _tell_started(_asked_to_start(box, call, how), as_json="--json" in call)
        else:
            follows = action == "attach"
            if follows and on_a_terminal():
                _become_ssh(box, call, how, _reached(box, how))
            status = _shown(box, call, how, to_job=follows)
        if status != DONE:
            break
    return status


# One call there


def _with_prompts() -> Way:
    return way(prompts=is_terminal(sys.stdin))


def on_a_terminal() -> bool:
    """Whether both standard input and standard output are a terminal."""
    return is_terminal(sys.stdin) and is_terminal(sys.stdout)


def _reached(box: str, how: Way, words: Sequence[str] = ("--version",)) -> bool:
    """Check that a box can be reached and runs gputui; a copy of ours is sent there if necessary.

    Returns whether a call with these `words`, which do nothing by themselves, needs a copy of ours because
    the gputui there is too old for them. Raises NoSourceError.
    """
    answer = ask(box, words, how)
    if answer.trouble is not None:
        raise UnreachableError(f"{box}: {answer.trouble.text}")
    return answer.own


def _asked_to_start(box: str, call: Sequence[str], how: Way) -> Answer:
    """The answer to a call that starts a job there and returns. Raises NoSourceError where gputui has not run
    there."""
    try:
        answer = ask(box, call, how)
    except KeyboardInterrupt:
        say(f"{box}: interrupted; {_tells_whether_it_started(box)}")
        raise
    _check_ran(answer)
    return answer


def _check_ran(answer: Answer) -> None:
    """Raise NoSourceError where gputui has not run there."""
    if answer.trouble is not None and answer.mode != "run":
        raise UnreachableError(f"{answer.alias}: {answer.trouble.text}")


def _tells_whether_it_started(box: str) -> str:
    return f"`gputui jobs --hosts {box}` shows whether the job has started"


def _tell_started(answer: Answer, quiet: bool = False, as_json: bool = False) -> int:
    """Print BOX:ID of a started job and the messages from there. Returns the status. Raises NoSourceError."""
    if answer.status is None:
        lost = UnreachableError(f"{answer.alias}: {answer.error}; {_tells_whether_it_started(answer.alias)}")
        lost.status = LOST
        raise lost
    _tell_said(answer, quiet)
    if as_json:
        print_json(_document_of(answer))
    elif answer.status == DONE:
        job = _job_of(answer)
        print_line(job)
        if not quiet:
            say(f"job {job}: `gputui jobs log -f {job}` follows it")
    return answer.status


def _tell_said(answer: Answer, quiet: bool) -> None:
    """Print the messages of a call that starts a job; `quiet` says that the call itself was quiet."""
    said = answer.said.splitlines()
    # Unless quiet, the last line says how to follow the job there.
    _pass_on(answer.alias, said[:-1] if answer.status == DONE and not quiet else said)


def _job_of(answer: Answer) -> str:
    """BOX:ID of the job that a call has started. Raises NoSourceError for text that is not an ID, because
    people and scripts put it into commands."""
    job = _job_id(answer.out)
    if job is None:
        raise _unreadable(answer)
    return f"{answer.alias}:{job}"


def _document_of(answer: Answer) -> Json:
    """The same as JSON: the job with BOX:ID as its id, or the failure. Raises NoSourceError."""
    try:
        document: Json = loads_of_others(answer.out)
        if answer.status == DONE:
            job = within(document, "job")
            job["id"] = f"{answer.alias}:{JOB_ID.read(within(job, 'id'))}"
        else:
            within(document, "error", "code")
    except ValueError:
        raise _unreadable(answer) from None
    return document


def _unreadable(answer: Answer) -> NoSourceError:
    started = _tells_whether_it_started(answer.alias)
    return UnreachableError(f"{answer.alias}: its answer cannot be read; {started}")


def _job_id(said: bytes) -> str | None:
    """The ID of a job in the answer of a box, None where it is not an ID."""
    try:
        return str(JOB_ID.read(said.decode(errors="replace").strip()))
    except ValueError:
        return None


def _shown(box: str, call: Sequence[str], how: Way, own: bool = False, to_job: bool = True) -> int:
    """Run a call there with its output and status as ours. Ctrl-C is forwarded to a call `to_job`, and ends
    any other call. Raises NoSourceError."""
    try:
        session = Session(box, call, how, tied=True, apart=True, own=own)
    except OSError as error:
        raise UnreachableError(cannot_start(box, error).error or "") from None
    with _ctrl_c(session) if to_job else contextlib.nullcontext():
        try:
            write(_output(session))
            return _status(session, f"; the job keeps running (`gputui jobs --hosts {box}`)")
        finally:
            session.close()


def _become_ssh(box: str, call: Sequence[str], how: Way, own: bool) -> NoReturn:
    """Become the ssh that shows the job in this terminal: the connection ends when this process ends."""
    there = remote_command(call, digest(), marks=False, own=own, called=box)
    words = ssh_argv(box, there, how, terminal=True, quiet=True)
    sys.stdout.flush()
    os.execvp(words[0], words)


@contextmanager
def _ctrl_c(*sessions: Session) -> Iterator[None]:
    """Forward Ctrl-C to the jobs there within the context; pressed `_LEAVES` times, it leaves them."""
    pressed: deque[float] = deque(maxlen=_LEAVES)

    def interrupt(_number: int, _frame: object) -> None:
        pressed.append(time.monotonic())
        if len(pressed) == _LEAVES and pressed[-1] - pressed[0] <= _LEAVES_WITHIN:
            # We are leaving: ignore a fourth Ctrl-C.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt
        _tell(*sessions)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        boxes = ",".join(session.alias for session in sessions)
        say(f"left {boxes}: a job that Ctrl-C did not reach keeps running (`gputui jobs --hosts {boxes}`)")
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, before)


def _tell(*sessions: Session, line: bytes = b"") -> None:
    """Send a line to the input of each session, an empty line for Ctrl-C. The end of a session is reported
    elsewhere."""
    for session in sessions:
        with contextlib.suppress(OSError):
            session.send(line + b"\n")


def _pass_on(box: str, lines: Sequence[str]) -> None:
    """Print messages that came from a box."""
    for line in lines:
        say(f"{box}: {printable(line.removeprefix('gputui: '))}")


def _output(session: Session) -> Iterator[bytes]:
    """Yield the output of a call there, and print its messages meanwhile."""
    while (data := session.receive(None, or_messages=True)) is not None:
        if session.mode == "run":
            # Earlier messages come from ssh and are part of the reason that the box is not reached.
            _pass_on(session.alias, session.new_messages())
        yield data


def _status(session: Session, goes_on: str) -> int:
    """The status of a call there whose output has ended; 255 where the connection is lost. Raises
    NoSourceError where gputui has not run there."""
    session.finish()
    answer = session.answer()
    _check_ran(answer)
    _pass_on(answer.alias, session.new_messages())
    if answer.status is None:
        say(f"{answer.alias}: the connection was lost{goes_on}")
        return LOST
    return answer.status


# One launch on several boxes


@dataclass
class _Box:
    """A box that holds its devices.

    address  the address by which the other boxes reach it; None where unknown
    port     a port that is free there; None where unknown
    job      its job's id, None before the job has started
    """

    session: Session
    address: str | None = None
    port: int | None = None
    job: str | None = None
    rest: bytes = b""

    @property
    def name(self) -> str:
        """The box's alias."""
        return self.session.alias

    def line(self, seconds: float) -> bytes | None:
        """The next line of the box's output; None where none arrives within `seconds`, or at the end."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.rest and len(self.rest) <= _LONGEST_LINE:
            data = self.session.receive(max(0.0, deadline - time.monotonic()))
            if not data:
                return None
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def print(self, output: PrefixedOutput) -> int:
        """Print the box's output until its end, and return its status. Raises OSError."""
        output.write(self.name, self.rest)
        for data in _output(self.session):
            output.write(self.name, data)
        output.write(self.name, b"", final=True)
        return _status(self.session, f"; job {self.name}:{self.job} keeps running" if self.job else "")


def _check(asked: LaunchRequest, counts: Mapping[str, int | None], said: bool) -> None:
    """Raise WrongCallError for a request that several boxes cannot meet together. `said`: the call itself
    gives the devices or their number."""
    if asked.devices.names not in (None, NONE):
        raise WrongCallError("--gpus names devices of one box; with several boxes, use -n")
    if asked.devices.wait is not None:
        raise WrongCallError(
            "--wait cannot be used with several boxes: each has a queue of its own, and the first whose turn"
            " comes would keep its devices idle until the others follow"
        )
    if said and any(counts.values()):
        raise WrongCallError("BOX:N already gives the number of devices")
    if asked.options.nodes not in (1, len(counts)):
        raise WrongCallError(
            f"--nodes {asked.options.nodes} contradicts --on, which names {len(counts)} boxes"
        )
    options = replace(asked.options, nodes=len(counts))
    check_machines(options, together=True)
    if len(set(counts.values())) > 1 and launcher_of(options).name != "torchrun":
        raise WrongCallError("only torchrun starts another number of processes on each box: give one -n")


def _together(args: Call, calls: Mapping[str, _Call]) -> int:
    """Start the command on all these boxes, or on none. Raises ValueError for words that cannot be sent."""
    how, unwanted = way(), threading.Event()
    # A dry run also prints the launch line of a job.
    follow = "--detach" if args.detach or args.dry_run else "--attach"
    # A box that only holds its devices gives them back when its connection ends.
    with contextlib.ExitStack() as sessions:

        def hold(box: str, own: bool = False) -> _Box | Answer:
            words = calls[box].words("--held", follow)
            try:
                session = connect(box, words, how, unwanted, apart=True, own=own, watch=unwanted)
            except OSError as error:
                return cannot_start(box, error)
            sessions.callback(session.close)
            held = _held(session, how.timeout + PATIENCE)
            # A box with a gputui older than ours is sent a copy of ours.
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
        place = next(iter(calls.values())).asked.options.rendezvous or _place(boxes)
        with _ctrl_c(*(box.session for box in boxes)):
            return _started(args, boxes, place, how)


def _held(session: Session, seconds: float) -> _Box | Answer:
    """The box once it has claimed its devices, else the answer with the reason."""
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
    """The box; its answer where it gave its devices back because another box took too long
    (`held.HELD_FOR`)."""
    data = box.session.receive(0.0)
    if data is None:
        return _refused(box.session)
    box.rest += data
    return box


def _refused(session: Session) -> Answer:
    """The answer of a box that has ended instead of holding its devices, with its messages printed."""
    session.finish()
    answer = session.answer()
    if answer.trouble is None and not answer.too_old:
        _pass_on(answer.alias, session.new_messages())
    return answer


def _place(boxes: Sequence[_Box]) -> str:
    """HOST:PORT of the rendezvous: the first box, at the address that the connection used. Raises
    WrongCallError."""
    first, *others = boxes
    loops = [box.address is not None and ipaddress.ip_address(box.address).is_loopback for box in boxes]
    if first.address is None or first.port is None:
        raise WrongCallError(
            f"the address of {first.name} is not known; give it with --rendezvous HOST[:PORT]"
        )
    if loops[0] and not all(loops[1:]):
        names = ", ".join(box.name for box in others)
        raise WrongCallError(
            f"{first.name} is reached as {first.address}, which {names} cannot reach;"
            " give another address with --rendezvous HOST[:PORT]"
        )
    return f"[{first.address}]:{first.port}" if ":" in first.address else f"{first.address}:{first.port}"


def _started(args: Call, boxes: Sequence[_Box], place: str, how: Way) -> int:
    """Tell all boxes to start, and follow them. Returns the status."""
    meeting = f"gputui{secrets.token_hex(4)}"
    for rank, box in enumerate(boxes):
        said = {"rendezvous": place, "id": meeting, "first": rank == 0, "rank": rank}
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
        say_how_to_come_back(jobs)
    status = _follow(boxes, output, how, args.detach)
    if args.detach and status == DONE:
        print_line("\n".join(jobs))
        if not args.quiet:
            say(f"`gputui jobs --hosts {','.join(box.name for box in boxes)}` lists them")
    return status


def _follow(boxes: Sequence[_Box], output: PrefixedOutput, how: Way, detach: bool) -> int:
    """Print the output of the boxes until all have ended. A box that fails stops the others, with `detach`
    also jobs whose call has ended already. Returns the first status that is not 0."""
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
            # Each thread closes its own connection, which only one thread may use.
            for box in left:
                box.session.process.kill()
            with contextlib.suppress(queue.Empty):
                for _ in left:
                    news.get(timeout=_LEAVES_WITHIN)
            raise
        if isinstance(status, OSError):
            # Nobody reads our output any more. The jobs go on without us.
            raise status
        left.remove(box)
        if box.job is None and status in (DONE, LOST):
            # Without a job, nothing there can go on or be done.
            say(f"{box.name} has ended without a job")
            status = NO_SOURCE
        if first in (DONE, LOST) and status != DONE:
            first = status
            others = [each for each in boxes if each is not box] if detach else left
            if status != LOST and others:
                say(f"{box.name} has ended with status {status}; the others are stopped")
                _stop(others, how)
    return first


def _stop(boxes: Sequence[_Box], how: Way) -> None:
    """Stop the jobs of these boxes after another box failed; their own connections report their end."""
    jobs = {box.name: box.job for box in boxes if box.job is not None}
    for answer in of_each(list(jobs), lambda name: ask(name, ("jobs", "stop", jobs[name]), how)):
        if answer.trouble is not None:
            job = f"{answer.alias}:{jobs[answer.alias]}"
            say(f"{answer.alias}: {answer.trouble.text}; `gputui jobs stop {job}`")
