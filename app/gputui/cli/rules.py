"""What counts as free for a call: the settings' rules, with what the call says in their place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gputui.choosing.rules import Rules
from gputui.cli.common import WrongCallError

if TYPE_CHECKING:
    from gputui.allocating.device_request import DeviceRequest
    from gputui.allocating.settings import Settings


def settings_or_wrong_call() -> Settings:
    """Return the settings. Raises WrongCallError where they are invalid."""
    from gputui.allocating.settings import SettingsError, settings

    try:
        return settings(os.environ)
    except SettingsError as error:
        raise WrongCallError(str(error)) from None


def rules_of(devices: DeviceRequest | None) -> Rules:
    """The settings' rules, for what a call says of devices. Raises WrongCallError for bad settings."""
    rules = settings_or_wrong_call().rules
    return rules if devices is None else devices.rules(rules)
