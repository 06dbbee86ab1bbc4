"""The text that Slurm's programs print: `scontrol -o show`, `squeue -o`.

(Their JSON says the same, where a version has it, and in another shape in each: 21.08, 22.05, 23.02, 24.05.)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from gputui.sources.slurm.cluster import Job, JobDevices, Node, Partition
from gputui.sources.slurm.words import (
    MOST_NAME,
    MOST_NODES,
    MOST_REASON,
    hosts,
    node_gpus,
    read_gres,
    states,
)

JOB_FORMAT = "%i|%A|%T|%P|%N|%b|%r|%j"
"""For `squeue -o`. The name is last: it may have anything in it."""

_MOST_JOBS = 200_000
_ABOUT = re.compile("JobId=([0-9]+) ")
_HAS = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z]*)=")
_SET_BY = re.compile(r" \[[^\[\]]*@[0-9T:-]+\]$")


def read_nodes(text: str) -> tuple[Node, ...]:
    """The nodes of `scontrol -d -o show node`: a line each."""
    return tuple(_node(line) for line in text.splitlines()[:MOST_NODES] if line.startswith("NodeName="))


def _node(line: str) -> Node:
    # (What follows is a person's, and may look like a field.)
    line, _, reason = line.partition(" Reason=")
    fields = _fields(line)
    return Node(
        name=fields.get("NodeName", "")[:MOST_NAME],
        states=states(fields.get("State", "")),
        reason=_SET_BY.sub("", reason.strip())[:MOST_REASON],
        partitions=tuple(part for part in fields.get("Partitions", "").split(",") if part),
        gpus=node_gpus(fields.get("Gres", ""), fields.get("GresUsed", "")),
    )


def _fields(line: str) -> dict[str, str]:
    """The fields of a line "A=1 B=two words C=3". The first of a name counts."""
    found = [*_KEY.finditer(line)]
    fields: dict[str, str] = {}
    for place, match in enumerate(found):
        end = found[place + 1].start() if place + 1 < len(found) else len(line)
        value = line[match.end() : end].strip()
        fields.setdefault(match[1], "" if value == "(null)" else value)
    return fields


def read_partitions(text: str) -> tuple[Partition, ...]:
    """The partitions of `scontrol -o show partition`."""
    found = []
    for line in text.splitlines()[:MOST_NODES]:
        fields = _fields(line)
        if "PartitionName" in fields:
            limit = fields.get("MaxTime", "")
            found.append(
                Partition(
                    name=fields["PartitionName"][:MOST_NAME],
                    up=fields.get("State", "UP") == "UP",
                    default=fields.get("Default") == "YES",
                    limit="" if limit == "UNLIMITED" else limit[:MOST_NAME],
                )
            )
    return tuple(found)


def read_jobs(text: str, shown: str = "") -> tuple[Job, ...]:
    """The jobs of `squeue -o JOB_FORMAT`, whose first line is the heading, with the devices that
    `scontrol -d -o show job` has `shown`."""
    rows = [fields for line in text.split("\n")[1:MOST_NODES] if len(fields := line.split("|", 7)) == 8]
    devices = read_devices(shown, {fields[1] for fields in rows})
    found = []
    for id, number, state, partition, nodes, gres, reason, name in rows:
        gpus = read_gres(gres)
        found.append(
            Job(
                id=id[:MOST_NAME],
                name=name[:MOST_NAME],
                state=state[:MOST_NAME],
                partition=partition[:MOST_NAME],
                nodes=hosts(nodes),
                count=sum(each.total for each in gpus) if gpus else None,
                reason="" if reason == "None" else reason[:MOST_REASON],
                devices=devices.get(number, ()),
            )
        )
    return tuple(found)


def read_devices(text: str, jobs: Collection[str]) -> dict[str, JobDevices]:
    """The devices of these jobs in `scontrol -d -o show job`, by the jobs' numbers.

    Another's job may have any name, with line breaks, too, that looks like lines about devices on all nodes:
    nothing is made of those about other jobs, and where two are about one, its devices are not known.
    """
    lines: dict[str, str] = {}
    for line in text.split("\n")[:_MOST_JOBS]:
        if (about := _ABOUT.match(line)) and about[1] in jobs:
            lines[about[1]] = "" if about[1] in lines else line
    return {number: tuple(_devices(line)) for number, line in lines.items()}


def _devices(line: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    for nodes, gres in _HAS.findall(line):
        indices = _indices(gres)
        yield from ((name, indices) for name in hosts(nodes))


def _indices(gres: str) -> tuple[int, ...]:
    return tuple(index for each in read_gres(gres) for index in each.indices or ())
