"""Reads the shape of a model from the header of a GGUF file (llama.cpp), bounded, never a tensor.

Format (ggml/docs/gguf.md), little-endian: "GGUF", the version, the numbers of tensors and of keys; for each
key its name, its type and its value. The shape precedes the vocabulary, where reading stops.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

from gputui.inventory.formatting import MIB, printable
from gputui.inventory.others_files import NotReadError, go_on
from gputui.inventory.typed_json import Json
from gputui.planning.model import PlanningError
from gputui.planning.safetensors import MOST_SHARDS, read_bytes, size_of

_MOST = MIB
_LONG = 1000
"""A list of at least so many values is the vocabulary."""
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _LIST = 8, 9

_FIELDS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "vocab_size": "vocab_size",
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
}
_KINDS = {
    "gemma3": "gemma3_text",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "deepseek2": "deepseek_v3",
    "gpt-oss": "gpt_oss",
}
"""The names in transformers of llama.cpp's architectures, where the two differ."""


def configuration_of(path: Path) -> Json:
    """The header as the configuration that transformers would have for the model. Raises PlanningError."""
    values = _header(path)
    kind = values.get("general.architecture")
    if not isinstance(kind, str):
        raise _damaged(path)
    found = {field: values.get(f"{kind}.{name}") for field, name in _FIELDS.items()}
    found["vocab_size"] = found["vocab_size"] or values.get("tokenizer.ggml.tokens")
    known = "mixtral" if kind == "llama" and found["num_experts"] else _KINDS.get(kind, kind)
    # (Where each layer has its number, the largest counts.)
    plain = {
        field: max(each, default=None) if isinstance(each, list) else each for field, each in found.items()
    }
    return {"model_type": known, **plain}


def bytes_of(path: Path) -> int:
    """The bytes of a file, with those of the other files into which it is split. Raises PlanningError."""
    split = re.fullmatch("(.*-)[0-9]{5}(-of-([0-9]{5}).*)", path.name, re.DOTALL)
    if split is None:
        return size_of(path)
    # (The folder of another user may have any number of files: it is not listed.)
    numbers = range(1, 1 + min(int(split[3]), MOST_SHARDS))
    parts = (path.with_name(f"{split[1]}{number:05}{split[2]}") for number in numbers)
    return max(size_of(path), sum(size_of(each) for each in parts if each.is_file()))


def _header(path: Path) -> Json:
    data, values, at = read_bytes(path, 0, _MOST), dict[str, Any](), 24
    try:
        magic, version, _, keys = struct.unpack_from("<4sIQQ", data)
        if magic != b"GGUF" or not 2 <= version <= 3:
            raise PlanningError(
                f"{printable(path.name)} is no GGUF file of version 2 or 3: give its size (8B) as the model"
            )
        for _ in range(keys):
            go_on()
            name, at = _plain_value(data, _TEXT, at)
            (kind,) = struct.unpack_from("<I", data, at)
            values[name], at = _value(data, kind, at + 4)
            if at < 0:
                break
    except (struct.error, KeyError, NotReadError):
        raise _damaged(path) from None
    return values


def _damaged(path: Path) -> PlanningError:
    name = printable(path.name)
    return PlanningError(
        f"{name} ends within its header, or that is damaged: give its size (8B) as the model"
    )


def _value(data: bytes, kind: int, at: int) -> tuple[Any, int]:
    """A value and the place after it; of the vocabulary its length and -1. Raises struct.error, KeyError."""
    if kind == _LIST:
        inner, count = struct.unpack_from("<IQ", data, at)
        if count >= _LONG:
            return count, -1
        values, at = list[Any](), at + 12
        for _ in range(count):
            value, at = _plain_value(data, inner, at)
            values.append(value)
        return values, at
    return _plain_value(data, kind, at)


def _plain_value(data: bytes, kind: int, at: int) -> tuple[Any, int]:
    """The same for anything but a list: llama.cpp reads no lists in lists either."""
    form = "<Q" if kind == _TEXT else "<" + _NUMBERS[kind]
    (number,), at = struct.unpack_from(form, data, at), at + struct.calcsize(form)
    if kind != _TEXT:
        return number, at
    if number > len(data) - at:
        raise KeyError(number)
    return data[at : at + number].decode(errors="replace"), at + number
