"""A manifest for `kubectl create -f`: a Job of Kubernetes with one pod.

Kubernetes counts devices by the names of their vendors' device plugins and selects them itself, so the job
asks for as many as were selected, and names none. `$(NAME)` in a command or a variable is expanded; `$$`
stands for `$` (Container.command and EnvVar.value of its API).
"""

from __future__ import annotations

import math
import re

from gputui.inventory.device import has_instances
from gputui.launching.container_command import read_container
from gputui.launching.exports.docker import image_note
from gputui.launching.exports.form import (
    DEFAULT,
    ExportError,
    ExportOptions,
    final_changes,
    need_absolute,
    need_command,
    need_text,
    other_changes,
    selected_by,
    yaml_text,
)
from gputui.launching.launch import Launch
from gputui.launching.scheduler_job import job_name, names_devices
from gputui.launching.wrappers import unwrap

_LABEL = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def to_kubernetes(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """Return the manifest. Raises ExportError for a launch that a pod cannot start."""
    need_command(launch, "a pod")
    need_text(launch, "a manifest")
    if read_container(unwrap(launch.argv)[1]) is not None:
        raise ExportError("a pod already runs in a container; give the command inside it, and --image")
    why_not = names_devices(launch, "Kubernetes")
    if why_not is not None:
        raise ExportError(why_not)
    if options.nodes > 1:
        raise ExportError(
            "the Kubernetes job starts one command in one pod; for several machines, use --as sbatch"
        )
    need_absolute(launch)
    name = options.name or re.sub("[^a-z0-9]+", "-", job_name(launch).lower())[:63].strip("-") or "gputui"
    if not _LABEL.fullmatch(name):
        raise ExportError(f"{name!r} cannot be the name of a pod: lower-case letters, digits and - can")
    resource, count = launch.vendor.kubernetes, len(launch.devices)
    if count and not resource:
        raise ExportError(f"Kubernetes' name for devices of {launch.vendor.title} is not known")
    # (Without devices, those of the node are hidden from the command by our own variables.)
    changes = other_changes(launch) if count else final_changes(launch)
    variables = [
        {"name": key, "value": _literal(value)} for key, value in changes.items() if value is not None
    ]
    container: dict[str, object] = {
        "name": name,
        "image": options.image,
        "command": [_literal(word) for word in launch.argv],
        **({"workingDir": launch.directory} if launch.directory else {}),
        **({"env": variables} if variables else {}),
    }
    pod: dict[str, object] = {"restartPolicy": "Never", "containers": [container]}
    if count:
        container["resources"] = {"limits": {resource: count}}
    if count > 1:
        # A container has 64 MiB there: too little for NCCL and DataLoader.
        container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
        pod["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    limit = {} if launch.time_limit is None else {"activeDeadlineSeconds": math.ceil(launch.time_limit)}
    job = {"backoffLimit": 0, **limit, "template": {"spec": pod}}
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}
    return yaml_text(manifest)


def kubernetes_notes(launch: Launch, options: ExportOptions = DEFAULT) -> tuple[str, ...]:
    """Return the notes on what the manifest leaves to Kubernetes."""
    notes = list(image_note(options))
    if launch.devices:
        asks = f"the job asks for {len(launch.devices)} {launch.vendor.kubernetes}"
        notes.append(selected_by("Kubernetes", asks, launch))
    if has_instances(launch.devices):
        notes.append(
            "a cluster may name MIG instances by their profile; `kubectl describe node` shows the names"
        )
    if len(launch.devices) > 1:
        notes.append(
            "/dev/shm is in the node's memory:"
            " by default, a container has 64 MiB, too little for NCCL and DataLoader"
        )
    return tuple(notes)


def _literal(text: str) -> str:
    return text.replace("$", "$$")
