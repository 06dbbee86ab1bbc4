"""A line that submits a job to a Ray cluster: `ray job submit`.

Ray counts devices and chooses them itself, among those that it was started with: for what a job starts it
sets the list of visible devices. So the line asks for as many as were chosen, and names none. Seen with Ray
2.60: the working directory is packed and unpacked on the cluster, where the command starts in it; the words
behind "--" arrive as they are (`shlex.join`); a variable can be set there, and none unset.
"""

from __future__ import annotations

import json

from gputui.launching.exports.form import (
    DEFAULT,
    ExportError,
    ExportOptions,
    final_changes,
    need_command,
    need_text,
    need_variable,
    other_changes,
    visible_devices,
)
from gputui.launching.launch import Launch
from gputui.launching.quoting import posix
from gputui.launching.slurm_job import names_devices


def to_ray(launch: Launch, options: ExportOptions = DEFAULT) -> str:
    """The line, for any POSIX shell. Raises ExportError for what Ray cannot start."""
    need_command(launch, "a job of Ray's")
    need_variable(launch, "Ray chooses others")
    need_text(launch, "what Ray takes")
    why_not = names_devices(launch, "Ray")
    if why_not is not None:
        raise ExportError(why_not)
    if options.nodes > 1:
        raise ExportError("a job of Ray's starts one command, on one machine; --as sbatch has several")
    # (Without devices, those of the machine are hidden from the command by our own variables.)
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
    # (ray/_private/accelerators/hpu.py: what is no GPU is a resource of its own.)
    return [f"--entrypoint-resources={json.dumps({gres.upper(): count})}"]


def ray_notes(launch: Launch) -> tuple[str, ...]:
    """What the line leaves to Ray."""
    uploaded = f"Ray packs {launch.directory or 'this folder'} and sends it to the cluster"
    if not launch.devices:
        return (uploaded,)
    chosen = visible_devices(launch) or "these"
    asked = f"Ray selects the devices: the job asks for {len(launch.devices)}, not for {chosen}"
    return (asked, uploaded)
