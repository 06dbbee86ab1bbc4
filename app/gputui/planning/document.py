"""A plan as JSON: bytes of a device, seconds; what is not known is null."""

from __future__ import annotations

from typing import Any

from gputui.planning.plan import Plan, Row

SCHEMA = 1


def to_document(plan: Plan) -> dict[str, Any]:
    """JSON-ready values, strategies ranked."""
    model = plan.model
    return {
        "schema": SCHEMA,
        "model": {
            "name": model.name,
            "architecture": model.architecture or None,
            "parameters": model.parameters,
            "largest_layer": model.largest_layer,
        },
        "devices": [uuid or None for uuid in plan.box.uuids],
        "memory_free_min": plan.box.memory_free_min,
        "strategies": [_row(row) for row in plan.rows],
        "estimators": {
            "deepspeed": [
                {"stage": each.stage, "offload": each.offload, "gpu": each.gpu, "cpu": each.cpu}
                for each in plan.estimates
            ]
        },
        "notices": list(plan.notices),
    }


def _row(row: Row) -> dict[str, Any]:
    parts = row.bytes
    return {
        "name": row.name,
        "devices": row.strategy.devices,
        "tp": row.strategy.tensor_parallel,
        "pp": row.strategy.pipeline_parallel,
        "bytes": {
            "weights": parts.weights,
            "gradients": parts.gradients,
            "optimizer": parts.optimizer,
            "buffers": parts.buffers,
            "activations": parts.activations,
            "fixed": parts.fixed,
            "total": parts.total,
        },
        "fits": row.fits,
        "margin": row.margin,
        "traffic_bytes": row.traffic.bytes,
        "seconds": row.traffic.seconds,
        "reason": row.reason,
    }
