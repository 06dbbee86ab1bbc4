"""COLUMNS: the columns of the device table, and the choice of those that fit into a width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import NamedTuple

from gputui.inventory.device import Device
from gputui.inventory.formatting import GIB, printable, short_bus_id, short_name
from gputui.inventory.light_dataclasses import frozen
from gputui.sources.source import Want
from gputui.tui.app_state import AppState
from gputui.tui.views.text import Line, bar, fit, shorten

UNKNOWN = "–"

BEFORE = 6
"""Cells before the number of a device: the cursor, and its place in the selection."""

_LEAST_BAR = 4
"""The width in cells from which a bar is more informative than the number alone."""

_LOW, _HIGH = 0.3, 0.8
"""The shares of a device's load below and above which its bar and its number are quieter and brighter."""

SHARED, SHARED_SHORT = " shared", "*"
"""The text after an amount of memory that is shared with the host: where there is room, and where not."""

STATE = 26
"""Cells of "◐ held, no visible process": bars, limits and names make room for the text of a state."""

_NEARLY = 3
"""A temperature is a warning from this many °C below the one at which the driver lowers the clocks."""


@frozen
class Box:
    """The facts that widths depend on: cells of the longest name, amount of memory, and limit of power, 0
    where none is known; whether all devices have one name, which the header already shows; cells of the
    longest profile of a MIG instance, 0 where there is none; whether a device shares the host's memory."""

    name: int
    amount: int
    watts: int
    alike: bool
    profile: int
    shared: bool


class Cell(NamedTuple):
    """The place of a fact in the table: its width, the tone of the numbers in its row, the tone of its state,
    the box, and the device's memory (`Snapshot.memory`)."""

    width: int
    tone: str
    state: str
    box: Box
    memory: tuple[int | None, int | None]


Sizes = tuple[tuple[int, int], ...]
"""The widths that a column can have, the narrowest first, each with the cells that must be left for the
state."""


@frozen
class Column:
    """One column of the table.

    id        its name in the settings (`ScreenSettings.columns`)
    heading   the text above the column;  title: the text in the list of columns
    sizes     its widths in a box
    priority  where two columns do not both fit, the one with the lower number stays
    spans     its content for a device, exactly as wide as the cell
    needs     the facts that a source has to read for it
    usual     whether it is shown by default
    right     whether its heading is right-aligned
    """

    id: str
    heading: str
    title: str
    sizes: Callable[[Box], Sizes]
    priority: int
    spans: Callable[[Device, Cell], Line]
    needs: Want = Want.SENSORS
    usual: bool = True
    right: bool = True


def _unknown(width: int) -> Line:
    return ((fit(UNKNOWN, width, right=True), "dim"),)


def _word(text: str | None, width: int, tone: str, right: bool = True) -> Line:
    return ((fit(text, width, right), tone),) if text is not None else _unknown(width)


def _number(value: float | None, width: int, tone: str, unit: str = "") -> Line:
    """A number in the tone of its row; zero is dim, because it calls for no attention."""
    return _word(None if value is None else f"{value:.0f}{unit}", width, tone if value else "dim")


def _name(device: Device, cell: Cell) -> Line:
    return ((shorten(_short_name(device), cell.width), cell.tone),)


def _short_name(device: Device) -> str:
    """The name without its maker; for a MIG instance, which is shown under its GPU, only the profile."""
    name = short_name(device.name or UNKNOWN)
    return name.removesuffix(" MIG") if device.parent else name


def loaded(tone: str, share: float) -> str:
    """The style of a share in a row of this tone: its hue says the state, as in the whole row, and its
    strength says the load. Dim and quiet rows stay so."""
    level = (
        ""
        if tone.endswith(("dim", "-low")) or _LOW <= share <= _HIGH
        else "-low"
        if share < _LOW
        else "-high"
    )
    return f"{tone}{level}"


def _with_bar(fraction: float, number: str, least: int, width: int, tone: str) -> Line:
    """A number of at least `least` cells after a bar, or alone where the bar would be too short."""
    tone = loaded(tone, fraction)
    tone_of_number = tone if fraction else "dim"
    room = width - least
    if room < _LEAST_BAR:
        return ((fit(number, width, right=True), tone_of_number),)
    full, empty = bar(fraction, room)
    return ((full, tone), (empty, "rest"), (fit(number, least, right=True), tone_of_number))


def _utilization(device: Device, cell: Cell) -> Line:
    if device.utilization is None:
        # An empty bar would mean 0 %.
        return _unknown(cell.width)
    return _with_bar(device.utilization / 100, f"{device.utilization}%", 5, cell.width, cell.state)


def _memory(device: Device, cell: Cell) -> Line:
    used, total = cell.memory
    if used is None or not total:
        return _unknown(cell.width)
    amount, least = f"{used / GIB:.1f}/{total / GIB:.1f}G", cell.box.amount + 1
    if cell.box.shared:
        # All amounts are aligned, including those of devices with memory of their own.
        mark = SHARED if cell.width >= least + len(SHARED) else SHARED_SHORT
        amount += mark if device.unified else " " * len(mark)
        least += len(mark)
    return _with_bar(used / total, amount, least, cell.width, cell.state)


def _temperature(device: Device, cell: Cell) -> Line:
    limit = device.telemetry.slowdown_temperature if device.telemetry else None
    hot = limit is not None and device.temperature is not None and device.temperature >= limit - _NEARLY
    return _number(device.temperature, cell.width, "warn" if hot else cell.tone)


def _power(device: Device, cell: Cell) -> Line:
    """Watts, followed by the limit where there is room."""
    # The watts of a device without a limit stay aligned with the others.
    limit = cell.box.watts + 1 if cell.width > 4 else 0
    watts, behind = UNKNOWN if device.power is None else f"{device.power:.0f}", ""
    if limit and device.power_limit is not None and device.power is not None:
        behind = f"/{device.power_limit:.0f}"
    look = "dim" if device.power is None else cell.tone
    return ((fit(watts, cell.width - limit, right=True) + fit(behind, limit), look),)


def _clock(device: Device, cell: Cell) -> Line:
    """MHz, followed by "!" where the driver reports that the clocks are throttled."""
    slow = bool(device.telemetry and device.telemetry.throttle)
    return (*_number(device.sm_clock, cell.width - 1, cell.tone), ("!" if slow else " ", "warn"))


def _throttle(device: Device, cell: Cell) -> Line:
    reasons = device.telemetry.throttle if device.telemetry else None
    if reasons is None:
        return _word(UNKNOWN, cell.width, "dim", right=False)
    return _word(printable(", ".join(reasons)), cell.width, "warn", right=False)


def _pcie(device: Device, cell: Cell) -> Line:
    """Generation and lanes, followed by "!" where fewer lanes are in use than possible.

    An idle GPU lowers its generation by itself, which is normal.
    """
    now = device.telemetry
    if now is None or now.pcie_generation is None or now.pcie_width is None:
        return _unknown(cell.width)
    less = now.pcie_width < (now.max_pcie_width or 0)
    return (
        (fit(f"{now.pcie_generation}×{now.pcie_width}", cell.width - 1, right=True), cell.tone),
        ("!" if less else " ", "warn"),
    )


def _command(device: Device, cell: Cell) -> Line:
    """The command of the process with the most memory; nothing where there is none."""
    main = max(device.processes or (), key=lambda process: process.memory or 0, default=None)
    return ((fit(printable(main.command or UNKNOWN) if main else "", cell.width), "dim"),)


def _detail(fact: str) -> Callable[[Device, Cell], Line]:
    """The content of a column with a percentage of the telemetry."""
    return lambda device, cell: _number(getattr(device.telemetry, fact, None), cell.width, cell.tone, "%")


def _utilization_bars(box: Box) -> Sizes:
    # Before Hopper, drivers report no utilization of MIG instances: watts and limits are more informative
    # than a bar for the other devices.
    return (5, 8), (11, STATE + bool(box.profile)), (15, 30), (19, 34), (25, 38), (35, 44)


_MEMORY_BARS: Sizes = ((0, 10), (6, STATE), (11, 30), (15, 34), (21, 38), (31, 44))
"""The sizes as in `Sizes`, but for the cells of a bar and the gap after it."""


def _memory_sizes(box: Box) -> Sizes:
    sizes = tuple((box.amount + more, spare) for more, spare in _MEMORY_BARS)
    if box.shared:
        (least, spare), *wider = sizes
        sizes = (least + len(SHARED_SHORT), spare), *((each + len(SHARED), room) for each, room in wider)
    return sizes


def _names(box: Box) -> Sizes:
    if box.alike:
        # The header has it already.
        return ()
    if box.profile:
        # The profiles come first; the GPU's full name only next to bars and watts, as the header has it too.
        return (box.profile, 16), (min(box.name, 9), STATE + 1), (min(box.name, 20), 31)
    return tuple((min(box.name, most), spare) for most, spare in ((9, 16), (12, STATE + 3), (20, 31)))


def _fixed(cells: int, spare: int) -> Callable[[Box], Sizes]:
    return lambda box: ((cells, spare),)


COLUMNS: tuple[Column, ...] = (
    Column(
        "name",
        "NAME",
        "product name, where devices differ",
        _names,
        2,
        _name,
        needs=Want.NAMES,
        right=False,
    ),
    Column(
        "utilization",
        "UTIL",
        "share of the time a kernel ran",
        _utilization_bars,
        0,
        _utilization,
        needs=Want.LOAD,
        right=False,
    ),
    Column(
        "memory",
        "MEMORY",
        "memory in use, and total",
        _memory_sizes,
        1,
        _memory,
        needs=Want.LOAD,
        right=False,
    ),
    Column("temperature", "°C", "temperature", _fixed(3, 18), 3, _temperature),
    Column(
        "power",
        "W",
        "power in watts, and its limit",
        lambda box: ((4, STATE), (2 * box.watts + 1, STATE)) if box.watts else ((4, STATE),),
        4,
        _power,
    ),
    Column(
        "bandwidth",
        "MBW%",
        "memory bandwidth: share of time",
        _fixed(4, STATE),
        5,
        lambda device, cell: _number(device.memory_utilization, cell.width, cell.tone, "%"),
        needs=Want.LOAD,
    ),
    Column("clock", "CLOCK", "SM clock in MHz, ! while throttled", _fixed(5, STATE), 6, _clock),
    Column(
        "command",
        "COMMAND",
        "the command with the most memory",
        lambda box: ((24, 36), (40, 36), (60, 36), (90, 44)),
        7,
        _command,
        needs=Want.PROCESSES | Want.OWNERS,
        right=False,
    ),
    Column(
        "throttle",
        "THROTTLE",
        "why the clocks are lowered",
        lambda box: ((8, 24), (16, 34)),
        8,
        _throttle,
        needs=Want.DETAILS,
        usual=False,
        right=False,
    ),
    *(
        Column(id, heading, title, _fixed(4, 26), priority, _detail(id), needs=Want.DETAILS, usual=False)
        for priority, id, heading, title in (
            (9, "fan", "FAN", "fan speed"),
            (10, "encoder", "ENC", "utilization of the video encoder"),
            (11, "decoder", "DEC", "utilization of the video decoder"),
        )
    ),
    Column(
        "pcie",
        "PCIE",
        "PCIe generation, lanes; ! too few",
        _fixed(5, 26),
        12,
        _pcie,
        needs=Want.DETAILS,
        usual=False,
    ),
    Column(
        "bus",
        "BUS",
        "PCI bus id",
        _fixed(7, 26),
        13,
        lambda device, cell: _word(
            short_bus_id(device.pci_bus_id) if device.pci_bus_id else None, cell.width, cell.tone, right=False
        ),
        needs=Want.NAMES,
        usual=False,
        right=False,
    ),
    Column(
        "numa",
        "NUMA",
        "NUMA node",
        _fixed(4, 26),
        14,
        lambda device, cell: _number(device.numa_node, cell.width, cell.tone),
        needs=Want.NAMES,
        usual=False,
    ),
)
"""All columns between the number of a device and its state, which are always shown."""

BY_ID = {column.id: column for column in COLUMNS}
USUAL = tuple(column.id for column in COLUMNS if column.usual)

_CHOSEN_SPARE = 12
"""Cells that a column chosen by the user must leave for the state."""

_STATE_CAP = 32
"""Cells beyond which the state takes no more room from optional columns and longer bars."""

_OPTIONAL = 7
"""The priority from which even a column chosen by the user leaves room for the longest state."""


@frozen
class Columns:
    """The columns of one table and their widths, in cells. The rest is for the state.

    label  cells of the number of a device;  tree: whether numbers are left-aligned, as some have parts
    """

    label: int
    tree: bool
    shown: tuple[tuple[Column, int], ...]
    gap: int
    state: int
    box: Box

    @classmethod
    def of(cls, app_state: AppState, width: int, state: int = 0) -> Columns:
        """The columns that fit into `width`, each whole: the most important ones first, then wider ones.

        state  cells that the longest state needs: the user's own columns leave that many
        """
        snapshot, devices = app_state.box, app_state.box.devices
        tree = any(device.parent for device in devices)
        labels = [len(label_of(app_state, device, tree)) for device in devices]
        names = {_short_name(device) for device in devices}
        box = Box(
            alike=len(names) < 2,
            name=max([4, *map(len, names)]),
            profile=max((max(7, len(_short_name(d))) for d in devices if d.parent), default=0),
            amount=max([6, *(_amount(snapshot.memory(device)[1]) for device in devices)]),
            shared=any(device.unified for device in devices),
            watts=max(
                (max(3, len(f"{d.power_limit:.0f}")) for d in devices if d.power_limit is not None),
                default=0,
            ),
        )
        return cls._fitting(max([2, *labels]), tree, box, app_state.screen.columns, width, state)

    @classmethod
    @lru_cache(maxsize=4)
    def _fitting(
        cls, label: int, tree: bool, box: Box, chosen: tuple[str, ...] | None, width: int, state: int
    ) -> Columns:
        gap = 2 if width >= 100 else 1
        left = width - BEFORE - label - 2
        wanted = [BY_ID[name] for name in dict.fromkeys(USUAL if chosen is None else chosen) if name in BY_ID]
        widths: dict[str, int] = {}
        for cells, column, spare in _wishes(wanted, box, chosen is not None, state):
            before = widths.get(column.id)
            more = cells + gap if before is None else cells - before
            if left - more >= spare:
                widths[column.id] = cells
                left -= more
        shown = tuple((column, widths[column.id]) for column in wanted if column.id in widths)
        return cls(label, tree, shown, gap, max(0, left), box)

    @property
    def needs(self) -> Want:
        """The facts that a source has to read for these columns."""
        return reduce(Want.__or__, (column.needs for column, _ in self.shown), Want.PROCESSES | Want.OWNERS)


def label_of(app_state: AppState, device: Device, tree: bool) -> str:
    """The number of a device; in a tree the parts of a GPU are shown under it."""
    return f"{'└ ' if tree and device.parent else ''}{app_state.box.label(device)}"


def _wishes(columns: Sequence[Column], box: Box, chosen: bool, state: int) -> list[tuple[int, Column, int]]:
    """The wanted widths of the columns, the most important first, each with the cells for the state."""
    wishes = []
    # In steps, so that no column appears or disappears when a state gets one character longer.
    state = min(_STATE_CAP, -(-state // 8) * 8)
    for column in columns:
        for step, (cells, spare) in enumerate(column.sizes(box)):
            least = min(spare, _CHOSEN_SPARE) if chosen and not step else spare
            left = max(least, state) if chosen and (step or column.priority >= _OPTIONAL) else least
            wishes.append((least, column.priority, step, cells, column, left))
    wishes.sort(key=lambda wish: wish[:3])
    return [(cells, column, left) for _, _, _, cells, column, left in wishes]


def _amount(total: int | None) -> int:
    """Cells of the memory in use and in total, for the width at full use: the column never moves."""
    return 6 if not total else 2 * len(f"{total / GIB:.1f}") + 2
