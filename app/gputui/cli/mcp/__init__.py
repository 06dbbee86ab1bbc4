"""`gputui mcp`: a server of the Model Context Protocol on standard input and output, for agents.

tools.json describes the tools, tools.py runs them, limits.py limits them, and server.py speaks the protocol:
only server.py imports the SDK, which takes a second. `gputui agent-skill` prints SKILL.md.
"""

from __future__ import annotations

from gputui.cli.common import (
    DONE,
    Call,
    Parser,
    WrongCallError,
    add_source_options,
    elsewhere,
    number_type,
    parsed_by,
)
from gputui.inventory.formatting import read_duration


def parser() -> Parser:
    made = Parser(
        "mcp",
        "Serve the Model Context Protocol on standard input and output: an agent sees the GPUs, the queue\n"
        "and your jobs, and with --allow-run starts and stops jobs, within limits that it cannot change.",
        common="--allow-run --max-gpus --max-hours --user-jobs-only",
        example="gputui mcp --allow-run --max-gpus 2 --max-hours 8",
    )
    made.add_argument("--allow-run", action="store_true", help="offer run_job and stop_job")
    made.add_argument(
        "--max-gpus",
        type=number_type("a number of devices", 0, 10_000),
        metavar="N",
        help="devices that jobs of agents hold or wait for at the same time",
    )
    made.add_argument(
        "--max-hours",
        type=parsed_by(_hours),
        metavar="H",
        help="end each job of an agent after this time at the latest (8, 0.5, 2d)",
    )
    made.add_argument(
        "--user-jobs-only",
        action="store_true",
        help="show, read and stop only jobs that you have started through agents",
    )
    add_source_options(made)
    return made


def _hours(text: str) -> float:
    """Seconds. Raises ValueError."""
    return read_duration(text if text[-1:].isalpha() else f"{text}h", 1)


def main(args: Call) -> int:
    _check(args)
    try:
        from gputui.cli.mcp.server import serve
    except ModuleNotFoundError as error:
        raise WrongCallError(
            f"{error.name} is not installed: pip install 'gputui[mcp]' installs it"
        ) from None
    from gputui.cli.mcp.limits import Limits
    from gputui.cli.mcp.tools import Tools

    limits = Limits(args.max_gpus, args.max_hours, args.user_jobs_only)
    serve(Tools(args.allow_run, limits, args.demo, args.recording))
    return DONE


def _check(args: Call) -> None:
    if args.root is not None:
        raise WrongCallError("--root does not go with mcp: --from reads a recording")
    if args.allow_run and elsewhere(args):
        raise WrongCallError("--allow-run starts on this machine's devices: not with --demo and --from")
    if not args.allow_run and (args.max_gpus, args.max_hours) != (None, None):
        raise WrongCallError("--max-gpus and --max-hours limit what --allow-run allows")
