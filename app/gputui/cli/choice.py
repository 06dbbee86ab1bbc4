"""Which devices a call is about: the options that say so, and the answer."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gputui.choosing.naming import NamingError, named
from gputui.choosing.pick import Picked, Wish, pick
from gputui.choosing.verdict import Verdict, verdicts
from gputui.cli.common import NotEnoughError, WrongCallError, opened, say
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.launching.visibility import Inherited, inherited
from gputui.sources.source import Source, Want


def add_choice_options(parser: argparse.ArgumentParser, exclusive: bool) -> None:
    """`-n` and `--gpus`; `--ids` says how the chosen ones are written."""
    group = parser.add_mutually_exclusive_group() if exclusive else parser
    group.add_argument("-n", type=count, metavar="N", help="how many of the best free devices")
    group.add_argument(
        "--gpus", metavar="LIST", help="these devices in this order: indices, UUIDs, or none for CPU only"
    )
    parser.add_argument(
        "--ids",
        choices=("index", "uuid"),
        default="index",
        help="name the devices by index (default) or UUID",
    )


def count(text: str) -> int:
    """A number of devices, at least one."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of devices (1 or more)")
    return int(text)


_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def memory(text: str) -> int:
    """A SIZE in bytes: "20G", "20GiB" and "20GB" are all 20 × 2^30, as nvidia-smi counts."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]?)(?:i?B)?", text, re.IGNORECASE | re.ASCII)
    if match is None or len(text) > 32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size (20G, 512M)")
    amount = int(float(match[1]) * _UNITS[match[2].upper()])
    if 0 < amount < _UNITS["M"] and not match[2]:
        raise argparse.ArgumentTypeError(f"{text!r} is {amount} bytes; a unit is missing ({text}G, {text}M)")
    return amount


def percent(text: str) -> int:
    """A percentage, 0 to 100, with or without the sign."""
    digits = text.removesuffix("%")
    if not (digits.isascii() and digits.isdigit()) or int(digits) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage (0 to 100)")
    return int(digits)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The devices of one call, and the box they were chosen in."""

    devices: tuple[Device, ...]
    snapshot: Snapshot


def choose(
    args: argparse.Namespace, environ: Mapping[str, str] = os.environ, want: Want = Want.VERDICT
) -> Chosen:
    """The devices that `-n`, `--gpus` and the conditions of a call ask for, in order.

    Raises WrongCallError or NotEnoughError. `want` is what the answer needs to know of the devices.
    """
    with opened(args) as source:
        snapshot = source.read(want)
        limits = inherited(environ, snapshot)
        if limits and limits.warning:
            say(f"warning: {limits.warning}")
        if args.gpus is not None:
            devices = _named(args.gpus, snapshot, limits)
            if args.n is None:
                return Chosen(_decided(devices, args, source, want, snapshot), snapshot)
            within: set[str] | None = {device.key for device in devices}
        else:
            within = set(limits.keys) if limits else None
        wish = Wish(args.n or 1, getattr(args, "min_free", None), getattr(args, "max_util", None), within)
        picked = pick(snapshot, verdicts(snapshot), wish)
        if not picked.enough(wish):
            # Now, and only now, the owners are worth their price.
            snapshot = source.read(Want.MONITOR)
            raise NotEnoughError(_shortage(pick(snapshot, verdicts(snapshot), wish), wish, snapshot, limits))
        return Chosen(picked.devices, snapshot)


def _named(text: str, snapshot: Snapshot, limits: Inherited | None) -> tuple[Device, ...]:
    try:
        devices = named(text, snapshot)
    except NamingError as error:
        raise WrongCallError(str(error)) from None
    outside = [snapshot.label(d) for d in devices if limits and d.key not in limits.keys]
    if limits and outside:
        raise WrongCallError(
            f"--gpus {text}: GPU {', '.join(outside)} is not in CUDA_VISIBLE_DEVICES={limits.text}, which was"
            " given to you; `env -u CUDA_VISIBLE_DEVICES gputui …` sees all"
        )
    return devices


def _decided(
    devices: Sequence[Device], args: argparse.Namespace, source: Source, want: Want, snapshot: Snapshot
) -> tuple[Device, ...]:
    """Devices named one by one: a decision. Conditions asked for must hold; all else is a warning."""
    judged = verdicts(snapshot)
    if not all(judged[device.key].free for device in devices):
        # The whole reading: the short one, which was enough to see that, leaves out what it costs.
        snapshot = source.read(Want.MONITOR | (want & ~Want.VERDICT))
        judged = verdicts(snapshot)
    gone = [device.key for device in devices if device.key not in judged]
    if gone:
        raise NotEnoughError(f"{', '.join(gone)} is not there any more")
    wish = Wish(
        len(devices),
        getattr(args, "min_free", None),
        getattr(args, "max_util", None),
        {device.key for device in devices},
    )
    for device in devices:
        verdict, name = judged[device.key], f"GPU {snapshot.label(device)}"
        if verdict.state == "lost":
            raise NotEnoughError(f"{name} is lost: {verdict.reason}")
        if not verdict.free:
            say(f"warning: {name} is {verdict.state}: {verdict.reason}")
    if wish.min_free is not None or wish.max_util is not None:
        as_free = {key: Verdict("free", "named", "free") for key in judged}
        picked = pick(snapshot, as_free, Wish(1, wish.min_free, wish.max_util, wish.within))
        if picked.refused:
            raise NotEnoughError(_refusals(picked, snapshot))
    return tuple(snapshot.by_key[device.key] for device in devices)


def _shortage(picked: Picked, wish: Wish, snapshot: Snapshot, limits: Inherited | None) -> str:
    have = len(picked.devices)
    asked = f"{wish.count} device{'s' if wish.count > 1 else ''} asked for"
    there = f"{have if have else 'none'} of {have + len(picked.refused)} can be had"
    where = f" (inside CUDA_VISIBLE_DEVICES={limits.text})" if limits else ""
    reasons = _refusals(picked, snapshot)
    return f"{asked}, {there}{where}{': ' + reasons if reasons else ''}"


def _refusals(picked: Picked, snapshot: Snapshot) -> str:
    return "; ".join(f"GPU {snapshot.label(device)} {why}" for device, why in picked.refused)
