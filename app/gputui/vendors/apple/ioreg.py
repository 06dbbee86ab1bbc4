"""What `ioreg` prints of the GPU: lines of `"key" = value`, a dictionary as {"key"=value,…} in one line.

A key that is not there is not known. "In use system memory (driver)" is another fact than "In use system
memory", and is 0.
"""

from __future__ import annotations

import re

from gputui.inventory.formatting import printable

_NAME = re.compile(r'"model"\s*=\s*"([^"\n]{1,80})"')
_CORES = re.compile(r'"gpu-core-count"\s*=\s*(\d{1,4})\b')
_LOAD = re.compile(r'"Device Utilization %"\s*=\s*(\d{1,3})\b')
_MEMORY = re.compile(r'"In use system memory"\s*=\s*(\d{1,16})\b')
_CLIENT = re.compile(r'"IOUserClientCreator"\s*=\s*"pid (\d{1,9}),')
_MOST_PROCESSES = 4096


def is_accelerator(text: str) -> bool:
    """Whether the text tells of a GPU at all."""
    return bool(_NAME.search(text) or _LOAD.search(text) or _MEMORY.search(text))


def name(text: str) -> str | None:
    found = _NAME.search(text)
    return printable(found[1]) if found else None


def cores(text: str) -> int | None:
    found = _CORES.search(text)
    return int(found[1]) if found else None


def utilization(text: str) -> int | None:
    """Percent."""
    found = _LOAD.search(text)
    return int(found[1]) if found and int(found[1]) <= 100 else None


def memory_used(text: str) -> int | None:
    """Bytes of the host's memory that the GPU has in use."""
    found = _MEMORY.search(text)
    return int(found[1]) if found else None


def pids(text: str) -> tuple[int, ...]:
    """The processes that have the GPU open."""
    found = {int(pid) for pid in _CLIENT.findall(text)}
    return tuple(sorted(found))[:_MOST_PROCESSES]
