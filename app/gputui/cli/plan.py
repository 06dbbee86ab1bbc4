"""`gputui plan`: the strategies with which a model fits on these devices, and the files that start it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from gputui.allocating.device_request import DeviceRequest
from gputui.choosing.bandwidth import Rates
from gputui.choosing.grouping import ALL_REDUCE
from gputui.cli.common import (
    CHECK_FAILED,
    DONE,
    Call,
    Parser,
    WrongCallError,
    add_json_option,
    elsewhere,
    output_width,
    parsed_by,
    print_json,
    print_line,
    say,
    say_notes,
    warn,
)
from gputui.cli.hosts_options import add_hosts_option, without_options
from gputui.cli.launch_call import add_launch_options, launch_request, noted, print_launch
from gputui.cli.plan_text import answer_lines, table_lines
from gputui.cli.planned_devices import devices_for_plan
from gputui.cli.planned_training import Subject, subject_of
from gputui.cli.request_options import AUTO
from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.quoting import quote
from gputui.inventory.text_table import packed
from gputui.launching.compose import compose, on_any
from gputui.launching.intent import DeviceCount
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.read_intent import read_intent
from gputui.planning.box import box_of
from gputui.planning.devices import PlannedDevices
from gputui.planning.document import to_document
from gputui.planning.files import FOLDER
from gputui.planning.plan import Plan, Row
from gputui.planning.serving import Serving
from gputui.planning.serving_plan import plan_for
from gputui.planning.strategies import PIPELINE_AND_ZERO
from gputui.planning.workload import Workload
from gputui.requesting.launch_request import NEAR

NETWORK = 10
"""Gbit/s of a machine's network where the call does not say it."""

MOST_NODES = 64

_SAID, _BESIDE = len("gputui: "), 3
"""Cells before a note; lines for the call itself, the one that is proposed, and the prompt."""


def _gigabits(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text, re.ASCII) or not float(text):
        raise ValueError(f"{text!r} is not a number of Gbit/s (10, 400)")
    return float(text)


def parser() -> Parser:
    made = Parser(
        "plan",
        "List the strategies of parallelism with which these devices can train a model, the best first,\n"
        "with the memory of each and the bytes that a step sends over the links, computed from the model's\n"
        "shape. Nothing is started. --use writes the files of a strategy and prints the launch line.\n"
        "For a command that serves a model (vLLM, SGLang, Text Generation Inference, llama.cpp): the memory\n"
        "of its weights and of its KV cache, and the requests that fit at once.",
        common="-n --precision --checkpointing --use --all",
        example="gputui plan 8B -n 4 -s 4096 --checkpointing\n"
        "gputui plan -n 4 --use fsdp2 -o plan/ -- train.py --model ~/llama-7b\n"
        "gputui plan -- vllm serve Qwen/Qwen3-8B --max-model-len 32768",
    )
    made.usage = "gputui plan [MODEL] [-n N | --gpus LIST] [OPTION…] [-- COMMAND…]"
    made.add_argument(
        "name",
        nargs="?",
        metavar="MODEL",
        help="a size (8B), a folder, config.json or cached hub id (default: that of the command)",
    )
    made.add_argument(
        "--weights-only", action="store_true", help="count weights, gradients and optimizer alone"
    )
    made.add_argument(
        "--measured",
        metavar="FILE",
        help="take the links' bandwidths from FILE, the output of `gputui check --bandwidth --json`",
    )
    made.add_argument(
        "--all",
        action="store_true",
        help="show all strategies, with the parts of their memory and their reasons",
    )
    add_json_option(made, "print the plan as JSON; with --use, the launch")
    what = made.add_mutually_exclusive_group()
    what.add_argument(
        "--use", metavar="STRATEGY", help="write the files of this strategy and print the launch line"
    )
    what.add_argument(
        "--prove",
        action="store_true",
        help="compare with transformers, DeepSpeed and torch's memory tracker in the training's Python",
    )
    made.add_argument(
        "-o", "--output", dest="folder", metavar="DIR", help=f"folder for the files of --use ({FOLDER})"
    )
    made.add_argument("--overwrite", action="store_true", help="replace existing files of these names")
    made.add_argument(
        "--network",
        type=parsed_by(_gigabits),
        metavar="GBIT",
        help=f"with --nodes: the network of each machine, in Gbit/s ({NETWORK})",
    )
    add_hosts_option(made)
    add_launch_options(made)
    return made


def main(args: Call) -> int:
    if args.name is not None:
        if args.model is not None or args.parameters is not None:
            raise WrongCallError("MODEL, --model and --parameters mean the same: give one of them")
        args.model = args.name
    if args.use is None and (args.folder is not None or args.overwrite):
        raise WrongCallError("-o and --overwrite need --use STRATEGY")
    if args.use is not None and not args.argv and args.saved is None:
        raise WrongCallError("--use starts a command: put it after --, as in `--use ddp -- train.py`")
    if args.prove and args.json:
        raise WrongCallError("--prove cannot be used with --json: it prints a table")
    _check_options(args)
    if args.hosts is not None:
        if args.use is not None or args.prove or args.measured is not None:
            raise WrongCallError(
                "--use, --prove and --measured cannot be used with --hosts: they are for this machine"
            )
        from gputui.cli.boxes import call_on_boxes

        # On the other boxes, the files that the command names are in the directory of the same name.
        if args.argv and args.directory is None:
            args.words = [*args.words, f"--directory={os.getcwd()}"]  # noqa: PTH109
        return call_on_boxes(args)
    nodes, args.nodes = args.nodes, 1
    if nodes > 1 and (args.use is not None or args.prove or args.n == AUTO):
        raise WrongCallError("--use, --prove and -n auto are for one machine: leave out --nodes")
    if args.network is not None and nodes == 1:
        raise WrongCallError("--network is the network between machines: it needs --nodes")
    asked = launch_request(args, args.argv or ())
    options = asked.options
    if options.nodes > 1:
        raise WrongCallError("the saved launch is for several machines, and a plan is for one")
    subject = subject_of(asked, args.weights_only)
    if isinstance(subject.workload, Serving) and (args.use or args.prove or nodes > 1 or args.group):
        raise WrongCallError(
            "--use, --prove, --nodes and --group are for trainings: a server's command says its sizes, and"
            " `gputui run -n N -- COMMAND` starts it"
        )
    if args.prove and subject.place is None:
        raise WrongCallError("--prove needs a model, not a number of parameters")
    measured = None if args.measured is None else _measured(args.measured)
    made, found = planned(asked.devices, subject, measured, nodes, args.network or NETWORK)
    # (The sizes of a server's command are planned.)
    count = read_intent(options, os.environ).count if made.training is not None else None
    if args.use is not None:
        return _use(args, options, made, found, count)
    devices = len(found.devices)
    if made.training is not None and nodes == 1 and (why := on_any(options, devices, os.environ).refusal):
        # The command as it is cannot be started on these devices. (--use changes it.)
        raise WrongCallError(why)
    # (The lines of a plan name the devices in use.)
    made = noticed(made, found if args.json else replace(found, in_use=()), count)
    if nodes > 1 and args.network is None:
        text = f"the network of each machine is taken to have {NETWORK} Gbit/s (--network GBIT)"
        made = replace(made, notices=(text, *made.notices))
    if args.json:
        print_json(to_document(made))
        return DONE
    width = output_width()
    answered = [*answer_lines(made, found, width)]
    notes = [line for each in made.notices for line in packed([f"note: {each}"], width and width - _SAID)]
    print("\n".join(answered))
    if starting := _starting(args, args.words, args.argv or (), made):
        print_line(f"  {starting}")
    room = shutil.get_terminal_size().lines - len(answered) - len(notes) - _BESIDE
    print(
        "",
        *table_lines(made, found, subject.said, width, args.all, room),
        sep="\n",
        flush=True,
    )
    for note in notes:
        say(note)
    if args.prove:
        return _prove(args, options, subject, made, found)
    return DONE


def planned(
    devices: DeviceRequest,
    subject: Subject,
    measured: Rates | None = None,
    nodes: int = 1,
    gigabits: float = 0,
) -> tuple[Plan, PlannedDevices]:
    """The plan of a model on the devices of a request, on `nodes` such machines, whose network has `gigabits`
    Gbit/s; `measured` are the bandwidths of their links, None for those that an earlier check has kept.

    Raises WrongCallError, PlanningError, NotEnoughError.
    """
    if measured is None and not elsewhere(devices):
        from gputui.checking.kept_bandwidth import kept_bandwidths

        measured = kept_bandwidths(os.environ)
    found = devices_for_plan(devices, subject)
    box = box_of(found.snapshot, found.devices, measured or {})
    if nodes > 1:
        box = replace(box, nodes=nodes, network=gigabits / 8)
    return plan_for(subject.model, subject.workload, box, devices.group or ALL_REDUCE), found


def noticed(made: Plan, found: PlannedDevices, count: DeviceCount | None = None) -> Plan:
    """The plan with the notices that some of its devices are in use, and that its command is for others."""
    return replace(made, notices=(*_notices(found, count, len(found.devices)), *made.notices))


def _check_options(args: Call) -> None:
    """Raise WrongCallError for options of a launch that a plan would ignore."""
    if args.processes is not None or args.rendezvous is not None:
        raise WrongCallError(
            "a plan starts nothing, and has a process for each device: leave out --rendezvous and --processes"
        )
    if args.nodes > MOST_NODES:
        raise WrongCallError(f"a plan is for {MOST_NODES} machines at most")
    if args.threads == NEAR:
        raise WrongCallError("a plan does not use --threads near: give it to `gputui run`")


def _notices(found: PlannedDevices, count: DeviceCount | None, planned: int) -> Iterator[str]:
    used = len(found.in_use)
    if count is not None:
        yield from count.beside(planned)
    if used:
        of = f"{used} of the {len(found.devices)} GPUs {'is' if used == 1 else 'are'} in use"
        yield f"{of}: planned as if they were empty"


def _starting(args: Call, words: Sequence[str], command: Sequence[str], made: Plan) -> str:
    """The call that starts the command as the plan says, for a shell: "" for a plan of several machines.

    A server gets as many devices as it needs; a training gets the files of its strategy.
    """
    row = made.able
    if row is None or made.box.nodes > 1:
        return ""
    said = [word for word in words if word != "--all"]
    if isinstance(made.workload, Serving):
        said = ["run", *without_options([word for word in said if word != args.name], "-n", "--measured")]
        said += [] if args.gpus else ["-n", str(row.strategy.devices)]
        if made.workload.of.stages and made.workload.pipeline is None and row.strategy.pipeline_parallel > 1:
            command = (*command, f"--pipeline-parallel-size={row.strategy.pipeline_parallel}")
    else:
        said = ["plan", *said, "--use", row.name]
    if args.saved is None:
        said += ["--", *(command or ("COMMAND",))]
    return " ".join(map(quote, ("gputui", *said)))


def _measured(name: str) -> Rates:
    """Read GB/s by pair from the output of `check --bandwidth --json`. Raises WrongCallError."""
    from gputui.checking.kept_bandwidth import MEASURED
    from gputui.inventory.typed_json import DocumentError, within
    from gputui.planning.safetensors import read_json

    try:
        return MEASURED.read(within(read_json(Path(name)), "measured")).rates
    except DocumentError as error:
        raise WrongCallError(f"{name!r}: {error}") from None


def _use(
    args: Call,
    options: LaunchOptions,
    made: Plan,
    found: PlannedDevices,
    count: DeviceCount | None,
) -> int:
    """Write the files of a strategy, and print the line that `gputui run` would start on these devices."""
    from gputui.launching.planned import FilesDifferError, prepared, write
    from gputui.planning.files import recipe_of
    from gputui.vendors.registry import vendors_of

    row = _row(made, args.use)
    recipe = recipe_of(made, row)
    try:
        ready = prepared(recipe, options, args.folder or os.path.join(options.directory or "", FOLDER))  # noqa: PTH118
        written = write(ready, over=ready.texts if args.overwrite else ())
    except FilesDifferError as error:
        raise WrongCallError(f"{error} (--overwrite replaces it)") from None
    except OSError as error:
        raise WrongCallError(
            f"cannot write below {args.folder or FOLDER!r}: {error.strerror}; -o names another folder"
        ) from None
    launch = compose(
        found.devices[: row.strategy.devices],
        ready.options,
        os.environ,
        box=vendors_of(found.snapshot.devices),
        intent=read_intent(ready.options, os.environ),
    )
    if launch.refusal is not None:
        raise WrongCallError(launch.refusal)
    if not row.fits:
        warn(f"{row.name}: {row.outcome}")
    for path in written:
        say(f"wrote {path}")
    say_notes((*ready.notes, *_notices(found, count, row.strategy.devices)))
    print_launch(noted(launch), args.json)
    return DONE


def _row(made: Plan, name: str) -> Row:
    """Return the row of that strategy; tp4 means tp4-fsdp2, pp4 means pp4-zero1 where there is no pp4.

    Raises WrongCallError.
    """
    rows = {row.name: row for row in made.rows}
    row = rows.get(name) or rows.get(f"{name}-fsdp2") or rows.get(f"{name}-zero1")
    if row is None and re.match(r"(tp\d+-)?pp\d", name) and re.search(r"zero[23]|fsdp", name):
        raise WrongCallError(f"{name}: {PIPELINE_AND_ZERO}")
    if row is None:
        raise WrongCallError(f"{name!r} is not a strategy for these devices: {', '.join(rows)}")
    return row


def _prove(args: Call, options: LaunchOptions, subject: Subject, made: Plan, found: PlannedDevices) -> int:
    """Show the model as the training's own Python reports it; status 5 where it counts other parameters."""
    from gputui.checking.check import SECONDS
    from gputui.checking.plan_proof import differences, estimated, prove
    from gputui.inventory.text_table import aligned
    from gputui.planning.memory import needed
    from gputui.planning.strategies import Strategy
    from gputui.system.environment import given_environment

    assert isinstance(made.workload, Workload)  # a server has been refused
    workload = replace(made.workload, optimizer="adamw", lora=0, accumulation=1, weights_only=False)
    launch = compose(found.devices, options, os.environ)
    say("note: the training's Python counts the model and tracks a step, which can take a minute or two")
    proof = prove(
        launch,
        given_environment(),
        str(subject.place),
        workload,
        len(found.devices),
        python=args.python,
        seconds=2 * SECONDS,
    )
    closed = {
        "parameters": made.model.parameters,
        "largest_layer": made.model.largest_layer,
        "peak": needed(made.model, workload, Strategy("single", 1)).total,
        **estimated(made.estimates),
    }
    compared = differences(proof, closed)
    print()
    if compared:
        rows = [("", "CLOSED FORM", "THAT PYTHON", "DIFFERENCE")]
        for what, ours, theirs, share in compared:
            rows.append((what, f"{ours:,}", f"{theirs:,}", "equal" if ours == theirs else f"{share:+.1%}"))
        versions = ", ".join(f"{name} {version}" for name, version in proof.versions.items())
        print("\n".join(aligned(rows, right=range(1, 4))))
        print_line(
            printable(f"  {proof.name}, by {versions}; peak: one device with AdamW, without its context")
        )
    say_notes(proof.remarks)
    for problem in proof.problems:
        warn(problem)
    miscounted = any(each.what == "parameters" and each.share for each in compared)
    return CHECK_FAILED if proof.problems or miscounted else DONE
