"""Everything the main screen shows, as one immutable value. Pure: each key press makes a new app state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from gputui.choosing.best import Best, best
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.links import permuted_behind_switches
from gputui.choosing.naming import listed
from gputui.choosing.order import ORDERS, Order, measured
from gputui.choosing.pick import Constraints, pick
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.choosing.selection import Selection
from gputui.choosing.verdict import Verdict, verdicts
from gputui.choosing.watch import Watch, settled
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.launching.host_environment import HostEnvironment, ThisHost
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.vendors.registry import inherited, mixed_vendors, vendor_named, vendor_of, vendors_of
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Inherited


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The best sets for what was asked, which of them is taken, and what was chosen by hand before."""

    alternatives: tuple[Best, ...]
    place: int
    kept: tuple[str, ...]
    job: Grouping

    @property
    def keys(self) -> tuple[str, ...]:
        """The taken set: what was chosen by hand in its order, then the others in theirs."""
        keys = [device.key for device in self.alternatives[self.place].devices]
        return (*self.kept, *(key for key in keys if key not in self.kept))

    @property
    def words(self) -> str:
        """Why this set, and how many others there are."""
        number = f"{self.place + 1} of {len(self.alternatives)} (B): " if len(self.alternatives) > 1 else ""
        return f"{number}{self.alternatives[self.place].reason or 'no difference is known'}"


@dataclass(frozen=True)
class AppState:
    """The box, the selection and the options at one moment.

    `chosen_as` has the verdict on each chosen device at the moment it was chosen; `cursor` is a device key;
    `environ` is what the command will inherit, read only; `label` names a box that is not this machine.
    `suggestion` is what the best devices were last asked for; `order` the last one that was asked for.
    `measured`: GB/s from one device to another, by their keys, where that was measured (`v`).
    """

    environ: Mapping[str, str]
    options: LaunchOptions = field(default_factory=LaunchOptions)
    label: str = ""
    snapshot: Snapshot | None = None
    problem: str | None = None
    watch: Watch = field(default_factory=Watch)
    selection: Selection = field(default_factory=Selection)
    chosen_as: Mapping[str, Verdict] = field(default_factory=dict)
    cursor: str | None = None
    suggestion: Suggestion | None = None
    order: Order | None = None
    host_environment: HostEnvironment = field(default_factory=ThisHost)
    measured: Mapping[tuple[str, str], float] = field(default_factory=dict)
    rules: Rules = DEFAULT_RULES

    @cached_property
    def judged(self) -> dict[str, Verdict]:
        """The verdict on every device, by key, as this one reading has it."""
        return verdicts(self.snapshot, self.rules) if self.snapshot else {}

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """The same over the window of readings: what has only just become free is not yet."""
        if self.snapshot is None:
            return {}
        return settled(self.judged, self.watch, self.snapshot.time, self.rules.window)

    @cached_property
    def limits(self) -> Inherited | None:
        """The lists of visible devices that we were started with, None where all is ours."""
        return inherited(self.environ, self.snapshot) if self.snapshot else None

    @cached_property
    def vendors(self) -> tuple[Vendor, ...]:
        """The vendors of all devices of the box."""
        return vendors_of(self.snapshot.devices) if self.snapshot else ()

    @cached_property
    def vendor(self) -> Vendor:
        """The vendor of the chosen devices, of the box where none is chosen."""
        return vendor_of(self.chosen, self.vendors)

    @cached_property
    def rows(self) -> tuple[Device, ...]:
        """The devices as they are listed: the chosen ones first, in their order, then the rest."""
        if self.snapshot is None:
            return ()
        return (*self.chosen, *(d for d in self.snapshot.devices if d.key not in self.selection))

    @cached_property
    def chosen(self) -> tuple[Device, ...]:
        """The chosen devices in their order."""
        if self.snapshot is None:
            return ()
        return tuple(self.snapshot.by_key[key] for key in self.selection)

    @cached_property
    def launch(self) -> Launch:
        """What Enter would start and `y` copies. Without a decision on devices: the command as it stands."""
        if not self.selection.decided:
            return Launch(self.options.command, tuple(self.options.additions), self.options.directory)
        # (The first picture mostly needs no launch, and launchers take 15 ms to import.)
        from gputui.launching.compose import compose

        return compose(self.chosen, self.options, self.environ, self.host_environment, self.vendors)

    @property
    def permuted(self) -> str | None:
        """What there is to say of an order that NCCL may get wrong, None where there is nothing."""
        if self.snapshot is not None and permuted_behind_switches(self.snapshot, self.chosen):
            return "NCCL may mix up a permuted order behind NVSwitches (nccl #1906): o sorts"
        return None

    @cached_property
    def cautions(self) -> tuple[str, ...]:
        """What there is to say about starting on the chosen devices as they are: not free, not real."""
        found = []
        taken = [device for device in self.chosen if not self.verdicts[device.key].free]
        if self.snapshot is not None and len(taken) <= 2:
            for device in taken:
                verdict = self.verdicts[device.key]
                # ("claimed ana 2h" says it already.)
                said = verdict.brief.startswith(verdict.state)
                what = verdict.brief if said else f"{verdict.state}: {verdict.brief}"
                found.append(f"GPU {self.snapshot.label(device)} is {what}")
        elif self.snapshot is not None:
            found.append(f"GPU {', '.join(self.snapshot.label(d) for d in taken)} are not free")
        if self.permuted:
            found.append(self.permuted)
        if self.label and self.options.command and self.selection.decided:
            found.append(f"these devices are not this machine's ({self.label}); the command is real")
        return tuple(found)

    @property
    def launcher(self) -> str:
        """The name of the launcher that is in force."""
        from gputui.launching.compose import launcher_of

        return launcher_of(self.options).name

    @property
    def current(self) -> Device | None:
        """The device under the cursor."""
        if self.snapshot is None or self.cursor is None:
            return None
        return self.snapshot.by_key.get(self.cursor)

    def seen(self, snapshot: Snapshot) -> AppState:
        """The app state with a new snapshot; what is not there any more is not chosen any more."""
        selection = self.selection.prune(device.key for device in snapshot.devices)
        app_state = AppState(
            environ=self.environ,
            options=self.options,
            label=self.label,
            snapshot=snapshot,
            selection=selection,
            chosen_as={key: v for key, v in self.chosen_as.items() if key in selection},
            cursor=self.cursor,
            suggestion=self.suggestion,
            order=self.order,
            host_environment=self.host_environment,
            measured=self.measured,
            rules=self.rules,
        )
        watch = self.watch.after(snapshot, app_state.judged)
        if app_state.current is None and snapshot.devices:
            return replace(app_state, watch=watch, cursor=app_state.rows[0].key)
        return replace(app_state, watch=watch)

    def troubled(self, problem: str) -> AppState:
        """The app state when there is nothing to read; a box that was seen before stays."""
        return replace(self, problem=problem)

    def refusal(self, device: Device) -> str | None:
        """Why the device cannot be chosen at all, None when it can."""
        verdict = self.verdicts[device.key]
        name = f"GPU {self.snapshot.label(device)}" if self.snapshot else device.key
        if device.mig:
            return f"{name} is divided into MIG instances: choose one of them"
        if verdict.state == "lost" or (device.fault and not device.uuid):
            return f"{name} is lost"
        if self.limits and device.key not in self.limits.keys:
            return f"{name} is not in the {self.limits.words} that you were given"
        if self.chosen and device.vendor != self.vendor.name:
            return f"{name}: {mixed_vendors((self.vendor, vendor_named(device.vendor)))}"
        return None

    def toggle(self, device: Device) -> tuple[AppState, str | None]:
        """The app state with the device chosen, or not any more; and what there is to say about it.

        A busy device may be chosen: that is a decision, and it is said.
        """
        if device.key in self.selection:
            return self._select(self.selection.toggle(device.key)), None
        refusal = self.refusal(device)
        if refusal or self.snapshot is None:
            return self, refusal
        verdict = self.verdicts[device.key]
        following = self._following(device)
        app_state = replace(self._select(self.selection.toggle(device.key)), cursor=following)
        if verdict.free:
            return app_state, None
        return app_state, f"GPU {self.snapshot.label(device)} is {verdict.state}: {verdict.reason}"

    def numbered(self, index: int) -> Device | None:
        """The GPU with this NVML index."""
        devices = self.snapshot.devices if self.snapshot else ()
        return next((d for d in devices if d.parent is None and d.index == index), None)

    def move_cursor(self, by: int) -> AppState:
        """The cursor some rows further, stopping at the ends."""
        rows = self.rows
        if not rows:
            return self
        place = next((i for i, d in enumerate(rows) if d.key == self.cursor), 0)
        return replace(self, cursor=rows[min(max(place + by, 0), len(rows) - 1)].key)

    def reorder(self, by: int) -> AppState:
        """The chosen device under the cursor, else the one chosen last, earlier or later in the order.

        The cursor goes with it, so that the next press moves the same device.
        """
        if not self.selection.keys:
            return self
        key = self.cursor if self.cursor in self.selection else self.selection.keys[-1]
        return replace(self._select(self.selection.move(key or "", by)), cursor=key)

    @property
    def suggested(self) -> Suggestion | None:
        """The best sets that the selection was taken from, while it is still one of them."""
        found = self.suggestion
        return found if found is not None and found.keys == self.selection.keys else None

    def add_best(self) -> tuple[AppState, str | None]:
        """The app state with one more of the best (with as many as make whole groups, where there are
        groups).

        Devices that were chosen by hand stay; the others are chosen anew, as the best two need not have the
        best one among them.
        """
        before = self.suggested
        kept = before.kept if before else self.selection.keys
        job = before.job if before else ALL_REDUCE
        return self.best_of(len(self.selection) + job.unit, job, kept)

    def best_of(
        self, count: int, job: Grouping = ALL_REDUCE, kept: tuple[str, ...] = ()
    ) -> tuple[AppState, str]:
        """The app state with the best `count` devices for the job, and why these; `kept` are among them."""
        if self.snapshot is None:
            return self, "nothing has been read yet"
        within = set(self.limits.keys) if self.limits else None
        never, prefer = (listed(words, self.snapshot) for words in (self.rules.never, self.rules.prefer))
        constraints = Constraints(count, within=within, job=job, required=kept, never=never, prefer=prefer)
        if count > 1 and any(self.snapshot.by_key[key].parent for key in kept):
            return self, "a MIG instance is chosen: a process uses one only, and no GPU beside it"
        picked = pick(self.snapshot, self.verdicts, constraints)
        if not picked.alternatives:
            return self, self._shortage(count, len(picked.devices))
        return self._take(Suggestion(picked.alternatives, 0, kept, job))

    def other_best(self) -> tuple[AppState, str | None]:
        """The app state with the next best set of as many devices, after the last one the best again."""
        before = self.suggested
        if before is None:
            app_state, news = self.best_of(max(1, len(self.selection)))
            return app_state, news if app_state is self else f"the best anew: {news}"
        if len(before.alternatives) == 1:
            return self, "there is no other set of as many that differs"
        return self._take(replace(before, place=(before.place + 1) % len(before.alternatives)))

    def _take(self, suggestion: Suggestion) -> tuple[AppState, str]:
        app_state = self._select(Selection(suggestion.keys))
        return replace(app_state, suggestion=suggestion), suggestion.words

    def _shortage(self, count: int, there: int) -> str:
        if not there:
            return "no device is free"
        if count == len(self.selection) + 1:
            return "no more free device"
        given = " of those that are yours" if self.limits else ""
        return f"{count} devices cannot be had: {there} {'is' if there == 1 else 'are'} free{given}"

    def next_order(self) -> tuple[AppState, str | None]:
        """The app state with the chosen devices in the next order: best, fastest, emptiest, the box's own."""
        if self.snapshot is None or len(self.chosen) < 2:
            return self, "two chosen devices make an order: space or 0-9 chooses"
        at = ORDERS.index(self.order) + 1 if self.order else 0
        names = {"best": "best for its links", "given": "as in the box"}
        for order in (*ORDERS[at:], *ORDERS[:at]):
            keys = self._ordered(order)
            if keys != self.selection.keys:
                app_state = replace(self._select(Selection(keys)), order=order)
                return app_state, f"order: {names.get(order, order + ' first')}"
        return self, "every order is the same here"

    def _ordered(self, order: Order) -> tuple[str, ...]:
        """The keys of the chosen devices in that order."""
        assert self.snapshot is not None
        in_box = tuple(d for d in self.snapshot.devices if d.key in self.selection)
        if order == "best":
            devices = best(self.snapshot, in_box, len(in_box), self.job, most=1)[0].devices
        elif order == "given":
            devices = in_box
        else:
            devices = measured(order, in_box)
        return tuple(device.key for device in devices)

    @property
    def job(self) -> Grouping:
        """What the chosen devices are for, as far as it was said and fits their number."""
        job = self.suggestion.job if self.suggestion else ALL_REDUCE
        return job if job.fits(len(self.selection)) else ALL_REDUCE

    def clear(self) -> AppState:
        """Nothing chosen."""
        return self._select(self.selection.clear())

    def cpu_only(self) -> AppState:
        """No device, on purpose; or undecided again."""
        return self._select(self.selection.none())

    def next_launcher(self) -> AppState:
        """The next launcher in the list."""
        from gputui.launching.launchers import LAUNCHERS

        names = list(LAUNCHERS)
        following = names[(names.index(self.launcher) + 1) % len(names)]
        return replace(self, options=replace(self.options, launcher=following))

    def other_ids(self) -> AppState:
        """Devices by UUID instead of by index, or back."""
        ids = self.options.ids
        return replace(self, options=replace(self.options, ids="index" if ids == "uuid" else "uuid"))

    def _select(self, selection: Selection) -> AppState:
        chosen_as = {key: self.chosen_as.get(key) or self.verdicts[key] for key in selection}
        return replace(self, selection=selection, chosen_as=chosen_as, order=None)

    def _following(self, device: Device) -> str:
        """The device below, for the cursor to go on to when this one moves to the top."""
        rows = self.rows
        place = rows.index(device)
        return rows[min(place + 1, len(rows) - 1)].key
