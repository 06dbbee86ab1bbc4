"""The container of a process, by its control groups (cgroups(7)), which all users may read.

The names are those of the container engines: Docker and containerd ("docker-ID.scope", "/docker/ID",
"cri-containerd-ID.scope"), CRI-O ("crio-ID.scope"), Podman ("libpod-ID.scope"), LXC ("lxc.payload.NAME"),
systemd-nspawn ("machine-NAME.scope"), Kubernetes ("kubepods"), Slurm ("job_ID").
"""

from __future__ import annotations

import re

_ENGINES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("podman", re.compile(r"libpod-([0-9a-f]{12,64})")),
    ("docker", re.compile(r"(?:docker-|/docker/)([0-9a-f]{12,64})")),
    ("k8s", re.compile(r"(?:cri-containerd-|crio-|/kubepods[^\n]*/)([0-9a-f]{12,64})")),
    ("lxc", re.compile(r"lxc\.payload\.([^/\n]{1,64})|/lxc/([^/\n]{1,64})")),
    ("nspawn", re.compile(r"machine-([^/\n]{1,64})\.scope")),
    ("slurm", re.compile(r"/job_([0-9]{1,12})(?:/|$)", re.MULTILINE)),
)
_SHOWN = 12
"""Characters of an id, as `docker ps` shows it."""


def container(cgroup: str) -> str | None:
    """Return the engine and the id or name, "docker 3f2a9c01d4e5", from /proc/PID/cgroup;
    None for the host."""
    for engine, pattern in _ENGINES:
        match = pattern.search(cgroup)
        if match:
            name = next(group for group in match.groups() if group)
            return f"{engine} {name[:_SHOWN] if re.fullmatch('[0-9a-f]{12,64}', name) else name}"
    return None
