"""A simulated driver: the library's three files, and the environment that leads a program to them."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Mapping
from pathlib import Path

from gputui.inventory.snapshot import Snapshot
from gputui.sources.simulated import motion
from gputui.sources.simulated.details import detailed
from gputui.sources.simulated.spec import Box
from simnvml import counting
from simnvml.building import LIBRARY, build
from simnvml.rendering import Facts, render

SHUTDOWN_WHILE_INSIDE = "shutdown-while-inside"
"""Counter of nvmlShutdown calls while another thread was inside NVML: there the real library crashes."""

_INITS = ("nvmlInit", "nvmlInitWithFlags")


class SimulatedNvml:
    """One simulated driver in a directory of its own. Programs that already run see every change.

    A program meets it through `environment`; the process itself through `use_here`. A device is named by its
    label: 3 or "3", "0:1" for instance 1 of GPU 0; a function by its symbol, with or without version.
    """

    def __init__(self, directory: Path, library: Path | None = None) -> None:
        self.library = library or build()
        self.box, self.control, self.counters = (directory / name for name in ("box", "control", "counts"))
        self._orders: list[str] = []
        self._stamp = 0

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """`base` (this process's by default) with the variables that a program needs to find the library and
        its files."""
        found = dict(os.environ if base is None else base)
        before = found.get("LD_LIBRARY_PATH")
        directory = str(self.library.parent)
        return found | {
            "LD_LIBRARY_PATH": f"{directory}:{before}" if before else directory,
            "SIMNVML_BOX": str(self.box),
            "SIMNVML_CONTROL": str(self.control),
            "SIMNVML_COUNTS": str(self.counters),
        }

    def show(
        self,
        snapshot: Snapshot,
        box: Box | None = None,
        *,
        facts: Mapping[str, Facts] | None = None,
        unreadable_links: bool = False,
    ) -> None:
        """Set the answers of the driver from now on; `render` explains the arguments."""
        self._replace(self.box, render(snapshot, box, facts, unreadable_links))

    def show_box(
        self,
        box: Box,
        elapsed: float = 0.0,
        opened: float = 1_750_000_000.0,
        *,
        facts: Mapping[str, Facts] | None = None,
        unreadable_links: bool = False,
    ) -> Snapshot:
        """Show a box as it is `elapsed` seconds after it was opened; return that snapshot."""
        snapshot = motion.at(box, elapsed, opened)
        self.show(detailed(snapshot, box, elapsed), box, facts=facts, unreadable_links=unreadable_links)
        return snapshot

    def rewrite(self, text: str) -> None:
        """Show this box file, for facts that a snapshot lacks (`native/box.c` describes it)."""
        self._replace(self.box, text)

    def p2p_denied(self) -> None:
        """Deny every pair peer access over NVLink, though the links are up."""
        self.rewrite(self.box.read_text().replace("gpu 0 ", "fabric_down yes\ngpu 0 "))

    def delay(self, function: str, microseconds: int, device: int | str | None = None) -> None:
        """Make every such call take this many microseconds from now on. "*" is every function; None is every
        device, or none."""
        self._order(f"delay {function} {_label(device)} {microseconds}")

    def error(self, function: str, code: int, device: int | str | None = None, after: int = 0) -> None:
        """Make every such call return `code` (an nvmlReturn_t) from now on; 0: its normal result.

        `after`: the number of such calls of a program that still return their normal result.
        """
        self._order(f"error {function} {_label(device)} {code} {after}")

    def hang(self, function: str, device: int | str | None = None) -> None:
        """Make such calls hang until `heal`."""
        self._order(f"hang {function} {_label(device)}")

    def hang_init(self) -> None:
        """Make NVML's start hang until `heal`."""
        for function in _INITS:
            self.hang(function)

    def fail_init(self, code: int) -> None:
        """Make NVML's start fail: 9 driver not loaded, 18 version mismatch, 4 no permission."""
        for function in _INITS:
            self.error(function, code)

    def xid(self, device: int | str, code: int) -> None:
        """Report an XID of a device to the programs that listen now. `heal` forgets it."""
        self._order(f"xid - {device} {code}")

    def heal(self) -> None:
        """Take back every delay, error and hang."""
        self._orders.clear()
        self._replace(self.control, "")

    def counts(self) -> dict[str, int]:
        """Calls by function since the last `reset_counts`, of all programs together."""
        return counting.by_function(self.counters)

    def counts_by_device(self) -> dict[tuple[str, str], int]:
        """Calls by function and label, "" where a call names no device."""
        return counting.read(self.counters)

    def reset_counts(self) -> None:
        """Count from 0 again. Programs that run keep counting in the same file."""
        if not self.counters.exists():
            return
        with self.counters.open("r+b") as file, mmap.mmap(file.fileno(), 0) as slots:
            # Reset only the totals, in place: a name must not vanish under a program that has just found it.
            for place in range(0, len(slots), counting.SLOT_SIZE):
                slots[place + counting.NAME_SIZE : place + counting.SLOT_SIZE] = bytes(8)

    def use_here(self) -> None:
        """Make pynvml in this process meet this driver. Undo with `leave_here`."""
        native = ctypes.CDLL(str(self.library))
        by_name = ctypes.CDLL(LIBRARY)
        if ctypes.addressof(ctypes.c_char.in_dll(native, "simnvml_use")) != _symbol(by_name, "simnvml_use"):
            raise RuntimeError(f"this process has loaded another {LIBRARY} already")
        native.simnvml_use(*(os.fsencode(path) for path in (self.box, self.control, self.counters)))

    @staticmethod
    def leave_here() -> None:
        """Forget the driver that this process has been using; a call that hangs in it ends."""
        ctypes.CDLL(LIBRARY).simnvml_use(None, None, None)

    def _order(self, line: str) -> None:
        self._orders.append(line)
        self._replace(self.control, "\n".join(self._orders) + "\n")

    def _replace(self, path: Path, text: str) -> None:
        """Replace a whole file, with a new modification time: the library notices a change by that."""
        new = path.with_name(f"{path.name}.new")
        # Bytes that are not UTF-8 are in a text in the form of os.fsdecode.
        new.write_bytes(text.encode(errors="surrogateescape"))
        self._stamp = max(self._stamp + 1, time.time_ns())
        os.utime(new, ns=(self._stamp, self._stamp))
        new.replace(path)


def _symbol(library: ctypes.CDLL, name: str) -> int | None:
    """The address of a symbol, None where the library lacks it."""
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(library, name))
    except ValueError:
        return None


def _label(device: int | str | None) -> str:
    return "*" if device is None else str(device)
