"""A plan as JSON: bytes of a device, seconds; an unknown value is null."""

from __future__ import annotations

from gputui.inventory.typed_json import Document, Json, Large, OrNull, Signed, View
from gputui.planning.estimators import Estimate
from gputui.planning.memory import Bytes
from gputui.planning.model import Model
from gputui.planning.plan import Plan, Row
from gputui.planning.serving import Held
from gputui.planning.traffic import Exchange
from gputui.planning.workload import Workload

_MODEL = View(Model, "name architecture parameters largest_layer", architecture=OrNull)
_BYTES = View(Bytes, "weights gradients optimizer buffers activations fixed cache total")
_SERVING = View(Held, "context token_bytes request_bytes tokens requests longest", requests=Large)
_ESTIMATES = View(None, "deepspeed", deepspeed=View(Estimate, "stage offload gpu cpu").list)
_ROW = View(
    Row,
    "name devices=strategy.devices tp=strategy.tensor_parallel pp=strategy.pipeline_parallel bytes fits"
    " margin traffic_bytes=traffic.bytes seconds=traffic.seconds reason serving cp=strategy.context_parallel"
    " dp=strategy.replicas device_bytes exchanges=traffic.exchanges bubble=traffic.bubble",
    bytes=_BYTES.one,
    exchanges=View(Exchange, "what bytes seconds").list,
    margin=Signed | None,
    serving=_SERVING.one | None,
)
_WORKLOAD = View(
    Workload,
    "batch sequence precision mixed_precision optimizer checkpointing lora accumulation"
    " gradient_as_bucket_view=bucket_view",
)
PLAN = Document(
    "model devices=box.uuids memory_free_min=box.memory_free_min strategies=rows estimators notices=told"
    " workload=training global_batch nodes=box.nodes",
    Plan,
    estimators=_ESTIMATES.one,
    devices=tuple[OrNull, ...],
    model=_MODEL.one,
    strategies=_ROW.list,
    workload=_WORKLOAD.one | None,
)


def to_document(plan: Plan) -> Json:
    """JSON-ready values, with the strategies in ranked order."""
    return PLAN.write(plan, estimators=_ESTIMATES.write(deepspeed=plan.estimates))
