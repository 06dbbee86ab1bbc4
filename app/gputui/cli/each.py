"""`gputui each`: many tasks of one command, or of a file, each on devices of its own, as a table."""

from __future__ import annotations

import argparse
import copy
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from gputui.allocating.allocation import Allocation
from gputui.allocating.errors import NotEnoughError, RequestError
from gputui.allocating.request import Notice, Request
from gputui.choosing.named_devices import NONE, NamingError, entries_of
from gputui.cli.allocation_listener import AllocationListener
from gputui.cli.common import (
    DONE,
    Parser,
    WrongCallError,
    elsewhere,
    opened,
    output_width,
    print_line,
    say,
)
from gputui.cli.launch_call import (
    NEAR,
    add_force,
    add_launch_options,
    allocated,
    how_confined_here,
    launch_on,
    options_of,
    own_job,
    request_for,
)
from gputui.cli.request_options import add_window_option, constraints_of, memory
from gputui.inventory.formatting import duration, printable
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.text_table import cut
from gputui.jobs import FOLDER
from gputui.jobs.job import JobError
from gputui.jobs.kept_records import Kept, KeptError
from gputui.jobs.queued import call_job
from gputui.jobs.record_folders import Unreadable
from gputui.jobs.start import detached
from gputui.jobs.store import jobs_folder, stored
from gputui.jobs.sweep import Limits, Planned, Sweeping
from gputui.jobs.sweeps import SWEEPS, as_it_stands
from gputui.launching.intent import Intent
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.quoting import quote
from gputui.launching.secrets import without_secrets
from gputui.launching.shell_words import shell_syntax, split
from gputui.launching.start import StartError
from gputui.library.agreement import agreement, heard
from gputui.planning.braces import MOST_TASKS, Expansion, TooManyTasksError, expanded
from gputui.planning.sweep import SCHEMA, Sweep, Task, document, how, lines, list_rows
from gputui.sources.source import NoSourceError, Source
from gputui.system.ending_signals import EndedError, until_a_signal
from gputui.system.environment import given_environment

SOME_FAILED = 1
"""The exit status where not every task went well."""
_STDIN = "-"
_MOST_BYTES = 2 * 1024 * 1024
_LONGEST_LINE = 1 << 13
"""Characters."""
_MOST_MARKS = 300_000
"""Quotes and backslashes of a file, which take most of the time to read it: 100 in each of 3,000 tasks."""
_TASK = re.compile(r"^[^\S\n]*[^\s#].*", re.MULTILINE)
"""A line that is not empty and no comment."""

_MOST_RETRIES = 1000
_OF_THIS_CALL = ("--detach", "--json", "-q", "--quiet", "--resume", "--from-file")
_WITH_VALUE = ("--resume", "--from-file")
"""Options that are not kept for a later `--resume`."""


def parser() -> Parser:
    made = Parser(
        "each",
        "Run many tasks, each on devices of its own. The next one starts when there are devices for it,\n"
        "and waits in line like any other. In the words of COMMAND, {1..8} and {0.1,0.01} make a task for\n"
        "each value, several make every combination. Quote them: bash would expand them into one long\n"
        "command.",
        epilog="gputui each -n 1 --jobs 4 -- python train.py --seed '{1..8}' '--lr={0.1,0.01}'",
    )
    made.usage = (
        "gputui each [-n N] [--gpus LIST] [--jobs J] [--memory SIZE] -- COMMAND…\n"
        "       gputui each [-n N] … --from-file FILE\n"
        "       gputui each --resume ID | --list | --show ID | --forget ID"
    )
    made.add_argument("--jobs", type=_jobs, metavar="J", help="at most J tasks at once")
    made.add_argument(
        "--from-file",
        metavar="FILE",
        help="one task per line, in shell words, instead of COMMAND; - is stdin",
    )
    made.add_argument(
        "--memory",
        type=memory,
        metavar="SIZE",
        help="tasks share devices: as many on each device as have SIZE of its memory",
    )
    made.add_argument(
        "--retry", type=_retries, default=0, metavar="N", help="start a failed task again, up to N times"
    )
    failed = made.add_mutually_exclusive_group()
    failed.add_argument(
        "--keep-going",
        dest="stop_on_failure",
        action="store_false",
        default=False,
        help="after a failed task, run the others (default)",
    )
    failed.add_argument(
        "--stop-on-failure", action="store_true", help="start no further task after one has failed"
    )
    made.add_argument("--dry-run", action="store_true", help="print every task's launch line, start nothing")
    made.add_argument("--detach", action="store_true", help="go on as a background job and print its id")
    add_window_option(made)
    add_force(made)
    made.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    made.add_argument("--json", action="store_true", help="print JSON")
    what = made.add_mutually_exclusive_group()
    what.add_argument(
        "--resume", metavar="ID", help="go on with a sweep: run every task that has not ended well"
    )
    what.add_argument("--list", action="store_true", help="list the sweeps that are kept")
    what.add_argument("--show", metavar="ID", help="show a sweep")
    what.add_argument("--forget", metavar="ID", help="remove a sweep; its jobs stay")
    add_launch_options(made, exclusive=False)
    return made


def _jobs(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tasks (1 or more)")
    return int(text)


def _retries(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > _MOST_RETRIES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {_MOST_RETRIES}")
    return int(text)


def main(words: Sequence[str], command: Sequence[str] | None) -> int:
    args = parser().parse_args(words)
    try:
        if args.list or args.show is not None or args.forget is not None:
            if command is not None or args.from_file is not None:
                raise WrongCallError("--list, --show and --forget start nothing: leave the tasks out")
            return _kept(args)
        if args.resume is not None:
            return _resume(args, words, command)
        return _new(args, words, command)
    except (KeptError, JobError) as error:
        raise WrongCallError(str(error)) from None


# What is kept


def _kept(args: argparse.Namespace) -> int:
    known = SWEEPS.kept(os.environ)
    if args.list:
        return _list(known, args.json)
    found = SWEEPS.find(args.forget if args.show is None else args.show, known)
    if args.forget is not None:
        SWEEPS.forget(found, os.environ)
        say(f"sweep {found.id} is removed; its jobs and their logs stay (`gputui jobs`)")
        return DONE
    _print(_as_it_stands(_readable(found)), args.json)
    return DONE


def _as_it_stands(sweep: Sweep) -> Sweep:
    return sweep if sweep.state == "running" else as_it_stands(sweep, stored(os.environ))


def _readable(found: Sweep | Unreadable) -> Sweep:
    if isinstance(found, Unreadable):
        raise SWEEPS.unreadable(found)
    return found


def _list(known: Kept[Sweep], as_json: bool) -> int:
    for each in known.unreadable:
        say(f"warning: {SWEEPS.unreadable(each)}")
    sweeps = [_as_it_stands(each) for each in known.records]
    if as_json:
        import json

        folder = jobs_folder(os.environ)
        print(json.dumps({"schema": SCHEMA, "sweeps": [document(each, folder) for each in sweeps]}))
    elif not sweeps:
        say("no sweeps; `gputui each -n 1 -- python train.py --seed '{1..8}'` makes one")
    else:
        print_line("\n".join(cut(line, output_width()) for line in list_rows(sweeps, time.time())))
    return DONE


def _print(sweep: Sweep, as_json: bool) -> None:
    folder = jobs_folder(os.environ)
    if as_json:
        import json

        print(json.dumps(document(sweep, folder)))
        return
    home = os.environ.get("HOME")
    found = lines(sweep, folder, Path(home) if home else None, time.time(), output_width())
    print_line("\n".join(found))


# Which tasks


def _new(args: argparse.Namespace, words: Sequence[str], command: Sequence[str] | None) -> int:
    tasks = _tasks(args, command)
    prepared = _prepared(args, tasks)
    if args.dry_run:
        return _dry_run(args, prepared)
    _check_here(args)
    known = [without_secrets(task.words) for task in tasks]
    call, withheld = without_secrets(_kept_words(words))
    sweep = Sweep(
        id="",
        state="stopped",
        created=time.time(),
        directory=_directory(),
        call=call,
        tasks=tuple(
            Task(number, found, _label(task, found))
            for number, (task, (found, _)) in enumerate(zip(tasks, known, strict=True), 1)
        ),
        withheld=tuple(dict.fromkeys((*withheld, *(name for _, names in known for name in names)))),
    )
    if args.detach and sweep.withheld and args.from_file is not None:
        raise WrongCallError(
            f"--from-file with --detach: {sweep.withheld[0]} looks like a secret, which is not kept;"
            " leave one of them out"
        )
    sweep = replace(sweep, id=SWEEPS.new(os.environ))
    SWEEPS.keep(sweep, os.environ)
    if args.detach:
        given = list(words) if sweep.withheld else []
        return _detach(sweep, given, command or () if sweep.withheld else (), args)
    return _run(args, sweep, prepared)


def _label(task: Expansion, known: Sequence[str]) -> str:
    """What is kept of a task's label; `known` are its words without secrets."""
    return " ".join(without_secrets(task.label.split(" "))[0] if task.label else map(quote, known))


def _resume(args: argparse.Namespace, words: Sequence[str], command: Sequence[str] | None) -> int:
    """Go on with what is kept; with a command or a file in the call, with the call's own words."""
    sweep = _readable(SWEEPS.find(args.resume, SWEEPS.kept(os.environ)))
    if args.dry_run:
        raise WrongCallError("--resume has no --dry-run: --show says which tasks are left")
    if sweep.state == "running":
        raise SWEEPS.runs_already(sweep.id)
    again = command is not None or args.from_file is not None
    if sweep.withheld and not again:
        raise WrongCallError(
            f"{sweep.withheld[0]} of sweep {sweep.id} looks like a secret, which is not kept:"
            f" give the whole call again, with --resume {sweep.id}"
        )
    if args.detach:
        if args.from_file == _STDIN:
            raise WrongCallError("--from-file - with --resume has no --detach: stdin ends with this call")
        return _detach(sweep, _without_resume(words), command or (), args)
    try:
        # (What is relative in its words is so from there.)
        os.chdir(sweep.directory)
    except OSError as error:
        raise KeptError(f"cannot change to {sweep.directory!r}: {error.strerror}") from None
    if again:
        tasks = _tasks(args, command)
        if [without_secrets(task.words)[0] for task in tasks] != [task.words for task in sweep.tasks]:
            raise WrongCallError(f"these are not the tasks of sweep {sweep.id}: leave them out")
    else:
        args = parser().parse_args([*sweep.call, *words])
        tasks = [Expansion(task.words, task.label) for task in sweep.tasks]
    _check_here(args)
    return _run(args, sweep, _prepared(args, tasks))


def _check_here(args: argparse.Namespace) -> None:
    if elsewhere(args):
        raise WrongCallError(
            "tasks run on this machine's devices: --demo, --from and --root go with --dry-run"
        )


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError as error:
        raise WrongCallError(f"there is no current folder: {error.strerror}") from None


def _kept_words(words: Sequence[str]) -> list[str]:
    """The options of a call that a later `--resume` repeats."""
    left, found = list(words), []
    while left:
        word = left.pop(0)
        option = word.partition("=")[0]
        if option not in _OF_THIS_CALL:
            found.append(word)
        elif option in _WITH_VALUE and word == option:
            del left[:1]
    return found


def _without_resume(words: Sequence[str]) -> list[str]:
    left, found = list(words), []
    while left:
        word = left.pop(0)
        if word == "--resume":
            del left[:1]
        elif not word.startswith("--resume="):
            found.append(word)
    return found


def _tasks(args: argparse.Namespace, command: Sequence[str] | None) -> list[Expansion]:
    """The commands of a call. Raises WrongCallError."""
    if args.saved is not None:
        raise WrongCallError("--saved is for one launch: give the command itself")
    if args.from_file is not None:
        if command is not None:
            raise WrongCallError("tasks come from --from-file or from a command: give only one of them")
        return _tasks_of_file(args.from_file)
    if not command:
        raise WrongCallError(
            "no tasks: a command after --, as in `gputui each -n 1 -- python train.py --seed '{1..8}'`,"
            " or --from-file FILE"
        )
    try:
        tasks = expanded(command)
    except TooManyTasksError as error:
        raise WrongCallError(str(error)) from None
    if len(tasks) == 1:
        raise WrongCallError(
            "this is one task only: put braces such as '{1..8}' in quotes (the shell expands them into one"
            " command otherwise), or use `gputui run`"
        )
    return tasks


def _tasks_of_file(name: str) -> list[Expansion]:
    """A task for each line that is not empty and no comment. Raises WrongCallError."""
    shown = "stdin" if name == _STDIN else repr(name)
    try:
        if name == _STDIN:
            data = sys.stdin.buffer.read(_MOST_BYTES + 1) if sys.stdin is not None else b""
        else:
            with Path(name).open("rb") as stream:
                data = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise WrongCallError(f"cannot read {shown}: {why}") from None
    if len(data) > _MOST_BYTES:
        raise WrongCallError(f"{shown} is too long")
    if sum(map(data.count, (b"'", b'"', b"\\"))) > _MOST_MARKS:
        raise WrongCallError(f"{shown} has more than {_MOST_MARKS} quotes and backslashes")
    tasks = list[Expansion]()
    text = os.fsdecode(data)
    for match in _TASK.finditer(text):
        if len(tasks) == MOST_TASKS:
            raise WrongCallError(str(TooManyTasksError()))
        try:
            tasks.append(Expansion(_words_of(match[0]), ""))
        except ValueError as error:
            number = text.count("\n", 0, match.start()) + 1
            raise WrongCallError(f"line {number} of {shown}: {error}") from None
    if not tasks:
        raise WrongCallError(f"{shown} has no tasks: write one command per line")
    return tasks


def _words_of(line: str) -> tuple[str, ...]:
    """The command of a task. Raises ValueError."""
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"it has more than {_LONGEST_LINE} characters")
    if "\0" in line:
        raise ValueError("it has a NUL")
    if (syntax := shell_syntax(line)) is not None:
        raise ValueError(f"{syntax} needs a shell: write bash -c '…', or quote it")
    return split(line)


# How they are started


@dataclass(frozen=True)
class _Prepared:
    """A task's launch options, what its command says, and its request."""

    args: argparse.Namespace
    options: LaunchOptions
    intent: Intent
    request: Request


class _Once:
    """Says each sentence once, however many tasks it is true of."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)


def _prepared(args: argparse.Namespace, tasks: Sequence[Expansion]) -> list[_Prepared]:
    """Every task, before any is started. Raises WrongCallError, RequestError."""
    tell = _Once()
    if args.gpus is not None:
        try:
            entries_of(args.gpus)
        except NamingError as error:
            raise WrongCallError(str(error)) from None
    return [_prepare(args, number, task, tell) for number, task in enumerate(tasks, 1)]


def _prepare(args: argparse.Namespace, number: int, task: Expansion, tell: _Once) -> _Prepared:
    own = copy.copy(args)
    pool = None if args.gpus is None or args.gpus.strip() == NONE else args.gpus
    if pool is not None:
        own.gpus = None
    elif args.gpus is not None and args.n is not None:
        raise WrongCallError("--gpus none is CPU only: leave -n out")
    if args.memory is not None:
        own.min_free = args.memory
    options = options_of(own, task.words)
    if not options.command:
        raise WrongCallError(f"task {number} has no command after the variables")
    confine = how_confined_here(own, options)
    intent = heard(options, os.environ, confine)
    try:
        request = request_for(own, options, intent, own_job(), tell, confine)
    except (RequestError, WrongCallError) as error:
        raise WrongCallError(f"task {number}: {error}") from None
    if pool is not None:
        if request.names is not None:
            raise WrongCallError(f"task {number}: its command names its devices: leave --gpus out")
        request = replace(request, names=pool)
    if args.memory is not None and not request.picks:
        raise WrongCallError(f"task {number}: --memory is for devices that gputui picks")
    return _Prepared(own, options, intent, request)


def _launch(task: _Prepared, allocation: Allocation, tell: _Once) -> Launch:
    """The launch of a task. Raises RequestError."""
    near, confine = task.args.threads == NEAR, how_confined_here(task.args, task.options)
    launch = launch_on(allocation, task.options, task.intent, near, None, confine, not task.args.dry_run)
    if launch.refusal is not None:
        raise RequestError(launch.refusal)
    launch = detached(launch, os.environ)
    for warning in launch.warnings:
        tell(f"warning: {warning}")
    for remark in launch.remarks:
        tell(f"note: {remark}")
    return launch


def _dry_run(args: argparse.Namespace, prepared: Sequence[_Prepared]) -> int:
    """Every task's launch line on the devices that the first would get now."""
    tell, known = _Once(), dict[tuple[object, ...], Allocation]()
    found = []
    for task in prepared:
        request = task.request
        key = (request.count, request.names, request.group, request.order)
        if key not in known:
            approve = agreement(task.options, task.intent, request, os.environ)
            known[key] = allocated(args, request, holds=False, approve=approve)
        found.append(_launch(task, known[key]._replace(request=request), tell).line)
    print_line("\n".join(found))
    return DONE


def _detach(sweep: Sweep, words: Sequence[str], command: Sequence[str], args: argparse.Namespace) -> int:
    """Start a job that resumes the sweep; its own words and command where they are not kept."""
    environ = given_environment()
    environ.pop(FOLDER, None)
    words = [word for word in words if word != "--detach"]
    try:
        job = call_job("each", ["--resume", sweep.id, *words], command, environ)
    except StartError as error:
        say(str(error))
        return error.status
    print_line(job.id)
    if not args.quiet:
        say(f"job {job.id} runs sweep {sweep.id}: `gputui each --show {sweep.id}` shows how far it is")
    return DONE


def _run(args: argparse.Namespace, sweep: Sweep, prepared: Sequence[_Prepared]) -> int:
    environ = given_environment()
    # (It is for this very process.)
    environ.pop(FOLDER, None)
    tell = _Once()

    def planned(task: _Prepared) -> Planned:
        return Planned(
            task.request,
            agreement(task.options, task.intent, task.request, os.environ),
            lambda allocation: _launch(task, allocation, tell),
            task.options,
        )

    def source(cpu_only: bool) -> AbstractContextManager[Source]:
        return opened(args, cpu_only)

    cpu_only = any(task.request.cpu_only for task in prepared)
    # (Nothing else limits how many run at once on the CPU.)
    most = args.jobs or (1 if cpu_only else None)
    sweeping = Sweeping(
        sweep,
        [planned(task) for task in prepared],
        os.environ,
        environ,
        source,
        _Progress(tell, args),
        Limits(most, args.memory, args.retry, args.stop_on_failure),
        constraints_of(args),
    )
    number, trouble = 0, None
    with SWEEPS.running_alone(sweep.id, os.environ), until_a_signal():
        try:
            sweeping.run()
        except EndedError as error:
            number = error.number
        except (NotEnoughError, RequestError, NoSourceError, JobError) as error:
            trouble = error
    found = sweeping.sweep
    if number:
        going = "its running tasks go on" if found.count("running") else "its running tasks are stopped"
        say(f"{signal.Signals(number).name}: {going}; `gputui each --resume {found.id}` goes on")
    _print(found, args.json)
    if not args.quiet:
        say(f"sweep {found.id} is kept: `gputui each --show {found.id}`")
    if number:
        return 128 + number
    if isinstance(trouble, JobError):
        say(str(trouble))
    elif trouble is not None:
        raise trouble
    return DONE if found.went_well else SOME_FAILED


class _Progress(AllocationListener):
    """Keeps the record of a running sweep, and reports on stderr."""

    def __init__(self, tell: _Once, args: argparse.Namespace) -> None:
        super().__init__(args.why)
        self._tell, self._quiet = tell, args.quiet

    def notice(self, notice: Notice) -> None:
        """Warnings are the same for many tasks."""
        if notice.kind == "reason":
            super().notice(notice)
            return
        self._clear_progress()
        self._tell(f"warning: {notice.text}" if notice.kind == "warning" else notice.text)

    def waited(self, allocation: Allocation | None, seconds: float) -> None:
        """A task has its devices: nobody is called for each of them."""
        self._clear_progress()

    def changed(self, sweep: Sweep) -> None:
        """Keep it. Where that fails for a while, the records of its jobs say the same."""
        try:
            SWEEPS.keep(sweep, os.environ)
        except KeptError as error:
            self._tell(f"warning: {error}")

    def begins(self, sweep: Sweep, task: Task) -> None:
        """One line."""
        on = f"GPU {','.join(task.devices)}" if task.devices else "the CPU"
        self._line(sweep, task, f"on {on}: job {task.job}")

    def ended(self, sweep: Sweep, task: Task) -> None:
        """One line."""
        known = task.started is not None and task.ended is not None
        took = f" after {duration((task.ended or 0.0) - (task.started or 0.0))}" if known else ""
        self._line(sweep, task, f"{how(task)}{took}")

    def _line(self, sweep: Sweep, task: Task, text: str) -> None:
        if not self._quiet:
            self._clear_progress()
            say(f"{task.number}/{len(sweep.tasks)} {printable(cut(task.label, 60))}: {text}")
