"""The launch as JSON, for programs."""

from __future__ import annotations

from gputui.launching.launch import Launch


def to_json(launch: Launch) -> str:
    """argv, environment changes (null: unset), directory, devices in order, launcher, warnings, remarks.

    One line. Bytes that are no text are lone surrogates, as Python's `os.fsdecode` has them.
    """
    import json

    return json.dumps(
        {
            "argv": list(launch.argv),
            "environment": dict(launch.changes),
            "directory": launch.directory,
            "devices": [
                {"index": device.index, "uuid": device.uuid, "name": device.name} for device in launch.devices
            ],
            "launcher": launch.launcher,
            "warnings": list(launch.warnings),
            "remarks": list(launch.remarks),
        },
    )
