"""The rules for free devices of a call: those of the settings, overridden by the call's options."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from gputui.choosing.rules import Rules
from gputui.cli.common import WrongCallError
from gputui.inventory.light_dataclasses import replace

if TYPE_CHECKING:
    from gputui.allocating.settings import Settings


def settings_or_wrong_call() -> Settings:
    """Return the settings. Raises WrongCallError where they are invalid."""
    from gputui.allocating.settings import SettingsError, settings

    try:
        return settings(os.environ)
    except SettingsError as error:
        raise WrongCallError(str(error)) from None


def rules_of(args: argparse.Namespace | None) -> Rules:
    """Return the settings' rules, overridden by the call. Raises WrongCallError for invalid settings."""
    rules = settings_or_wrong_call().rules
    return rules if args is None or not hasattr(args, "never") else with_rules(rules, args)


def with_rules(rules: Rules, args: argparse.Namespace) -> Rules:
    """Return the rules, overridden by the options of a call."""
    from gputui.system.users import own_name

    said: dict[str, object] = {}
    for option, name in (
        ("never", "never"),
        ("prefer", "prefer"),
        ("busy_memory", "memory"),
        ("busy_util", "utilization"),
        ("window", "window"),
    ):
        value = getattr(args, option, None)
        if value is not None:
            said[name] = value
    if args.mine:
        said["mine"] = own_name()
    if args.ignore_user:
        said["ignore"] = rules.ignore | frozenset(args.ignore_user)
    return replace(rules, **said) if said else rules  # type: ignore[arg-type]
