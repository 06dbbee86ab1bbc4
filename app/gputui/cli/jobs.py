"""`gputui jobs`: launches in the background; read their logs, wait for them, stop them."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from gputui.allocating.named_source import named_source, opened_in_time
from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    WrongCallError,
    add_json_option,
    duration_type,
    number_type,
    output_width,
    print_json,
    print_line,
    print_lines,
    say,
    warn,
)
from gputui.cli.hosts_options import add_hosts_option
from gputui.cli.job_output import NOT_KNOWN, attached, status_of, write
from gputui.inventory.formatting import MIB
from gputui.inventory.job import NOWHERE, Job, JobError, grouped, place_in_list
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.quoting import quote
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.waiter import Waiter
from gputui.jobs.foreground import Foreground
from gputui.jobs.queued import experiment_of
from gputui.jobs.record_folders import Unreadable
from gputui.jobs.recorded_usage import with_usage
from gputui.jobs.rerun import demo_of, rerun_of
from gputui.jobs.store import Stored, cannot_read, find_job, forget, readable_job, stored
from gputui.jobs.wait import follow, refreshed, start_of_last_lines
from gputui.sources.in_time import InTime
from gputui.sources.source import NoDevices, NoSourceError, Want
from gputui.system.terminal_abilities import is_terminal

if TYPE_CHECKING:
    from gputui.choosing.claimed_use import ClaimedUse

_PATIENCE = 3.0
"""Timeout in seconds of the driver for the list, which can be printed without it."""
_LINES = 1000
"""The number of log lines that `log -f` shows first on a terminal."""


_DEMO: dict[str, Any] = {"nargs": "?", "const": "", "metavar": "BOX", "help": "only the jobs of this demo"}


class _ActionParser(Parser):
    """Our parser, with the signature that argparse uses for an action."""

    def __init__(self, *, prog: str, description: str = "", **more: object) -> None:
        super().__init__(prog.removeprefix("gputui "), description, **more)  # type: ignore[arg-type]


def parser() -> Parser:
    made = Parser(
        "jobs",
        "List the jobs that were started with `gputui run --detach`, or act on them. ID is a job's id, the\n"
        "beginning of one, or a job's name. Without ID, log, attach, wait and show take the only job,\n"
        "or the only one that runs.",
        example="gputui jobs log -f k3f9",
    )
    add_json_option(made)
    made.add_argument("--demo", **_DEMO)
    add_hosts_option(made)
    actions = made.add_subparsers(dest="action", metavar="ACTION", parser_class=_ActionParser)
    actions.add_parser("list", help="list the jobs, as without an action", description="List the jobs.")
    log = actions.add_parser("log", help="print a job's output", description="Print a job's output.")
    log.add_argument("-f", "--follow", action="store_true", help="follow until the job ends")
    log.add_argument(
        "-n", "--lines", type=number_type("a number of lines"), metavar="N", help="only the last N lines"
    )
    log.add_argument(
        "--plain",
        action="store_true",
        help="print the log as a terminal would show it: one line per progress bar (at most the last MiB)",
    )
    actions.add_parser(
        "attach",
        help="follow a job as if it ran in this terminal",
        description="Print a job's output until it ends, and exit with its status. Ctrl-C goes to the job.\n"
        "If the terminal or the connection ends, a running job continues, and a waiting one is stopped.",
    )
    actions.add_parser(
        "wait",
        help="wait until a job ends",
        description="Wait until a job ends, and exit with its status: 128 + n after signal n.",
    )
    stop = actions.add_parser(
        "stop",
        help="stop jobs",
        description="Send a signal to a job's process group, then SIGKILL to whatever is left of it after\n"
        "the grace period. It is not an error if nothing is left of a job that has ended.",
    )
    stop.add_argument("ids", nargs="*", metavar="ID")
    stop.add_argument(
        "--signal", type=_signal, default=None, metavar="NAME", help="signal to send (default TERM)"
    )
    stop.add_argument(
        "--grace",
        type=duration_type(most=7 * 86_400),
        default=None,
        metavar="S",
        help="seconds before SIGKILL (default 10)",
    )
    stop.add_argument(
        "--if-stray",
        action="store_true",
        help="only jobs that run on devices that they have not claimed ([run] stray in the settings)",
    )
    rerun = actions.add_parser(
        "rerun",
        help="start a job's command again as a new job",
        description="Start a job's command again as a new job: in the same directory, with the same launch\n"
        "options, number of devices and constraints (--group, --order, --wait …), on the best devices\n"
        "that are free now.",
        example="gputui jobs rerun k3f9 --wait",
    )
    rerun.add_argument("id", nargs="?", metavar="ID")
    rerun.add_argument(
        "options",
        nargs=argparse.REMAINDER,
        metavar="[OPTION…]",
        help="options of `gputui run` that replace the job's own: -n, --gpus, --wait, --name, --dry-run …",
    )
    show = actions.add_parser(
        "show",
        help="show a job's launch line, directory, devices and times",
        description="Show a job's launch line, directory, devices and times.",
    )
    show.add_argument(
        "--command",
        action="store_true",
        help="print only the command that starts the same job again",
    )
    gone = actions.add_parser(
        "forget",
        help="remove the records and logs of jobs that have ended",
        description="Remove the records and logs of jobs that have ended.",
    )
    gone.add_argument("ids", nargs="*", metavar="ID")
    gone.add_argument("--all-ended", action="store_true", help="remove all jobs that have ended")
    gone.add_argument("--force", action="store_true", help="also remove jobs of another machine or container")
    for name, action in actions.choices.items():
        action.add_argument("--demo", default=argparse.SUPPRESS, **_DEMO)
        if name in ("log", "attach", "wait", "show"):
            action.add_argument("id", nargs="?", metavar="ID")
        if name != "attach":
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    return made


def main(args: Call) -> int:
    if args.hosts is not None and args.action not in (None, "list"):
        raise WrongCallError(f"--hosts is for the list; name a job of another box as BOX:ID to {args.action}")
    if args.json and args.action == "attach":
        raise WrongCallError(
            "--json cannot be used with attach, which shows the job's own output; log, wait and show have it"
        )
    if args.hosts is not None:
        from gputui.cli.boxes import call_on_boxes

        return call_on_boxes(args)
    ids = [args.id] if getattr(args, "id", None) else getattr(args, "ids", None) or []
    if any(":" in word for word in ids):
        from gputui.cli.on_boxes import act

        return act(args.action, ids, args.words)
    jobs = stored(os.environ)
    if args.demo is not None:
        started = (job for job in jobs.jobs if demo_of(job) == args.demo)
        jobs = replace(jobs, jobs=(*_of_demo(args, ids), *started))
    if not ids and args.action not in (None, "list", "forget"):
        args.id = _unnamed(args, jobs)
    if args.action in _OF_ONE:
        return _OF_ONE[args.action](args, readable_job(args.id, jobs, newest=True))
    return _OF_SEVERAL[args.action](args, jobs)


def _of_demo(args: Call, ids: Sequence[str]) -> tuple[Job, ...]:
    """Return the jobs of the simulated box itself, where they are only looked at. Raise JobError where
    another action is meant for one."""
    with opened_in_time(named_source(args.demo, None)) as source:
        found = source.read(Want(0)).jobs
    if args.action in (None, "list", "log", "show"):
        return found
    for id in {*ids} & {job.id for job in found}:
        raise JobError(f"job {id} is only the demo's example: its log and facts can be shown")
    return ()


def _list(args: Call, jobs: Stored) -> int:
    for one in jobs.unreadable:
        warn(cannot_read(one))
    box = _box(jobs.jobs, args.demo)
    if args.json:
        from gputui.cli.jobs_text import document

        print_json(document(with_usage(jobs.jobs, os.environ), jobs.unreadable, _uses(box)))
    elif jobs.jobs:
        from gputui.inventory.columns import printed
        from gputui.jobs.columns import job_columns

        names = "id name devices state status ran ended command"
        columns = job_columns(names, time.time(), box, _stray(box))
        print_lines(printed(columns, [*chain(*grouped(jobs.jobs))], output_width()))
    else:
        demo = "" if args.demo is None else f"--demo={args.demo} "
        say(f"no jobs; `gputui run {demo}--detach -n 1 -- python train.py` starts one")
    return DONE


def _box(jobs: Sequence[Job], demo: str | None = None) -> Snapshot:
    """Return the parts of the box, or of this demo, that a list of these jobs needs: the devices that running
    jobs use, and the devices that queued jobs wait for. Without a driver, only the queue."""
    want, line = Want(0), tuple[Waiter, ...]()
    if any(job.state == "waiting" for job in jobs):
        from gputui.allocating.queue import waiters

        line = waiters(os.environ)
        if any(each.ours and each.job and each.devices is not None for each in line):
            want = Want.NAMES
    if any(job.state == "running" and job.devices for job in jobs):
        want |= Want.NAMES | Want.PROCESSES | Want.OWNERS | Want.CLAIM_PROCESSES
    box = NoDevices().read()
    if want:
        source = InTime(named_source(demo, None), _PATIENCE)
        with contextlib.suppress(NoSourceError):
            source.open()
            box = source.read(want)
            source.close()
    return replace(box, waiters=line)


def _uses(box: Snapshot) -> dict[str, ClaimedUse]:
    """Return the devices that our jobs have claimed and run on, by job id."""
    from gputui.choosing.claimed_use import claimed_uses

    return {use.job: use for use in claimed_uses(box) if use.job is not None and use.own}


def _unnamed(args: Call, jobs: Stored) -> str:
    """Return the id of the job that is meant where none is named: the only one, or the only one that runs, if
    the action changes nothing. Otherwise list the jobs, and raise WrongCallError with a call that names one.
    """
    for found in (jobs.jobs, [job for job in jobs.jobs if job.state == "running"]):
        if len(found) == 1 and args.action not in ("stop", "rerun"):
            return found[0].id
    if not jobs.jobs:
        raise WrongCallError(f"{args.action} needs a job, and there is none")
    if args.action == "stop" and all(job.over for job in jobs.jobs):
        raise WrongCallError("stop needs a job that runs or waits, and there is none")
    if not args.json:
        # What reads the output of the action does not take the list for it.
        with contextlib.redirect_stdout(sys.stderr):
            _list(args, jobs)
    call = f"gputui jobs {args.action} {min(jobs.jobs, key=place_in_list).id}"
    raise WrongCallError(f"{args.action} needs the id or the name of a job: `{call}`")


def _log(args: Call, job: Job) -> int:
    example = job.folder == NOWHERE
    if args.plain or args.json or example:
        if args.follow and not example:
            option = "--json" if args.json else "--plain"
            raise WrongCallError(f"{option} cannot be used with --follow: it shows a log as it is now")
        try:
            from gputui.jobs.log_screen import Tail
        except ImportError as error:
            # The package is missing on a box to which gputui was copied.
            raise WrongCallError(f"--plain needs an installed gputui: {error}") from None

        tail = Tail(job.log, most=MIB)
        tail.feed()
        lines = job.tail[-(args.lines or MIB) :] if example else tail.lines(args.lines)
        if args.json:
            from gputui.cli.jobs_text import LOG

            print_json(LOG.write(job, log=str(job.log), lines=lines))
        else:
            for line in lines:
                print(line)
        return DONE
    followed = _LINES if args.follow and is_terminal(sys.stdout) else None
    most = args.lines if args.lines is not None else followed
    start = 0 if most is None else start_of_last_lines(job.log, most)
    write(follow(job, start, args.follow))
    return DONE


def _attach(_: Call, job: Job) -> int:
    with Foreground() as foreground:
        return attached(job, foreground)


def _wait(args: Call, job: Job) -> int:
    status = status_of(job)
    if args.json:
        _print_job(refreshed(job))
    return status


def _print_job(job: Job) -> None:
    from gputui.cli.jobs_text import job_document

    (told,) = with_usage([job], os.environ)
    print_json(job_document(told, _uses(_box([job])).get(job.id)))


def _stop(args: Call, jobs: Stored) -> int:
    import signal

    from gputui.jobs.stop import GRACE, stop

    status, asked, ended = DONE, [readable_job(word, jobs) for word in args.ids], list[Job]()
    why = _stray(_box(jobs.jobs)) if args.if_stray else {}
    for job in asked:
        if args.if_stray and job.id not in why:
            continue
        stopped = stop(
            job,
            signal.SIGTERM if args.signal is None else args.signal,
            GRACE if args.grace is None else args.grace,
            why.get(job.id, ""),
        )
        say(stopped.message)
        ended.append(stopped.job)
        if not stopped.job.over:
            status = NOT_KNOWN
    _print_jobs(args, ended)
    return status


def _print_jobs(args: Call, about: Sequence[Job | Unreadable]) -> None:
    """Print the jobs that an action was about, with `--json`."""
    if args.json:
        from gputui.cli.jobs_text import document

        broken = [each for each in about if isinstance(each, Unreadable)]
        print_json(document([each for each in about if isinstance(each, Job)], broken))


def _stray(box: Snapshot) -> dict[str, str]:
    """Return, by job id, a sentence for each of our jobs that runs on devices that it has not claimed."""
    from gputui.choosing.verdict_text import claimed_and_runs_on

    return {id: claimed_and_runs_on(use, box) for id, use in _uses(box).items() if use.differs}


def _rerun(args: Call, job: Job) -> int:
    from gputui.cli import run
    from gputui.cli.launch_call import as_given

    own = experiment_of(job)
    if own is not None:
        if own.withheld:
            raise WrongCallError(f"job {job.id}: secrets are not saved; type its command again")
        from gputui.cli.experiment import enter, start
        from gputui.cli.experiment_call import parsed

        enter(job.directory or ".")
        options = ["--detach", *args.options, *(["--json"] if args.json else [])]
        return start(*parsed(own.experiment.kind, options, None, own.experiment))
    request, *_ = kept = rerun_of(job)
    given = as_given(request)
    given.n, given.gpus, given.json, given.name = None, None, args.json, job.name
    if "--if-free" in args.options:
        given.wait = None
    args = run.parser().parse_args(args.options, given)
    lacks = kept.lacks({*os.environ, *(name for name, _ in args.env)})
    if lacks is not None:
        raise WrongCallError(f"job {job.id}: {lacks}")
    if args.n is None and args.gpus is None:
        args.n, args.gpus = request.devices.count, request.devices.names
    args.detach = not args.attach
    return run.start(args, request.options.command)


def _show(args: Call, job: Job) -> int:
    if args.command:
        call = job.argv
        if experiment_of(job) is None:
            request = rerun_of(job).request
            # Only a job is stopped when it is idle.
            job_only = () if request.options.idle_release is None else ("--detach",)
            call = ("gputui", "run", *job_only, *request.words)
        if args.json:
            from gputui.cli.jobs_text import CALL

            print_json(CALL.write(id=job.id, call=call))
        else:
            print_line(" ".join(map(quote, call)))
        return DONE
    if args.json:
        _print_job(job)
        return DONE
    from gputui.cli.jobs_text import facts

    (job,) = with_usage([job], os.environ)
    print_lines(facts(job, _box([job] if job.state == "waiting" else [])))
    return DONE


def _forget(args: Call, jobs: Stored) -> int:
    if bool(args.ids) == args.all_ended:
        raise WrongCallError("forget needs the ids of jobs, or --all-ended")
    ended = [job for job in jobs.jobs if job.over]
    chosen = ended if args.all_ended else [find_job(word, jobs) for word in args.ids]
    for job in chosen:
        forget(job, args.force)
    say(f"removed {len(chosen)} {'job' if len(chosen) == 1 else 'jobs'}")
    _print_jobs(args, chosen)
    return DONE


_OF_SEVERAL: dict[str | None, Callable[[Call, Stored], int]] = {
    None: _list,
    "list": _list,
    "stop": _stop,
    "forget": _forget,
}
_OF_ONE: dict[str, Callable[[Call, Job], int]] = {
    "log": _log,
    "attach": _attach,
    "wait": _wait,
    "rerun": _rerun,
    "show": _show,
}


def _signal(text: str) -> int:
    import signal

    name = text.upper().removeprefix("SIG")
    for known in signal.Signals:
        if name in (known.name.removeprefix("SIG"), str(known.value)):
            return known
    raise argparse.ArgumentTypeError(f"unknown signal {text!r}: INT, TERM and USR1 are known, for example")
