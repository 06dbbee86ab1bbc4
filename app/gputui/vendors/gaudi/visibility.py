"""HABANA_VISIBLE_MODULES: the modules of a machine that a program may acquire.

The process of local rank n first tries the n-th module of the list. Modules work together in aligned groups
only: 0,1 and 2,3 and so on, 0 to 3 and 4 to 7, or all eight (Intel Gaudi documentation, "Multiple Tenants on
HPU" and "PyTorch device assignment").
"""

from __future__ import annotations

from gputui.inventory.device import Device
from gputui.inventory.formatting import is_digits
from gputui.vendors.visibility import Visibility

MODULES = "HABANA_VISIBLE_MODULES"


class ModuleVisibility(Visibility):
    """Module ids; where a machine does not report them, hl-smi's indices."""

    variable = MODULES
    none = none_in_words = "none"
    order_in_words = (
        f"{MODULES} is in the order of the ranks: each rank tries the module at its own place first, and"
        " takes another module of the list if that is in use"
    )
    reader = "the Gaudi software"
    also = ("HABANA_VISIBLE_DEVICES",)

    def number(self, device: Device) -> int:
        return device.index if device.module is None else device.module

    def _is_named(self, device: Device, entry: str) -> bool:
        return is_digits(entry) and len(entry) < 6 and int(entry) == self.number(device)
