"""`gputui check`: start the interpreter that will train, and prove which devices it sees."""

from __future__ import annotations

import os

from gputui.checking.check import SECONDS, check
from gputui.checking.kept_bandwidth import keep
from gputui.checking.measurement import Measured, measure
from gputui.checking.render import (
    CONFINEMENT,
    lines,
    measured_lines,
    name_of,
    to_document,
    to_measured_document,
)
from gputui.checking.report import Report
from gputui.cli.common import (
    CHECK_FAILED,
    DONE,
    Call,
    Parser,
    add_json_option,
    duration_type,
    elsewhere,
    opened,
    own_settings,
    print_json,
    print_lines,
    say,
    warn,
    warn_elsewhere,
)
from gputui.cli.launch_call import add_launch_options, launch_of, launch_request
from gputui.cli.request_options import device_request, memory
from gputui.inventory.formatting import GIB, printable
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import Json
from gputui.launching.launch import Launch
from gputui.requesting.prepared_launch import how_confined
from gputui.sources.source import Want
from gputui.system.environment import given_environment
from gputui.system.root import HERE
from gputui.vendors.registry import default_vendor
from gputui.vendors.visibility import Confine


def parser() -> Parser:
    made = Parser(
        "check",
        "Start the Python interpreter of the command in the environment of the launch, and verify that it\n"
        f"sees the selected devices in their order: {default_vendor().device(0)} is the first one, and so"
        " on.\n"
        "Status 5 if not. The command itself is not started; without a command, the Python on PATH is used.",
        common="-n --gpus --python --bandwidth --json",
        example="gputui check --gpus 5,4 --bandwidth -- torchrun train.py",
    )
    made.usage = "gputui check [-n N | --gpus LIST] [OPTION…] [-- COMMAND…]"
    add_json_option(made, "print the result as JSON")
    made.add_argument(
        "--timeout",
        type=duration_type(1, 86_400),
        default=SECONDS,
        metavar="S",
        help=f"time limit for the answer, and again for the measurement (default {SECONDS:g})",
    )
    measuring = made.add_argument_group("measuring")
    measuring.add_argument(
        "--bandwidth",
        action="store_true",
        help="measure copies between each pair of devices, and an all-reduce over all of them in order",
    )
    measuring.add_argument(
        "--max-memory",
        type=memory,
        default=GIB,
        metavar="SIZE",
        help="memory limit for tensors on each device (default 1G; the driver needs about 500M more)",
    )
    measuring.add_argument(
        "--force",
        action="store_true",
        help="also check and measure devices that somebody else uses or has claimed, and override the devices"
        " that the command itself names",
    )
    add_launch_options(made)
    return made


def main(args: Call) -> int:
    asked = launch_request(args, args.argv or ())
    how = how_confined(asked.options, own_settings(), not elsewhere(args))
    # (Where it cannot be confined, the report says so.)
    launch = launch_of(asked, "never" if how == "never" else "auto")
    warn_elsewhere(args)
    report = check(
        launch, _box(args, launch, Want.NAMES), given_environment(), python=args.python, seconds=args.timeout
    )
    if report.doubt:
        warn(report.doubt)
    measured = _measured(args, launch, report) if args.bandwidth and report.seen else None
    if args.json:
        print_json(
            to_document(
                report,
                measured=measured and to_measured_document(*measured),
                confinement=None if how == "never" else _confinement(launch),
            )
        )
    else:
        _say_confinement(launch, how)
        print_lines([*lines(report), *(measured_lines(*measured) if measured else ())])
    good = report.equal and (measured is None or measured[0].verified)
    good = good and not (how == "always" and launch.unconfined is not None)
    return DONE if good else CHECK_FAILED


def _say_confinement(launch: Launch, how: Confine) -> None:
    """Print whether the interpreter was confined, where that was requested."""
    if launch.unconfined is not None:
        say(f"not confined: {printable(launch.unconfined)}")
    elif launch.inside is not None:
        say(f"confined: {len(launch.left_out)} device files cannot be opened, as this check proves")
    elif how == "always":
        say("not confined: there is no other device")


def _confinement(launch: Launch) -> Json:
    return CONFINEMENT.write(
        launch,
        confined=launch.inside is not None,
        why=launch.unconfined,
        kernel=os.uname().release,
        driver=launch.vendor.driver_here(HERE) or None,
    )


def _measured(args: Call, launch: Launch, report: Report) -> tuple[Measured, Snapshot]:
    """Return the measurement, and a snapshot of the box from just before it."""
    snapshot = _box(args, launch, Want.MONITOR | Want.TOPOLOGY)
    measured = measure(
        launch,
        report,
        snapshot,
        device_request(args).rules(own_settings().rules),
        given_environment(),
        python=args.python,
        processes=args.processes,
        max_memory=args.max_memory,
        force=args.force,
        seconds=args.timeout,
    )
    if not elsewhere(args):
        refused = keep(os.environ, measured.pairs)
        if refused is not None:
            warn(printable(refused))
    for key, why in measured.skipped:
        warn(f"{name_of(key, snapshot)} is not measured: {why} (--force measures it)")
    return measured, snapshot


def _box(args: Call, launch: Launch, want: Want) -> Snapshot:
    """Return the box with facts that a verdict does not need: the names of the devices, and their links."""
    with opened(args, cpu_only=not launch.devices) as source:
        return source.read(want)
