"""The kernel's graphics devices: cards, their drivers, their sensors, and their use by programs (fdinfo).

For every vendor whose driver is a DRM driver (drm-usage-stats.rst, sysfs-class-hwmon). The cards of several
vendors share one list in no meaningful order: a card is identified by its driver and its bus id, never by its
number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property

from gputui.inventory.device import Facts
from gputui.inventory.formatting import GIB, MIB
from gputui.inventory.light_dataclasses import field, frozen
from gputui.system.pci_tree import FUNCTION, PciPlace, outermost_bridge, place
from gputui.system.root import Root, pairs, whole

DRM = "/sys/class/drm"
MOST_CARDS = 1024
_CARD = re.compile(r"card\d{1,5}")
_RENDER = re.compile(r"renderD\d{1,5}")
_UNITS = {"": 1, "KiB": 1024, "MiB": MIB, "GiB": GIB}
_MOST_FDS = 4096
_SPENT = re.compile(r"drm-(engine|cycles)-(?!capacity-)(.+)")
_OWN_MEMORY = re.compile(r"(?:vram|local)\d{0,2}")


@frozen
class Card:
    """A graphics device.

    `folder` is its hardware's folder in /sys; `function` is its PCI function ("0000:05:00.0"), None where it
    has none; ids are four hex digits, "" where they are not known.
    """

    folder: str
    driver: str
    function: str | None
    render: str | None
    vendor_id: str
    device_id: str

    @property
    def pci_id(self) -> str | None:
        return f"{self.vendor_id}:{self.device_id}" if self.vendor_id and self.device_id else None


def card_of(root: Root, name: str) -> Card | None:
    """Return the hardware behind "card0" or "renderD128", None where there is none."""
    folder = f"{DRM}/{name}/device"
    found = pairs(root.text(f"{folder}/uevent"), "=")
    if "DRIVER" not in found:
        return None
    function = found.get("PCI_SLOT_NAME", "").lower()
    renders = sorted(n for n in root.names(f"{folder}/drm") if _RENDER.fullmatch(n))
    vendor_id, _, device_id = found.get("PCI_ID", "").lower().partition(":")
    return Card(
        folder=folder,
        driver=found["DRIVER"],
        function=function if FUNCTION.fullmatch(function) else None,
        render=name if _RENDER.fullmatch(name) else next(iter(renders), None),
        vendor_id=vendor_id,
        device_id=device_id,
    )


def nodes_of(root: Root, render: str | None) -> tuple[str, ...]:
    """Return the device files of the hardware behind "renderD128": that node and its cards;
    () where unknown."""
    if render is None or not root.has(f"/dev/dri/{render}"):
        return ()
    beside = root.names(f"{DRM}/{render}/device/drm")
    found = (render, *sorted(name for name in beside if _CARD.fullmatch(name)))
    return tuple(f"/dev/dri/{name}" for name in found) if render in beside else ()


def may_open(root: Root, render: str) -> bool:
    """Return whether our programs can open the hardware behind "renderD128".

    The device file is not opened here: that would wake a sleeping card. Most recorded machines have no device
    files, and then every device counts as open.
    """
    return root.may_open(f"/dev/dri/{render}") or (root.recorded and not root.has("/dev/dri"))


def cards(root: Root) -> list[Card]:
    """Return every card, by its number. Connectors ("card0-HDMI-A-1") are not cards."""
    names = sorted((n for n in root.names(DRM) if _CARD.fullmatch(n)), key=lambda n: (len(n), n))
    return [card for name in names[:MOST_CARDS] if (card := card_of(root, name)) is not None]


_HOTTEST = 1_000_000
"""The highest plausible temperature, m°C."""


class Sensors:
    """The hwmon of a card: its attributes, and the channel of each label ("junction" is "temp2")."""

    def __init__(self, root: Root, card: Card) -> None:
        self._root = root
        folder = f"{card.folder}/hwmon"
        names = sorted(name for name in root.names(folder) if name.startswith("hwmon"))
        self._folder = f"{folder}/{names[0]}" if names else None
        self._there = frozenset(root.names(self._folder)) if self._folder else frozenset()
        self.labels: dict[tuple[str, str], str] = {}
        for name in sorted(self._there):
            if name.endswith("_label"):
                channel = name.removesuffix("_label")
                kind = channel.rstrip("0123456789")
                label = (root.text(f"{self._folder}/{name}", 64) or "").lower()
                self.labels.setdefault((kind, label), channel)

    def number(self, *names: str) -> int | None:
        """Return the first of these attributes that is readable and plausible: only
        temperatures may be negative."""
        for name in names:
            found = self._root.number(f"{self._folder}/{name}") if name in self._there else None
            coldest = -_HOTTEST if name.startswith("temp") else 0
            if found is not None and coldest <= found and (found <= _HOTTEST or not coldest):
                return found
        return None

    def labelled(self, kind: str, labels: Iterable[str], suffix: str = "_input") -> int | None:
        """Return the attribute of the first readable one of these labels: ("temp", ("edge", "junction"))."""
        channels = (self.labels.get((kind, label)) for label in labels)
        return self.number(*(f"{channel}{suffix}" for channel in channels if channel))


class GpuFiles:
    """One GPU's files, which every vendor's driver has. Facts that never change are read once."""

    own_bridges: frozenset[str] = frozenset()
    """The PCI ids of the vendor's bridges that are on the card itself."""

    def __init__(self, root: Root, card: Card) -> None:
        self._root, self.card = root, card

    def text(self, name: str) -> str | None:
        """Return the content of one of its files, None for nothing."""
        return self._root.text(f"{self.card.folder}/{name}") or None

    def number(self, name: str) -> int | None:
        """Return a whole number; None also for a negative number, which means "no answer"."""
        found = self._root.number(f"{self.card.folder}/{name}")
        return found if found is not None and found >= 0 else None

    @cached_property
    def sensors(self) -> Sensors:
        return Sensors(self._root, self.card)

    @property
    def asleep(self) -> bool:
        """Whether the kernel has powered it down: reading its sensors could wake it up."""
        return self.text("power/runtime_status") == "suspended"

    def readings(self, now: float) -> Facts:
        """Return temperature (°C), power and its limit (W), and clock (MHz) at `now` in seconds.

        All are None for a sleeping GPU.
        """
        return dict.fromkeys(SENSED) if self.asleep else self._sensed(now)

    def _sensed(self, now: float) -> Facts:
        raise NotImplementedError

    def temperature(self, *labels: str) -> int | None:
        """Return °C of the sensor with the first of these labels. Old kernels have one
        sensor, without a label."""
        heat = self.sensors.labelled("temp", labels)
        if heat is None and not any(kind == "temp" for kind, _ in self.sensors.labels):
            heat = self.sensors.number("temp1_input")
        return None if heat is None else round(heat / 1000)

    def place(self, numa_node: int | None) -> PciPlace | None:
        """Return its place on the bus, None where the machine does not report it."""
        real = self._root.real(self.card.folder)
        return None if real is None else place(real, numa_node, self._is_own_bridge)

    def _is_own_bridge(self, folder: str) -> bool:
        ids = (self._root.number(f"{folder}/{name}", 16) for name in ("vendor", "device"))
        return ":".join(f"{number or 0:04x}" for number in ids) in self.own_bridges

    @cached_property
    def slot(self) -> str | None:
        """The folder that has the link to the slot, where the card has bridges of its own: the outermost
        bridge's.

        Between those bridges and the GPU there is another link, which is never slower.
        """
        real = self._root.real(self.card.folder) if self.card.function is not None else None
        return None if real is None else outermost_bridge(real, self._is_own_bridge)

    @property
    def linked(self) -> str | None:
        """The folder that has its link, None where there is none."""
        return self.slot or self.card.folder

    def link(self, which: str = "max") -> tuple[int | None, int | None]:
        """Return generation and lanes of the link to the slot, "current" or "max"."""
        speed = self._root.text(f"{self.linked}/{which}_link_speed", 64) or ""
        lanes = self._root.number(f"{self.linked}/{which}_link_width")
        generation = _GENERATIONS.get(speed.partition(" ")[0])
        return generation, lanes if lanes is not None and 0 < lanes <= 32 else None


SENSED = ("temperature", "power", "power_limit", "sm_clock")

_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s per lane of PCIe, as the kernel writes it."""


@frozen
class Client:
    """One process's use of one card: bytes by region ("vram", "gtt"), nanoseconds by engine ("gfx").

    cycles   busy cycles by engine ("ccs"), where the driver counts cycles in place of time (xe)
    """

    pid: int
    function: str
    memory: Mapping[str, int]
    engines: Mapping[str, int]
    cycles: Mapping[str, int] = field(default_factory=dict)

    @property
    def device_memory(self) -> int | None:
        """Bytes of the card's own memory; None where none is reported.

        The regions are "vram", and for a card with several parts "vram0", "vram1" (xe) or "local0" (i915).
        """
        sizes = [size for region, size in self.memory.items() if _OWN_MEMORY.fullmatch(region)]
        return sum(sizes) if sizes else None


def clients(root: Root) -> list[Client]:
    """Return the programs that have a card open and that we may inspect: our own, unless we are root."""
    found: list[Client] = []
    for name in root.names("/proc"):
        if name.isdigit():
            found += _clients_of(root, name)
    return found


def _clients_of(root: Root, pid: str) -> list[Client]:
    by_id: dict[tuple[str, str], dict[str, str]] = {}
    for number in root.names(f"/proc/{pid}/fdinfo")[:_MOST_FDS]:
        # A link costs less to read than the file, and most descriptors are not a card's. A recorded machine
        # has no links, and few files.
        to = root.link(f"/proc/{pid}/fd/{number}")
        if to is not None and not to.startswith("/dev/dri/"):
            continue
        text = root.text(f"/proc/{pid}/fdinfo/{number}", 16_384) or ""
        if "drm-pdev" not in text:
            continue
        facts = pairs(text)
        # Several descriptors of one client report the same facts.
        by_id[facts["drm-pdev"].lower(), facts.get("drm-client-id", number)] = facts
    found: dict[str, tuple[Counter[str], dict[str, Counter[str]]]] = {}
    for (function, _), facts in by_id.items():
        memory, spent = found.setdefault(function, (Counter(), {"engine": Counter(), "cycles": Counter()}))
        memory.update(regions(facts))
        for key, value in facts.items():
            if match := _SPENT.fullmatch(key):
                spent[match[1]][match[2]] += whole(value.removesuffix("ns").strip()) or 0
    return [
        Client(int(pid), function, memory, spent["engine"], spent["cycles"])
        for function, (memory, spent) in found.items()
    ]


def regions(facts: Mapping[str, str]) -> dict[str, int]:
    """Return bytes by region. Kernels report a size under several names: resident takes precedence over
    memory, and memory over total."""
    found: dict[str, int] = {}
    for kind in ("drm-total-", "drm-memory-", "drm-resident-"):
        for key, value in facts.items():
            if key.startswith(kind):
                number, _, unit = value.partition(" ")
                amount = whole(number)
                if amount is not None and amount >= 0 and unit.strip() in _UNITS:
                    found[key.removeprefix(kind)] = amount * _UNITS[unit.strip()]
    return found
