"""What counts as free for a call: the settings' rules, with what the call says in their place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gputui.choosing.rules import Rules

if TYPE_CHECKING:
    from gputui.allocating.device_request import DeviceRequest
    from gputui.allocating.settings import Settings


def own_settings() -> Settings:
    """Return the settings. Raises SettingsError where they are invalid."""
    from gputui.allocating.settings import settings

    return settings(os.environ)


def rules_of(devices: DeviceRequest | None) -> Rules:
    """The settings' rules, for what a call says of devices. Raises SettingsError."""
    rules = own_settings().rules
    return rules if devices is None else devices.rules(rules)
