"""Parse a configuration that a command names, in YAML or JSON, with its size bounded before it is built.

A few hundred bytes of YAML can mean gigabytes: an alias repeats its target, and a merge (`<<`) copies it.
So the events of the text are counted first, in time proportional to its length.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gputui.inventory.others_files import NotReadError, go_on, parse_json

if TYPE_CHECKING:
    from yaml import ScalarEvent

_MOST_EVENTS = 4000
"""A list or mapping has two events, a scalar one. Accelerate's configuration for FSDP has 80."""
_DEEPEST = 30
_MOST_REPEATED = 10
"""Aliases and merges together: each may repeat the repetitions of the others."""
_LONGEST_NUMBER = 1000
"""Characters: the time to parse a number of base 60 (1:59:59) grows with the square of its length."""
_SLOWEST = 1 << 13
"""The most characters where PyYAML was built without libyaml, which is ten times as fast."""


@lru_cache(maxsize=4)
def read_values(text: str, form: str) -> object:
    """Parse a text in that form ("JSON", "YAML"). Raises NotReadError, and ValueError for a text that is not
    of that form."""
    go_on()
    return parse_json(text) if form == "JSON" else _read_yaml(text)


def _read_yaml(text: str) -> object:
    # Takes 20 ms to import; needed only where a command names a file.
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if loader is yaml.SafeLoader and len(text) > _SLOWEST:
        raise NotReadError(f"it has more than {_SLOWEST >> 10} KiB, and PyYAML has no libyaml here")
    try:
        depth = repeated = 0
        for number, event in enumerate(yaml.parse(text, loader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            value = getattr(event, "value", "")
            repeated += isinstance(event, yaml.AliasEvent) or value == "<<"
            if number > _MOST_EVENTS or depth > _DEEPEST or repeated > _MOST_REPEATED:
                raise NotReadError("it has too many values, levels, aliases or merges")
            if len(value) > _LONGEST_NUMBER and isinstance(event, yaml.ScalarEvent) and _is_number(event):
                raise NotReadError(f"it has a number of {len(value)} digits")
        return yaml.load(text, loader)
    except NotReadError:
        raise
    # PyYAML does not wrap the errors of its conversions: `!!bool maybe`, `!!timestamp x`.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError("not YAML") from error


def _is_number(event: ScalarEvent) -> bool:
    """Whether PyYAML may read a scalar as a number."""
    return bool(event.tag) or (event.implicit[0] and event.value[0] in "+-.0123456789")
