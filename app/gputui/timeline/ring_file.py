"""The file of a box's last twelve hours, which is written as a whole once a minute: 18 KB for each device.

It has a checksum, a line of JSON (the last minute since the epoch; of each device its key, bytes of memory,
power limit and figures), and then, of each figure, the means and the peaks of `MINUTES` minutes as floats
(NaN: unknown).
"""

from __future__ import annotations

import json
from array import array
from itertools import islice
from zlib import crc32

from gputui.inventory.formatting import MIB
from gputui.timeline.store import Past, Store

MINUTES = 720
MOST_DEVICES = 256
LARGEST = 8 * MIB
"""More than the bytes of the largest file."""


class DamagedError(Exception):
    """The bytes are not such a file."""


def kept_keys(store: Store, minute: int) -> list[str]:
    """Return the devices for which a file that ends with this minute has data."""
    found = {key: past.newest for key, past in list(store.devices.items()) if past.newest > minute - MINUTES}
    return sorted(found, key=lambda key: -found[key])[:MOST_DEVICES]


def whole(store: Store, keys: list[str], minute: int) -> bytes:
    """Return the file as of the end of a minute."""
    table: list[object] = []
    figures = array("f")
    for key in keys:
        past = store.devices[key]
        rings = {metric: rings[-1] for metric, rings in list(past.rings.items())}
        table.append((key, past.memory_total, past.power_limit, [*rings]))
        for ring in rings.values():
            for peaks in (False, True):
                figures.extend(ring.window(minute - MINUTES + 1, minute + 1, peaks))
    data = json.dumps((minute, table)).encode() + b"\n" + figures.tobytes()
    return b"%08x\n%s" % (crc32(data), data)


def read(data: bytes, minute: int) -> Store:
    """Parse the twelve hours before a minute from a file. Raise DamagedError."""
    store = Store()
    checksum, _, rest = data.partition(b"\n")
    table, _, floats = rest.partition(b"\n")
    try:
        if int(checksum, 16) != crc32(rest):
            raise DamagedError
        last, devices = json.loads(table)
        figures = iter(array("f", floats))
        for key, total, limit, metrics in devices:
            past = store.devices[key] = Past(memory_total=total, power_limit=limit)
            for metric in metrics:
                means, peaks = [*islice(figures, MINUTES)], [*islice(figures, MINUTES)]
                minutes = range(last - MINUTES + 1, last + 1)
                for each, mean, peak in zip(minutes, means, peaks, strict=True):
                    if mean == mean and minute - MINUTES < each <= minute:
                        (past.rings.get(metric) or past.new(metric))[-1].put(each, mean, peak)
    except (ValueError, TypeError):
        raise DamagedError from None
    return store
