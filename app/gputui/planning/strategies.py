"""The parallelism strategies that a plan compares, by their names on the command line and in the JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.planning.box import Box
from gputui.planning.model import Model
from gputui.planning.workload import MOST, Workload

Kind = Literal[
    "single",
    "dp",
    "ddp",
    "zero1",
    "zero2",
    "zero3",
    "zero2-offload",
    "zero3-offload",
    "fsdp2",
    "pp",
    "serve",
]

LONG = 8192
"""The tokens of a sequence from which dividing it over devices is offered."""

PIPELINE_AND_ZERO = (
    "a pipeline is combined with ZeRO-1 only: ZeRO-2 would reduce gradients after each micro-batch, ZeRO-3"
    " and FSDP would gather weights for each (DeepSpeed refuses them)"
)
"""Why a pipeline has no other stage of ZeRO."""


@frozen
class Strategy:
    """One way to use `devices` devices.

    tensor_parallel    devices that share each layer; 1 for none. FSDP2 runs over the groups
    pipeline_parallel  stages of layers; 1 for none. Several pipelines divide the optimizer's states (ZeRO-1)
    reshard            whether FSDP2 frees a block's gathered weights after forward
    context_parallel   devices that share each sequence; 1 for none. With FSDP2 it is accelerate's cp, with
                       ZeRO-3 its sp (never both)
    interleaved        parts of the layers that each stage has; 1 where they are consecutive
    replicate          groups with a copy of everything, within which FSDP2 divides it (HSDP); 1 for none
    """

    kind: Kind
    devices: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    reshard: bool = True
    context_parallel: int = 1
    interleaved: int = 1
    replicate: int = 1

    @property
    def name(self) -> str:
        if self.replicate > 1:
            return "hsdp"
        sequence = "sp" if self.deepspeed else "cp"
        sizes = {"tp": self.tensor_parallel, sequence: self.context_parallel, "pp": self.pipeline_parallel}
        parts = [f"{word}{size}" for word, size in sizes.items() if size > 1]
        if self.interleaved > 1:
            parts[-1] += f"x{self.interleaved}"
        if self.kind == "pp":
            parts += ["zero1"] if self.replicas > 1 else []
        elif self.kind != "serve" or not parts:
            parts += [self.kind if self.kind != "serve" else "single"]
        return "-".join(parts)

    @property
    def sharing(self) -> int:
        """The number of devices that share a batch."""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    @property
    def replicas(self) -> int:
        """The number of devices, or groups of devices, that see different data (dp)."""
        return self.devices // self.sharing

    def own(self, workload: Workload) -> Workload:
        """The workload of a device: those that share a batch make as many passes more, so that all strategies
        have the same global batch; those that share a sequence have a part of its tokens."""
        if self.sharing == 1:
            return workload
        passes = min(MOST, workload.accumulation * self.sharing)
        return replace(workload, accumulation=passes, sequence=-(-workload.sequence // self.context_parallel))

    def in_groups(self, grouping: Grouping) -> bool:
        """Whether the strategy uses this grouping; always true where none is asked for."""
        if grouping.independent:
            return self.devices == 1
        parts = (self.tensor_parallel, self.pipeline_parallel)
        return grouping.unit == 1 or parts == (grouping.tensor, grouping.pipeline)

    @property
    def stage(self) -> int:
        """The ZeRO stage where DeepSpeed trains, 0 where it does not."""
        return int(self.kind[4]) if self.deepspeed else 0

    @property
    def deepspeed(self) -> bool:
        return self.kind.startswith("zero")

    @property
    def startable(self) -> bool:
        """Whether a launcher can start any training this way; a pipeline needs a program made for it."""
        return self.kind != "pp"

    @property
    def shards(self) -> int:
        """The number of devices that FSDP2 divides everything over."""
        return self.devices // self.replicate

    @property
    def offloads(self) -> bool:
        """Whether some of the states are in host memory."""
        return self.kind.endswith("-offload")

    @property
    def gathers(self) -> bool:
        """Whether weights are gathered in each pass."""
        return self.kind in ("zero3", "fsdp2")

    @property
    def sharded(self) -> bool:
        """Whether each device holds less of the model when there are more devices."""
        return self.kind not in ("single", "ddp", "dp")


def for_any_program(count: int) -> list[Strategy]:
    """The strategies that a file, or the launcher, applies to any program, without the host's memory."""
    kinds: tuple[Kind, ...] = ("ddp", "zero1", "zero2", "zero3", "fsdp2") if count > 1 else ("single",)
    return [Strategy(kind, count) for kind in kinds]


def strategies(model: Model, box: Box, workload: Workload, grouping: Grouping = ALL_REDUCE) -> list[Strategy]:
    """The strategies that make sense for these devices and this grouping, the simpler ones first.

    Tensor parallelism divides the heads, and stays within devices that have direct links. A pipeline has at
    most as many stages as layers, and is combined with tensor parallelism and ZeRO-1. A sequence is divided
    from `LONG` tokens. Nothing is offloaded from a device whose memory is the host's.
    """
    count = len(box)
    offloads: tuple[Kind, ...] = () if box.unified else ("zero2-offload", "zero3-offload")
    found = [Strategy("single", 1)]
    if count > 1 and box.nodes == 1:
        found.append(Strategy("dp", count))
    found += for_any_program(count) if count > 1 else ()
    found += [Strategy(kind, count) for kind in offloads]
    if box.nodes > 1 and box.local > 1:
        found.append(Strategy("fsdp2", count, replicate=box.nodes))
    groups = tensor_parallel_sizes(model, box)
    found += [Strategy("fsdp2", count, tensor_parallel=size) for size in groups]
    found += _contexts(model, workload, count)
    found += [each for size in (1, *groups) for each in _pipelines(model, count, size, grouping)]
    return [each for each in found if each.in_groups(grouping)]


def _divisors(count: int) -> list[int]:
    return [size for size in range(2, count + 1) if count % size == 0]


def _contexts(model: Model, workload: Workload, count: int) -> Iterator[Strategy]:
    if workload.sequence < LONG or model.sequence is not None:
        return
    for size in _divisors(count):
        # (torch's context parallelism gives each device two parts of a sequence.)
        if workload.sequence % (2 * size) == 0:
            yield Strategy("fsdp2", count, context_parallel=size)
        if workload.sequence % size == 0 and model.heads and model.heads % size == 0:
            yield Strategy("zero3", count, context_parallel=size)


def _pipelines(model: Model, count: int, group: int, grouping: Grouping) -> Iterator[Strategy]:
    """The pipelines of groups of `group` devices; of many possible numbers of stages the usual ones."""
    rest = count // group
    for stages in _divisors(rest):
        usual = stages in (2, 4, 8, 16, rest) or grouping.pipeline == stages
        if usual and stages <= model.layers:
            yield Strategy("pp", count, group, stages)
            if group == 1 and stages >= 4 and model.blocks % (2 * stages) == 0:
                yield Strategy("pp", count, group, stages, interleaved=2)


def tensor_parallel_sizes(model: Model, box: Box) -> list[int]:
    """Group sizes that divide heads and key/value heads, with direct links throughout each group."""
    return [
        size
        for size in range(2, len(box) + 1)
        if len(box) % size == 0
        and model.heads % size == 0
        and model.kv_heads % size == 0
        and model.heads
        and box.groups_are_direct(size)
    ]
