"""A plan as JSON: bytes of a device, seconds; an unknown value is null."""

from __future__ import annotations

from typing import Any

from gputui.inventory.typed_json import Record
from gputui.planning.estimators import Estimate
from gputui.planning.memory import Bytes
from gputui.planning.model import Model
from gputui.planning.plan import Plan

SCHEMA = 1
_MODEL = Record(Model, "name architecture parameters largest_layer")
_BYTES = Record(Bytes, "weights gradients optimizer buffers activations fixed total", total=int)
_ESTIMATE = Record(Estimate)


def to_document(plan: Plan) -> dict[str, Any]:
    """JSON-ready values, with the strategies in ranked order."""
    return {
        "schema": SCHEMA,
        "model": _MODEL.write(plan.model, architecture=plan.model.architecture or None),
        "devices": [uuid or None for uuid in plan.box.uuids],
        "memory_free_min": plan.box.memory_free_min,
        "strategies": [
            {
                "name": row.name,
                "devices": row.strategy.devices,
                "tp": row.strategy.tensor_parallel,
                "pp": row.strategy.pipeline_parallel,
                "bytes": _BYTES.write(row.bytes),
                "fits": row.fits,
                "margin": row.margin,
                "traffic_bytes": row.traffic.bytes,
                "seconds": row.traffic.seconds,
                "reason": row.reason,
            }
            for row in plan.rows
        ],
        "estimators": {"deepspeed": [_ESTIMATE.write(each) for each in plan.estimates]},
        "notices": list(plan.notices),
    }
