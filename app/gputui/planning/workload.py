"""The training on a model: batch, sequence, precision, optimizer, checkpointing, LoRA."""

from __future__ import annotations

from typing import Any, Literal, get_args

from gputui.inventory.light_dataclasses import frozen, replace
from gputui.planning.model import Compute, Model, PlanningError

Precision = Literal["bf16", "autocast", "fp16", "fp32"]
"""autocast, fp16: weights, gradients and optimizer in 32 bits, computed in 16 bits (mixed precision:
`--bf16`, `--fp16` of transformers, `mixed_precision` of accelerate). bf16: all in 16 bits. fp32: all in 32
bits. The default is what most programs train with: autocast."""

PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def mixed_precision(precision: Precision) -> str:
    """accelerate's word for a precision where DeepSpeed does not train."""
    return {"autocast": "bf16", "fp16": "fp16"}.get(precision, "no")


@frozen
class Optimizer:
    """The states that an optimizer keeps for each trained parameter.

    states      the number of states of the parameter's own size: AdamW has two
    fixed       bytes that do not depend on the parameter's size: the states of 8-bit optimizers
    step_copies the number of copies of the parameter's size, during a step only: intermediate values of a
                "foreach" step
    """

    states: int
    fixed: int = 0
    step_copies: int = 0


OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": Optimizer(2),
    "adamw-foreach": Optimizer(2, step_copies=1),
    "adamw8bit": Optimizer(0, fixed=2),
    "lion": Optimizer(1),
    "sgd": Optimizer(0),
    "sgd-momentum": Optimizer(1),
}
"""`adamw` is torch's fused AdamW, the default of transformers."""

MOST = 1 << 24
"""The greatest batch, sequence, rank and number of passes."""


@frozen
class Workload:
    """One training step on each device. Raises PlanningError for invalid values.

    batch          sequences of a device in one forward pass
    sequence       tokens per sequence
    checkpointing  activations of a block are recomputed in backward
    lora           the rank of LoRA adapters on all linear layers of the blocks; 0 trains all parameters
    accumulation   forward passes per step
    weights_only   count only weights, gradients and optimizer
    bucket_view    DDP's gradients are views of its buckets (gradient_as_bucket_view)
    splits         `batch` is that of all devices together (accelerate's split_batches)
    """

    batch: int = 1
    sequence: int = 2048
    precision: Precision = "autocast"
    optimizer: str = "adamw"
    checkpointing: bool = False
    lora: int = 0
    accumulation: int = 1
    weights_only: bool = False
    bucket_view: bool = False
    splits: bool = False

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("sequence", 1), ("lora", 0), ("accumulation", 1)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= MOST:
                raise PlanningError(f"{name} is {value}; expected a whole number from {least} to {MOST}")
        if self.precision not in PRECISIONS:
            raise PlanningError(f"precision is {self.precision!r}; expected one of {', '.join(PRECISIONS)}")
        if self.optimizer not in OPTIMIZERS:
            raise PlanningError(f"optimizer is {self.optimizer!r}; expected one of {', '.join(OPTIMIZERS)}")

    @property
    def tokens(self) -> int:
        """The tokens of a device in one forward pass."""
        return self.batch * self.sequence

    def logits(self, model: Model) -> int:
        """The bytes of the outputs of a device in one forward pass."""
        return self.tokens * model.vocabulary * self.weight_bytes

    def for_model(self, model: Model) -> Workload:
        """The workload with the sequence length of the model's inputs, where these decide it."""
        return self if model.sequence is None else replace(self, sequence=model.sequence)

    def on(self, devices: int) -> Workload:
        """The workload of each device, where the batch is that of all."""
        return replace(self, batch=-(-self.batch // devices), splits=False) if self.splits else self

    def trained(self, model: Model) -> int:
        """The parameters that get gradients: all, or those of the adapters. Raises PlanningError."""
        if not self.lora:
            return model.parameters
        if not model.adapted:
            raise PlanningError(
                "LoRA needs the widths of the linear layers: give a model in place of a number"
            )
        return self.lora * model.adapted

    @property
    def mixed_precision(self) -> str:
        """accelerate's word for the precision."""
        return mixed_precision(self.precision)

    @property
    def compute(self) -> Compute:
        """How the blocks compute where torch itself decides, not FSDP or DeepSpeed."""
        return "autocast" if self.precision == "fp16" else self.precision

    @property
    def weight_bytes(self) -> int:
        """The bytes of a trained parameter, and of its gradient, which FSDP reduces over the devices."""
        return 2 if self.precision == "bf16" else 4

    @property
    def computed_bytes(self) -> int:
        """The bytes of a number that blocks compute with, of a weight that is sent, and of a parameter that
        LoRA freezes."""
        return 4 if self.precision == "fp32" else 2

    def optimizer_bytes(self, weight_bytes: int) -> int:
        """The bytes of the optimizer's states for a trained parameter of `weight_bytes` bytes."""
        kind = OPTIMIZERS[self.optimizer]
        return kind.states * weight_bytes + kind.fixed

    @property
    def step_copies(self) -> int:
        """The number of copies of the trained parameters during a step."""
        return OPTIMIZERS[self.optimizer].step_copies


def said_of(source: object) -> dict[str, Any]:
    """The fields of a workload that a command, or a call, states."""
    said = {name: getattr(source, name, None) for name in Workload.__annotations__}
    return {name: value for name, value in said.items() if value is not None}
