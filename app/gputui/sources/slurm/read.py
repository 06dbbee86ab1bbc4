"""Reads a cluster by Slurm's own programs, whose text output is the same in all versions."""

from __future__ import annotations

from gputui.inventory.formatting import MIB
from gputui.inventory.light_dataclasses import replace
from gputui.sources.slurm.cluster import Cluster
from gputui.sources.slurm.printed import JOB_FORMAT, read_jobs, read_nodes, read_partitions
from gputui.sources.source import NoSourceError
from gputui.system.program import Program
from gputui.system.root import Root
from gputui.system.users import own_name

_DEADLINE = 10.0
"""Seconds to wait for an answer: a busy controller takes some."""
_MOST_OUTPUT = 64 * MIB
"""The most bytes of an answer: each job of any user takes 1 to 2 KiB."""

_NOT_SET_UP = "Could not establish a configuration source"
"""Slurm's words where it is installed, and has no configuration."""


class Slurm:
    """Slurm as its programs on this machine report it. They ask the controller, in the user's name."""

    def __init__(self, root: Root | None = None, user: str | None = None) -> None:
        root = root or Root()
        self._user = user or own_name()
        self._scontrol, self._squeue = (
            Program(root, name, _DEADLINE, most=_MOST_OUTPUT) for name in ("scontrol", "squeue")
        )

    def read(self) -> Cluster:
        """Return the cluster now. Raise NoSourceError where there is no Slurm, or no answer
        of its controller."""
        cluster = self.places()
        told = self._squeue.ask("-u", self._user, "-o", JOB_FORMAT)
        if told is None:
            why = self._squeue.trouble or "squeue is not on PATH here"
            return replace(cluster, errors=(*cluster.errors, f"your jobs are unknown: {why}"))
        jobs = read_jobs(told)
        if any(job.nodes for job in jobs):
            details = self._scontrol.ask("-d", "-o", "show", "job")
            jobs = read_jobs(told, details or "")
        return replace(cluster, jobs=jobs)

    def places(self) -> Cluster:
        """Return nodes and partitions alone, which a launch needs. Raise NoSourceError."""
        if not self._scontrol.there:
            raise NoSourceError("Slurm's programs (scontrol, squeue) are not on PATH here")
        nodes = self._scontrol.ask("-d", "-o", "show", "node")
        if nodes is None:
            trouble = self._scontrol.trouble
            if _NOT_SET_UP in (trouble or ""):
                why = "it finds neither a slurm.conf nor, in DNS, a controller that has one"
                raise NoSourceError(f"Slurm is not set up here ({why})")
            raise NoSourceError(f"Slurm's controller does not answer ({trouble}); `scontrol ping` shows more")
        partitions = self._scontrol.ask("-o", "show", "partition")
        errors = () if partitions is not None else (f"the partitions are unknown: {self._scontrol.trouble}",)
        return Cluster(read_nodes(nodes), read_partitions(partitions or ""), errors=errors)
