"""The named boxes of `--demo` and of the tests, as described in boxes.toml."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gputui.inventory.typed_json import Form, Record
from gputui.sources.simulated.spec import Box, Gpu, OwnJob, sockets

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from gputui.sources.slurm.cluster import Cluster

DEFAULT = "shared"

_DESCRIBED: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_UNKNOWN = "?"
_LISTS = ("unsupported", "mig")
"""Fields of a `Gpu` whose values are lists themselves."""


def _gpus(rows: list[dict[str, Any]]) -> tuple[Gpu, ...]:
    return tuple(gpu for row in rows for gpu in _of_row(row))


def _of_row(row: Mapping[str, Any]) -> Iterator[Gpu]:
    facts = {"bus": "", **_model(row)}
    each = {name: value for name, value in facts.items() if isinstance(value, list) and name not in _LISTS}
    for values in zip(*each.values(), strict=True) if each else ((),):
        found = {**facts, **dict(zip(each, values, strict=True))}
        if found["bus"] and ":" not in found["bus"]:
            found["bus"] += ":00.0"
        yield _GPU.read(found)


def _model(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a row, with defaults from the model that it is `like`."""
    return {**(_model(_DESCRIBED["models"][row["like"]]) if "like" in row else {}), **row}


def _unsupported(names: list[str]) -> frozenset[str]:
    groups = _DESCRIBED["untold"]
    return frozenset().union(*(_unsupported(groups[n]) if n in groups else (n,) for n in names))


def _matrix(said: Any) -> tuple[tuple[Any, ...], ...]:
    if isinstance(said, dict):
        return sockets(**{name: _cell(value) for name, value in said.items()})
    return tuple(tuple(map(_cell, line.split())) for line in said.splitlines())


def _cell(word: Any) -> Any:
    return None if word == _UNKNOWN else word


_MATRIX = Annotated[Any, Form(_matrix)]
_GPU = Record(Gpu, power_limit=object, unsupported=Annotated[frozenset[str], Form(_unsupported)])
_JOB = Record(OwnJob, created=object, ended=object | None)
"""(Its times are negative: they are before the box is opened.)"""
_BOX = Record(
    Box,
    gpus=Annotated[tuple[Gpu, ...], Form(_gpus)],
    links=_MATRIX,
    pcie=_MATRIX,
    weights=_MATRIX,
    peers=Annotated[bool | None, Form(_cell)],
    jobs=tuple[Annotated[OwnJob, Form(_JOB.read)], ...],
)


class _Boxes(Mapping[str, Box]):
    """Boxes by name, each made on first use."""

    def __iter__(self) -> Iterator[str]:
        return iter(_DESCRIBED["boxes"])

    def __len__(self) -> int:
        return len(_DESCRIBED["boxes"])

    def __getitem__(self, name: str) -> Box:
        return _box(name)


@cache
def _box(name: str) -> Box:
    return _BOX.read({"name": name, **_DESCRIBED["boxes"][name]})


BOXES = _Boxes()
"""Every named box, the default first."""


@lru_cache(maxsize=1)
def simulated_cluster() -> Cluster:
    """Return a Slurm cluster for the demo: nodes that are free, in use and drained, and the
    user's own jobs."""
    from gputui.sources.slurm.cluster import Cluster

    return Record(Cluster).read(_DESCRIBED["cluster"])
