"""The container of a process, by its control groups (cgroups(7)), which all users may read.

The names are those of the container engines: Docker ("docker-ID.scope", "/docker/ID", on Amazon ECS
"/ecs/TASK/ID"), nerdctl ("nerdctl-ID.scope"), Podman ("libpod-ID.scope"), LXC ("lxc.payload.NAME"),
systemd-nspawn ("machine-NAME.scope"), Slurm ("job_ID"). In Kubernetes, the engine's name is directly below
the pod's: "podUID/ID", "podUID.slice/crio-ID.scope", "podUID.slice:cri-containerd:ID".
"""

from __future__ import annotations

import re

_CONTAINER = re.compile(
    r"(?:pod(?P<pod>[0-9a-f_-]{1,36})(?:\.slice)?[/:](?:docker-|crio-|cri-containerd[-:])?|crio-|cri-containerd-)"
    r"(?P<k8s>[0-9a-f]{12})"
    r"|libpod-(?P<podman>[0-9a-f]{12})"
    r"|(?:docker-|/docker/|/ecs/(?:[^/\n]{1,99}/){1,2})(?P<docker>[0-9a-f]{12})"
    r"|nerdctl-(?P<nerdctl>[0-9a-f]{12})"
    r"|(?:lxc\.payload\.|/lxc/)(?P<lxc>[^/\n]{1,64})"
    r"|machine-(?P<nspawn>[^/\n]{1,64})\.scope"
    r"|/job_(?P<slurm>[0-9]{1,12})(?![^/\n])"
)
"""The groups are the engines. Of an id, the first 12 digits are read, as `docker ps` shows it.

Each repetition has a limit, because users can make control groups with long names of their choice."""


def container(cgroup: str) -> str | None:
    """Return the engine and the id or name, "docker 3f2a9c01d4e5", from /proc/PID/cgroup; None for the host.

    The UID of a pod follows where it is there: "k8s 3f2a9c01d4e5 pod 8d1f0c2a-…". Of containers within
    containers, the innermost is returned.
    """
    found = [*_CONTAINER.finditer(cgroup)][-1:]
    for match in found:
        pod = f" pod {match['pod'].replace('_', '-')}" if match["pod"] else ""
        return f"{match.lastgroup} {match[match.lastindex or 0]}{pod}"
    return None
