"""Which devices a call is about: the options that say so, and the answer."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gputui.choosing.best import Best, as_ordered, best
from gputui.choosing.job import ALL_REDUCE, Job, JobError, parse
from gputui.choosing.links import PERMUTED, permuted_behind_switches
from gputui.choosing.naming import NamingError, named
from gputui.choosing.order import MEASURES, ORDERS, measured
from gputui.choosing.pick import Picked, Wish, available, pick
from gputui.choosing.verdict import Verdict, verdicts
from gputui.cli.common import NotEnoughError, WrongCallError, opened, say
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.wording import read_size
from gputui.launching.visibility import VISIBLE, Inherited, inherited
from gputui.sources.source import Source, Want


def add_choice_options(parser: argparse.ArgumentParser, exclusive: bool) -> None:
    """`-n` and `--gpus`; `--ids` says how the chosen ones are written."""
    group = parser.add_mutually_exclusive_group() if exclusive else parser
    group.add_argument("-n", type=count, metavar="N", help="how many of the best free devices")
    group.add_argument(
        "--gpus", metavar="LIST", help="these devices in this order: indices, UUIDs, or none for CPU only"
    )
    parser.add_argument(
        "--group",
        type=shape,
        metavar="SHAPE",
        help="what the devices do together: tp=2,pp=2 (tensor-parallel groups, pipeline stages), all"
        " (default), none (separate processes)",
    )
    parser.add_argument(
        "--order",
        choices=ORDERS,
        help="best (default with -n), given (default with --gpus), fastest or emptiest first; with -n the"
        " last two also decide which",
    )
    parser.add_argument("--why", action="store_true", help="say on stderr why these devices")
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


def shape(text: str) -> Job:
    """The shape of a job."""
    try:
        return parse(text)
    except JobError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def memory(text: str) -> int:
    """A SIZE in bytes."""
    try:
        return read_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def percent(text: str) -> int:
    """A percentage, 0 to 100, with or without the sign."""
    digits = text.removesuffix("%")
    if not (digits.isascii() and digits.isdigit()) or int(digits) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage (0 to 100)")
    return int(digits)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The devices of one call, and the box they were chosen in; `ways`: as in `Picked`."""

    devices: tuple[Device, ...]
    snapshot: Snapshot
    ways: tuple[Best, ...] = ()


def choose(
    args: argparse.Namespace, environ: Mapping[str, str] = os.environ, want: Want = Want.VERDICT
) -> Chosen:
    """The devices that `-n`, `--gpus` and the conditions of a call ask for, in order.

    Raises WrongCallError or NotEnoughError. `want` is what the answer needs to know of the devices.
    """
    job = args.group or ALL_REDUCE
    asked = args.n or (job.unit if args.gpus is None else None)
    if asked is not None and not job.fits(asked):
        raise WrongCallError(f"{asked} devices do not make whole groups of {job}")
    if args.order == "fastest":
        want |= Want.NAMES
    by_index = args.gpus is None and args.ids == "index" and VISIBLE not in environ
    if want == Want.VERDICT and asked != 1 and by_index:
        want = Want.VERDICT | Want.WHOLE
    with opened(args) as source:
        snapshot = source.read(want)
        limits = inherited(environ, snapshot)
        if limits and limits.warning:
            say(f"warning: {limits.warning}")
        if args.gpus is not None:
            devices = _named(args.gpus, snapshot, limits)
            if args.n is None:
                chosen = _decided(devices, args, source, want, snapshot)
                return _in_order(chosen, args, source, snapshot, job)
            within: set[str] | None = {device.key for device in devices}
        else:
            within = set(limits.keys) if limits else None
        wish = Wish(
            asked or 1,
            getattr(args, "min_free", None),
            getattr(args, "max_util", None),
            within,
            job,
            args.order or "best",
            most=1,
        )
        judged = verdicts(snapshot)
        there = available(snapshot, judged, wish)
        if not there.enough(wish):
            # Now, and only now, the owners are worth their price.
            snapshot = source.read(Want.MONITOR)
            raise NotEnoughError(_shortage(pick(snapshot, verdicts(snapshot), wish), wish, snapshot, limits))
        told = _is_told(args)
        several = len(there.devices) > wish.count or wish.count > 2
        if told or (several and len(there.devices) > 1):
            # Links among those that can be had: of two, to take both, they decide nothing.
            keys = {device.key for device in there.devices}
            snapshot = source.read(Want.LINKS | (Want.NAMES if told else Want(0)), keys)
        picked = pick(snapshot, verdicts(snapshot), wish)
        if not picked.enough(wish):
            # One was lost while its links were read.
            raise NotEnoughError(_shortage(picked, wish, snapshot, limits))
        if args.why:
            say(why(snapshot, picked.devices, picked.ways[0].reason))
        _warn_of_order(source, snapshot, picked.devices)
        return Chosen(picked.devices, snapshot, picked.ways)


def _is_told(args: argparse.Namespace) -> bool:
    """Whether the call tells why these devices: then the links are read also where they decide nothing."""
    return bool(args.why or getattr(args, "format", None) == "json")


def why(snapshot: Snapshot, devices: Sequence[Device], reason: str) -> str:
    """The choice and its reason as one sentence."""
    return f"GPU {','.join(map(snapshot.label, devices))}: {reason or 'no difference is known'}"


def _in_order(
    devices: tuple[Device, ...], args: argparse.Namespace, source: Source, snapshot: Snapshot, job: Job
) -> Chosen:
    """Devices that were named, in the order that is asked for; as they were named unless one is."""
    if not job.fits(len(devices)):
        raise WrongCallError(f"{len(devices)} devices do not make whole groups of {job}")
    order = args.order or "given"
    keys = {device.key for device in devices}
    ways: tuple[Best, ...] = ()
    in_box: tuple[Device, ...] = ()
    told = _is_told(args)
    if len(devices) > 1 and (order == "best" or told):
        snapshot = source.read(Want.LINKS | Want.NAMES, keys)
        devices = tuple(snapshot.by_key[device.key] for device in devices if device.key in snapshot.by_key)
        if len(devices) < len(keys):
            raise NotEnoughError("a device that was named is not there any more")
        in_box = tuple(device for device in snapshot.devices if device.key in keys)
        if order == "best":
            devices = best(snapshot, in_box, len(devices), job, most=1)[0].devices
    if order in MEASURES:
        devices = measured(order, devices)
    if told and len(devices) > 1:
        ways = (as_ordered(snapshot, in_box, devices, job, named=True),)
    if args.why and devices:
        say(why(snapshot, devices, f"as named; {ways[0].reason}" if ways else "as named"))
    _warn_of_order(source, snapshot, devices)
    return Chosen(devices, snapshot, ways)


def _warn_of_order(source: Source, snapshot: Snapshot, devices: Sequence[Device]) -> None:
    """Say so where this order is one that NCCL may get wrong. Only then is more read to know it."""
    places = [snapshot.position[device.key] for device in devices]
    if places == sorted(places):
        return
    keys = [device.key for device in devices]
    known = source.read(Want.LINKS | Want.NAMES, set(keys))
    there = [known.by_key[key] for key in keys if key in known.by_key]
    if permuted_behind_switches(known, there):
        say(f"warning: {PERMUTED}")


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
    if snapshot.host.driver is None and not snapshot.time:
        # What `--from` makes of a printed matrix.
        reasons = "a matrix does not say who uses them; --demo FILE plays its box with nobody on it"
    return f"{asked}, {there}{where}{': ' + reasons if reasons else ''}"


def _refusals(picked: Picked, snapshot: Snapshot) -> str:
    return "; ".join(f"GPU {snapshot.label(device)} {why}" for device, why in picked.refused)
