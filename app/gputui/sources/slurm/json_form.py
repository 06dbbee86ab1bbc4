"""The JSON that Slurm's programs print: `sinfo --json` of 21.08 to 22.05, `scontrol --json` since 23.02.

Seen with 22.05 (openapi/v0.0.38). For 23.x by its documentation (data_parser/v0.0.39 and later): a state is a
list of words, a number may be {"set", "infinite", "number"}. DocumentError is raised for anything else.
"""

from __future__ import annotations

from typing import Annotated, Any

from gputui.inventory.light_dataclasses import dataclass
from gputui.inventory.typed_json import MOST_TEXT, Form, Record, form_of, loads, whole
from gputui.sources.slurm.cluster import Job, Node
from gputui.sources.slurm.words import (
    MOST_NAME,
    MOST_REASON,
    hosts,
    node_gpus,
    read_gres,
    states,
)


def _states(value: Any) -> tuple[str, ...]:
    """A state of one word, or of several."""
    words = _WORDS.read([value] if isinstance(value, str) else value)
    return tuple(state for word in words for state in states(word))


def _number(value: Any) -> int | None:
    """A number that may not be set."""
    if isinstance(value, dict):
        return _WHOLE.read(value.get("number")) if value.get("set", True) is True else None
    return None if value is None else _WHOLE.read(value)


def _cut(most: int) -> Form:
    """A text that may be null, of which so many characters are kept."""
    return Form(lambda value: "" if value is None else _TEXT.read(value)[:most])


_WORDS, _WHOLE, _TEXT = form_of(tuple[str, ...]), whole(), form_of(str)
States = Annotated[tuple[str, ...], Form(_states)]
Number = Annotated["int | None", Form(_number)]
Name = Annotated[str, _cut(MOST_NAME)]
Reason = Annotated[str, _cut(MOST_REASON)]
Text = Annotated[str, _cut(MOST_TEXT)]


@dataclass(frozen=True, slots=True)
class _Node:
    name: Name
    state: States
    state_flags: States = ()
    reason: Reason = ""
    partitions: tuple[Name, ...] = ()
    gres: Text = ""
    gres_used: Text = ""


@dataclass(frozen=True, slots=True)
class _Job:
    job_id: Number
    job_state: States
    array_job_id: Number = None
    array_task_id: Number = None
    name: Name = ""
    partition: Name = ""
    nodes: Text = ""
    state_reason: Reason = ""
    tres_per_node: Text = ""
    gres_detail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Nodes:
    nodes: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Jobs:
    jobs: tuple[object, ...]


_JOB = Record(_Job)


def read_nodes(text: str) -> tuple[Node, ...]:
    """The nodes of a document. Raises DocumentError."""
    return tuple(
        Node(
            name=each.name,
            states=tuple(dict.fromkeys((*each.state, *each.state_flags))),
            reason=each.reason,
            partitions=each.partitions,
            gpus=node_gpus(each.gres, each.gres_used),
        )
        for each in Record(_Nodes).read(loads(text)).nodes
    )


def read_jobs(text: str, user: str) -> tuple[Job, ...]:
    """The jobs of that user that have not ended. (22.05 prints everybody's, whatever it is asked.) Raises
    DocumentError."""
    rows = Record(_Jobs).read(loads(text)).jobs
    own = [row for row in rows if isinstance(row, dict) and row.get("user_name") == user]
    found = (_job(_JOB.read(row)) for row in own)
    return tuple(job for job in found if not job.ended)


def _job(job: _Job) -> Job:
    named, asked = hosts(job.nodes), read_gres(job.tres_per_node)
    detail = [read_gres(each) for each in job.gres_detail]
    array, task = job.array_job_id, job.array_task_id
    return Job(
        id=f"{array}_{task}" if array and task is not None else str(job.job_id),
        name=job.name,
        state=next(iter(job.job_state), ""),
        partition=job.partition,
        nodes=named,
        count=sum(each.total for each in asked) if asked else None,
        reason="" if job.state_reason == "None" else job.state_reason,
        # (A detail a node, in the order of the nodes.)
        devices=tuple(zip(named, detail, strict=True)) if len(named) == len(detail) else (),
    )
