"""Convert the arguments of `pick`, `hold` and `launch` to a request, and warn about it."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gputui.allocating.allocation import Allocation
from gputui.allocating.device_request import DeviceRequest
from gputui.allocating.errors import RequestError
from gputui.allocating.request import Notice
from gputui.choosing.grouping import parse
from gputui.choosing.order import ORDERS, Order
from gputui.inventory.device import Device
from gputui.inventory.formatting import read_size
from gputui.vendors.registry import installed

if TYPE_CHECKING:
    from gputui.allocating.waiting_loop import Progress

File = str | os.PathLike[str]

Names = str | Iterable["str | int | Device"]
"""Devices by index, UUID or as values, in order; or one string in the form of `--gpus` ("5,4", "none")."""


class DeviceWarning(UserWarning):
    """The devices exist, but may not be the intended ones: for example, a named device is busy."""


def device_request(
    n: int | None,
    devices: Names | None,
    min_free: int | str | None,
    max_util: int | None,
    group: str | None = None,
    order: Order | None = None,
    vendor: str | None = None,
    never: Names = (),
    wait: float | bool | None = None,
    force: bool = False,
    window: float | None = None,
) -> DeviceRequest:
    """What a caller asks for. Raises RequestError for values that mean nothing."""
    if n is not None and (isinstance(n, bool) or n < 1):
        raise RequestError(f"{n!r} is not a number of devices (1 or more)")
    if order is not None and order not in ORDERS:
        raise RequestError(f"{order!r} is not one of {', '.join(ORDERS)}")
    if max_util is not None and not 0 <= max_util <= 100:
        raise RequestError(f"{max_util!r} is not a percentage (0 to 100)")
    if not isinstance(min_free, str | None) and not min_free >= 0:
        raise RequestError(f"{min_free!r} is not a number of bytes")
    without = listed(never)
    try:
        return DeviceRequest(
            count=n,
            names=None if devices is None else listed(devices),
            vendor=None if vendor is None else installed(vendor),
            group=None if group is None else parse(group),
            order=order,
            min_free=read_size(min_free) if isinstance(min_free, str) else min_free,
            max_util=max_util,
            never=tuple(without.split(",")) if without else None,
            window=None if window is None else _duration(window, "window"),
            wait=_seconds(wait),
            force=force,
        )
    except ValueError as error:
        raise RequestError(str(error)) from None


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
    """A listener that prints nothing: a library has no terminal of its own. `sleep` may end a wait by an
    exception."""

    def sleep(self, seconds: float) -> None:
        """Pause between two looks."""
        time.sleep(seconds)

    def notice(self, notice: Notice) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def waited(self, allocation: Allocation | None, seconds: float) -> None: ...


def warn(allocation: Allocation, stacklevel: int) -> None:
    """Warn, at the caller's line, about devices that may not be the intended ones."""
    for notice in allocation.notices:
        if notice.kind == "warning":
            warnings.warn(notice.text, DeviceWarning, stacklevel + 1)
