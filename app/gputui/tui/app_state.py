"""AppState: everything the main screen shows, as one immutable value. Pure: each key makes a new value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from gputui.allocating.settings import DEFAULT_SCREEN, ScreenSettings
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.idleness import idle_seconds
from gputui.choosing.links import PERMUTED, permuted_behind_switches
from gputui.choosing.named_devices import keys_named
from gputui.choosing.own_jobs import own_job_on
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.choosing.selection import Selection
from gputui.choosing.speed import unlike
from gputui.choosing.state_times import Watch, with_cooling
from gputui.choosing.verdict import Verdict, Verdicts, verdicts, with_idle
from gputui.choosing.verdict_text import in_use_by, reason, refusals, state_and_brief
from gputui.inventory.device import Device
from gputui.inventory.formatting import Seen, devices_text, gpus, printable, short_name
from gputui.inventory.light_dataclasses import dataclass, field, frozen, replace
from gputui.inventory.process import earliest
from gputui.inventory.snapshot import Host, Snapshot
from gputui.launching.host_environment import HostEnvironment, ThisHost
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from gputui.system.environment import Environ
from gputui.tui.actions import key_of
from gputui.tui.device_rows import NOISY, listed
from gputui.vendors.registry import (
    inherited,
    mixed_vendors,
    vendor_named,
    vendor_of,
    vendors_here,
    vendors_of,
)
from gputui.vendors.registry import listed as listed_in_command
from gputui.vendors.vendor import Vendor
from gputui.vendors.visibility import Inherited

if TYPE_CHECKING:
    from gputui.choosing.bandwidth import Rates

    # The first frame needs no best set, and the search for one takes 7 ms to import.
    from gputui.choosing.best import Alternative
    from gputui.choosing.claimed_use import ClaimedUse
    from gputui.choosing.order import Order
    from gputui.choosing.pick import Constraints, PickResult
    from gputui.choosing.queue_outlook import Outlook
    from gputui.inventory.job import Job
    from gputui.inventory.waiter import Waiters
    from gputui.launching.intent import Intent, NamedDevices
    from gputui.timeline.store import Timelines


Result = TypeVar("Result")

NO_DEVICES = "no GPUs in this box: gputui doctor says what is missing, :nodes shows other boxes"

ORDER_NAMES: dict[Order, str] = {
    "best": "best for the links",
    "given": "by index",
    "fastest": "fastest first",
    "emptiest": "emptiest first",
}
"""What the screen calls the orders of devices."""

_NOT_READ = Snapshot(Host(), 0.0, ())

Told = tuple["AppState", str | None]
"""The app state after an action, and a message about it."""


@frozen
class Suggestion:
    """The best sets of devices for a request.

    index     the index of the selected set in `alternatives`
    kept      the keys of the devices that the user had selected before, in their order: every set has them
    grouping  the grouping of the processes that the devices are for
    """

    alternatives: tuple[Alternative, ...]
    index: int
    kept: tuple[str, ...]
    grouping: Grouping

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the set: the kept devices, then the others in the set's order."""
        keys = [device.key for device in self.alternatives[self.index].devices]
        return (*self.kept, *(key for key in keys if key not in self.kept))

    @property
    def why(self) -> str:
        """Why this set was chosen. Its weakest link is told with the selection."""
        parts = self.alternatives[self.index].reason.split("; ")
        told = [part for part in parts if not part.startswith("weakest link")]
        return "; ".join(told) or "no known difference"

    @property
    def reason(self) -> str:
        """The same, and how to see another set where there is one."""
        return self.why + "; another set: :next set" * (len(self.alternatives) > 1)


@frozen
class CommandChoice:
    """The selection that the command itself asked for.

    options    the launch options that contain the command
    words      the words of the command that ask: "--num_gpus 2"; "" where it says nothing about devices
    selection  the devices selected for it; undecided where that was not possible
    firm       whether the user wrote the request, in contrast to a default
    """

    options: LaunchOptions
    words: str = ""
    selection: Selection = field(default_factory=Selection)
    firm: bool = True


@dataclass(frozen=True)
class AppState:
    """The box, the selection and the launch options at one moment.

    environ                 the environment that the command will inherit; read only
    label                   names a box that is not this machine, "" for this one
    verdicts_now            the verdict on every device, by key, from this one reading
    problem                 why there is nothing to read, None while there is
    verdicts_when_selected  the verdict on each selected device at the time of its selection, by key
    cursor                  a device key
    suggestion              the answer to the last request for the best devices
    order                   the last requested order
    command_choice          the result of the last reading of the command, None before the first
    proposed                whether the command has chosen the selection, and the user has not touched it
    listed_before           the keys of the devices in the order of the previous listing
    short_of                the number of devices in the last request, where fewer are free
    screen                  which columns, panels and devices are shown
    example                 a command that the user did not type and that is only rehearsed; () for none
    set_aside               a filter of the settings that has matched nothing here so far, and is not applied
    timelines               how the devices were used over the last hours, None before the first reading
    measured                GB/s from one device to another, by their keys, where it has been measured
    earlier                 what `restored` brings back: the launch options that a plan replaced (None: those
                            of now stay), and a selection; None where nothing was cleared or replaced
    """

    environ: Environ
    options: LaunchOptions = field(default_factory=LaunchOptions)
    label: str = ""
    snapshot: Snapshot | None = None
    verdicts_now: Verdicts = field(default_factory=dict)
    problem: str | None = None
    watch: Watch = field(default_factory=Watch)
    timelines: Timelines | None = None
    selection: Selection = field(default_factory=Selection)
    verdicts_when_selected: Verdicts = field(default_factory=dict)
    cursor: str | None = None
    suggestion: Suggestion | None = None
    order: Order | None = None
    host_environment: HostEnvironment = field(default_factory=ThisHost)
    command_choice: CommandChoice | None = None
    proposed: bool = False
    measured: Rates = field(default_factory=dict)
    rules: Rules = DEFAULT_RULES
    screen: ScreenSettings = DEFAULT_SCREEN
    example: tuple[str, ...] = ()
    set_aside: str = ""
    short_of: int | None = None
    listed_before: tuple[str, ...] = ()
    earlier: tuple[LaunchOptions | None, Selection] | None = None

    # A new reading

    def with_snapshot(self, snapshot: Snapshot) -> AppState:
        """The app state with a new snapshot. Devices that have vanished are deselected."""
        selection = self.selection.prune(device.key for device in snapshot.devices)
        judged = verdicts(snapshot, self.rules)
        new = replace(
            self,
            snapshot=snapshot,
            verdicts_now=judged,
            watch=self.watch.after(snapshot, judged),
            problem=None,
            listed_before=tuple(device.key for device in self.rows) if self.screen.sort in NOISY else (),
            selection=selection,
            verdicts_when_selected={k: v for k, v in self.verdicts_when_selected.items() if k in selection},
        )
        if self.snapshot is None and new.screen.filter:
            # The first reading may not know the users of the processes: a later one then applies the filter.
            new = replace(new, set_aside=new.screen.filter, screen=new.screen._replace(filter=""))
        return new._with_kept_filter()._with_visible_cursor()

    def _with_kept_filter(self) -> AppState:
        """This app state with the filter that was set aside, applied if a device matches it."""
        if not self.set_aside:
            return self
        filtered = replace(self, set_aside="", screen=self.screen._replace(filter=self.set_aside))
        return filtered if filtered.rows else self

    def with_rules(self, rules: Rules) -> AppState:
        """The app state with every device judged by other rules."""
        return replace(self, rules=rules, verdicts_now=verdicts(self.box, rules))

    def with_problem(self, problem: str) -> AppState:
        """The app state when there is nothing to read; an earlier snapshot stays."""
        return replace(self, problem=problem)

    def with_screen(self, screen: ScreenSettings) -> AppState:
        """The app state with other columns, another order of the rows, or another filter."""
        set_aside = self.set_aside if screen.filter == self.screen.filter else ""
        same = (screen.sort, screen.filter) == (self.screen.sort, self.screen.filter)
        before = self.listed_before if same else ()
        new = replace(self, screen=screen, set_aside=set_aside, listed_before=before)
        return new._with_visible_cursor()

    def _with_visible_cursor(self) -> AppState:
        """The app state with its cursor on a row or on a selected device: never on a device that is not
        shown.

        If a filter has hidden the device, the cursor moves to the next row in the box's order.
        """
        if self.snapshot is None or (self.current is not None and not self.screen.filter):
            return self
        keys = [device.key for device in self.rows]
        if self.cursor in keys or self.cursor in self.selection:
            return self
        if self.cursor is None and keys:
            # The first key then takes a device that is free.
            return replace(self, cursor=next((key for key in keys if self.verdicts[key].free), keys[0]))
        place = self.box.position.get(self.cursor or "", 0)
        following = (key for key in keys if self.box.position[key] >= place)
        return replace(self, cursor=next(following, keys[-1] if keys else None))

    def once(self, view: Callable[[AppState], Result]) -> Result:
        """The result of a pure function of this app state, which is called the first time only."""
        found = self._seen.get(view)
        if found is None:
            found = self._seen[view] = view(self)
        return found

    @cached_property
    def _seen(self) -> dict[object, Any]:
        return {}

    # The devices

    @property
    def box(self) -> Snapshot:
        """The snapshot; before the first reading, a snapshot without devices."""
        return self.snapshot or _NOT_READ

    @cached_property
    def verdicts(self) -> Verdicts:
        """The verdict on every device, by key, over the window of readings: a device that has just become
        free is not free yet, and one that its user has long not used is idle."""
        found = with_cooling(self.verdicts_now, self.watch, self.box.time, self.rules.window)
        return with_idle(found, self.box, self.idle, self.rules.idle)

    @cached_property
    def unclaimed_uses(self) -> tuple[ClaimedUse, ...]:
        """The jobs that use devices which they have not claimed."""
        # The first frame needs none.
        from gputui.choosing.claimed_use import differing

        return differing(self.box)

    @cached_property
    def outlook(self) -> Outlook:
        """The queue and the devices that are not free, with the idle times that the screen has observed."""
        # The first frame needs no outlook, and its search for sets of devices takes 4 ms to import.
        from gputui.choosing.queue_outlook import outlook

        free = {key: self.seconds_in_state(key) for key, verdict in self.verdicts.items() if verdict.free}
        return outlook(self.box, self.verdicts, self.idle, self.rules.idle, free)

    @cached_property
    def idle(self) -> Mapping[str, float]:
        """The seconds for which each device has been at 0 %, by its key. For a device that was so when this
        program started, the timelines may know the start."""
        found, timelines = idle_seconds(self.watch, self.box), self.timelines
        if timelines is not None:
            for key, seconds in found.items():
                since = self.box.time - seconds
                if since == self.watch.began:
                    held = earliest([each.started for each in self.box.by_key[key].computing])
                    since = timelines.unused_since(key, since, 0.0, inf, held)
                    found[key] = Seen.span(since, self.box.time)
        return found

    @property
    def is_full(self) -> bool:
        """Whether no device is free, and some that can be read may become free."""
        states = {verdict.state for verdict in self.verdicts.values()}
        return "free" not in states and bool(states - {"unknown", "lost"})

    @cached_property
    def limits(self) -> Inherited | None:
        """The lists of visible devices in our own environment, None where there is no limit.

        Where the devices of a list are unknown, the user may select any, and must confirm the launch.
        """
        return inherited(self.environ, self.snapshot) if self.snapshot else None

    @cached_property
    def vendors(self) -> tuple[Vendor, ...]:
        """The vendors of all devices of the box; without devices, the vendors that may be present."""
        return vendors_of(self.box.devices) or vendors_here()

    @cached_property
    def vendor(self) -> Vendor:
        """The vendor of the selected devices; of the box where none is selected."""
        return vendor_of(self.selected, self.vendors)

    @cached_property
    def selected(self) -> tuple[Device, ...]:
        """The selected devices in their order: the n-th is the program's n-th."""
        return tuple(self.box.by_key[key] for key in self.selection) if self.snapshot else ()

    @property
    def selected_labels(self) -> str:
        """The selected devices in their order, by their numbers: "5,4"."""
        return ",".join(map(self.box.label, self.selected))

    @property
    def selected_in_words(self) -> str:
        """The selected devices, for a sentence: "GPUs 4 and 5"."""
        return gpus([*map(self.box.label, self.selected)])

    @cached_property
    def rows(self) -> tuple[Device, ...]:
        """The listed devices: in the box's order, unless the user sorts or filters."""
        screen = self.screen
        if screen.sort is None and not screen.filter:
            return self.box.devices
        return listed(self.box, self.verdicts, self.own_jobs, screen.sort, screen.filter, self.listed_before)

    @property
    def filter_hides_all(self) -> bool:
        """Whether there are devices, and the filter matches none of them."""
        return bool(self.box.devices and self.screen.filter and not self.rows)

    @cached_property
    def own_jobs(self) -> dict[str, Job]:
        """The user's own running jobs by the keys of their devices."""
        return {key: job for job in self.box.jobs if job.state == "running" for key in job.keys}

    def seconds_in_state(self, key: str) -> float:
        """How many seconds the device has been in its present state, as far as that is known.

        Of the time before this program looked, only the past of a demo has no gap: the file of the timelines
        ends before, and has no claims.
        """
        now, timelines, rules = self.box.time, self.timelines, self.rules
        since = self.watch.since(key, now)
        if self.demo and timelines and since == self.watch.began and self.verdicts[key].free:
            since = timelines.unused_since(key, since, rules.utilization, rules.memory)
        return now - since

    def own_job_on(self, key: str, shared: bool = False) -> Job | None:
        """The user's own job that has the device, where the verdict has nothing else to report about it, or
        (if `shared`) also where it has."""
        return own_job_on(self.box, self.verdicts[key], key, shared)

    @property
    def current(self) -> Device | None:
        """The device under the cursor."""
        return self.box.by_key.get(self.cursor or "")

    def gpus_with_index(self, index: int) -> tuple[Device, ...]:
        """The GPUs with this index: several vendors can each have one.

        Where devices of one vendor are selected, only that vendor's GPU is returned: others cannot be added.
        """
        found = tuple(d for d in self.box.devices if d.parent is None and d.index == index)
        ours = tuple(d for d in found if self.selected and d.vendor == self.vendor.name)
        return ours or tuple(d for d in found if d.apart is None) or found

    def move_cursor(self, by: int, among: Sequence[Device] | None = None) -> AppState:
        """The app state with the cursor some rows further, stopping at the ends; `among` are the devices that
        a page lists, None for the rows."""
        rows = self.rows if among is None else among
        if not rows:
            return self
        place = next((i for i, d in enumerate(rows) if d.key == self.cursor), None)
        if place is None:
            # The cursor is on a device that is not listed.
            return replace(self, cursor=rows[-1 if by > 1 else 0].key)
        return replace(self, cursor=rows[min(max(place + by, 0), len(rows) - 1)].key)

    # Selecting by hand.

    def toggle(self, device: Device) -> Told:
        """Select or deselect the device, a busy one too (see `warnings`). The devices that the command has
        chosen are a proposal, which the first device of the user's own replaces."""
        if self.proposed and self.selected:
            labels = self.selected_labels
            app_state, message = self.clear().toggle(device)
            if not app_state.selection.decided:
                return self, message
            asked = key_of("command", self.screen.keymap)
            return app_state, f"your own selection, in place of {labels} ({asked} brings the command's back)"
        refusal = None if device.key in self.selection else self._refusal(device)
        return self if refusal else self._select(self.selection.toggle(device.key)), refusal

    def _refusal(self, device: Device) -> str | None:
        """Why the device cannot be selected at all, None when it can."""
        verdict = self.verdicts[device.key]
        name = f"GPU {self.box.label(device)}"
        if device.index < 0:
            return f"{short_name(device.name or 'this device')}: {reason(verdict, 0.0)}"
        if device.mig:
            return f"{name} is divided into MIG instances: select one of them"
        if verdict.state == "lost" or (device.fault and not device.uuid):
            return f"{name} is lost"
        if self.limits and device.key not in self.limits.keys:
            return f"{name} is outside {self.limits.words}, which limits this session"
        if self.selected and device.vendor != self.vendor.name:
            return f"{name}: {mixed_vendors((self.vendor, vendor_named(device.vendor)))}"
        return None

    def clear(self) -> AppState:
        """The app state with nothing selected."""
        return self._select(self.selection.clear())

    def cpu_only(self) -> AppState:
        """The app state with no device, on purpose; if it was so already, undecided again."""
        return self._select(self.selection.toggle_cpu_only())

    def _select(self, selection: Selection) -> AppState:
        earlier = self.verdicts_when_selected
        when_selected = {key: earlier.get(key) or self.verdicts[key] for key in selection}
        return replace(
            self,
            selection=selection,
            verdicts_when_selected=when_selected,
            order=None,
            short_of=None,
            proposed=False,
        )

    # Selecting the best devices

    @property
    def suggested(self) -> Suggestion | None:
        """The suggestion, while the selection is still one of its sets."""
        found = self.suggestion
        return found if found is not None and found.keys == self.selection.keys else None

    @property
    def grouping(self) -> Grouping:
        """The requested grouping of the selected devices, if it fits their number."""
        grouping = self.suggestion.grouping if self.suggestion else ALL_REDUCE
        return grouping if grouping.fits(len(self.selection)) else ALL_REDUCE

    @property
    def lost(self) -> tuple[Device, ...]:
        """The selected devices that were free when they were selected and no longer are."""
        before, now = self.verdicts_when_selected, self.verdicts
        return tuple(d for d in self.selected if before[d.key].free and not now[d.key].free)

    def add_best(self) -> Told:
        """Add the next best device; with a grouping, as many as complete the groups; if no more can be used
        together, select the next best set of the same size. Where selected devices are no longer free, first
        select the best of the same number.

        Devices that were selected by hand stay. The others are selected anew, as the best two need not
        include the best one.
        """
        if self.lost:
            return self.replaced(self.lost)
        before = self.suggested
        kept = before.kept if before else self.selection.keys
        grouping = before.grouping if before else ALL_REDUCE
        app_state, message = self.select_best(len(self.selection) + grouping.unit, grouping, kept)
        if app_state.short_of is not None and grouping.unit == 1:
            if before is not None and len(before.alternatives) > 1:
                # Several MIG instances are free, and a process uses only one.
                return self.next_best()
            return self, "no other GPU is free" if self.selection else message
        return app_state, message

    def replaced(self, lost: Sequence[Device]) -> Told:
        """Select the best devices in place of these, which are selected and not free."""
        before, gone = self.suggested, {device.key for device in lost}
        kept = tuple(key for key in (before.kept if before else self.selection.keys) if key not in gone)
        app_state, message = self.select_best(len(self.selection), self.grouping, kept)
        if app_state.selection != self.selection:
            are = "is" if len(lost) == 1 else "are"
            message = f"{gpus([*map(self.box.label, lost)])} {are} no longer free; instead: {message}"
        return app_state, message

    def select_best(
        self,
        count: int,
        grouping: Grouping = ALL_REDUCE,
        kept: tuple[str, ...] = (),
        order: Order = "best",
        **limits: Any,
    ) -> tuple[AppState, str]:
        """Select the best `count` devices for the grouping, in that order; the keys `kept` are included.
        `limits` are further constraints."""
        from gputui.choosing.pick import pick

        if self.snapshot is None:
            return self, "no reading yet"
        if self.limits and self.limits.unknown:
            return self, f"it is unknown which GPUs {self.limits.words} means: select them by hand"
        constraints = self.constraints(self.snapshot, count, kept)
        constraints = replace(constraints, grouping=grouping, order=order, **limits)
        if count > 1 and any(self.snapshot.by_key[key].parent for key in kept):
            return self, "a MIG instance is selected: a process can use only one, and no GPU with it"
        picked = pick(self.snapshot, self.verdicts, constraints)
        if not picked.alternatives:
            return replace(self, short_of=count), self._shortage(count, picked)
        return self._take(Suggestion(picked.alternatives, 0, kept, grouping))

    def constraints(self, snapshot: Snapshot, count: int, kept: tuple[str, ...] = ()) -> Constraints:
        """The limits on a choice of `count` devices here: our own lease, the inherited lists, the rules. The
        set must include the devices with the keys `kept`."""
        from gputui.choosing.pick import Constraints, of_own_lease

        within = of_own_lease(snapshot, self.limits.keys if self.limits else None)
        never, prefer = (keys_named(words, snapshot) for words in (self.rules.never, self.rules.prefer))
        listed = self.limits.keys if self.limits else ()
        return Constraints(count, within=within, required=kept, never=never, prefer=prefer, listed=listed)

    def with_devices(self, keys: tuple[str, ...]) -> AppState:
        """The app state with these devices selected, in this order."""
        return self._select(Selection(keys))

    def with_plan(self, options: LaunchOptions, keys: tuple[str, ...]) -> AppState:
        """The app state with the launch of a plan on its devices. The command is not read for a request: the
        plan has chosen these devices."""
        return replace(
            self.with_devices(keys)._not_read_again(options), earlier=(self.options, self.selection)
        )

    def _not_read_again(self, options: LaunchOptions) -> AppState:
        return replace(self, options=options, command_choice=CommandChoice(options, selection=self.selection))

    def restored(self) -> AppState | None:
        """The app state with what was there earlier, without devices that have gone; None where nothing is
        left of it. Another selection that a cleared one replaces is what is restored next."""
        options, selection = self.earlier or (None, Selection())
        selection = selection.prune(self.box.by_key)
        if options is None and not selection:
            return None
        back = self._select(selection)
        if options is not None:
            return back._not_read_again(options)
        return replace(back, earlier=(None, self.selection)) if self.selected else back

    def next_best(self) -> Told:
        """Select the next best set of the same size; after the last set, the best again."""
        if self.lost:
            return self.replaced(self.lost)
        before = self.suggested
        if before is None:
            app_state, reason = self.select_best(max(1, len(self.selection)))
            return app_state, reason if app_state.short_of else f"the best again: {reason}"
        count, judged = len(before.alternatives), self.verdicts
        for index in range(before.index + 1, before.index + count):
            found = replace(before, index=index % count)
            if all(judged[key].free for key in found.keys if key not in before.kept):
                return self._take(found)
        return self, self._no_other_set()

    def _no_other_set(self) -> str:
        """Why there is no other set: too few devices are free for one, or all sets are alike."""
        count, limits = len(self.selection), self.limits
        others = (
            verdict.free and key not in self.selection and (limits is None or key in limits.keys)
            for key, verdict in self.verdicts.items()
        )
        sets = f"set of {count}" if count > 1 else "device"
        if any(others):
            return f"every other free {sets} is as good as this one"
        return f"there is no other free {sets}"

    def _take(self, suggestion: Suggestion) -> tuple[AppState, str]:
        app_state, label = self._select(Selection(suggestion.keys)), self.box.label
        named = gpus([*map(label, app_state.selected)])
        # What the user has seen selected, and could still have, does not go without a word.
        gone = [label(each) for each in self.selected if each.key not in suggestion.keys]
        if gone and not self.lost:
            named += f" (not {gpus(gone).partition(' ')[2]})"
        elif suggestion.kept:
            kept = [label(self.box.by_key[key]) for key in suggestion.kept]
            named += f" ({gpus(kept).partition(' ')[2]} {'stays' if len(kept) == 1 else 'stay'})"
        return replace(app_state, suggestion=suggestion), f"{named}: {suggestion.reason}"

    def _shortage(self, count: int, picked: PickResult) -> str:
        # Those that are free, and that this request cannot have.
        lacking = tuple(each for each in picked.refused if not isinstance(each[1], Verdict))
        free = len(picked.devices) + len(lacking)
        if not free:
            return "no GPU is free"
        given = " in this session" if self.limits else ""
        text = f"{free} GPU{' is' if free == 1 else 's are'} free{given}, {count} asked for"
        return f"{text}; {refusals(lacking, self.box)}" if lacking else text

    # Selecting what the command says

    @cached_property
    def intent(self) -> Intent:
        """The command's own request for devices. Reads the files that it names."""
        return self._read_intent()

    def _read_intent(self) -> Intent:
        # No property: before Python 3.12, a thread that computes a cached property blocks the others.
        from gputui.launching.read_intent import read_intent

        return read_intent(self.options, self.environ, self.host_environment, self.vendors)

    def read_files(self) -> None:
        """Make the host read all files that the screen depends on. Keeps what is already known."""
        self._read_intent()
        self._composed()
        if self.command_is_unread:
            self.with_command_read()[0]._composed()

    @property
    def command_is_unread(self) -> bool:
        """Whether there is a command whose request for devices has not been read yet."""
        if not self.options.command or self.snapshot is None:
            return False
        read = self.command_choice.options if self.command_choice else LaunchOptions()
        return (read.command, read.additions) != (self.options.command, self.options.additions)

    def with_command_read(self, again: bool = False) -> Told:
        """Select what the command asks for; the selection stays where it asks for nothing. Unless `again`, it
        also stays where the command asks for the same as before, or only for a number and the user has
        selected devices: nobody but the user knows which ones, and in which order. What an earlier command
        has chosen goes with it."""
        from gputui.launching.intent import Asked, settle

        own = self.clear() if self.proposed else self
        read = replace(own, command_choice=CommandChoice(self.options))
        intent = read._read_intent()
        asked = settle(Asked(), intent)
        said = asked.by_command or intent.count
        before = self.command_choice
        same = said is not None and before is not None and before.words == said.words
        if said is None or (same and self.selection.decided and not again):
            choice = CommandChoice(self.options)
            if before and said:
                choice = CommandChoice(self.options, said.words, before.selection, said.firm)
            kept = replace(self if said else own, command_choice=choice)
            return kept, "the command does not say how many GPUs, or which" if again else None
        problem: str | None
        if asked.by_command is None and self.selection.decided and not (self.proposed or again):
            choice = CommandChoice(self.options, said.words, firm=said.firm)
            kept = replace(self, command_choice=choice)
            return kept, kept.contradiction
        if asked.by_command is not None:
            selected, problem = read._select_named(asked.by_command)
        else:
            selected, reason = read.select_best(asked.count or 0, asked.group or ALL_REDUCE)
            problem = f"{said.words}: {reason}" if selected.suggestion is read.suggestion else None
        # An earlier selection by hand is not what the command asks for.
        chosen = selected.selection if problem is None else Selection()
        choice = CommandChoice(self.options, said.words, chosen, said.firm)
        return replace(selected, command_choice=choice, proposed=problem is None), problem

    def _select_named(self, devices: NamedDevices) -> Told:
        """Select the devices that the command names."""
        if not devices.listed:
            return self._select(Selection(cpu_only=True)), None
        box = (self.vendor, *self.vendors)
        _, found = listed_in_command(devices.listed, devices.environ, devices.words, self.box.devices, box)
        problem = found.unknown or found.warning
        if problem is not None:
            return self, problem
        refusal = next(filter(None, map(self.clear()._refusal, found.devices)), None)
        if refusal is not None:
            return self, f"{devices.words}: {refusal}"
        return self._select(Selection(tuple(device.key for device in found.devices))), None

    @property
    def unclaimed(self) -> str | None:
        """How the command would escape the lease on the selected devices, and what to write instead."""
        from gputui.launching.daemonizers import refusal_of

        said = self.intent.unclaimed if self.selected else None
        return None if said is None else refusal_of(said)

    @property
    def contradiction(self) -> str | None:
        """How the selection differs from a command that cannot be rewritten, None where it does not."""
        if self.launch.own is not None:
            return self.launch.own.warning
        devices, count = self.intent.devices, self.intent.count
        if devices is not None and devices.firm and not devices.rewritable and self.selected:
            # Other devices or another order; of more selected devices, some would be claimed for nothing.
            if self.vendor.visibility.names_in_order(devices.listed, self.selected):
                return None
            return f"{devices.words} in the command overrides the selected devices"
        if count is None or not count.firm or not self.selected or count.number == len(self.selected):
            return None
        return f"the command asks for {count.words} on {devices_text(len(self.selected))}"

    # The order of the selected devices

    def reorder(self, by: int) -> Told:
        """Move the selected device under the cursor, or else the last one selected, earlier or later in the
        order.

        The cursor moves with it, so that the next key press moves the same device.
        """
        if not self.selection.keys:
            return self, "nothing is selected: space or 0-9 selects"
        key = self.cursor if self.cursor in self.selection else self.selection.keys[-1]
        moved = self.selection.move(key or "", by)
        if moved == self.selection:
            label = self.box.label(self.box.by_key[key or ""])
            place = "last" if by > 0 else "first"
            return replace(self, cursor=key), f"GPU {label} is already the {place} one"
        return replace(self._select(moved), cursor=key), None

    def move_to(self, key: str, place: int) -> AppState:
        """Move the selected device to another place in the order, with the cursor on it."""
        rank = self.selection.rank(key)
        if rank is None:
            return self
        return replace(self._select(self.selection.move(key, place - rank)), cursor=key)

    def in_order(self, order: Order) -> Told:
        """Put the selected devices in this order."""
        if len(self.selected) < 2:
            return self, "an order needs two selected GPUs: space or 0-9 selects"
        app_state = replace(self._select(Selection(self._ordered(order))), order=order)
        return app_state, f"order: {ORDER_NAMES[order]}"

    def _ordered(self, order: Order) -> tuple[str, ...]:
        """The keys of the selected devices in the given order."""
        from gputui.choosing.best import best
        from gputui.choosing.order import sorted_by

        in_box = tuple(d for d in self.box.devices if d.key in self.selection)
        if order == "best":
            devices = best(self.box, in_box, len(in_box), self.grouping, limit=1)[0].devices
        elif order == "given":
            devices = in_box
        else:
            devices = sorted_by(order, in_box)
        return tuple(device.key for device in devices)

    # The launch

    @cached_property
    def launch(self) -> Launch:
        """The launch that Enter starts and `y` copies; without decided devices the unchanged command."""
        return self._composed()

    def _composed(self) -> Launch:
        if not self.selection.decided:
            return Launch(self.options.command, tuple(self.options.additions), self.options.directory)
        # The first frame usually needs no launch, and launchers take 15 ms to import.
        from gputui.choosing.links import weakest
        from gputui.launching.compose import compose

        link = weakest(self.box, self.selected)
        options, host = self.options, self.host_environment
        return compose(self.selected, options, self.environ, host, self.vendors, link=link)

    @property
    def demo(self) -> str | None:
        """The name of the demo box that is shown, None for any other box."""
        return self.label.removeprefix("demo ") if self.label.startswith("demo ") else None

    @property
    def is_example(self) -> bool:
        """Whether the command is the demo's own."""
        return bool(self.example) and self.options.command == self.example

    @property
    def launcher(self) -> str:
        """The name of the launcher in use."""
        from gputui.launching.compose import launcher_of

        return launcher_of(self.options).name

    @property
    def starter(self) -> str:
        """The program that starts: the launcher, or the command's own program where there is no launcher."""
        plain = self.launcher == "python"
        return printable(self.options.command[0].rsplit("/", 1)[-1]) if plain else self.launcher

    def not_of_this_machine(self, what: str) -> str:
        """The message where devices, processes or jobs (`what`) belong to a demo or a recording."""
        return f"these {what} are {self._whose} ({self.label}): nothing is done"

    @property
    def starts_elsewhere(self) -> str:
        """The warning that a launch on the devices of a demo or a recording starts here."""
        return f"the GPUs are {self._whose} ({self.label}); the command really runs here"

    @property
    def _whose(self) -> str:
        return "not this machine's" if self.demo is None else "simulated"

    @property
    def order_warning(self) -> str | None:
        """The warning that NCCL may get the order wrong, else None."""
        if not (self.options.command and permuted_behind_switches(self.box, self.selected)):
            return None
        from gputui.launching.compose import starts_several

        several = starts_several(self.options, self.intent)
        return PERMUTED.format(f"{key_of('order', self.screen.keymap)} by index") if several else None

    @property
    def in_line(self) -> Waiters:
        """The waiters that are ahead in the queue for the selected devices."""
        if not self.box.waiters or not self.selected:
            return ()
        # The first frame usually needs no queue.
        from gputui.allocating.queue import wanting

        keys = [device.key for device in self.selected if device.key not in self.box.own_lease]
        return wanting(self.box.waiters, keys, self.box) if keys else ()

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know before a start on the selected devices, the most serious first: no such
        program, not free, an order that can give wrong results, unlike devices, the queue, limits, not
        real."""
        found: list[str] = []
        if self.options.command and self.selection.decided and not self.is_example:
            path = self.launch.environment(self.environ).get("PATH")
            place = self.launch.argv[0], self.launch.directory, path
            found += filter(None, (_missing_program(*place, self.box.time // _LOOKED_AT_FOR),))
        not_free = [device for device in self.selected if not self.verdicts[device.key].free]
        if len(not_free) <= 2:
            for device in not_free:
                job, now = self.own_job_on(device.key), self.box.time
                what = in_use_by(job, now) if job else state_and_brief(self.verdicts[device.key], now)
                found.append(f"GPU {self.box.label(device)} is {what}")
        else:
            found.append(f"{gpus([*map(self.box.label, not_free)])} are not free")
        found += filter(None, (self.order_warning, unlike(self.selected)))
        if ahead := self.in_line:
            from gputui.allocating.queue import in_words

            found.append(in_words(ahead))
        if self.selected and self.limits and self.limits.unknown:
            found.append(self.limits.unknown)
        if self.label and self.options.command and self.selection.decided and not self.is_example:
            found.append(self.starts_elsewhere)
        return tuple(found)


_LOOKED_AT_FOR = 10.0
"""Seconds for which it is not looked again whether the command's program is there."""


@lru_cache(maxsize=4)
def _missing_program(program: str, directory: str | None, path: str | None, _: float) -> str | None:
    """Why a program cannot be started, None where nothing is known against it. The folders of PATH may be on
    a slow file system, so neither a key nor a reading looks there again; the last argument ends that."""
    from gputui.launching.start import missing_program

    return missing_program(Launch((program,), directory=directory), {} if path is None else {"PATH": path})
