"""Reads a cluster by asking Slurm's own programs: their JSON where the version has it, else their text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from gputui.inventory.light_dataclasses import replace
from gputui.inventory.typed_json import DocumentError
from gputui.sources.slurm import json_form, text_form
from gputui.sources.slurm.cluster import Cluster, Job, Node
from gputui.sources.source import NoSourceError
from gputui.system.program import Program
from gputui.system.root import Root
from gputui.system.users import own_name

T = TypeVar("T")

_DEADLINE = 10.0
"""Seconds for an answer: a busy controller takes some."""
_MOST_OUTPUT = 64 * 1024 * 1024
"""Bytes: JSON has 2 KiB a node, and as much a job of anybody's."""


class Slurm:
    """Slurm as its programs on this machine tell of it. They ask the controller, in the user's name."""

    def __init__(self, root: Root | None = None, user: str | None = None) -> None:
        root = root or Root()
        self._user = user or own_name()
        self._sinfo, self._scontrol, self._squeue = (
            Program(root, name, _DEADLINE, most=_MOST_OUTPUT) for name in ("sinfo", "scontrol", "squeue")
        )

    def read(self) -> Cluster:
        """The cluster now. Raises NoSourceError where there is no Slurm, or no answer of its controller."""
        cluster = self.places()
        jobs = self._jobs()
        errors = () if jobs is not None else (f"your jobs are unknown: {self._squeue.trouble}",)
        return replace(cluster, jobs=jobs or (), errors=(*cluster.errors, *errors))

    def places(self) -> Cluster:
        """Nodes and partitions alone, which a launch needs. Raises NoSourceError."""
        self._version = self._asked_version()
        nodes = self._nodes()
        partitions = _read(self._scontrol, text_form.read_partitions, "-o", "show", "partition")
        errors = () if partitions is not None else (f"the partitions are unknown: {self._scontrol.trouble}",)
        return Cluster(nodes, partitions or (), errors=errors)

    def _asked_version(self) -> tuple[int, int]:
        if not self._sinfo.there or not self._scontrol.there:
            raise NoSourceError("Slurm's programs (sinfo, scontrol) are not on PATH here")
        told = self._sinfo.ask("--version")
        if told is None:
            raise NoSourceError(f"Slurm cannot be asked: {self._sinfo.trouble}")
        match = re.search(r"([0-9]{2})\.([0-9]{2})", told)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    def _nodes(self) -> tuple[Node, ...]:
        if self._version >= (23, 2):
            found = _read(self._scontrol, json_form.read_nodes, "--json", "-d", "show", "nodes")
        elif self._version >= (21, 8):
            found = _read(self._sinfo, json_form.read_nodes, "--json")
        else:
            found = None
        if found is None and not self._sinfo.silent:
            found = _read(self._scontrol, text_form.read_nodes, "-d", "-o", "show", "node")
        if found is None:
            trouble = self._scontrol.trouble or self._sinfo.trouble
            raise NoSourceError(f"Slurm's controller does not answer ({trouble}); `scontrol ping` says more")
        return found

    def _jobs(self) -> tuple[Job, ...] | None:
        found = None
        if self._version >= (21, 8):
            found = _read(self._squeue, lambda text: json_form.read_jobs(text, self._user), "--json")
        if found is not None:
            return found
        return _read(self._squeue, text_form.read_jobs, "-u", self._user, "-o", text_form.JOB_FORMAT)


def _read(program: Program, reader: Callable[[str], T], *words: str) -> T | None:
    """What a program's answer says; None where there is none, or it is not understood."""
    told = program.ask(*words)
    if told is None:
        return None
    try:
        return reader(told)
    except DocumentError:
        # (Another version's: its text is asked for then.)
        return None
