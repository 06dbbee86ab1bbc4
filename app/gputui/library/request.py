"""Convert the arguments of `pick`, `hold` and `launch` to a request, and warn about it."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gputui.allocating.allocation import Allocation
from gputui.allocating.errors import RequestError
from gputui.allocating.request import Notice, Request, count_of
from gputui.choosing.grouping import ALL_REDUCE, Grouping, GroupingError, parse
from gputui.choosing.order import ORDERS, Order
from gputui.choosing.rules import Rules
from gputui.inventory.device import Device
from gputui.inventory.formatting import read_size
from gputui.inventory.light_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from gputui.allocating.waiting_loop import Progress

Names = str | Iterable["str | int | Device"]
"""Devices by index, UUID or as values, in order; or one string in the form of `--gpus` ("5,4", "none")."""


class DeviceWarning(UserWarning):
    """The devices exist, but may not be the intended ones: for example, a named device is busy."""


@dataclass(frozen=True)
class Limits:
    """The constraints on the devices, as callers write them; `request` checks them."""

    min_free: int | str | None = None
    max_util: int | None = None
    group: str | None = None
    order: Order | None = None
    vendor: str | None = None
    never: Names = ()
    wait: float | bool | None = None
    force: bool = False
    window: float | None = None

    def grouping(self) -> Grouping | None:
        """Return how the devices work together, None where that is not set. Raises RequestError."""
        try:
            return None if self.group is None else parse(self.group)
        except GroupingError as error:
            raise RequestError(str(error)) from None

    def words(self) -> list[str]:
        """Return the words of `gputui run` for the constraints that a rerun of a job keeps."""
        given = (("--vendor", self.vendor), ("--group", self.group), ("--order", self.order))
        words = [word for option, value in given if value is not None for word in (option, value)]
        never = listed(self.never)
        words += [f"--never={never}"] if never else []
        return [*words, f"--window={self.window:.15g}"] if self.window is not None else words

    def request(self, n: int | None, names: str | None, group: Grouping | None, purpose: str) -> Request:
        """Return the request for `n` devices, or for the named ones. Raises RequestError, SettingsError."""
        if n is not None and (isinstance(n, bool) or n < 1):
            raise RequestError(f"{n!r} is not a number of devices (1 or more)")
        if self.order is not None and self.order not in ORDERS:
            raise RequestError(f"{self.order!r} is not one of {', '.join(ORDERS)}")
        if self.max_util is not None and not 0 <= self.max_util <= 100:
            raise RequestError(f"{self.max_util!r} is not a percentage (0 to 100)")
        group = group or ALL_REDUCE
        return Request(
            count=count_of(n, names, group),
            names=names,
            group=group,
            order=self.order,
            min_free=_bytes(self.min_free),
            max_util=self.max_util,
            rules=self._rules(),
            wait=_seconds(self.wait),
            force=self.force,
            purpose=purpose,
            vendor=self._vendor(),
        )

    def _rules(self) -> Rules:
        from gputui.allocating.settings import settings

        rules, never = settings(os.environ).rules, listed(self.never)
        if never:
            rules = replace(rules, never=tuple(never.split(",")))
        return rules if self.window is None else replace(rules, window=_duration(self.window, "window"))

    def _vendor(self) -> str | None:
        from gputui.vendors.registry import vendors

        names = [vendor.name for vendor in vendors()] if self.vendor is not None else []
        if self.vendor is not None and self.vendor not in names:
            raise RequestError(f"no vendor is called {self.vendor!r}; there are: {', '.join(names)}")
        return self.vendor


def listed(devices: Names) -> str:
    """Return the devices in the form of `--gpus`. Raises RequestError for one with neither UUID nor index."""
    if isinstance(devices, str):
        return devices
    return ",".join(_name(each) for each in devices)


def _name(device: str | int | Device) -> str:
    if not isinstance(device, Device):
        return str(device)
    if not device.name_by_uuid and device.index < 0:
        raise RequestError(f"{device.name or 'a device'} has neither a UUID nor an index to name it by")
    return device.name_by_uuid or str(device.index)


def _bytes(size: int | str | None) -> int | None:
    if not isinstance(size, str):
        return size
    try:
        return read_size(size)
    except ValueError as error:
        raise RequestError(str(error)) from None


def _seconds(wait: float | bool | None) -> float | None:
    if wait is None or wait is False:
        return None
    if wait is True:
        return math.inf
    return _duration(wait, "wait")


def _duration(seconds: float, name: str) -> float:
    """Return a valid number of seconds. Raises RequestError."""
    if not seconds >= 0:
        raise RequestError(f"{name}: {seconds!r} is not a number of seconds")
    return float(seconds)


def own_purpose() -> str:
    """Return the words of this program that every user may read: interpreter and script, no argument."""
    from gputui.launching.secrets import program_and_script

    return program_and_script(tuple(sys.orig_argv) or (sys.executable or "python",))


class Quiet:
    """A listener that prints nothing: a library has no terminal of its own."""

    def notice(self, notice: Notice) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def waited(self, allocation: Allocation | None, seconds: float) -> None: ...


def warn(allocation: Allocation, stacklevel: int) -> None:
    """Warn, at the caller's line, about devices that may not be the intended ones."""
    for notice in allocation.notices:
        if notice.kind == "warning":
            warnings.warn(notice.text, DeviceWarning, stacklevel + 1)
