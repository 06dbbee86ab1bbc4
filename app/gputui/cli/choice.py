"""Which devices a call is about: what its options ask for, answered from the box."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from gputui.choosing.best import Best, as_ordered, best
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.links import PERMUTED, permuted_behind_switches
from gputui.choosing.naming import NONE, NamingError, listed, named
from gputui.choosing.order import MEASURES, measured
from gputui.choosing.pick import Constraints, Picked, available, pick
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import Verdict, verdicts
from gputui.cli.choice_options import rules_of
from gputui.cli.common import NotEnoughError, WrongCallError, opened, say
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import Source, Want
from gputui.vendors.registry import MixedVendorsError, inherited, inherits, vendor_of
from gputui.vendors.visibility import Inherited

if TYPE_CHECKING:
    # (`pick`, which must be quick, takes no lease.)
    from gputui.allocating.claims.lease import Lease


@dataclass(frozen=True, slots=True)
class Chosen:
    """The devices of one call, and the box they were chosen in; `alternatives`: as in `Picked`; `lease`
    where they were asked to be held."""

    devices: tuple[Device, ...]
    snapshot: Snapshot
    alternatives: tuple[Best, ...] = ()
    lease: Lease | None = None


Hold = Callable[[Snapshot, Sequence[Device]], "Lease"]
"""Takes a lease on devices. Raises TakenError."""

Approve = Callable[["Sequence[Device] | int"], None]
"""Looks, before any is claimed, whether the command agrees with these devices (with so many of them, where
they are not known yet). Raises WrongCallError."""

_TRIES = 50
"""Choices of one call: each time that devices are taken under our hands, others are chosen."""


def choose(
    args: argparse.Namespace,
    environ: Mapping[str, str] = os.environ,
    want: Want = Want.VERDICT,
    hold: Hold | None = None,
    told: str = "",
    approve: Approve | None = None,
) -> Chosen:
    """The devices that `-n`, `--gpus` and the conditions of a call ask for, in order.

    Raises WrongCallError or NotEnoughError. `want` is what the answer needs to know of the devices. With
    `hold` they are leased, read again under the lease, and chosen anew if they are not as they were.
    `told` is what other users read of the call while it waits in line. What `approve` does not let through
    is neither leased nor waited for.
    """
    job = args.group or ALL_REDUCE
    count = asked(args) if picks(args) else None
    if count is not None and not job.fits(count):
        raise WrongCallError(f"{count} devices do not make whole groups of {job}")
    rules = rules_of(args)
    if args.order == "fastest":
        want |= Want.NAMES
    if rules.by_owner:
        # Whose processes they are decides then, and how much memory is not theirs.
        want = (want & ~Want.VERDICT) | Want.MONITOR
    waits = getattr(args, "wait", None) is not None
    by_index = args.gpus is None and args.ids == "index" and not inherits(environ)
    by_index = by_index and hold is None and not waits
    by_index = by_index and all(word.isdigit() for word in (*rules.never, *rules.prefer))
    if want == Want.VERDICT and count != 1 and by_index:
        want = Want.VERDICT | Want.WHOLE
    with opened(args) as source:
        call = Call(args, source, environ, want, job, count, rules, hold is not None, told, approve)
        if waits:
            from gputui.cli.waiting import waited_for

            return waited_for(call, hold)
        chosen = call.chosen()
        if hold is not None:
            return held(call, chosen, hold)
        call.agree(chosen.devices)
        return chosen


def picks(args: argparse.Namespace) -> bool:
    """Whether a call leaves it to us which devices."""
    return args.n is not None or args.gpus is None


def asked(args: argparse.Namespace) -> int:
    """How many devices a call asks for."""
    if picks(args):
        return args.n or (args.group or ALL_REDUCE).unit
    return 0 if args.gpus == NONE else len(args.gpus.split(","))


class Call(NamedTuple):
    """What one call asks for, and whom. `asked` is None where devices are named without a number; `holds`
    whether a lease is taken, which tells of claims by itself; `told` and `approve` as in `choose`."""

    args: argparse.Namespace
    source: Source
    environ: Mapping[str, str]
    want: Want
    job: Grouping
    asked: int | None
    rules: Rules
    holds: bool = False
    told: str = ""
    approve: Approve | None = None

    def agree(self, devices: Sequence[Device] | int) -> None:
        """Raises WrongCallError where the call's command asks for other devices."""
        if self.approve is not None:
            self.approve(devices)

    def chosen(self, avoid: Mapping[str, str] | None = None, only: Collection[str] | None = None) -> Chosen:
        """The devices; those that are picked are none of `avoid`, which has the reasons, and of `only` where
        that is said."""
        args, source = self.args, self.source
        snapshot = source.read(self.want)
        limits = inherited(self.environ, snapshot)
        if limits and limits.warning and not avoid:
            say(f"warning: {limits.warning}")
        within: set[str] | None = set(limits.keys) if limits else None
        if args.gpus is not None:
            devices = by_name(args.gpus, snapshot, limits)
            if args.n is None:
                decided = _decided(devices, self, snapshot)
                return _in_order(decided, self, snapshot)
            within = {device.key for device in devices}
        if avoid:
            within = (set(snapshot.by_key) if within is None else within) - set(avoid)
        if only is not None:
            within = set(only) if within is None else within & set(only)
        constraints = self.constraints(snapshot, within)
        there = available(snapshot, self.verdicts(snapshot), constraints)
        if not there.enough(constraints):
            # Now, and only now, the owners are worth their price.
            snapshot = source.read(Want.MONITOR)
            constraints = self.constraints(snapshot, within)
            picked = pick(snapshot, self.verdicts(snapshot), constraints)
            raise NotEnoughError(_shortage(picked, constraints, snapshot, limits, avoid))
        told = _is_told(args)
        several = len(there.devices) > constraints.count or constraints.count > 2
        if told or (several and len(there.devices) > 1):
            # Links among those that can be had: of two, to take both, they decide nothing.
            keys = {device.key for device in there.devices}
            snapshot = source.read(self.links | (Want.NAMES if told else Want(0)), keys)
        picked = pick(snapshot, self.verdicts(snapshot), constraints)
        if not picked.enough(constraints):
            # One was lost while its links were read.
            raise NotEnoughError(_shortage(picked, constraints, snapshot, limits, avoid))
        if args.why:
            say(why(snapshot, picked.devices, picked.alternatives[0].reason))
        _warn_of_order(source, snapshot, picked.devices)
        return Chosen(picked.devices, snapshot, picked.alternatives)

    @property
    def links(self) -> Want:
        """What to read for links: owners, where they count, are told only where they are asked for."""
        return Want.LINKS | (self.want & Want.OWNERS)

    def verdicts(self, snapshot: Snapshot) -> dict[str, Verdict]:
        """By the rules of this call."""
        return verdicts(snapshot, self.rules)

    def constraints(self, snapshot: Snapshot, within: Collection[str] | None) -> Constraints:
        """What is asked for, within these devices (None: any)."""
        return Constraints(
            self.asked or 1,
            getattr(self.args, "min_free", None),
            getattr(self.args, "max_util", None),
            within,
            self.job,
            self.args.order or "best",
            most=1,
            never=listed(self.rules.never, snapshot),
            prefer=listed(self.rules.prefer, snapshot),
        )


def held(call: Call, chosen: Chosen, hold: Hold, only: Collection[str] | None = None) -> Chosen:
    """The same devices under a lease, or others (of `only`) if these are taken or not free any more.

    Named ones stay with a warning, unless `only` says that they were waited for. Raises NotEnoughError.
    """
    from gputui.allocating.claims.lease import TakenError

    named = call.asked is None
    taken: dict[str, str] = {}
    for _ in range(_TRIES):
        call.agree(chosen.devices)
        try:
            lease = hold(chosen.snapshot, chosen.devices)
        except TakenError as error:
            why_not = error.text(chosen.snapshot)
            if named:
                raise NotEnoughError(f"{why_not}; --force takes it all the same") from None
            taken[error.key] = why_not
            chosen = call.chosen(taken, only)
            continue
        gone = _gone(call, chosen)
        for why_not in gone.values():
            say(f"warning: {why_not}" if named and only is None else why_not)
        if not gone or (named and only is None):
            return replace(chosen, lease=lease)
        lease.release()
        if named:
            raise NotEnoughError("; ".join(gone.values()))
        taken |= gone
        chosen = call.chosen(taken, only)
    raise NotEnoughError("devices are taken faster than they can be chosen")


def _gone(call: Call, chosen: Chosen) -> dict[str, str]:
    """Read again: which of the devices were free when they were chosen, and are not now, with the reason."""
    if not chosen.devices:
        return {}
    before, judged = call.verdicts(chosen.snapshot), call.verdicts(call.source.read(call.want))
    found = {}
    for device in chosen.devices:
        verdict = judged.get(device.key)
        if before[device.key].free and (verdict is None or not verdict.free):
            why_not = f"{verdict.state}: {verdict.reason}" if verdict else "it is not there any more"
            found[device.key] = f"GPU {chosen.snapshot.label(device)} was free a moment ago, now {why_not}"
    return found


def _is_told(args: argparse.Namespace) -> bool:
    """Whether the call tells why these devices: then the links are read also where they decide nothing."""
    return bool(args.why or getattr(args, "format", None) == "json")


def why(snapshot: Snapshot, devices: Sequence[Device], reason: str) -> str:
    """The choice and its reason as one sentence."""
    return f"GPU {','.join(map(snapshot.label, devices))}: {reason or 'no difference is known'}"


def _in_order(devices: tuple[Device, ...], call: Call, snapshot: Snapshot) -> Chosen:
    """Devices that were named, in the order that is asked for; as they were named unless one is."""
    args, source, job = call.args, call.source, call.job
    if not job.fits(len(devices)):
        raise WrongCallError(f"{len(devices)} devices do not make whole groups of {job}")
    order = args.order or "given"
    keys = {device.key for device in devices}
    alternatives: tuple[Best, ...] = ()
    in_box: tuple[Device, ...] = ()
    told = _is_told(args)
    if len(devices) > 1 and (order == "best" or told):
        snapshot = source.read(call.links | Want.NAMES, keys)
        devices = tuple(snapshot.by_key[device.key] for device in devices if device.key in snapshot.by_key)
        if len(devices) < len(keys):
            raise NotEnoughError("a device that was named is not there any more")
        in_box = tuple(device for device in snapshot.devices if device.key in keys)
        if order == "best":
            devices = best(snapshot, in_box, len(devices), job, most=1)[0].devices
    if order in MEASURES:
        devices = measured(order, devices)
    if told and len(devices) > 1:
        alternatives = (as_ordered(snapshot, in_box, devices, job, named=True),)
    if args.why and devices:
        say(why(snapshot, devices, f"as named; {alternatives[0].reason}" if alternatives else "as named"))
    _warn_of_order(source, snapshot, devices)
    return Chosen(devices, snapshot, alternatives)


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


def by_name(text: str, snapshot: Snapshot, limits: Inherited | None) -> tuple[Device, ...]:
    try:
        devices = named(text, snapshot)
        vendor_of(devices)
    except (NamingError, MixedVendorsError) as error:
        raise WrongCallError(str(error)) from None
    outside = [snapshot.label(d) for d in devices if limits and d.key not in limits.keys]
    if limits and outside:
        raise WrongCallError(
            f"--gpus {text}: GPU {', '.join(outside)} is not in {limits.words}, which was"
            f" given to you; `{limits.unset} gputui …` sees all"
        )
    return devices


def _decided(devices: Sequence[Device], call: Call, snapshot: Snapshot) -> tuple[Device, ...]:
    """Devices named one by one: a decision. Conditions asked for must hold; all else is a warning."""
    args = call.args
    judged = call.verdicts(snapshot)
    if not all(judged[device.key].free for device in devices):
        # The whole reading: the short one, which was enough to see that, leaves out what it costs.
        snapshot = call.source.read(Want.MONITOR | (call.want & ~Want.VERDICT))
        judged = call.verdicts(snapshot)
    gone = [device.key for device in devices if device.key not in judged]
    if gone:
        raise NotEnoughError(f"{', '.join(gone)} is not there any more")
    constraints = Constraints(
        len(devices),
        getattr(args, "min_free", None),
        getattr(args, "max_util", None),
        {device.key for device in devices},
    )
    for device in devices:
        verdict, name = judged[device.key], f"GPU {snapshot.label(device)}"
        if verdict.state == "lost":
            raise NotEnoughError(f"{name} is lost: {verdict.reason}")
        if not verdict.free and not (call.holds and verdict.state == "claimed"):
            say(f"warning: {name} is {verdict.state}: {verdict.reason}")
    if constraints.min_free is not None or constraints.max_util is not None:
        as_free = {key: Verdict("free", "named", "free") for key in judged}
        picked = pick(
            snapshot, as_free, Constraints(1, constraints.min_free, constraints.max_util, constraints.within)
        )
        if picked.refused:
            raise NotEnoughError(_refusals(picked, snapshot))
    return tuple(snapshot.by_key[device.key] for device in devices)


def _shortage(
    picked: Picked,
    constraints: Constraints,
    snapshot: Snapshot,
    limits: Inherited | None,
    taken: Mapping[str, str] | None = None,
) -> str:
    """`taken`: devices that turned out not to be had, and why."""
    have, taken = len(picked.devices), taken or {}
    asked = f"{constraints.count} device{'s' if constraints.count > 1 else ''} asked for"
    there = f"{have if have else 'none'} of {have + len(picked.refused) + len(taken)} can be had"
    where = f" (inside {limits.words})" if limits else ""
    reasons = "; ".join(filter(None, (_refusals(picked, snapshot), *taken.values())))
    if snapshot.host.driver is None and not snapshot.time:
        # What `--from` makes of a printed matrix.
        reasons = "a matrix does not say who uses them; --demo FILE plays its box with nobody on it"
    return f"{asked}, {there}{where}{': ' + reasons if reasons else ''}"


def _refusals(picked: Picked, snapshot: Snapshot) -> str:
    return "; ".join(f"GPU {snapshot.label(device)} {why}" for device, why in picked.refused)
