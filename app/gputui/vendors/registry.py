"""The registry of vendors: those that gputui ships, and those that other distributions add.

Another distribution has an entry point in the group `gputui.vendors`, whose name is the vendor's and whose
value is its instance ("acme:VENDOR"). The distribution's own name begins with `gputui-`: `pick` finds that
name in a fraction of a millisecond, while reading the entry points of all distributions takes some 20 ms.
Only machines with such a distribution pay for that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from gputui.inventory.device import Device
from gputui.inventory.errors import RequestError
from gputui.inventory.snapshot import Snapshot
from gputui.sources.source import NoSourceError, Want
from gputui.system.environment import Environ
from gputui.system.root import HERE, Root
from gputui.vendors.vendor import UnknownVendor, Vendor
from gputui.vendors.visibility import Inherited, Listed

GROUP = "gputui.vendors"

_BUILT_IN = {
    "nvidia": "gputui.vendors.nvidia.vendor",
    "amd": "gputui.vendors.amd.vendor",
    "intel": "gputui.vendors.intel.vendor",
    "gaudi": "gputui.vendors.gaudi.vendor",
    "apple": "gputui.vendors.apple.vendor",
}
"""The module that has the vendor's `VENDOR`, by the name of the vendor."""


class _Signs(NamedTuple):
    """The signs of a vendor that most machines do not have: its lists in an environment, and files of which
    each of its machines has at least one. Without them its module is not loaded, which takes half a
    millisecond."""

    lists: tuple[str, ...]
    files: tuple[str, ...]


_SIGNS = {
    "amd": _Signs(("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), ("/sys/class/kfd", "/sys/module/amdgpu")),
    "intel": _Signs(("ZE_AFFINITY_MASK",), ("/sys/module/xe", "/sys/module/i915")),
    "gaudi": _Signs(("HABANA_VISIBLE_MODULES",), ("/sys/module/habanalabs",)),
    "apple": _Signs((), ("/System/Library/CoreServices",)),
}
"""The only check of whether a machine may have these vendors' devices (`Vendor.maybe_there` is for vendors
without a row). A recorded machine may lack the files: there each vendor's source looks for itself."""


class MixedVendorsError(RequestError):
    """Devices of several vendors were given to one command. The message is one line."""


@lru_cache(maxsize=1)
def vendors() -> tuple[Vendor, ...]:
    """Return all installed vendors, those that gputui ships first."""
    return (*(vendor_named(name) for name in _BUILT_IN), *_added().values())


def installed(name: str) -> str:
    """Return the name. Raise ValueError where no vendor has it."""
    names = [vendor.name for vendor in vendors()]
    if name not in names:
        raise ValueError(f"no vendor is called {name!r}; there are: {', '.join(names)}")
    return name


def vendors_maybe_on(root: Root) -> tuple[Vendor, ...]:
    """Return the vendors whose devices that machine may have."""
    found = _vendors_with(lambda signs: not root.here or any(map(root.has, signs.files)))
    return tuple(vendor for vendor in found if vendor.maybe_there(root))


def _vendors_with(shown: Callable[[_Signs], bool]) -> tuple[Vendor, ...]:
    """Return the vendors without signs, and those whose signs are shown."""
    loaded = (name for name in _BUILT_IN if name not in _SIGNS or shown(_SIGNS[name]))
    return (*map(vendor_named, loaded), *_added().values())


def _vendors_listed(environ: Environ) -> tuple[Vendor, ...]:
    """Return the vendors that may have a list of devices in the environment."""
    return _vendors_with(lambda signs: any(each in environ for each in signs.lists))


@lru_cache(maxsize=64)
def vendor_named(name: str) -> Vendor:
    """Return the vendor of that name (`Device.vendor`); an `UnknownVendor` where none is installed."""
    if name in _BUILT_IN:
        import importlib

        return cast(Vendor, importlib.import_module(_BUILT_IN[name]).VENDOR)
    return _added().get(name) or UnknownVendor(name)


def vendors_here() -> tuple[Vendor, ...]:
    """Return the vendors whose devices this machine may have; the default vendor where there is none."""
    return vendors_maybe_on(HERE) or (default_vendor(),)


def default_vendor() -> Vendor:
    """Return the vendor for calls that know no device."""
    return vendor_named(next(iter(_BUILT_IN)))


def vendors_of(devices: Iterable[Device]) -> tuple[Vendor, ...]:
    """Return the vendors of these devices, in their order, each once."""
    return tuple(vendor_named(name) for name in dict.fromkeys(device.vendor for device in devices))


def vendor_of(devices: Iterable[Device], box: Iterable[Vendor] = ()) -> Vendor:
    """Return the one vendor of these devices; for no devices, the first vendor of the box.

    Raise MixedVendorsError for devices of several vendors: a command is given the devices of one vendor.
    """
    found = vendors_of(devices)
    if len(found) > 1:
        raise MixedVendorsError(mixed_vendors(found))
    return next(iter((*found, *box)), None) or default_vendor()


def mixed_vendors(found: Iterable[Vendor]) -> str:
    """Return one sentence that says that devices of these vendors were selected together."""
    names = " and ".join(vendor.title for vendor in found)
    return f"devices of {names} cannot be selected together: a command runs on the devices of one vendor"


def listed(
    text: str, environ: Environ, words: str, devices: Sequence[Device], box: Sequence[Vendor]
) -> tuple[Vendor, Listed]:
    """Return the vendor of a command's list of devices, and what the list means to the program that reads it
    in `environ`.

    The vendor is that whose variable is in `words`, which name the list; else the first of the box.
    """
    named = (each for each in box if each.visibility.variable and each.visibility.variable in words)
    vendor = next(named, None) or vendor_of((), box)
    own = [device for device in devices if device.vendor == vendor.name]
    return vendor, vendor.visibility.listed(text, environ, own, words)


def inherited(environ: Environ, snapshot: Snapshot) -> Inherited | None:
    """Return the limits of the environment on a box; None where it has no list, and all devices are
    available.

    Where one vendor's list is set and another vendor's is not, all devices of the other are available.
    """
    found: list[Inherited] = []
    keys: list[str] = []
    for vendor in vendors_of(snapshot.devices) or (default_vendor(),):
        own = tuple(device for device in snapshot.devices if device.vendor == vendor.name)
        # A vendor without a device to offer ignores the list, even if its runtime may read it.
        counts = not own or any(device.apart is None for device in own)
        limits = vendor.visibility.inherited(environ, own) if counts else None
        keys += limits.keys if limits else (device.key for device in own)
        found += [limits] if limits else []
    if not found:
        return None
    settings = tuple(setting for limits in found for setting in limits.settings)
    told = (
        "; ".join(text for limits in found if (text := getattr(limits, kind)))
        for kind in ("warning", "note", "unknown")
    )
    return Inherited(settings, tuple(keys), *(text or None for text in told))


def inherits(environ: Environ) -> bool:
    """Return whether the environment has a list of devices, of any installed vendor."""
    return any(vendor.visibility.lists_in(environ) for vendor in _vendors_listed(environ))


def order_to_read(environ: Environ, text: str | None = None) -> Want:
    """Return the extra facts needed to resolve the environment's lists, or the list `text`, to devices."""
    lists = (
        (vendor.visibility, environ.get(vendor.visibility.variable) if text is None else text)
        for vendor in (_vendors_listed(environ) if text is None else vendors())
    )
    unclear = any(text is not None and each.may_count_otherwise(text, environ) for each, text in lists)
    return Want.ORDER if unclear else Want(0)


@lru_cache(maxsize=1)
def _added() -> dict[str, Vendor]:
    """Return the vendors of other distributions, by name. Raise NoSourceError where one fails to load."""
    if not _any_added():
        return {}
    from importlib.metadata import entry_points

    found: dict[str, Vendor] = {}
    for point in entry_points(group=GROUP):
        try:
            found[point.name] = point.load()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise NoSourceError(
                f"the vendor {point.name!r} ({point.value}) cannot be loaded: {why}"
            ) from error
    return found


def _any_added() -> bool:
    """Return whether a distribution is installed whose name begins with `gputui-`, by the
    names in `sys.path`."""
    for folder in sys.path:
        try:
            if any(_is_addition(name) for name in os.listdir(folder or ".")):  # noqa: PTH208 - quick
                return True
        except OSError:
            # Not a folder (an archive), or missing.
            continue
    return False


def _is_addition(name: str) -> bool:
    """Return whether a folder's name is like "gputui_acme-1.0.dist-info", not gputui's own
    "gputui-1.0.dist-info"."""
    return name.startswith("gputui") and name[7:8].isalpha() and name.endswith((".dist-info", ".egg-info"))
