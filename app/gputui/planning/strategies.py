"""The parallelism strategies that a plan compares, by their names on the command line and in the JSON."""

from __future__ import annotations

from typing import Literal

from gputui.choosing.grouping import Grouping
from gputui.inventory.light_dataclasses import dataclass
from gputui.planning.box import Box
from gputui.planning.model import Model

Kind = Literal["single", "ddp", "zero1", "zero2", "zero3", "zero2-offload", "zero3-offload", "fsdp2", "pp"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to use `devices` devices.

    tensor_parallel    devices that share each layer; 1 for none. FSDP2 runs over the groups
    pipeline_parallel  stages of layers; 1 for none
    reshard            whether FSDP2 frees a block's gathered weights after forward
    """

    kind: Kind
    devices: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    reshard: bool = True

    @property
    def name(self) -> str:
        if self.kind == "pp":
            return f"pp{self.pipeline_parallel}"
        return f"tp{self.tensor_parallel}-fsdp2" if self.tensor_parallel > 1 else self.kind

    @property
    def replicas(self) -> int:
        """The number of devices, or groups of devices, that see different data."""
        return self.devices // (self.tensor_parallel * self.pipeline_parallel)

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
    def offloads(self) -> bool:
        """Whether some of the states are in host memory."""
        return self.kind.endswith("-offload")

    @property
    def sharded(self) -> bool:
        """Whether each device holds less of the model when there are more devices."""
        return self.kind not in ("single", "ddp")


def strategies(model: Model, box: Box) -> list[Strategy]:
    """The strategies that make sense for these devices, the simpler ones first.

    Tensor parallelism divides the heads, and stays within devices that have direct links. A pipeline has at
    most as many stages as layers, and is never combined with ZeRO-2 or ZeRO-3 or FSDP. Nothing is offloaded
    from a device whose memory is the host's.
    """
    count = len(box)
    offloads: tuple[Kind, ...] = () if box.unified else ("zero2-offload", "zero3-offload")
    several: tuple[Kind, ...] = ("ddp", "zero1", "zero2", "zero3", "fsdp2") if count > 1 else ()
    found = [Strategy("single", 1), *(Strategy(kind, count) for kind in (*several, *offloads))]
    if count == 1:
        return found
    found += [Strategy("fsdp2", count, tensor_parallel=size) for size in tensor_parallel_sizes(model, box)]
    if count <= model.layers:
        found.append(Strategy("pp", count, pipeline_parallel=count))
    return found


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
