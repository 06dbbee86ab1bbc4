"""Reads the number of parameters in safetensors files: headers only, bounded, never a tensor.

Format: eight bytes, little-endian: the length of the header; the header, JSON of name → dtype, shape and
offsets; the tensors (huggingface/safetensors, README "Format").
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.others_files import MOST_JSON, NotReadError, beginning, go_on, parse_json
from gputui.inventory.typed_json import DocumentError, Json, Record, few
from gputui.planning.model import PlanningError

MOST_SHARDS = 4096

_MOST_IN_INDEX = 1 << 17
"""The most values of an index. A real one of 10 MiB has 110,000; one of short names took 0.4 s."""

_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8}
"""Types of trainable parameters. Of other types, I64 and BOOL are buffers, the rest are packed weights."""

_BUFFER_TYPES = ("I64", "BOOL")
_BUFFERS = ("rotary_emb.inv_freq", ".masked_bias", "_scale_inv", "weight_scale", "e_score_correction_bias")
"""Name endings of tensors that are stored but are not parameters."""


@frozen
class Count:
    """The numbers of parameters in the files and in their largest tensor; 0 where `largest` is unknown."""

    parameters: int
    largest: int


@frozen
class _Tensor:
    """One tensor in the header of a file: `data_offsets` are its begin and end behind the header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


@frozen
class _Metadata:
    total_parameters: int = 0


@frozen
class _Index:
    """The index of a model's files: the file of each tensor."""

    weight_map: dict[str, str]
    metadata: _Metadata | None = None


_INDEX = Record(_Index)
_TENSOR = Record(_Tensor, shape=few(int, 16))


def read_json(path: Path, **limits: int) -> Any:
    """Read the JSON of a small file, within limits of `parse_json`. Raises PlanningError."""
    return _parsed(path, read_bytes(path, 0, MOST_JSON, whole=True), "", **limits)


def _parsed(path: Path, data: bytes, part: str, **limits: int) -> Any:
    """Parse the JSON of a file, or of a part of it. Raises PlanningError."""
    try:
        go_on()
        return parse_json(data, **limits)
    except NotReadError as error:
        raise PlanningError(
            f"{_name(path)} is not read: {error}: give the model's config.json, or its size (8B) as the model"
        ) from None
    except ValueError:
        raise PlanningError(f"{_name(path)}{part} is not JSON") from None


def count_file(path: Path) -> Count:
    """Count the parameters of one .safetensors file. Raises PlanningError."""
    start = read_bytes(path, 0, 8)
    if start.startswith(b"version "):
        raise PlanningError(f"{_name(path)} is a Git LFS pointer: the file itself was not fetched")
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > MOST_JSON:
        raise PlanningError(f"{_name(path)} does not begin with the header of a safetensors file")
    data = read_bytes(path, 8, length)
    if len(data) < length:
        raise PlanningError(f"{_name(path)} is truncated within its header")
    header = _parsed(path, data, ": its header")
    if not isinstance(header, dict):
        raise PlanningError(f"{_name(path)}: its header is not an object")
    return _count(path, header, size_of(path) - 8 - length)


def count_index(path: Path) -> Count:
    """Count the parameters of all shards of a model.safetensors.index.json, which must be in the same folder.

    Where shards are missing, the number in its metadata is used. Raises PlanningError.
    """
    try:
        index = _INDEX.read(read_json(path, values=_MOST_IN_INDEX))
    except DocumentError as error:
        raise PlanningError(f"{_name(path)} is no index of a model's files: {error}") from None
    shards = {*index.weight_map.values()}
    if not 0 < len(shards) <= MOST_SHARDS or any(Path(name).name != name or "\0" in name for name in shards):
        raise PlanningError(f"{_name(path)} names no files, or files that are not in its folder")
    if not all((path.parent / name).is_file() for name in shards):
        told = index.metadata.total_parameters if index.metadata is not None else 0
        if not told:
            raise PlanningError(
                f"{_name(path)}: the files that it names are not in its folder; give the model's"
                " config.json, or its size (8B) as the model"
            )
        return Count(told, 0)
    counts = [count_file(path.parent / name) for name in sorted(shards)]
    return Count(sum(each.parameters for each in counts), max(each.largest for each in counts))


def _count(path: Path, header: Json, room: int) -> Count:
    total = largest = 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        where = f"{_name(path)}: {printable(name[:80])!r}"
        try:
            found = _TENSOR.read(tensor)
        except DocumentError as error:
            raise PlanningError(f"{where} is described wrongly: {error}") from None
        (start, end), kind = found.data_offsets, found.dtype
        if not start <= end <= room:
            raise PlanningError(f"{where} ends after the file, which is truncated")
        if (
            kind in _BUFFER_TYPES
            or name.endswith(_BUFFERS)
            or (name.endswith(".attn.bias") and len(found.shape) == 4)
        ):
            continue
        if kind not in _BITS:
            raise PlanningError(
                f"{_name(path)} holds packed weights ({printable(kind[:20])}): give a config.json, or "
                "its size (8B) as the model"
            )
        number = prod(found.shape)
        if number * _BITS[kind] != 8 * (end - start):
            raise PlanningError(f"{where} has another shape than its bytes")
        total, largest = total + number, max(largest, number)
    if not total:
        raise PlanningError(f"{_name(path)} holds no parameters")
    return Count(total, largest)


def _name(path: Path) -> str:
    return printable(path.name or str(path))


def size_of(path: Path) -> int:
    """The bytes of a file. Raises PlanningError."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise PlanningError(f"{_name(path)} cannot be read: {error.strerror}") from None


def read_bytes(path: Path, start: int, most: int, whole: bool = False) -> bytes:
    """Read at most `most` bytes; with `whole`, a longer file is refused. Raises PlanningError."""
    try:
        data, ends = beginning(path, most, start)
    except OSError as error:
        raise PlanningError(f"{_name(path)} cannot be read: {error.strerror}") from None
    if whole and not ends:
        raise PlanningError(f"{_name(path)} is not read: it has more than {most >> 20} MiB")
    return data
