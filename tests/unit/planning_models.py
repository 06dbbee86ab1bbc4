"""Models and boxes for the planner's tests: published configurations, and devices as sold."""

from __future__ import annotations

import re
from typing import Any

from gputui.inventory.formatting import GIB
from gputui.planning.box import Box
from gputui.planning.closed_forms import closed_form
from gputui.planning.fields import Fields
from gputui.planning.files import Recipe
from gputui.planning.model import Model
from gputui.planning.strategies import Strategy
from gputui.planning.workload import Precision


def model(kind: str, name: str | None = None, **fields: Any) -> Model:
    """The closed form of a configuration."""
    return closed_form(Fields({"model_type": kind, **fields}, "config.json"), name or kind)


def llama_like(
    kind: str, h: int, layers: int, a: int, kv: int, f: int, vocab: int, tied: bool = False, **fields: Any
) -> Model:
    return model(
        kind,
        hidden_size=h,
        num_hidden_layers=layers,
        num_attention_heads=a,
        num_key_value_heads=kv,
        intermediate_size=f,
        vocab_size=vocab,
        tie_word_embeddings=tied,
        max_position_embeddings=8192,
        **fields,
    )


GPT2 = model("gpt2")
SMOLLM2 = llama_like("llama", 576, 30, 9, 3, 1536, 49152, True)
LLAMA2_7B = llama_like("llama", 4096, 32, 32, 32, 11008, 32000)
LLAMA3_8B = llama_like("llama", 4096, 32, 32, 8, 14336, 128256)
LLAMA3_70B = llama_like("llama", 8192, 80, 64, 8, 28672, 128256)
LLAMA32_1B = llama_like("llama", 2048, 16, 32, 8, 8192, 128256, True)


def box(
    count: int,
    free: int | None,
    link: str = "PHB",
    gigabytes: float | None = 12.0,
    host_memory: int | None = None,
) -> Box:
    """A box of equal devices, each connected to every other by the same link."""
    return Box(
        uuids=tuple(f"GPU-{place}" for place in range(count)),
        memory_free=(free,) * count,
        links=tuple(tuple("X" if i == j else link for j in range(count)) for i in range(count)),
        bandwidths=tuple(tuple(None if i == j else gigabytes for j in range(count)) for i in range(count)),
        host_memory=host_memory,
    )


def h100s(count: int = 8) -> Box:
    return box(count, 79 * GIB, "NV18", 370.8, 1000 * GIB)


def rtx_3090s(count: int = 4) -> Box:
    return box(count, int(23.6 * GIB), "PHB", 24.0, 64 * GIB)


def recipe(
    name: str, devices: int = 1, precision: Precision = "autocast", reshard: bool = True, **more: Any
) -> Recipe:
    """The recipe of a strategy by its name ("tp2-fsdp2", "cp2-fsdp2", "pp4", "zero2")."""
    numbers = {word: int(number) for word, number in re.findall(r"(tp|pp|cp|sp)(\d+)", name)}
    kind: Any = "pp" if "pp" in numbers else name.split("-")[-1] if numbers else name
    shared = numbers.get("cp", numbers.get("sp", 1))
    strategy = Strategy(kind, devices, numbers.get("tp", 1), numbers.get("pp", 1), reshard, shared)
    assert strategy.name.removesuffix("-zero1") == name
    return Recipe(strategy, precision, **more)
