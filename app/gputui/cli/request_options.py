"""The options that select devices and say which devices count as free, and the device request they yield."""

from __future__ import annotations

import argparse
import math

from gputui.allocating.device_request import DeviceRequest
from gputui.choosing.grouping import parse
from gputui.choosing.named_devices import could_name, no_name
from gputui.choosing.order import ORDERS
from gputui.cli.common import Call, duration_type, number_type, parsed_by
from gputui.inventory.formatting import read_size
from gputui.inventory.light_dataclasses import fields


def add_request_options(parser: argparse.ArgumentParser, exclusive: bool) -> None:
    """Add `-n`, `--gpus`, the group, the order, the rules, and the model."""
    which = parser.add_argument_group("which devices")
    group = which.add_mutually_exclusive_group() if exclusive else which
    group.add_argument(
        "-n",
        type=count_or_auto,
        metavar="N",
        help="number of devices: the best free ones; auto: as many as the model needs (--model)",
    )
    group.add_argument(
        "--gpus", metavar="LIST", help="these devices, in this order: indices or UUIDs; none for CPU only"
    )
    which.add_argument(
        "--vendor",
        type=parsed_by(_vendor),
        metavar="NAME",
        help="only devices of this vendor, in a box that has several",
    )
    which.add_argument("--min-free", type=memory, metavar="SIZE", help="minimum free memory (20G)")
    which.add_argument("--max-util", type=percent, metavar="PCT", help="maximum utilization")
    which.add_argument(
        "--group",
        type=parsed_by(parse),
        metavar="SHAPE",
        help="how the devices communicate: tp=2,pp=2 (tensor-parallel groups, pipeline stages), all with all"
        " (all, default), none (separate processes)",
    )
    which.add_argument(
        "--order",
        choices=ORDERS,
        help="order: best for the links (default with -n), given (default with --gpus), fastest"
        " or emptiest first;"
        " with -n, the last two also decide which devices",
    )
    _add_rules(parser)
    _add_model_options(parser)
    which.add_argument("--why", action="store_true", help="explain the selection on stderr")


def _vendor(text: str) -> str:
    """Parse the name of an installed vendor."""
    from gputui.vendors.registry import installed

    return installed(text)


count = number_type("a number of devices (1 or more)", 1)
_NUMBER = number_type("a whole number of at most nine digits")
"""The planner checks the limits."""


AUTO = "auto"
"""The value of `-n` that means as many devices as the training needs."""


def count_or_auto(text: str) -> int | str:
    """Parse a number of devices, or AUTO."""
    return AUTO if text == AUTO else count(text)


memory = parsed_by(read_size)
"""The argparse type of a SIZE, in bytes."""


def percent(text: str) -> int:
    """Parse a percentage, 0 to 100, with or without the sign."""
    return number_type("a percentage (0 to 100)", most=100)(text.removesuffix("%"))


def _add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the rules that replace those of the settings file for this call."""
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
"""The planner's values, copied because the planner takes milliseconds to import; a test compares them."""

BATCH, SEQUENCE = 1, 2048


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add `--model` and the options of its training."""
    group = parser.add_argument_group("the model, for -n auto and plan (default: what the command says)")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--model", help="a folder, config.json, safetensors file or index, cached hub id, or a size (8B)"
    )
    which.add_argument("--parameters", metavar="N", help="only the number of parameters (7B, 6738415616)")
    group.add_argument(
        "-b",
        "--batch",
        type=_NUMBER,
        metavar="N",
        help=f"micro-batch: sequences per device and pass ({BATCH})",
    )
    group.add_argument(
        "-s", "--sequence", type=_NUMBER, metavar="N", help=f"tokens per sequence ({SEQUENCE})"
    )
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="autocast (default), fp16: computed in 16 bits, weights and optimizer in fp32 (accelerate's"
        " mixed_precision bf16, fp16); bf16: these in bf16, too; fp32: everything in fp32",
    )
    group.add_argument("--optim", choices=OPTIMIZERS, help="the optimizer (adamw)")
    group.add_argument(
        "--checkpointing", action="store_true", default=None, help="gradient (activation) checkpointing"
    )
    group.add_argument("--lora", type=_NUMBER, metavar="R", help="LoRA of this rank; 0: all parameters")
    group.add_argument(
        "--accumulation", type=_NUMBER, metavar="N", help="gradient accumulation: passes per step (1)"
    )


def _list(text: str) -> tuple[str, ...]:
    """Parse devices by index or UUID, separated by commas."""
    words = tuple(part.strip() for part in text.split(",") if part.strip())
    for word in words:
        if not could_name(word):
            raise argparse.ArgumentTypeError(no_name(word, text))
    return words


DESTINATIONS = {"count": "n", "names": "gpus", "explain": "why"}
"""The argparse names of the options that differ from the fields of a device request."""


def device_request(args: Call) -> DeviceRequest:
    """The device request of a call."""
    said = {each.name: getattr(args, DESTINATIONS.get(each.name, each.name), None) for each in _FIELDS}
    if said["count"] == AUTO:
        said |= {"count": None, "auto": True}
    said["ignore_user"] = tuple(said["ignore_user"] or ())
    return DeviceRequest(**{name: value for name, value in said.items() if value is not None})


_FIELDS = fields(DeviceRequest)


def add_wait_option(parser: argparse.ArgumentParser) -> None:
    """Add `--wait [TIME]` and `--window S`."""
    parser.add_argument(
        "--wait",
        nargs="?",
        const=math.inf,
        type=duration_type(),
        metavar="TIME",
        help="wait in line until enough are free; with TIME (90, 30m, 2h), at most that long:"
        " then end with status 124, unless enough are free at that moment",
    )
    add_window_option(parser)


def add_after_options(parser: argparse.ArgumentParser) -> None:
    """Add `--after JOB` and `--after-ok JOB`."""
    parser.add_argument(
        "--after", metavar="JOB,…", help="wait until these jobs have ended, and then in the queue"
    )
    parser.add_argument(
        "--after-ok",
        metavar="JOB,…",
        help="the same, if they end with status 0; else nothing starts, and the status is 5",
    )


def add_window_option(parser: argparse.ArgumentParser) -> None:
    """Add `--window S`."""
    parser.add_argument(
        "--window",
        type=duration_type(),
        metavar="S",
        help="how long devices must have been free (default 10)",
    )
