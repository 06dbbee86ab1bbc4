"""The JSON that Slurm's programs print: `sinfo --json` of 21.08 to 22.05, `scontrol --json` since 23.02.

Seen with 22.05 (openapi/v0.0.38). For 23.x by its documentation (data_parser/v0.0.39 and later): a state is a
list of words, a number may be {"set", "infinite", "number"}. DocumentError is raised for anything else.
"""

from __future__ import annotations

import json

from gputui.inventory.untrusted_json import DocumentError, JsonValue
from gputui.sources.slurm.cluster import Gpus, Job, Node
from gputui.sources.slurm.words import (
    MOST_GPUS,
    MOST_NAME,
    MOST_NODES,
    MOST_REASON,
    hosts,
    node_gpus,
    read_gres,
    states,
)

_MOST_JOBS = 200_000


def read_nodes(text: str) -> tuple[Node, ...]:
    """The nodes of a document. Raises DocumentError."""
    return tuple(_node(each) for each in _loaded(text)["nodes"].items(MOST_NODES))


def read_jobs(text: str, user: str) -> tuple[Job, ...]:
    """The jobs of that user that have not ended. (22.05 prints everybody's, whatever it is asked.) Raises
    DocumentError."""
    found = []
    for each in _loaded(text)["jobs"].items(_MOST_JOBS):
        if each.get("user_name", "").value == user:
            job = _job(each)
            if not job.ended:
                found.append(job)
    return tuple(found)


def _loaded(text: str) -> JsonValue:
    try:
        return JsonValue(json.loads(text), "file")
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"no JSON: {type(error).__name__}") from None


def _node(value: JsonValue) -> Node:
    words = _states(value["state"])
    if "state_flags" in value.value:
        words += _states(value["state_flags"])
    return Node(
        name=value["name"].text()[:MOST_NAME],
        states=tuple(dict.fromkeys(words)),
        reason=_text(value, "reason")[:MOST_REASON],
        partitions=tuple(each.text()[:MOST_NAME] for each in value.get("partitions", []).items(MOST_NODES)),
        gpus=node_gpus(_text(value, "gres"), _text(value, "gres_used")),
    )


def _states(value: JsonValue) -> tuple[str, ...]:
    """A state of one word, or of several."""
    if isinstance(value.value, str):
        return states(value.text())
    return tuple(word for each in value.items(MOST_GPUS) for word in states(each.text()))


def _text(value: JsonValue, key: str) -> str:
    found = value.get(key, "")
    return found.text() if found.known else ""


def _number(value: JsonValue) -> int | None:
    """A number that may not be set."""
    if isinstance(value.value, dict):
        return value["number"].whole() if value.get("set", True).value is True else None
    return value.whole() if value.known else None


def _job(value: JsonValue) -> Job:
    number = _number(value["job_id"])
    array, task = _number(value.get("array_job_id", None)), _number(value.get("array_task_id", None))
    named = hosts(_text(value, "nodes"))
    asked = read_gres(_text(value, "tres_per_node"))
    detail = [read_gres(each.text()) for each in value.get("gres_detail", []).items(MOST_NODES)]
    reason = _text(value, "state_reason")
    return Job(
        id=f"{array}_{task}" if array and task is not None else str(number),
        name=_text(value, "name")[:MOST_NAME],
        state=next(iter(_states(value["job_state"])), ""),
        partition=_text(value, "partition")[:MOST_NAME],
        nodes=named,
        count=_count(asked),
        reason="" if reason == "None" else reason[:MOST_REASON],
        # (A detail a node, in the order of the nodes.)
        devices=tuple(zip(named, detail, strict=True)) if len(named) == len(detail) else (),
    )


def _count(gpus: tuple[Gpus, ...]) -> int | None:
    return sum(each.total for each in gpus) if gpus else None
