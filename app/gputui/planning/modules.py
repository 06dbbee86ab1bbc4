"""The modules with parameters that a model is made of, from which its closed form follows."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.inventory.light_dataclasses import dataclass, field
from gputui.planning.model import SavedBytes


@dataclass(frozen=True, slots=True)
class Module:
    """One module with parameters of its own.

    parameters  of it alone, without those of modules within
    adapted     inputs + outputs, where it is a linear layer that LoRA adapts
    """

    parameters: int
    adapted: int = 0


def linear(inputs: int, outputs: int, bias: bool = False, adapted: bool = True) -> Module:
    return Module(inputs * outputs + (outputs if bias else 0), inputs + outputs if adapted else 0)


def embedding(rows: int, width: int) -> Module:
    return Module(rows * width)


def norm(width: int, bias: bool = False) -> Module:
    """A norm with a weight, and LayerNorm's bias."""
    return Module(width * (2 if bias else 1))


@dataclass(frozen=True, slots=True)
class Block:
    """`count` transformer blocks that are alike.

    saved  what one of them keeps for backward, for each token, by `model.COMPUTES`
    """

    modules: tuple[Module, ...]
    saved: tuple[SavedBytes, SavedBytes, SavedBytes]
    count: int = 1

    @property
    def parameters(self) -> int:
        """Of one of them."""
        return sum(module.parameters for module in self.modules)

    @property
    def adapted(self) -> int:
        return sum(module.adapted for module in self.modules)


@dataclass(frozen=True, slots=True)
class Modules:
    """All modules of a model.

    root  outside the blocks: embeddings, the last norm, the head
    tied  modules whose parameters are those of another one: they count as layers, but not twice
    """

    root: tuple[Module, ...]
    blocks: tuple[Block, ...]
    tied: tuple[Module, ...] = field(default=())

    @property
    def parameters(self) -> int:
        return _sum(self.root) + sum(block.count * block.parameters for block in self.blocks)

    @property
    def largest_layer(self) -> int:
        within = (module for block in self.blocks for module in block.modules)
        return max(module.parameters for module in (*self.root, *self.tied, *within))

    @property
    def largest_block(self) -> int:
        return max(block.parameters for block in self.blocks)

    @property
    def adapted(self) -> int:
        return sum(block.count * block.adapted for block in self.blocks)

    @property
    def saved(self) -> tuple[SavedBytes, SavedBytes, SavedBytes]:
        """What all blocks keep."""
        first, second, third = (
            _total(block.saved[place].times(block.count) for block in self.blocks) for place in range(3)
        )
        return first, second, third

    @property
    def saved_block(self) -> tuple[SavedBytes, SavedBytes, SavedBytes]:
        """What the block keeps that keeps most."""
        first, second, third = (
            max((block.saved[place] for block in self.blocks), key=lambda saved: saved.bytes(1, 1024))
            for place in range(3)
        )
        return first, second, third


def _sum(modules: Iterable[Module]) -> int:
    return sum(module.parameters for module in modules)


def _total(parts: Iterable[SavedBytes]) -> SavedBytes:
    total = SavedBytes(0, 0)
    for part in parts:
        total += part
    return total
