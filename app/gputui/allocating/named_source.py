"""The source that the caller names: a demo box, a recording, another machine's files, else this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from gputui.sources.in_time import InTime
from gputui.sources.source import NoDevices, NoSourceError, Source


def named_source(demo: str | None, recording: str | None, root: str | None = None) -> Source:
    """The source that the options name; this machine's when they name none."""
    if demo is not None:
        from gputui.sources.simulated.source import named as simulated

        return simulated(demo or None)
    if recording is not None:
        from gputui.sources.recorded import RecordedSource

        return RecordedSource(recording)
    if root is not None:
        from gputui.vendors.box import box_below

        return box_below(root)
    from gputui.allocating.claims.source import WithClaims
    from gputui.vendors.box import this_box

    return WithClaims(this_box(), os.environ)


@contextmanager
def opened_in_time(source: Source, cpu_only: bool = False) -> Iterator[Source]:
    """The source, opened, and closed at the end. Reads from a driver that hangs are given up (`InTime`).

    With `cpu_only` no device is needed, so a machine without a driver counts as a box without devices.
    """
    found: Source = InTime(source)
    if cpu_only and not source.label:
        found = _for_cpu_only(found)
    found.open()
    try:
        yield found
    finally:
        found.close()


def _for_cpu_only(source: Source) -> Source:
    """A source for a launch without devices.

    Where several vendors are possible, the source is read to find the vendor whose devices must be hidden.
    """
    from gputui.vendors.registry import vendors_here

    if len(vendors_here()) > 1:
        with contextlib.suppress(NoSourceError):
            source.open()
            return source
    return NoDevices()
