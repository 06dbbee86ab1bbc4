"""gputui: see which GPUs are free, select and order them, and start on exactly those.

As a library: `from gputui import read, pick, hold, launch` (docs/api.md). Nothing is imported or read before
one of them is used, and nothing ever changes `os.environ`.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gputui.allocating.errors import NotEnoughError, RequestError, WaitedTooLongError
    from gputui.allocating.settings import SettingsError
    from gputui.choosing.verdict import Verdict
    from gputui.inventory.claim import Claim
    from gputui.inventory.device import Device, Fault
    from gputui.inventory.errors import GputuiError
    from gputui.inventory.job import Job, JobError
    from gputui.inventory.process import Process
    from gputui.inventory.snapshot import Host, Snapshot
    from gputui.inventory.waiter import Waiter
    from gputui.launching.launch import Launch
    from gputui.launching.start import StartError
    from gputui.library.box import Box, read
    from gputui.library.hold import Held, Picked, hold, pick
    from gputui.library.launch import launch
    from gputui.library.request import DeviceWarning
    from gputui.sources.source import NoSourceError

__all__ = [
    "Box",
    "Claim",
    "Device",
    "DeviceWarning",
    "Fault",
    "GputuiError",
    "Held",
    "Host",
    "Job",
    "JobError",
    "Launch",
    "NoSourceError",
    "NotEnoughError",
    "Picked",
    "Process",
    "RequestError",
    "SettingsError",
    "Snapshot",
    "StartError",
    "Verdict",
    "WaitedTooLongError",
    "Waiter",
    "hold",
    "launch",
    "pick",
    "read",
]

_MODULES = {
    "allocating.errors": ("NotEnoughError", "RequestError", "WaitedTooLongError"),
    "allocating.settings": ("SettingsError",),
    "choosing.verdict": ("Verdict",),
    "inventory.claim": ("Claim",),
    "inventory.device": ("Device", "Fault"),
    "inventory.errors": ("GputuiError",),
    "inventory.process": ("Process",),
    "inventory.snapshot": ("Host", "Snapshot"),
    "inventory.waiter": ("Waiter",),
    "inventory.job": ("Job", "JobError"),
    "launching.launch": ("Launch",),
    "launching.start": ("StartError",),
    "library.box": ("Box", "read"),
    "library.hold": ("Held", "Picked", "hold", "pick"),
    "library.launch": ("launch",),
    "library.request": ("DeviceWarning",),
    "sources.source": ("NoSourceError",),
}
"""Where each public name is from: it is imported when it is asked for (PEP 562)."""


def __getattr__(name: str) -> Any:
    import importlib

    for module, names in _MODULES.items():
        if name in names:
            found = globals()[name] = getattr(importlib.import_module(f"gputui.{module}"), name)
            return found
    raise AttributeError(f"module 'gputui' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
