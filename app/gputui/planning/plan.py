"""The plan: every strategy with its memory and traffic, ranked.

Strategies that fit are ranked by the time that a step needs the links (times within `EQUAL` are equal), then
by memory, then by simplicity. Strategies with drawbacks that this time does not show rank below, each kind by
itself (`Row.apart`): devices that share a batch, or are idle; so little memory left that fragments may take
it; the host's memory. Strategies that do not fit rank below all that do, the smallest lack first. A pipeline,
which nothing here can start, ranks below the others of its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.inventory.formatting import size
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.planning.box import Box
from gputui.planning.estimators import Estimate, estimates
from gputui.planning.memory import Bytes, gathered_layer, host_needed, needed
from gputui.planning.model import Model, PlanningError
from gputui.planning.strategies import Strategy, strategies
from gputui.planning.traffic import Traffic, traffic
from gputui.planning.workload import Workload

TIGHT = 0.05
"""A margin below this share of the needed memory can be lost to fragments of the allocator (5 to 10 %)."""

EQUAL = 1.02
"""The ratio up to which times are equal."""

MOST_DEVICES = 1024
"""The most devices that a remedy suggests."""

_FEW_TIMES = 4
"""The limit for more devices together with other changes, as a multiple of the present number."""

_RANK = 16
"""The rank of the LoRA that a remedy suggests."""

_BFLOAT16 = (8, 0)
"""The compute capability since which devices compute in bfloat16."""

RemedyKind = Literal["devices", "batch", "checkpointing", "lora", "adamw8bit"]

_CHANGES: dict[RemedyKind, tuple[str, str]] = {
    "checkpointing": ("checkpointing", "checkpointing"),
    "batch": ("batch", "batch {}"),
    "devices": ("", "{} devices"),
    "adamw8bit": ("optimizer", "8-bit Adam"),
    "lora": ("lora", "LoRA of rank {}"),
}
"""The field of the workload that a remedy changes, and its name; the smallest changes of training first."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change that makes a strategy fit. `value`: number of devices, else the workload's new value."""

    kind: RemedyKind
    value: int | str

    @property
    def text(self) -> str:
        return _CHANGES[self.kind][1].format(self.value)

    def made_in(self, workload: Workload) -> Workload:
        """The workload with the change; more devices do not change it."""
        field = _CHANGES[self.kind][0]
        change: dict[str, Any] = {field: self.value} if field else {}
        return replace(workload, **change)


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy of a plan.

    fits      None where free memory is not known
    margin    bytes left on the device with the least free memory; negative where they lack
    what      the effect of the strategy, in words; `outcome`: the consequence for these devices
    remedies  changes each of which makes it fit alone; () where it fits
    together  where no single change suffices: changes that make it fit together
    layer     bytes of the largest layer, where that layer does not fit; else 0
    """

    strategy: Strategy
    bytes: Bytes
    fits: bool | None
    margin: int | None
    traffic: Traffic
    what: str
    outcome: str
    remedies: tuple[Remedy, ...] = ()
    together: tuple[Remedy, ...] = ()
    layer: int = 0

    @property
    def name(self) -> str:
        return self.strategy.name

    @property
    def reason(self) -> str:
        """The reason in words, one line."""
        return f"{self.what}; {self.outcome}"

    @property
    def would_fit_with(self) -> str:
        """The changes that make it fit, in words; "" where it fits, and where no changes suffice."""
        if self.remedies:
            return _listed(self.remedies, "or")
        return _listed(self.together, "and") if self.together else ""

    @property
    def tight(self) -> bool:
        """Whether it fits with so little left that the allocator's fragments may take it."""
        return bool(self.fits) and self.margin is not None and self.margin < TIGHT * self.bytes.total

    @property
    def apart(self) -> str:
        """Why it ranks below its time, in a few words; "" where it does not."""
        if not self.strategy.startable:
            return "the program must be made for it"
        if self.strategy.offloads:
            return "waits for the host"
        if self.tight:
            return "tight"
        if self.strategy.tensor_parallel > 1:
            return "devices share a batch"
        return "one device" if self.strategy.kind == "single" else ""

    @property
    def lacking(self) -> str:
        """The part that does not fit by itself, in words; "" where there is none."""
        return f"the largest layer needs {size(self.layer)}" if self.layer else ""


@dataclass(frozen=True, slots=True)
class Plan:
    """`rows` are ranked, the best first; `estimates` are DeepSpeed's; `notices` are sentences."""

    model: Model
    workload: Workload
    box: Box
    rows: tuple[Row, ...]
    estimates: tuple[Estimate, ...]
    notices: tuple[str, ...]

    @property
    def best(self) -> Row | None:
        """The first row that fits."""
        return next((row for row in self.rows if row.fits), None)

    @property
    def shortage(self) -> str:
        """The text that no launcher starts anything that fits; "" where one does, or that is not known."""
        if self.box.memory_free_min is None or any(row.fits and row.strategy.startable for row in self.rows):
            return ""
        if self.best is not None:
            return f"only {self.best.name} fits, for programs that divide a model into stages (Megatron-LM)"
        return "nothing fits on these devices"


def plan(model: Model, workload: Workload, box: Box, grouping: Grouping = ALL_REDUCE) -> Plan:
    """All strategies for these devices with this grouping.

    Raises PlanningError for a workload that the model does not support, and for unsupported groupings.
    """
    workload = workload.for_model(model)
    rows = [
        _row(model, workload, strategy, box)
        for strategy in strategies(model, box)
        if strategy.in_groups(grouping)
    ]
    if not rows:
        raise PlanningError(f"no strategy for {len(box)} devices here has groups of {grouping}")

    placed = _places(rows)

    def rank(row: Row) -> tuple[bool, bool, int, int]:
        lacks = 0
        if not row.fits and row.margin is not None:
            # Where the device's memory suffices, the host's memory lacks.
            host = host_needed(model, workload, row.strategy) - (box.host_memory or 0)
            lacks = max(0, -row.margin) or host
        return not row.fits, not row.strategy.startable, lacks, placed[row.name]

    found = Plan(
        model,
        workload,
        box,
        tuple(sorted(rows, key=rank)),
        estimates(model.parameters, model.largest_layer, len(box)),
        (),
    )
    return replace(found, notices=tuple(_notices(found)))


def _places(rows: Sequence[Row]) -> dict[str, int]:
    """The rank of each strategy among those that fit, by its name."""
    equal: dict[float, float] = {}
    least = 0.0
    for time in sorted(map(_time, rows)):
        least = time if time > least * EQUAL else least
        equal[time] = least

    def order(row: Row) -> tuple[int, float, int]:
        strategy = row.strategy
        kinds = (
            strategy.replicas < strategy.devices,
            strategy.kind == "single",
            row.tight,
            strategy.offloads,
        )
        kind = max((place for place, true in enumerate(kinds, 1) if true), default=0)
        return kind, equal[_time(row)], row.bytes.total

    return {row.name: place for place, row in enumerate(sorted(rows, key=order))}


def _time(row: Row) -> float:
    """The time that a step needs the links; where it is not known, the bytes that the step sends."""
    return row.traffic.bytes if row.traffic.seconds is None else row.traffic.seconds


def _fits(model: Model, workload: Workload, strategy: Strategy, box: Box) -> bool:
    free = box.memory_free_min
    fixed = box.fixed(strategy.devices)
    return free is not None and needed(model, workload, strategy, fixed).total <= free


def _row(model: Model, workload: Workload, strategy: Strategy, box: Box) -> Row:
    bytes_of = needed(model, workload, strategy, box.fixed(strategy.devices))
    free = box.memory_free_min
    margin = None if free is None else free - bytes_of.total
    fits = None if margin is None else margin >= 0
    host = host_needed(model, workload, strategy)
    host_lacks = bool(host) and (box.host_memory is None or host > box.host_memory)
    if host_lacks and fits:
        fits = False
    moved = traffic(model, workload, strategy, box)
    remedies: tuple[Remedy, ...] = ()
    together: tuple[Remedy, ...] = ()
    if fits is False and not host_lacks:
        remedies = tuple(_remedies(model, workload, strategy, box))
        together = () if remedies else _together(model, workload, strategy, box)
    what = _what(strategy, moved, box)
    layer = gathered_layer(model, workload, strategy)
    if fits is not False or host_lacks or layer <= min(free or 0, bytes_of.total // 2):
        layer = 0
    row = Row(strategy, bytes_of, fits, margin, moved, what, "", remedies, together, layer)
    return replace(row, outcome=_outcome(row, box, host if host_lacks else 0))


def _offers(model: Model, workload: Workload) -> Iterator[Remedy]:
    """The changes of a workload that reduce its need for memory; a smaller batch is offered as 1."""
    if not workload.weights_only:
        if not workload.checkpointing:
            yield Remedy("checkpointing", True)
        if workload.batch > 1:
            yield Remedy("batch", 1)
    if workload.optimizer in ("adamw", "adamw-foreach"):
        yield Remedy("adamw8bit", "adamw8bit")
    if not workload.lora and model.adapted:
        yield Remedy("lora", _RANK)


def _remedies(model: Model, workload: Workload, strategy: Strategy, box: Box) -> Iterator[Remedy]:
    """Single changes that make it fit, the smallest changes of the training first."""

    def fit(remedy: Remedy) -> bool:
        return _fits(model, remedy.made_in(workload), strategy, box)

    found = {remedy.kind: remedy for remedy in _offers(model, workload) if fit(remedy)}
    if "batch" in found:
        low, high = 1, workload.batch
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fit(Remedy("batch", middle)) else (low, middle)
        found["batch"] = Remedy("batch", low)
    count = _more_devices(model, workload, strategy, box)
    if count:
        found["devices"] = Remedy("devices", count)
    yield from (found[kind] for kind in _CHANGES if kind in found)


def _together(model: Model, workload: Workload, strategy: Strategy, box: Box) -> tuple[Remedy, ...]:
    """Changes that make it fit when all are made, none of them superfluous; () where there are none.

    As few kinds as possible, the smallest changes of the training first; devices in addition to the others.
    """

    def changed(remedies: Sequence[Remedy]) -> Workload:
        made = workload
        for remedy in remedies:
            made = remedy.made_in(made)
        return made

    taken: list[Remedy] = []
    for offer in _offers(model, workload):
        taken = [*taken, offer]
        if _fits(model, changed(taken), strategy, box):
            for each in taken[:-1]:
                without = [remedy for remedy in taken if remedy is not each]
                if _fits(model, changed(without), strategy, box):
                    taken = without
            return tuple(taken)
        count = _more_devices(model, changed(taken), strategy, box)
        if count and count <= _FEW_TIMES * strategy.devices:
            return (*taken, Remedy("devices", count))
    return ()


def _more_devices(model: Model, workload: Workload, strategy: Strategy, box: Box) -> int | None:
    """The least number of devices like these on which the strategy fits; None where more do not help."""
    free, fixed = box.memory_free_min, box.fixed(max(2, strategy.devices))
    if free is None or not strategy.sharded or strategy.tensor_parallel > 1:
        return None

    def fit(count: int) -> bool:
        stages = count if strategy.kind == "pp" else 1
        more = replace(strategy, devices=count, pipeline_parallel=stages)
        return needed(model, workload, more, fixed).total <= free

    most = min(MOST_DEVICES, model.layers) if strategy.kind == "pp" else MOST_DEVICES
    if most <= strategy.devices or not fit(most):
        return None
    low, high = strategy.devices, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fit(middle) else (middle, high)
    return high


def _outcome(row: Row, box: Box, host: int) -> str:
    if row.margin is None:
        return "free memory is not known"
    if host:
        there = (
            "which is not known" if box.host_memory is None else f"of which {size(box.host_memory)} is free"
        )
        return f"needs {size(host)} of host memory, {there}"
    if row.fits:
        left = f"{size(row.margin)} left on each device"
        return f"{left}, which fragments may take" if row.tight else left
    lacks = f"{size(-row.margin)} too much for each device"
    if row.layer:
        lacks = f"{row.lacking}, {lacks}"
    would = row.would_fit_with
    return f"{lacks}: would fit with {would}" if would else lacks


def _what(strategy: Strategy, moved: Traffic, box: Box) -> str:
    """The effect of a strategy, and its advantages and drawbacks here, in words."""
    links = box.links_words
    if strategy.tensor_parallel > 1:
        return (
            f"{strategy.tensor_parallel} directly joined devices share a batch and each layer: for large"
            " blocks, in more steps"
        )
    if strategy.kind == "pp":
        return (
            f"for a program made for it (Megatron-LM): the layers in {strategy.pipeline_parallel} stages, "
            f"little is sent, {moved.bubble:.0%} of a step waiting"
        )
    if strategy.kind == "single":
        return "one device, " + ("the others stay idle" if len(box) > 1 else "nothing to send")
    texts = {
        "ddp": "a whole copy on each device: only gradients are sent",
        "zero1": "divides the optimizer's states: gradients and weights are sent once a step",
        "zero2": "divides gradients and optimizer: gradients are sent in each pass, weights once a step",
        "zero3": f"divides all states, and gathers weights over {links} in forward and backward",
        "fsdp2": f"divides all states, and gathers weights block by block over {links}",
        "zero2-offload": "waits for the host in each step: the optimizer is in its memory",
        "zero3-offload": "waits for the host in each step: weights and optimizer are in its memory",
    }
    return texts[strategy.kind]


def _listed(remedies: Sequence[Remedy], last: str) -> str:
    words = [remedy.text for remedy in remedies]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _notices(found: Plan) -> Iterator[str]:
    model, workload, box, rows = found.model, found.workload, found.box, found.rows
    yield from model.notices
    if not box.measured and len(box) > 1:
        yield "times are estimated from nominal bandwidths: `gputui check --bandwidth` measures them"
    if model.max_positions is not None and workload.sequence > model.max_positions:
        yield f"the sequence is longer than the {model.max_positions} positions that the model was made for"
    if (
        workload.precision in ("bf16", "autocast")
        and box.capability is not None
        and box.capability < _BFLOAT16
    ):
        yield "before compute capability 8.0 there is no bfloat16: --precision fp16 needs as much as autocast"
    if workload.precision == "bf16" and len(box) > 1:
        yield "DeepSpeed keeps a copy of the weights in 32 bits also where all else is bf16"
    reshard = next((row for row in rows if row.name == "fsdp2" and row.fits), None)
    if reshard is not None:
        kept = replace(reshard.strategy, reshard=False)
        if _fits(model, workload, kept, box):
            yield "FSDP2 also fits with reshard_after_forward false, which sends at least a quarter less"
    best = found.best
    if best is not None and best.name in ("zero3", "fsdp2") and not box.all_direct:
        larger = "a larger batch" if workload.checkpointing else "checkpointing with a larger batch"
        less = "a pipeline (Megatron-LM)" if workload.lora else "a pipeline (Megatron-LM) or LoRA"
        yield (
            f"weights are gathered over {box.links_words} in each pass: {larger} needs fewer passes, "
            f"{less} sends less"
        )
    pipeline = next((row for row in rows if row.fits and not row.strategy.startable), None)
    if best is not None and best.strategy.offloads and pipeline is not None:
        yield (
            f"{pipeline.name} fits without the host's memory, for programs that divide a model into "
            "stages (Megatron-LM)"
        )
    if box.memory_free_min is None:
        yield "free memory is not known, so nothing is said to fit"
    if found.shortage:
        yield found.shortage
        for words in what_would_do(model, workload, rows):
            yield f"would be enough: {words}"


def what_would_do(model: Model, workload: Workload, rows: Sequence[Row]) -> Iterator[str]:
    """The smallest change of each kind that would make anything fit, with the preferred strategy.

    Changes for a pipeline appear only where no startable strategy has any.
    """
    placed = _places(rows)
    preferred = sorted(rows, key=lambda row: placed[row.name])
    startable = [row for row in preferred if row.strategy.startable]
    yield from tuple(_changes(startable)) or _changes(preferred)
    for row in rows:
        if row.strategy.offloads and row.margin is not None and row.margin >= 0:
            host = host_needed(model, workload, row.strategy)
            yield f"{size(host)} of host memory ({row.name})"


def _changes(preferred: Sequence[Row]) -> Iterator[str]:
    """The smallest change of each kind that makes one of the rows fit; if none suffices, several together."""
    for kind in _CHANGES:
        offered = [(remedy, row) for row in preferred for remedy in row.remedies if remedy.kind == kind]
        if offered:
            # The largest batch, the fewest devices; other changes have one value.
            best = max if kind == "batch" else min
            remedy, row = best(offered, key=lambda each: each[0].value)
            yield f"{remedy.text} ({row.name if row.strategy.startable else 'a pipeline'})"
    if not any(row.remedies for row in preferred):
        combined = [row for row in preferred if row.together]
        if combined:
            row = min(combined, key=lambda each: len(each.together))
            yield f"{_listed(row.together, 'and')} ({row.name if row.strategy.startable else 'a pipeline'})"
