"""The comparisons that are kept in the state folder, and how their records are read."""

from __future__ import annotations

from typing import Any

from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.typed_json import DocumentError, Figure, Moment, Positive, Record, Words, schema
from gputui.jobs.kept_records import Runner, Store, state_of
from gputui.planning.comparison import FIGURES, SCHEMA, Comparison, Row, Run, document


@dataclass(frozen=True, slots=True)
class _Axis:
    name: str
    heading: str


_FIGURES: dict[str, Any] = {name: Figure | None for name in FIGURES if name != "peak_memory"}
_RUN = Record(Run, "", "signal", round=Positive, **_FIGURES)
_ROW = Record(
    Row,
    "values launch=line devices runs",
    "",
    values=tuple[Words, ...],
    line=Words,
    devices=tuple[Words, ...],
)
_COMPARISON = Record(
    Comparison,
    "schema state created command devices axes variants=rows repeat metric less_is_better=less ended runner",
    later="runner",
    schema=schema(SCHEMA),
    created=Moment,
    command=tuple[Words, ...],
    devices=tuple[Words, ...],
    axes=tuple[_Axis, ...],
    repeat=Positive,
    ended=Moment | None,
    runner=Runner,
)


def _comparison(document: Any, name: str) -> Comparison:
    facts = _COMPARISON.facts(document)
    del facts["schema"]
    facts["state"] = state_of(facts)
    axes = tuple((axis.name, axis.heading) for axis in facts["axes"])
    if not axes or not facts["rows"] or any(len(row.values) != len(axes) for row in facts["rows"]):
        raise DocumentError("variants with a value of each axis expected", "variants")
    return Comparison(name, **{**facts, "axes": axes})


COMPARISONS: Store[Comparison] = Store(
    word="comparison",
    subcommand="compare",
    document=lambda comparison, _: document(comparison),
    made=_comparison,
)
