"""From a request to an allocation: choose, claim, read again, and choose again if others were quicker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from gputui.allocating.allocation import Allocation, Answer, NoLongerFree, Queue, answer_to, hold, queue_for
from gputui.allocating.errors import NotEnoughError, RequestError
from gputui.allocating.request import CommandList, Notice, NoticeKind, Request
from gputui.allocating.shortage import not_enough
from gputui.choosing.best import Alternative, best, describe_order
from gputui.choosing.links import PERMUTED, permuted_behind_switches
from gputui.choosing.named_devices import NONE, devices_named, keys_named
from gputui.choosing.order import SORT_KEYS, sorted_by
from gputui.choosing.pick import Constraints, PickResult, available, of_own_lease, pick
from gputui.choosing.speed import unlike
from gputui.choosing.verdict import Idle, Verdict, Verdicts, verdicts
from gputui.choosing.verdict_text import claimed, refusals, state_and_reason
from gputui.inventory.device import Among, Device
from gputui.inventory.formatting import devices_text, gpus
from gputui.inventory.light_dataclasses import replace
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import NoSourceError, Source, Want
from gputui.system.environment import Environ
from gputui.vendors.registry import (
    inherited,
    inherits,
    listed,
    order_to_read,
    vendor_of,
    vendors_of,
)
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Inherited

Approve = Callable[["Sequence[Device] | int", "Sequence[Vendor]"], None]
"""Check whether the command agrees with these devices, before any is claimed or waited for.

An int is the number of devices, where they are not known yet. The vendors are those of the box. Raises
RequestError."""

_TRIES = 50
"""The most choices for one request: devices are chosen again each time that others take one first."""

_REMEDY = "--wait joins the line, --force skips it"


class Listener(Protocol):
    """Receives notices on the way to an allocation, as they occur."""

    def notice(self, notice: Notice) -> None:
        """Receive a sentence in addition to the result."""


class Allocator:
    """Processes one request.

    `holds`: whether the devices are leased. Devices of another machine (a recording, a simulated box) have
    neither claims nor a queue.
    """

    def __init__(
        self,
        request: Request,
        source: Source,
        environ: Environ,
        listener: Listener,
        holds: bool = False,
        approve: Approve | None = None,
    ) -> None:
        self.request, self.source, self.environ = request, source, environ
        self._listener, self._approve = listener, approve
        self._here = not source.label
        self.holds = holds and self._here
        self._notices: list[Notice] = []
        self._told: dict[str, Answer] = {}
        self.want = self._wanted()

    def allocate(self) -> Allocation:
        """The devices for the request, in their present state. Raises RequestError, NotEnoughError."""
        chosen = self.choose()
        if self.holds:
            return self.held(chosen)
        self.agree(chosen.devices, chosen.snapshot)
        if self._here and chosen.devices and not self.request.force:
            from gputui.allocating.claims.files import seen

            seen(self.environ).problems.refuse_if_missing()
        queue = None if self.request.force else self._queue(chosen)
        if queue is not None:
            self._tell_of(queue)
        return self._noticed(chosen)

    def agree(self, devices: Sequence[Device] | int, snapshot: Snapshot) -> None:
        """Raise RequestError where the command asks for other devices."""
        if self._approve is not None:
            self._approve(devices, vendors_of(snapshot.devices))

    def read(self) -> Snapshot:
        """The box now, with all facts that the request's verdicts depend on.

        Raises NoSourceError where no device is offered because a driver is missing; a named device is
        available nevertheless.
        """
        snapshot = self._look(self.want)
        if snapshot.missing is not None and self.request.names is None:
            raise NoSourceError(snapshot.missing)
        return snapshot

    def _look(self, want: Want, among: Among = None) -> Snapshot:
        """One more reading, in which every device has the same key as in the readings before."""
        return self.source.read(want | (self.want & Want.WHOLE), among)

    def verdicts(self, snapshot: Snapshot) -> Verdicts:
        """The verdicts by the rules of the request."""
        return verdicts(snapshot, self.request.rules)

    def _refusing(self, snapshot: Snapshot) -> Verdicts:
        """The same of a whole reading, from which devices are refused: they say, as `ls` does, for how long
        a user has not used one."""
        # Imported here, because mostly no device is refused.
        from gputui.timeline.past import with_past

        return self.verdicts(with_past(snapshot, self.environ) if self._here else snapshot)

    def limits(self, snapshot: Snapshot) -> Inherited | None:
        """The devices that this process was given (by Slurm, a container, a shell); None for all.

        Raises RequestError where these devices are not known.
        """
        if self.request.cpu_only:
            return None
        found = inherited(self.environ, snapshot)
        if found is not None and found.unknown is not None:
            raise RequestError(found.unknown)
        return found

    def named(self, snapshot: Snapshot) -> tuple[Device, ...]:
        """The devices that the request names, in its order. Raises RequestError.

        Devices of several vendors may be named to pick from them, not to start on them.
        """
        names, limits = self.request.names or "", self.limits(snapshot)
        words = f"--gpus {names}"
        if self.request.command_list is not None and names != NONE:
            words = self.request.command_list.words
            devices = self._listed(names, self.request.command_list, snapshot)
        else:
            devices = devices_named(names, snapshot, self.request.vendor)
        if not self.request.picks and (why := vendor_of(devices).refused(devices)) is not None:
            raise RequestError(f"--gpus {names}: {why}")
        outside = [snapshot.label(d) for d in devices if limits and d.key not in limits.keys]
        if limits and outside:
            raise RequestError(
                f"{words}: {gpus(outside)} {'is' if len(outside) == 1 else 'are'} outside {limits.words},"
                f" which limits this session; `{limits.unset} gputui …` shows all"
            )
        return devices

    def reach(self, snapshot: Snapshot) -> set[str] | None:
        """The keys of the devices that may be picked where none are named; None for all.

        Inside a lease, these are the devices of the lease: a launch there is a step of the lease.
        """
        limits = self.limits(snapshot)
        return of_own_lease(snapshot, limits.keys if limits else None)

    def _listed(self, text: str, where: CommandList, snapshot: Snapshot) -> tuple[Device, ...]:
        """The devices that a list in the command means.

        Raises RequestError where they are unknown, or where the list would not be read as it looks.
        """
        box = vendors_of(snapshot.devices)
        vendor, found = listed(text, where.environ, where.words, snapshot.devices, box)
        problem = found.unknown or found.warning
        if problem is not None:
            raise RequestError(f"{problem}; name them with --gpus")
        if not vendor.visibility.names_in_order(text, found.devices):
            numbers = ",".join(map(snapshot.label, found.devices))
            read = f"as {vendor.visibility.reader} reads it"
            if vendor.visibility.may_count_otherwise(text, where.environ):
                read = "the fastest device is counted first"
            self._notice(f"{where.words} is GPU {numbers} here: {read}", "note")
        return found.devices

    def constraints(self, snapshot: Snapshot, within: Among) -> Constraints:
        """The constraints on the devices with the keys `within` (None: on all devices)."""
        request, limits = self.request, self.limits(snapshot)
        return Constraints(
            request.count or 1,
            request.min_free,
            request.max_util,
            within,
            request.group,
            request.order or "best",
            limit=1,
            never=keys_named(request.rules.never, snapshot),
            prefer=keys_named(request.rules.prefer, snapshot),
            listed=limits.keys if limits else (),
            vendor=request.vendor,
        )

    def choose(self, avoid: Mapping[str, str] | None = None, only: Among = None) -> Allocation:
        """The devices, not held yet. Raises RequestError, NotEnoughError.

        Picked devices are not in `avoid` (key: why it is not available), and are in `only` where it is given.
        """
        snapshot = self.read()
        limits = self.limits(snapshot)
        if limits and limits.warning and not avoid:
            self._notice(limits.warning)
        if limits and limits.note and not avoid:
            self._notice(limits.note, "note")
        within = self.reach(snapshot)
        if self.request.names is not None:
            devices = self.named(snapshot)
            if not self.request.picks:
                return self._as_named(self._checked(devices, snapshot), snapshot)
            within = {device.key for device in devices}
        if avoid:
            within = (set(snapshot.by_key) if within is None else within) - set(avoid)
        if only is not None:
            within = set(only) if within is None else within & set(only)
        return self._best(snapshot, within, avoid or {})

    def held(self, chosen: Allocation, only: Among = None) -> Allocation:
        """The same devices under a lease, or others (of `only`) if these are taken or no longer free.

        Named devices are taken or refused as they are, unless `only` says that they were waited for. Raises
        NotEnoughError.
        """
        avoid: dict[str, str] = {}
        for _ in range(_TRIES):
            self.agree(chosen.devices, chosen.snapshot)
            taken = self._queued(chosen)
            if not taken:
                allocation, taken = self._leased(chosen, waited_for=only is not None)
                if allocation is not None:
                    return self._noticed(allocation)
            if not self.request.picks:
                raise NotEnoughError("; ".join(taken.values()), taken)
            avoid |= taken
            chosen = self.choose(avoid, only)
        raise NotEnoughError(
            "other launches claimed the devices first, several times in a row; try again", avoid
        )

    def _leased(self, chosen: Allocation, waited_for: bool) -> tuple[Allocation | None, dict[str, str]]:
        """The devices under a lease, read again; or None, and the reasons why some are taken or not free.

        Named devices that were not waited for are taken or refused as they are.
        """
        allocation = hold(chosen, self.environ, partly=self.request.force)
        taken = self._claimed(allocation)
        if taken:
            return None, taken
        for notice in allocation.notices:
            self._tell(notice)
        if not allocation.devices:
            return allocation, {}
        named = not self.request.picks and not waited_for
        try:
            # Since the choice, somebody may have given a device to one program only, or divided it.
            later = self._look(self.want | Want.MODES)
            if named:
                self._insist(allocation.devices, later, allocation.snapshot)
                return allocation, {}
        except BaseException:
            allocation.release()
            raise
        gone = allocation.recheck(later, self.verdicts(later), self.verdicts(allocation.snapshot))
        if not gone:
            return allocation, {}
        allocation.release()
        taken = {conflict.key: conflict.text(allocation.snapshot) for conflict in gone}
        for text in taken.values():
            self._notice(text, "note")
        return None, taken

    def _wanted(self) -> Want:
        """The facts to read for verdicts and names: as few as possible, because `pick` must be quick."""
        request, want = self.request, self.request.facts | order_to_read(self.environ)
        if request.order == "fastest":
            want |= Want.NAMES
        if request.min_free is not None:
            # The host reports the free part of unified memory (GB10).
            want |= Want.HOST
        if request.rules.by_owner:
            # Then the owners of the processes matter, and the memory that is not theirs.
            want = (want & ~Want.VERDICT) | Want.MONITOR
        by_index = request.by_index and request.names is None and not inherits(self.environ)
        by_index = by_index and not self.holds and request.wait is None
        by_index = by_index and all(word.isdigit() for word in (*request.rules.never, *request.rules.prefer))
        if want & ~Want.HOST == Want.VERDICT and request.count != 1 and by_index:
            want |= Want.WHOLE
        return want

    def _best(self, snapshot: Snapshot, within: set[str] | None, avoid: Mapping[str, str]) -> Allocation:
        """The best of the devices `within`. Raises NotEnoughError."""
        constraints = self.constraints(snapshot, within)
        eligible = available(snapshot, self.verdicts(snapshot), constraints)
        forced: Verdicts = {}
        if not eligible.enough(constraints):
            # Only now are the owners worth the cost of reading them. Nothing of the first reading is kept.
            snapshot = self.source.read(Want.MONITOR | (self.want & (Want.HOST | Want.WHOLE)))
            constraints = self.constraints(snapshot, within)
            picked = pick(snapshot, self._refusing(snapshot), constraints)
            if self.request.force:
                free = {device.key for device in picked.devices}
                forced, picked = self._forced(snapshot, replace(constraints, required=free))
                constraints = replace(constraints, within={device.key for device in picked.devices})
            self._check_enough(picked, constraints, snapshot, avoid)
            eligible = picked
        explain = self.request.explain
        a_choice = len(eligible.devices) > constraints.count or constraints.count > 2
        if explain or (a_choice and len(eligible.devices) > 1):
            # The links among the available devices, which decide nothing where two of two are taken.
            keys = {device.key for device in eligible.devices}
            snapshot = self._look(self._links | (Want.NAMES if explain else Want(0)), keys)
        elif constraints.count > 1:
            # Of different models, the fastest device is first.
            snapshot = self._look(Want.SPEED, {device.key for device in eligible.devices})
        picked = pick(snapshot, {**self.verdicts(snapshot), **forced}, constraints)
        # A device may have been lost while its links were read.
        self._check_enough(picked, constraints, snapshot, avoid)
        if explain:
            self._explain(snapshot, picked.devices, picked.alternatives[0].reason)
        self._warn(snapshot, picked.devices)
        return Allocation(self.request, picked.devices, snapshot, picked.alternatives)

    def _check_enough(
        self, picked: PickResult, constraints: Constraints, snapshot: Snapshot, avoid: Mapping[str, str]
    ) -> None:
        """Raise NotEnoughError where fewer devices are picked than asked for."""
        if not picked.enough(constraints):
            raise not_enough(picked, constraints, snapshot, self._where(snapshot), avoid)

    def _forced(self, snapshot: Snapshot, constraints: Constraints) -> tuple[Verdicts, PickResult]:
        """The forced verdicts, and the devices that are picked with them.

        With `--force`, devices that others have claimed count as free; if these are too few, devices that
        others use count too.
        """
        judged, free = self._refusing(snapshot), Verdict("free", Idle())
        for states in (("claimed",), ("claimed", "cooling", "unknown", "busy", "held")):
            forced = {key: free for key, verdict in judged.items() if verdict.state in states}
            picked = pick(snapshot, {**judged, **forced}, constraints)
            if picked.enough(constraints):
                break
        for device in picked.devices:
            verdict = judged[device.key]
            if verdict.state not in ("free", "claimed"):
                text = f"GPU {snapshot.label(device)} is {state_and_reason(verdict, snapshot.time)}"
                self._notice(f"{text}; used because of --force")
        return forced, picked

    def _where(self, snapshot: Snapshot) -> str:
        """The limits on the devices, as part of a sentence; "" for none."""
        limits, within, listed = self.limits(snapshot), self.reach(snapshot), self.request.command_list
        if listed is not None:
            return f" ({listed.words} allows GPU {self.request.names} only; without it, any may be selected)"
        if within and within <= snapshot.own_lease and self.request.names is None:
            labels = ",".join(snapshot.label(device) for device in snapshot.devices if device.key in within)
            return f" (inside your claim on GPU {labels})"
        return f" (inside {limits.words})" if limits else ""

    @property
    def _links(self) -> Want:
        """Links, and the speed of devices; with owners only where verdicts depend on them."""
        return Want.LINKS | Want.SPEED | (self.want & Want.OWNERS)

    def _as_named(self, devices: tuple[Device, ...], snapshot: Snapshot) -> Allocation:
        """Named devices in the requested order; in the order of their names unless one is requested."""
        request = self.request
        if not request.group.fits(len(devices)):
            raise RequestError(request.group.misfit(len(devices)))
        order = request.order or "given"
        keys = {device.key for device in devices}
        alternatives: tuple[Alternative, ...] = ()
        in_box: tuple[Device, ...] = ()
        if len(devices) > 1 and (order == "best" or request.explain):
            snapshot = self._look(self._links | Want.NAMES, keys)
            devices = tuple(
                snapshot.by_key[device.key] for device in devices if device.key in snapshot.by_key
            )
            if len(devices) < len(keys):
                raise NotEnoughError("a named device is no longer present")
            in_box = tuple(device for device in snapshot.devices if device.key in keys)
            if order == "best":
                devices = best(snapshot, in_box, len(devices), request.group, limit=1)[0].devices
        if order in SORT_KEYS:
            devices = sorted_by(order, devices)
        if request.explain and len(devices) > 1:
            alternatives = (describe_order(snapshot, in_box, devices, request.group, named=True),)
        if request.explain and devices:
            why = f"as named; {alternatives[0].reason}" if alternatives else "as named"
            self._explain(snapshot, devices, why)
        self._warn(snapshot, devices)
        return Allocation(request, devices, snapshot, alternatives)

    def _checked(self, devices: Sequence[Device], snapshot: Snapshot) -> tuple[Device, ...]:
        """Named devices, which must meet the request's conditions. Raises NotEnoughError."""
        request = self.request
        snapshot, judged = self._insist(devices, snapshot)
        if request.min_free is not None or request.max_util is not None:
            as_free = {key: Verdict("free", Idle()) for key in judged}
            keys = {device.key for device in devices}
            picked = pick(snapshot, as_free, Constraints(1, request.min_free, request.max_util, keys))
            if picked.refused:
                raise NotEnoughError(
                    refusals(picked.refused, snapshot), (device.key for device, _ in picked.refused)
                )
        return tuple(snapshot.by_key[device.key] for device in devices)

    def _insist(
        self, devices: Sequence[Device], snapshot: Snapshot, chosen_in: Snapshot | None = None
    ) -> tuple[Snapshot, Verdicts]:
        """Check named devices: the snapshot and the verdicts.

        The snapshot is a whole reading where a device is not free. With `chosen_in` this is a second look,
        which reports only changes since then. Raises NotEnoughError for devices that `answer_to` refuses.
        """
        there, judged = snapshot, self.verdicts(snapshot)
        if not all(device.key in judged and judged[device.key].free for device in devices):
            # The short reading was enough to see that; only a whole reading can give the reason.
            snapshot = self._look(Want.MONITOR | Want.MODES | (self.want & ~Want.VERDICT))
            judged = self._refusing(snapshot)
        found: dict[str, tuple[Answer, str]] = {}
        for device in devices:
            verdict, name = judged.get(device.key), f"GPU {(chosen_in or there).label(device)}"
            claim = None if self.holds and not self.request.if_free else snapshot.claimed.get(device.key)
            answer = answer_to(verdict, device.key in snapshot.own_lease)
            if verdict is not None and verdict.state == "claimed" and claim is None:
                # It is refused when the devices are held, or passed over with a warning then.
                continue
            if verdict is None or (chosen_in is not None and device.key not in self._told):
                text = NoLongerFree(device.key, verdict, snapshot.time).text(chosen_in or there)
            elif claim is not None and answer in ("take", "warn"):
                answer, text = "force", claimed(name, claim, snapshot.time)
            else:
                text = f"{name} is {state_and_reason(verdict, snapshot.time)}"
            if answer != "take" and self._told.get(device.key) != answer:
                self._told[device.key] = answer
                found[device.key] = answer, text
        if any(answer in ("force", "never") for answer, _ in found.values()):
            # A fault in the call is reported before a fault in the box.
            self.agree(devices, chosen_in or there)
        self._refuse_or_tell(found)
        return snapshot, judged

    def _refuse_or_tell(self, found: Mapping[str, tuple[Answer, str]]) -> None:
        """Refuse named devices, by their keys, or report them, as `answer_to` has answered. Raises
        NotEnoughError."""
        never = {key: text for key, (answer, text) in found.items() if answer == "never"}
        needing_force = {key: text for key, (answer, text) in found.items() if answer == "force"}
        if never:
            summary = f"{len(never)} named GPUs cannot be used"
            raise NotEnoughError(
                "; ".join(never.values()), never, summary, [("", each) for each in never.values()], False
            )
        if found and self.request.if_free:
            raise NotEnoughError(
                f"{'; '.join(text for _, text in found.values())} (--if-free)", found, waiting_helps=False
            )
        if needing_force and not self.request.force:
            which = "it" if len(needing_force) == 1 else "them"
            error = NotEnoughError(
                f"{'; '.join(needing_force.values())}; --force uses {which} anyway",
                needing_force,
                f"{len(needing_force)} named GPUs are not free (--force uses them anyway)",
                [("", text) for text in needing_force.values()],
            )
            error.remedy = f"wait for {which} (--wait), or name others (--gpus)"
            raise error
        for answer, text in found.values():
            self._notice(f"{text}; used because of --force" if answer == "force" else text)

    def _queued(self, chosen: Allocation) -> dict[str, str]:
        """The devices that others wait for, with the reason why they are not taken.

        Taking them now would keep a large request waiting, so nobody overtakes. Named devices only bring a
        warning. Raises NotEnoughError where others wait for any device of the box.
        """
        if self.request.force:
            return {}
        queue = self._queue(chosen)
        if queue is None:
            return {}
        if self.request.insists:
            self._tell_of(queue)
            return {}
        why, there = f"{queue.text()}; {_REMEDY}", chosen.snapshot
        if queue.for_any:
            free = len(
                available(there, self.verdicts(there), self.constraints(there, self.reach(there))).devices
            )
            raise NotEnoughError(f"{devices_text(free)} {'is' if free == 1 else 'are'} free, but {why}")
        return {
            device.key: f"GPU {there.label(device)}: {why}"
            for device in chosen.devices
            if queue.wants(device)
        }

    def _tell_of(self, queue: Queue) -> None:
        """Warn of the waiters, where devices are named or nothing is started."""
        named = "named devices are taken nevertheless; --wait joins the line"
        self._notice(f"{queue.text()}; {named if self.request.insists else f'a run is refused: {_REMEDY}'}")

    def _queue(self, chosen: Allocation) -> Queue | None:
        """The other programs that wait for devices like these; None where we have waited for our turn."""
        if self.request.wait is not None or not self._here:
            return None
        return queue_for(chosen.devices, chosen.snapshot, self.environ)

    def _claimed(self, allocation: Allocation) -> dict[str, str]:
        """The devices that others have claimed, with the holders; with `force` this is a warning.

        Raises NotEnoughError for devices that were named.
        """
        texts = {each.key: each.text(allocation.snapshot) for each in allocation.conflicts}
        if self.request.picks and not self.request.force:
            return texts
        self._refuse_or_tell({key: ("force", text) for key, text in texts.items()})
        return {}

    def _explain(self, snapshot: Snapshot, devices: Sequence[Device], reason: str) -> None:
        """Report the choice and its reason as one sentence."""
        labels = ",".join(map(snapshot.label, devices))
        self._notice(f"GPU {labels}: {reason or 'no known difference'}", "reason")

    def _warn(self, snapshot: Snapshot, devices: Sequence[Device]) -> None:
        """Warn of unlike devices, and of an order that NCCL may get wrong.

        Further facts are read only for several devices that were named, and for an order that is not
        ascending.
        """
        keys = {device.key for device in devices}
        if len(keys) > 1 and None in {device.name for device in devices}:
            read = self._look(Want.SPEED, keys).by_key
            devices = [read.get(device.key, device) for device in devices]
        if (text := unlike(devices)) is not None:
            self._notice(text)
        positions = [snapshot.position[device.key] for device in devices]
        if positions == sorted(positions) or not self.request.ranked:
            return
        linked = self._look(Want.LINKS | Want.NAMES, keys)
        there = [linked.by_key[device.key] for device in devices if device.key in linked.by_key]
        if permuted_behind_switches(linked, there):
            in_order = sorted(there, key=lambda device: snapshot.position[device.key])
            self._notice(PERMUTED.format(",".join(map(snapshot.label, in_order))))

    def _notice(self, text: str, kind: NoticeKind = "warning") -> None:
        self._tell(Notice(text, kind))

    def _tell(self, notice: Notice) -> None:
        self._notices.append(notice)
        self._listener.notice(notice)

    def _noticed(self, allocation: Allocation) -> Allocation:
        """The allocation with all notices that were given on the way to it."""
        return allocation._replace(notices=tuple(self._notices))
