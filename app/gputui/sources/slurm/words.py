"""Parses words in Slurm's output: GRES, lists of hosts, ranges. All results are bounded.

Names of nodes, partitions and jobs, and reasons, are untrusted text: code that shows them must make them
printable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from gputui.inventory.topology import from_ranges
from gputui.sources.slurm.cluster import Gpus

MOST_NODES = 20_000
MOST_GPUS = 1024
"""The most devices of one node."""
MOST_NAME = 256
MOST_REASON = 1024
_MOST_DIMENSIONS = 5
"""The most brackets of one name (HIGHEST_DIMENSIONS of hostlist.h)."""

_GRES = re.compile(r"(?:gres[:/])?gpu(?::([^:,()=]+?))??(?:[:=]([0-9]{1,6}))?(?:\(([^()]*)\))?")


def read_gres(text: str) -> tuple[Gpus, ...]:
    """Parse the GPUs of "gpu:h100:2(IDX:0-1),shard:4"; other resources are left out.

    `used` is 0: the caller knows whether these are a node's devices or those in use.
    """
    found = []
    for part in _split(text):
        match = _GRES.fullmatch(part)
        if match is None:
            continue
        # "gpu" alone is one device.
        count = min(int(match[2]), MOST_GPUS) if match[2] else 1
        about = match[3] or ""
        indices = ranges(about[4:]) if about.startswith("IDX:") else None
        if indices is not None and len(indices) != count:
            indices = None
        found.append(Gpus(match[1] or "", count, indices=indices))
    return tuple(found)


def node_gpus(has: str, used: str) -> tuple[Gpus, ...]:
    """Return the GPUs of a node, from its devices and the devices that jobs have."""
    taken = read_gres(used)
    found = []
    for each in read_gres(has):
        of_it = [gpus for gpus in taken if gpus.type == each.type]
        count = min(each.total, sum(gpus.total for gpus in of_it))
        told = all(gpus.indices is not None for gpus in of_it)
        indices = tuple(index for gpus in of_it for index in gpus.indices or ()) if told else None
        found.append(Gpus(each.type, each.total, count, indices))
    return tuple(found)


def ranges(text: str) -> tuple[int, ...]:
    """Parse the numbers of "0-1,3"; () for "N/A" and any other text that has none."""
    try:
        return from_ranges(text)
    except ValueError:
        return ()


def hosts(text: str) -> tuple[str, ...]:
    """Parse the names of a list of hosts, "n[01-03,7],login"; at most MOST_NODES."""
    found: list[str] = []
    for part in _split(text):
        for name in _expanded(part):
            if len(found) >= MOST_NODES:
                return tuple(found)
            found.append(name)
    return tuple(found)


def _expanded(part: str, dimensions: int = _MOST_DIMENSIONS) -> Iterator[str]:
    match = re.fullmatch(r"([^\[\]]*)\[([0-9,-]+)\](.*)", part, re.DOTALL) if dimensions else None
    if match is None:
        yield part[:MOST_NAME]
        return
    # Further brackets are the next dimension. (They may have no names: then none is counted.)
    rests = [*islice(_expanded(match[3], dimensions - 1), MOST_NODES)]
    for piece in match[2].split(",") if rests else ():
        between = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", piece)
        if between is None or int(between[2] or 0) - int(between[1]) >= MOST_NODES:
            continue
        for number in range(int(between[1]), int(between[2] or between[1]) + 1):
            for rest in rests:
                yield f"{match[1]}{number:0{len(between[1])}d}{rest}"[:MOST_NAME]


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that are outside brackets."""
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth = max(0, depth - 1)
        elif letter == "," and not depth:
            if part := text[begin:place].strip():
                yield part
            begin = place + 1
    if part := text[begin:].strip():
        yield part


def states(text: str) -> tuple[str, ...]:
    """Parse "IDLE*+DRAIN" into ("IDLE", "NOT_RESPONDING", "DRAIN")."""
    found = []
    for word in text[:MOST_NAME].upper().split("+"):
        plain = re.sub(r"[^A-Z_]+$", "", word.strip())
        if plain:
            found.append(plain)
        if word.strip().endswith("*"):
            found.append("NOT_RESPONDING")
    return tuple(found)
