"""Parses the text that Slurm's programs print: `scontrol -o show`, `squeue -o`.

Their JSON has the same facts, where a version has JSON, but in another form in each of 21.08, 22.05, 23.02
and 24.05.
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
"""The format for `squeue -o`. The name is last, because it may contain anything."""

_MOST_JOBS = 200_000
_ABOUT = re.compile("JobId=([0-9]+) ")
_HAS = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z]*)=")
_SET_BY = re.compile(r" \[[^\[\]]*@[0-9T:-]+\]$")


def read_nodes(text: str) -> tuple[Node, ...]:
    """Parse the nodes of `scontrol -d -o show node`, one per line."""
    return tuple(_node(line) for line in text.splitlines()[:MOST_NODES] if line.startswith("NodeName="))


def _node(line: str) -> Node:
    # The rest is a person's text, and may look like a field.
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
    """Return the fields of a line "A=1 B=two words C=3". The first field of a name counts."""
    found = [*_KEY.finditer(line)]
    fields: dict[str, str] = {}
    for place, match in enumerate(found):
        end = found[place + 1].start() if place + 1 < len(found) else len(line)
        value = line[match.end() : end].strip()
        fields.setdefault(match[1], "" if value == "(null)" else value)
    return fields


def read_partitions(text: str) -> tuple[Partition, ...]:
    """Parse the partitions of `scontrol -o show partition`."""
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
    """Parse the jobs of `squeue -o JOB_FORMAT`, whose first line is a heading, with the devices that `shown`,
    the output of `scontrol -d -o show job`, has for them."""
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
    """Parse the devices of these jobs in `scontrol -d -o show job`, by job number.

    The name of another user's job may look like the devices of many nodes, and after a line break like a line
    about any job. So lines about other jobs are not read, and where there are two lines about a job, its
    devices are not known.
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
