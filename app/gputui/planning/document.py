"""A plan as JSON: bytes of a device, seconds; an unknown value is null."""

from __future__ import annotations

from typing import Any

from gputui.inventory.typed_json import Document, OrNull, Signed, View
from gputui.planning.estimators import Estimate
from gputui.planning.memory import Bytes
from gputui.planning.model import Model
from gputui.planning.plan import Plan, Row

_MODEL = View(Model, "name architecture parameters largest_layer", architecture=OrNull)
_BYTES = View(Bytes, "weights gradients optimizer buffers activations fixed total")
_ESTIMATES = View(None, "deepspeed", deepspeed=View(Estimate, "stage offload gpu cpu").list)
_ROW = View(
    Row,
    "name devices=strategy.devices tp=strategy.tensor_parallel pp=strategy.pipeline_parallel bytes fits"
    " margin traffic_bytes=traffic.bytes seconds=traffic.seconds reason",
    bytes=_BYTES.one,
    margin=Signed | None,
)
PLAN = Document(
    "model devices=box.uuids memory_free_min=box.memory_free_min strategies=rows estimators notices",
    Plan,
    estimators=_ESTIMATES.one,
    devices=tuple[OrNull, ...],
    model=_MODEL.one,
    strategies=_ROW.list,
)


def to_document(plan: Plan) -> dict[str, Any]:
    """JSON-ready values, with the strategies in ranked order."""
    return PLAN.write(plan, estimators=_ESTIMATES.write(deepspeed=plan.estimates))
