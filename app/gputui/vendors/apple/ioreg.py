"""Parses the output of `ioreg` for the GPU: lines of `"key" = value`, a dictionary as {"key"=value,…} in one
line.

A missing key means an unknown fact. "In use system memory (driver)" is another fact than "In use system
memory", and is 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gputui.inventory.device import Facts
from gputui.inventory.formatting import printable

_FACTS: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "name": (re.compile(r'"model"\s*=\s*"([^"\n]{1,80})"'), printable),
    "cores": (re.compile(r'"gpu-core-count"\s*=\s*(\d{1,4})\b'), int),
    "utilization": (re.compile(r'"Device Utilization %"\s*=\s*(\d{1,2}|100)\b'), int),
    "memory_used": (re.compile(r'"In use system memory"\s*=\s*(\d{1,16})\b'), int),
}
"""By the field of `Device`; percent, and bytes (of the host's memory that the GPU uses)."""
_CLIENT = re.compile(r'"IOUserClientCreator"\s*=\s*"pid (\d{1,9}),')
_MOST_PROCESSES = 4096


def facts(text: str) -> Facts:
    """Return the facts about a GPU in the text; {} where there are none."""
    found = ((name, pattern.search(text), made) for name, (pattern, made) in _FACTS.items())
    return {name: made(match[1]) for name, match, made in found if match}


def pids(text: str) -> tuple[int, ...]:
    """Return the processes that have the GPU open."""
    found = {int(pid) for pid in _CLIENT.findall(text)}
    return tuple(sorted(found))[:_MOST_PROCESSES]
