"""some: a number of examples of one entrance."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded

from fuzz.entrances import Entrance


def some(entrance: Entrance, examples: int, seed: int | None = None) -> None:
    """Try `examples` inputs. Raises the error that the entrance lets through, with the smallest example that
    causes it in a note."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(entrance.comes)
    def run(what: Any) -> None:
        entrance.check(what)

    (run if seed is None else seeded(seed)(run))()
