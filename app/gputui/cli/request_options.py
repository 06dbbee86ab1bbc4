"""The options that select the devices of a call and define "free", and the request from these options."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gputui.allocating.request import Request, count_of
from gputui.choosing.grouping import ALL_REDUCE, Grouping, GroupingError, parse
from gputui.choosing.named_devices import could_name
from gputui.choosing.order import ORDERS
from gputui.cli.common import duration_type
from gputui.cli.rules import rules_of
from gputui.inventory.formatting import read_size
from gputui.sources.source import Want

if TYPE_CHECKING:
    from gputui.launching.intent import Asked


def add_request_options(parser: argparse.ArgumentParser, exclusive: bool) -> None:
    """Add `-n`, `--gpus`, the group and the order, and the rules."""
    group = parser.add_mutually_exclusive_group() if exclusive else parser
    group.add_argument(
        "-n",
        type=count_or_auto,
        metavar="N",
        help="number of devices: the best free ones; auto: as many as the model needs (--model)",
    )
    group.add_argument(
        "--gpus", metavar="LIST", help="these devices, in this order: indices or UUIDs; none for CPU only"
    )
    parser.add_argument(
        "--vendor", type=_vendor, metavar="NAME", help="devices of this vendor only, in a box of several"
    )
    parser.add_argument(
        "--group",
        type=grouping,
        metavar="SHAPE",
        help="how the devices communicate: tp=2,pp=2 (tensor-parallel groups, pipeline stages), all with all"
        " (all, default), none (separate processes)",
    )
    parser.add_argument(
        "--order",
        choices=ORDERS,
        help="order: best for the links (default with -n), given (default with --gpus), fastest"
        " or emptiest first;"
        " with -n, the last two also decide which devices",
    )
    _add_rules(parser)
    _add_model_options(parser)
    parser.add_argument("--why", action="store_true", help="explain the selection on stderr")


def _vendor(text: str) -> str:
    """Parse the name of an installed vendor."""
    from gputui.vendors.registry import vendors

    names = [vendor.name for vendor in vendors()]
    if text not in names:
        raise argparse.ArgumentTypeError(f"no vendor is called {text!r}; there are: {', '.join(names)}")
    return text


def count(text: str) -> int:
    """Parse a number of devices, at least one."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of devices (1 or more)")
    return int(text)


AUTO = "auto"
"""The value of `-n` that means as many devices as the training needs."""


def count_or_auto(text: str) -> int | str:
    """Parse a number of devices, or AUTO."""
    return AUTO if text == AUTO else count(text)


def grouping(text: str) -> Grouping:
    """Parse how the devices work together."""
    try:
        return parse(text)
    except GroupingError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def memory(text: str) -> int:
    """Parse a SIZE; return it in bytes."""
    try:
        return read_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def percent(text: str) -> int:
    """Parse a percentage, 0 to 100, with or without the percent sign."""
    digits = text.removesuffix("%")
    if not (digits.isascii() and digits.isdigit()) or int(digits) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage (0 to 100)")
    return int(digits)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the options that override rules of the settings file for this call."""
    rules = parser.add_argument_group(
        "what counts as free (for this call; the settings file sets the defaults)"
    )
    rules.add_argument("--never", type=_list, metavar="LIST", help="devices that -n never selects")
    rules.add_argument(
        "--prefer", type=_list, metavar="LIST", help="devices that -n selects first, in this order"
    )
    rules.add_argument(
        "--mine", action="store_true", help="devices with only your own processes count as free"
    )
    rules.add_argument("--ignore-user", action="append", metavar="USER", help="ignore this user's processes")
    rules.add_argument(
        "--busy-memory",
        type=memory,
        metavar="SIZE",
        help="a device without a process is free up to this memory use (512M)",
    )
    rules.add_argument(
        "--busy-util",
        type=percent,
        metavar="PCT",
        help="a device without a process is free up to this utilization (10)",
    )


PRECISIONS = ("bf16", "autocast", "fp16", "fp32")
OPTIMIZERS = ("adamw", "adamw-foreach", "adamw8bit", "lion", "sgd", "sgd-momentum")
"""A copy of the planner's list, whose import takes milliseconds; a test compares them."""

BATCH, SEQUENCE = 1, 2048


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add `--model` and the options of its workload."""
    group = parser.add_argument_group(
        "the model, for -n auto and plan (what is not said here is read from the command)"
    )
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--model", help="a folder, config.json, safetensors file or index, cached hub id, or a size (8B)"
    )
    which.add_argument("--parameters", metavar="N", help="only the number of parameters (7B, 6738415616)")
    group.add_argument(
        "-b", "--batch", type=_number, metavar="N", help=f"sequences of a device in one pass ({BATCH})"
    )
    group.add_argument(
        "-s", "--sequence", type=_number, metavar="N", help=f"tokens of a sequence ({SEQUENCE})"
    )
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="bf16: weights and optimizer too (default); autocast, fp16: those in fp32; fp32",
    )
    group.add_argument("--optim", choices=OPTIMIZERS, help="the optimizer (adamw)")
    group.add_argument(
        "--checkpointing", action="store_true", default=None, help="gradient (activation) checkpointing"
    )
    group.add_argument("--lora", type=_number, metavar="R", help="LoRA of this rank; 0: all parameters")
    group.add_argument(
        "--accumulation", type=_number, metavar="N", help="gradient accumulation: passes of one step (1)"
    )


def _number(text: str) -> int:
    """Parse a whole number; the planner checks its range."""
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def constraints_of(args: argparse.Namespace) -> list[str]:
    """Return the words of `gputui run` for the constraints of a call, to select similar devices again."""
    given = {name: getattr(args, name, None) for name in CONSTRAINTS}
    return [
        word
        for name, value in given.items()
        if value is not None and value is not False
        for word in CONSTRAINTS[name](value)
    ]


def _size_word(amount: int) -> str:
    return f"{amount // 1024}K" if amount % 1024 == 0 else f"{amount / 1024!r}K"


CONSTRAINTS: Mapping[str, Callable[[Any], Sequence[str]]] = {
    "vendor": lambda name: ["--vendor", name],
    "group": lambda group: ["--group", group.word],
    "order": lambda order: ["--order", order],
    "never": lambda devices: [f"--never={','.join(devices)}"],
    "prefer": lambda devices: [f"--prefer={','.join(devices)}"],
    "mine": lambda _: ["--mine"],
    "ignore_user": lambda users: [f"--ignore-user={user}" for user in users],
    "busy_memory": lambda amount: [f"--busy-memory={_size_word(amount)}"],
    "busy_util": lambda percent: [f"--busy-util={percent}"],
    "window": lambda seconds: [f"--window={seconds:.15g}"],
    "wait": lambda seconds: ["--wait" if seconds == math.inf else f"--wait={seconds:.15g}"],
    # A number of threads is one of the launch's variables.
    "threads": lambda threads: ["--threads", threads] if isinstance(threads, str) else [],
}
"""The constraints of a call that a rerun of its job keeps, by their names in argparse, as words again."""


def _list(text: str) -> tuple[str, ...]:
    """Parse devices by index or UUID, separated by commas."""
    words = tuple(part.strip() for part in text.split(",") if part.strip())
    for word in words:
        if not could_name(word):
            raise argparse.ArgumentTypeError(f"{word!r} is neither an index nor a UUID (GPU-…, MIG-…)")
    return words


def request_of(
    args: argparse.Namespace,
    purpose: str = "",
    facts: Want = Want.VERDICT,
    explain: bool = False,
    job: str | None = None,
    asked: Asked | None = None,
    by_index: bool = False,
) -> Request:
    """Return the request of a call. Raises WrongCallError for invalid settings.

    `purpose` is the part of the command that other users may read; `explain` requests reasons even without
    `--why`. `asked` combines the options of the call with its command; None: only the call's options.
    `by_index`: only the indices of the devices are needed.
    """
    number, names = (args.n, args.gpus) if asked is None else (asked.count, asked.names)
    group = (args.group if asked is None else asked.group) or ALL_REDUCE
    made = Request(
        count=count_of(number, names, group),
        names=names,
        group=group,
        order=args.order,
        min_free=getattr(args, "min_free", None),
        max_util=getattr(args, "max_util", None),
        rules=rules_of(args),
        wait=getattr(args, "wait", None),
        force=getattr(args, "force", False),
        if_free=getattr(args, "if_free", False),
        explain=explain or args.why,
        by_index=by_index,
        facts=facts,
        purpose=purpose,
        job=job,
        vendor=getattr(args, "vendor", None),
    )
    if asked is None:
        return made
    from gputui.library.agreement import as_asked

    return as_asked(made, asked)


def add_wait_option(parser: argparse.ArgumentParser) -> None:
    """Add `--wait [TIME]` and `--window S`."""
    parser.add_argument(
        "--wait",
        nargs="?",
        const=math.inf,
        type=duration_type(),
        metavar="TIME",
        help="wait in the queue until enough are free; with TIME at most that long (90, 30m,"
        " 2h), then take what is free, else status 124",
    )
    add_window_option(parser)


def add_window_option(parser: argparse.ArgumentParser) -> None:
    """Add `--window S`."""
    parser.add_argument(
        "--window",
        type=duration_type(),
        metavar="S",
        help="how long devices must have been free (default 10)",
    )
