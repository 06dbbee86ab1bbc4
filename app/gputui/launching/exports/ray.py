"""A line that submits a job to a Ray cluster: `ray job submit`.

Ray itself counts devices and chooses them, among those that it was started with, and sets the list of visible
devices for what a job starts. So the line asks for the number of selected devices, and names none. Observed
with Ray 2.60: the working directory is packed, and unpacked on the cluster, where the command starts in it;
the words after "--" arrive unchanged (`shlex.join`); a variable can be set there, but not unset.
"""

from __future__ import annotations

import json

from gputui.inventory.quoting import posix
from gputui.launching.exports.form import (
    DEFAULT,
    ExportError,
    ExportOptions,
    final_changes,
    need_command,
    need_text,
    other_changes,
    selected_by,
)
from gputui.launching.launch import Launch
from gputui.launching.scheduler_job import names_devices


def to_ray(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """Return the line, for any POSIX shell. Raises ExportError for what Ray cannot start."""
    need_command(launch, "a Ray job")
    need_text(launch, "input for Ray")
    why_not = names_devices(launch, "Ray")
    if why_not is not None:
        raise ExportError(why_not)
    if options.nodes > 1:
        raise ExportError("a Ray job starts one command, on one machine; --as sbatch can use several")
    # (Without devices, our own variables hide those of the machine from the command.)
    changes = other_changes(launch) if launch.devices else final_changes(launch)
    values = {name: value for name, value in changes.items() if value is not None}
    unset = [word for name, value in changes.items() if value is None for word in ("-u", name)]
    words = [
        *("ray", "job", "submit", f"--working-dir={launch.directory or '.'}"),
        *_devices(launch),
        *([f"--runtime-env-json={json.dumps({'env_vars': values})}"] if values else []),
        *("--", *(["env", *unset] if unset else []), *launch.argv),
    ]
    return " ".join(map(posix, words))


def _devices(launch: Launch) -> list[str]:
    count, gres = len(launch.devices), launch.vendor.gres
    if not count:
        return []
    if gres == "gpu":
        return [f"--entrypoint-num-gpus={count}"]
    # (ray/_private/accelerators/hpu.py: a device that is not a GPU is a resource of its own.)
    return [f"--entrypoint-resources={json.dumps({gres.upper(): count})}"]


def ray_notes(launch: Launch) -> tuple[str, ...]:
    """Return notes on what the line leaves to Ray."""
    uploaded = f"Ray packs {launch.directory or 'this folder'} and sends it to the cluster"
    if not launch.devices:
        return (uploaded,)
    return (selected_by("Ray", f"the job asks for {len(launch.devices)}", launch), uploaded)
