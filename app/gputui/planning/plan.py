"""The plan: every strategy with its memory and traffic, ranked.

All strategies but one device make the same global batch in a step. Those that fit are ranked by the time
that a step needs the links (times within `EQUAL` are equal), then by memory, then by simplicity. Strategies
with drawbacks that this time does not show rank below, each kind by itself (`Row.apart`): devices that share
a batch, are idle, or wait for GPU 0; so little memory left that fragments may take it; the host's memory. A
pipeline, which nothing here can start, ranks below all of them; but where links are slow, it ranks above what
gathers weights over them. Strategies that do not fit rank below all that do, the smallest lack first,
pipelines last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.inventory.formatting import devices_text, size
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.planning.box import Box
from gputui.planning.estimators import Estimate, estimates
from gputui.planning.memory import Bytes, gathered_layer, host_needed, needed
from gputui.planning.model import Model, PlanningError
from gputui.planning.serving import Held, Serving
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

_MADE = "the program must be made for it"

_DEVICES = "devices"
_ORDER = ("bucket_view", "checkpointing", "batch", _DEVICES, "optimizer", "lora")
"""The fields of the workload that remedies change; the smallest changes of the training first."""


@frozen
class Remedy:
    """One change that makes a strategy fit: a field of the workload gets this value, or there are as many
    devices."""

    field: str
    value: int | str
    text: str

    def made_in(self, workload: Workload) -> Workload:
        """The workload with the change; more devices do not change it."""
        change: dict[str, Any] = {} if self.field == _DEVICES else {self.field: self.value}
        return replace(workload, **change)


def _devices(count: int) -> Remedy:
    return Remedy(_DEVICES, count, devices_text(count))


def _batch(sequences: int) -> Remedy:
    return Remedy("batch", sequences, f"batch {sequences}")


@frozen
class Row:
    """One strategy of a plan.

    fits      None where free memory is not known
    margin    bytes left on the device with the least free memory; negative where they lack
    what      the effect of the strategy, in words; `outcome`: the consequence for these devices
    remedies  changes each of which makes it fit alone; () where it fits
    together  where no single change suffices: changes that make it fit together
    layer     bytes of the largest layer, where that layer does not fit; else 0
    slow      whether links are slow for which it gathers weights, or for which it is a pipeline that does not
    serving   what the KV cache of a server holds; None for a training
    change    what it needs besides these devices to fit, in words: a server's other options, or memory of the
              host; "" where there is nothing
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
    slow: bool = False
    serving: Held | None = None
    change: str = ""

    @property
    def device_bytes(self) -> tuple[int, ...]:
        """The bytes of each device. With DataParallel, GPU 0 alone has the optimizer, the gradients of all
        devices and their outputs."""
        extra = self.bytes.optimizer + self.bytes.buffers if self.strategy.kind == "dp" else 0
        return (self.bytes.total, *([self.bytes.total - extra] * (self.strategy.devices - 1)))

    @property
    def name(self) -> str:
        return self.strategy.name

    @property
    def reason(self) -> str:
        """The reason in words, one line."""
        return f"{self.what}; {self.outcome}"

    @property
    def why(self) -> str:
        """Its advantage where it fits; else what would make it fit, or what lacks."""
        if self.fits:
            return self.what
        return f"would fit with {self.would_fit_with}" if self.would_fit_with else self.outcome

    @property
    def would_fit_with(self) -> str:
        """The changes that make it fit, in words; "" where none suffice."""
        words = [remedy.text for remedy in self.remedies or self.together]
        return listed(words, "or" if self.remedies else "and") if words else self.change

    @property
    def tight(self) -> bool:
        """Whether it fits with so little left that the allocator's fragments may take it."""
        return bool(self.fits) and self.serving is None and (self.margin or 0) < TIGHT * self.bytes.total

    @property
    def drawback(self) -> tuple[int, str]:
        """The place of its greatest drawback among those that its time does not show, in their order, and its
        words; (0, "") where it has none."""
        strategy, ready = self.strategy, self.strategy.startable
        kinds = (
            (self.slow and not ready, _MADE),
            (self.slow and ready, "gathers weights over slow links"),
            (strategy.sharing > 1 and ready, "devices share a batch"),
            (strategy.kind == "single", "one device"),
            (strategy.kind == "dp", "the others wait for GPU 0"),
            (self.tight, "tight"),
            (strategy.offloads, "waits for the host"),
            (not self.slow and not ready, _MADE),
        )
        return max(((place, words) for place, (has, words) in enumerate(kinds, 1) if has), default=(0, ""))

    @property
    def apart(self) -> str:
        """Why it ranks below its time, in a few words; "" where it does not."""
        return self.drawback[1]

    @property
    def brief(self) -> str:
        """Why it ranks below its time, in brackets; else its effect, in a few words."""
        return f"({self.apart})" if self.apart else self.what.partition(":")[0].partition(",")[0]

    @property
    def lacking(self) -> str:
        """The part that does not fit by itself, in words; "" where there is none."""
        return f"the largest layer needs {size(self.layer)}" if self.layer else ""


@frozen
class Plan:
    """`rows` are ranked, the best first; `estimates` are DeepSpeed's; `notices` are sentences; `changes` make
    something fit where nothing does that a launcher starts, the smallest of each kind."""

    model: Model
    workload: Workload | Serving
    box: Box
    rows: tuple[Row, ...]
    estimates: tuple[Estimate, ...]
    notices: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def having(self, notices: Iterable[str]) -> Plan:
        """The plan with these notices, and with its changes."""
        known = self.box.memory_free_min is not None
        changes = what_would_do(self) if known and self.able is None else ()
        return replace(self, notices=tuple(notices), changes=tuple(changes))

    @property
    def shortage(self) -> str:
        """That no launcher starts anything that fits; "" where one does."""
        if self.able is not None:
            return ""
        if self.box.memory_free_min is None:
            return "free memory is not known, so no strategy is said to fit"
        if self.best is None:
            return "nothing fits on these devices"
        return f"only {self.best.name} fits, for programs that divide a model into stages (Megatron-LM)"

    @property
    def told(self) -> tuple[str, ...]:
        """The notices, with the shortage and what would help."""
        shortage = (self.shortage,) if self.shortage else ()
        return (*self.notices, *shortage, *(f"would fit with {change}" for change in self.changes))

    @property
    def training(self) -> Workload | None:
        """The workload of a training; None for a server."""
        return self.workload if isinstance(self.workload, Workload) else None

    @property
    def global_batch(self) -> int | None:
        """The sequences of a step of all devices: micro-batch × passes × devices."""
        training = self.training
        return None if training is None else training.batch * training.accumulation * len(self.box)

    @property
    def best(self) -> Row | None:
        """The first row that fits."""
        return next((row for row in self.rows if row.fits), None)

    @property
    def able(self) -> Row | None:
        """The first row that fits and that a launcher starts: the one to use."""
        return next((row for row in self.rows if row.fits and row.strategy.startable), None)

    @property
    def needs_one(self) -> bool:
        """Whether one device is enough for the training where the plan uses several."""
        several = self.able is not None and self.able.strategy.devices > 1
        return several and any(
            row.strategy.kind == "single" and row.fits and not row.tight for row in self.rows
        )


def plan(model: Model, workload: Workload, box: Box, grouping: Grouping = ALL_REDUCE) -> Plan:
    """All strategies for these devices with this grouping.

    Raises PlanningError for a workload that the model does not support, and for unsupported groupings.
    """
    said = workload.for_model(model)
    workload = said.on(len(box))
    fixed = {count: box.fixed(count) for count in (1, len(box))}
    slow = box.slow
    rows = [
        _row(model, workload, strategy, box, fixed[strategy.devices], slow)
        for strategy in strategies(model, box, workload, grouping)
    ]
    if not rows:
        raise PlanningError(f"no strategy for {len(box)} GPUs here has groups of {grouping}")

    placed = _places(rows)

    def rank(row: Row) -> tuple[bool, bool, int, int]:
        lacks = 0
        if not row.fits and row.margin is not None:
            # Where the device's memory suffices, the host's memory lacks.
            host = host_needed(model, workload, row.strategy, box.nodes) - (box.host_memory or 0)
            lacks = max(0, -row.margin) or host
        return not row.fits, not (row.fits or row.strategy.startable), lacks, placed[row.name]

    found = Plan(
        model,
        workload,
        box,
        tuple(sorted(rows, key=rank)),
        estimates(model.parameters, model.largest_layer, box.local, box.nodes)
        if any(row.strategy.deepspeed for row in rows)
        else (),
    )
    return found.having(_notices(found, said))


def _places(rows: Sequence[Row]) -> dict[str, int]:
    """The rank of each strategy among those that fit, by its name."""
    equal: dict[float, float] = {}
    least = 0.0
    for time in sorted(map(_time, rows)):
        least = time if time > least * EQUAL else least
        equal[time] = least

    def order(row: Row) -> tuple[int, float, int]:
        return row.drawback[0], equal[_time(row)], row.bytes.total

    return {row.name: place for place, row in enumerate(sorted(rows, key=order))}


def _time(row: Row) -> float:
    """The time that a step needs the links; where it is not known, the bytes that the step sends."""
    return row.traffic.bytes if row.traffic.seconds is None else row.traffic.seconds


def _row(model: Model, workload: Workload, strategy: Strategy, box: Box, fixed: int, slow: bool) -> Row:
    bytes_of = needed(model, workload, strategy, fixed)
    free = box.memory_free_min
    margin = None if free is None else free - bytes_of.total
    fits = None if margin is None else margin >= 0
    host = host_needed(model, workload, strategy, box.nodes)
    host_lacks = bool(host) and (box.host_memory is None or host > box.host_memory)
    if host_lacks and fits:
        fits = False
    moved = traffic(model, workload, strategy, box)
    remedies: tuple[Remedy, ...] = ()
    together: tuple[Remedy, ...] = ()
    if fits is False and free is not None and not host_lacks:
        search = _Search(model, workload, strategy, fixed, free)
        remedies = tuple(search.single())
        together = () if remedies else search.together()
    layer = gathered_layer(model, workload, strategy)
    if fits is not False or host_lacks or layer <= min(free or 0, bytes_of.total // 2):
        layer = 0
    gathered = slow and (strategy.gathers or not strategy.startable)
    if gathered and strategy.replicate > 1:
        gathered = not box.groups_are_direct(box.local)
    change = f"{size(host)} of host memory" if host and margin is not None and margin >= 0 else ""
    row = Row(
        strategy, bytes_of, fits, margin, moved, "", "", remedies, together, layer, gathered, change=change
    )
    return replace(row, what=_what(row, workload, box), outcome=_outcome(row, box, host if host_lacks else 0))


def _offers(model: Model, workload: Workload, strategy: Strategy) -> Iterator[Remedy]:
    """The changes of a workload that reduce its need for memory; a smaller batch is offered as 1."""
    if not workload.weights_only:
        if strategy.kind == "ddp" and not workload.bucket_view:
            yield Remedy("bucket_view", True, "gradient_as_bucket_view")
        if not workload.checkpointing:
            yield Remedy("checkpointing", True, "checkpointing")
        if workload.batch > 1:
            yield _batch(1)
    if workload.optimizer in ("adamw", "adamw-foreach"):
        yield Remedy("optimizer", "adamw8bit", "8-bit Adam")
    if not workload.lora and model.adapted:
        yield Remedy("lora", _RANK, f"LoRA of rank {_RANK}")


@frozen
class _Search:
    """The search for changes that make a strategy fit into `free` bytes of each device."""

    model: Model
    workload: Workload
    strategy: Strategy
    fixed: int
    free: int

    def fits(self, *remedies: Remedy) -> bool:
        workload = self.workload
        for remedy in remedies:
            workload = remedy.made_in(workload)
        return needed(self.model, workload, self.strategy, self.fixed).total <= self.free

    def single(self) -> list[Remedy]:
        """Single changes that make it fit, the smallest changes of the training first."""
        found = [each for each in _offers(self.model, self.workload, self.strategy) if self.fits(each)]
        if _batch(1) in found:
            batches = range(2, self.workload.batch)
            too_large = bisect_left(batches, True, key=lambda batch: not self.fits(_batch(batch)))
            found[found.index(_batch(1))] = _batch(1 + too_large)
        found += self.more_devices(self.workload, MOST_DEVICES)
        return sorted(found, key=lambda each: _ORDER.index(each.field))

    def together(self) -> tuple[Remedy, ...]:
        """Changes that make it fit when all are made, none of them superfluous; () where there are none.

        As few kinds as possible, the smallest changes of the training first; devices in addition to the
        others.
        """
        taken: list[Remedy] = []
        workload = self.workload
        for offer in _offers(self.model, self.workload, self.strategy):
            taken, workload = [*taken, offer], offer.made_in(workload)
            if self.fits(*taken):
                for each in taken[:-1]:
                    without = [remedy for remedy in taken if remedy is not each]
                    taken = without if self.fits(*without) else taken
                return tuple(taken)
            if more := self.more_devices(workload, _FEW_TIMES * self.strategy.devices):
                return (*taken, *more)
        return ()

    def more_devices(self, workload: Workload, most: int) -> list[Remedy]:
        """The least number of devices like these, up to `most`, on which the strategy fits; [] where more do
        not help, and where devices in groups share the work."""
        strategy = self.strategy
        stages = strategy.pipeline_parallel == strategy.devices and strategy.interleaved == 1
        if not strategy.sharded or strategy.replicate > 1 or (strategy.sharing > 1 and not stages):
            return []

        def fit(count: int) -> bool:
            more = replace(strategy, devices=count, pipeline_parallel=count if stages else 1)
            return needed(self.model, workload, more, self.fixed).total <= self.free

        most = min(MOST_DEVICES, most, self.model.layers if stages else most)
        if most <= strategy.devices or not fit(most):
            return []
        return [_devices(bisect_left(range(most), True, strategy.devices + 1, key=fit))]


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
        return f"{left}, which fragmentation may use up" if row.tight else left
    lacks = f"{size(-row.margin)} too much for each device"
    if row.layer:
        lacks = f"{row.lacking}, {lacks}"
    would = row.would_fit_with
    return f"{lacks}: would fit with {would}" if would else lacks


def _what(row: Row, workload: Workload, box: Box) -> str:
    """The effect of a strategy, and its advantages and drawbacks here, in words."""
    strategy, links = row.strategy, box.links_words
    if strategy.kind == "single":
        return "one device, " + ("the others stay idle" if len(box) > 1 else "nothing to send")
    if strategy.kind == "dp":
        each = row.device_bytes
        return (
            f"one process: five exchanges in each pass where ddp has one ({row.traffic.words}), and GPU 0"
            f" needs {size(each[0])}, every other device {size(each[-1])}"
        )
    if strategy.sharing > 1:
        return f"{_shared(row)}; {batch_words(strategy, workload)}"
    if strategy.replicate > 1:
        return (
            f"FSDP2 over the {strategy.shards} GPUs of each machine: weights are gathered within it, and"
            f" only gradients are sent over {links}"
        )
    texts = {
        "ddp": "a whole copy on each device: only gradients are sent, one exchange in each step",
        "zero1": "divides the optimizer's states: gradients and weights are sent once per step",
        "zero2": "divides gradients and optimizer: gradients are sent in each pass, weights once per step",
        "zero3": f"divides all states, and gathers weights over {links} in forward and backward",
        "fsdp2": f"divides all states, and gathers weights block by block over {links}",
        "zero2-offload": "waits for the host in each step: the optimizer is in its memory",
        "zero3-offload": "waits for the host in each step: weights and optimizer are in its memory",
    }
    return texts[strategy.kind]


def _shared(row: Row) -> str:
    """The effect of a strategy whose devices share a batch."""
    strategy = row.strategy
    group, shared = strategy.tensor_parallel, strategy.context_parallel
    if shared > 1:
        how = "change to parts of the heads" if strategy.deepspeed else "gather keys and values"
        return f"{shared} GPUs share a batch and each sequence, and {how} in each layer"
    if strategy.kind != "pp":
        tensor = f"{group} directly connected GPUs share a batch and each layer"
        return f"{tensor}: large transfers, in more steps"
    parts = ["for a program made for it (Megatron-LM): "]
    parts += [f"{group} directly connected GPUs share each layer, "] if group > 1 else []
    parts += [f"{strategy.pipeline_parallel} stages of layers"]
    parts += [f" in {strategy.interleaved} parts each"] if strategy.interleaved > 1 else []
    parts += [f", {strategy.replicas} pipelines with ZeRO-1"] if strategy.replicas > 1 else []
    return f"{''.join(parts)}, little traffic, {row.traffic.bubble:.0%} of each step is waiting"


def batch_words(strategy: Strategy, workload: Workload) -> str:
    """ "global batch 64 = batch 2 × 4 accumulation steps × 8 GPUs": the sequences of a step of all devices,
    and the factors that are not 1."""
    steps, batch, replicas = strategy.own(workload).accumulation, workload.batch, strategy.replicas
    step = "micro-batches" if strategy.kind == "pp" else "accumulation steps"
    replica = "GPUs" if replicas == strategy.devices else "groups of GPUs"
    factors = [f"{number} {what}" for number, what in ((steps, step), (replicas, replica)) if number > 1]
    made = " × ".join((f"batch {batch}", *factors))
    return f"global batch {batch * steps * replicas}{f' = {made}' if factors else ''}"


def workload_words(workload: Workload, devices: int) -> tuple[tuple[str, str], ...]:
    """The parts of a training on this number of devices in words, each with its field of the workload."""
    devices = max(1, devices)
    workload = workload.on(devices)
    states = "fp32" if workload.weight_bytes == 4 else "bf16"
    parts = (
        ("batch", f"batch {workload.batch}"),
        ("sequence", f"sequence {workload.sequence}"),
        ("accumulation", batch_words(Strategy("ddp", devices), workload)),
        (
            "precision",
            f"{workload.precision} (mixed_precision {workload.mixed_precision}, states in {states})",
        ),
        ("optimizer", workload.optimizer),
        ("checkpointing", "checkpointing" if workload.checkpointing else "no checkpointing"),
        ("lora", f"LoRA {workload.lora}" if workload.lora else "no LoRA"),
        ("bucket_view", "gradient_as_bucket_view" if workload.bucket_view else ""),
        ("weights_only", "weights only" if workload.weights_only else ""),
    )
    return tuple(part for part in parts if part[1])


def listed(words: Sequence[str], last: str) -> str:
    """ "checkpointing, batch 1 or 8 devices"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _notices(found: Plan, workload: Workload) -> Iterator[str]:
    model, box, rows = found.model, found.box, found.rows
    yield from model.notices
    if workload.splits and workload.batch % len(box):
        yield (
            f"accelerate refuses a batch of {workload.batch} on {devices_text(len(box))}: with split_batches,"
            " it must be a multiple of their number"
        )
    if model.counted == "GGUF":
        yield "a GGUF file is for llama.cpp: parameters are counted by the shape in its header"
    elif model.bits:
        yield "the stored weights are quantized; counted as trained in the chosen precision"
    if not box.measured and len(box) > 1:
        yield "times are nominal: `gputui check --bandwidth` measures the links"
    if model.max_positions is not None and workload.sequence > model.max_positions:
        yield f"the sequence is longer than the model's {model.max_positions} positions"
    if (
        workload.precision in ("bf16", "autocast")
        and box.capability is not None
        and box.capability < _BFLOAT16
    ):
        yield (
            "devices below compute capability 8.0 have no bfloat16: use --precision fp16, which"
            " needs as much as autocast"
        )
    reshard = next((row for row in rows if row.name == "fsdp2" and row.fits), None)
    if reshard is not None:
        kept = replace(reshard.strategy, reshard=False)
        free = box.memory_free_min or 0
        if needed(model, workload, kept, box.fixed(len(box))).total <= free:
            yield "fsdp2 fits with reshard_after_forward false: sends a quarter less"
    best, able = found.best, found.able
    if box.nodes > 1:
        yield _ADVICE[box.slow]
    elif able is not None and able.name in ("zero3", "fsdp2") and not box.all_direct:
        larger = "a larger batch" if workload.checkpointing else "checkpointing with a larger batch"
        less = "a pipeline (Megatron-LM)" if workload.lora else "a pipeline (Megatron-LM) or LoRA"
        yield (
            f"weights are gathered over {box.links_words} in each pass: {larger} needs fewer passes, "
            f"{less} sends less"
        )
    pipeline = next((row for row in rows if row.fits and not row.strategy.startable), None)
    if best is not None and able is not None and best is not able:
        yield (
            f"{best.name} sends least over slow links, for programs that divide a model into stages"
            f" (Megatron-LM); of the others {able.name} is the best"
        )
    if best is not None and best.strategy.offloads and pipeline is not None:
        yield (
            f"{pipeline.name} fits without the host's memory, for programs that divide a model into "
            "stages (Megatron-LM)"
        )


_ADVICE = {
    False: (
        "links between machines are fast: ZeRO-3, FSDP2 and HSDP need no change of the program; pipelines"
        " with tensor parallelism send less, and need one"
    ),
    True: (
        "links between machines are slow: HSDP gathers weights within a machine only, and pipelines with"
        " tensor parallelism and ZeRO-1 send the least"
    ),
}
"""The guide's advice for several machines, by whether their links are slow."""


def what_would_do(found: Plan) -> Iterator[str]:
    """The smallest change of each kind that would make anything fit, with the preferred strategy.

    Changes for a pipeline appear only where no startable strategy has any.
    """
    rows = found.rows
    if isinstance(found.workload, Serving):
        yield from [row.change for row in rows if row.change][:1]
        return
    placed = _places(rows)
    preferred = sorted(rows, key=lambda row: placed[row.name])
    startable = [row for row in preferred if row.strategy.startable]
    yield from tuple(_changes(startable)) or _changes(preferred)
    yield from (f"{row.change} ({row.name})" for row in rows if row.change)


def _changes(preferred: Sequence[Row]) -> Iterator[str]:
    """The smallest change of each kind that makes one of the rows fit; if none suffices, several together."""
    for field in _ORDER:
        offered = [(remedy, row) for row in preferred for remedy in row.remedies if remedy.field == field]
        if offered:
            # The largest batch, the fewest devices; other changes have one value.
            best = max if field == "batch" else min
            remedy, row = best(offered, key=lambda each: each[0].value)
            yield _in_a(row, remedy.text)
    combined = [row for row in preferred if row.together]
    if combined and not any(row.remedies for row in preferred):
        row = min(combined, key=lambda each: len(each.together))
        yield _in_a(row, row.would_fit_with)


def _in_a(row: Row, change: str) -> str:
    return f"{change} ({row.name if row.strategy.startable else 'a pipeline'})"
