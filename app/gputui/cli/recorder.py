"""`gputui record` over time: readings in a file, and the recorder of usage."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from gputui.allocating.named_source import named_source, opened_in_time
from gputui.choosing.claimed_use import claimed_uses
from gputui.choosing.rules import Rules
from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import for_document
from gputui.cli.common import DONE, Call, WrongCallError, say, source_of
from gputui.inventory.device import Device
from gputui.inventory.document import to_document
from gputui.inventory.readings import HEAD, rows
from gputui.inventory.snapshot import Snapshot
from gputui.sources.sampler import Sampler
from gputui.sources.source import NoSourceError, Source, Want
from gputui.system.files import NoHomeError, open_result
from gputui.timeline.keeper import Keeper
from gputui.timeline.store import Store
from gputui.timeline.usage import BRIDGE

_PACE = 10.0
"""Seconds between two readings of the recorder of usage."""
_ENERGY_EVERY = 60.0
UNUSED = 10
"""The exit status that tells a job's supervisor that the job does not use its devices; `supervise.py` has it
too."""


def record_every(args: Call, rules: Rules, change: Callable[[Snapshot], Snapshot] | None) -> int:
    """Write one reading after another, until Ctrl-C. Raise NoSourceError and WrongCallError."""
    table = args.file.endswith(".csv")
    with _output(args.file) as stream, contextlib.suppress(KeyboardInterrupt):
        if table:
            stream.write(HEAD)
        readings = _readings(source_of(args), args.every)
        # The first reading leaves out what takes long, such as power; the second one follows at once.
        for _, snapshot in islice(readings, 1, None):
            shown = change(snapshot) if change is not None else snapshot
            judged = verdicts(shown, rules)
            document = to_document(shown, for_document(judged, shown.time))
            text = rows(document) if table else json.dumps(document) + "\n"
            stream.write(text.encode())
            stream.flush()
    return DONE


@contextlib.contextmanager
def _output(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdout.buffer
        return
    file = Path(name)
    try:
        if file.is_file() and file.stat().st_size:
            raise WrongCallError(f"{name!r} is not empty: remove it, or record to another file")
        with open_result(file) as stream:
            yield stream
    except OSError as error:
        raise WrongCallError(f"cannot write {name!r}: {error.strerror}") from None


def run_daemon() -> int:
    """Keep the usage and the timelines until a signal ends this process. Raise NoSourceError."""
    keeper, store = Keeper(os.environ), Store()
    store.adopt(keeper.read())
    told: str | None = None
    for sampler, snapshot in _readings(named_source(None, None), _PACE, watched=False):
        # The counters of energy are among the details.
        sampler.look_at(tuple(snapshot.by_key), Want.DETAILS, _ENERGY_EVERY)
        store.after(snapshot, sampler.pace)
        keeper.keep(store, snapshot)
        if keeper.problem != told:
            told = keeper.problem
            if told:
                say(f"the usage cannot be saved: {told}")
    return DONE


def _readings(source: Source, every: float, watched: bool = True) -> Iterator[tuple[Sampler, Snapshot]]:
    """Yield every reading. `watched`: somebody waits for it. Raise NoSourceError if the first one fails."""
    news: queue.SimpleQueue[Snapshot | Exception] = queue.SimpleQueue()
    sampler = Sampler(source, lambda told, _: news.put(told), every, owners_at_once=True)
    sampler.focus(watched)
    sampler.start()
    try:
        sampler.wait_until_open(BRIDGE)
        while True:
            told = news.get()
            if isinstance(told, Snapshot):
                yield sampler, told
            elif not isinstance(told, NoSourceError) or sampler.age is None:
                raise told
            else:
                say(str(told))
    finally:
        sampler.stop()


def note(job: str | None) -> int:
    """Add one reading to the usage. The supervisor of a job calls this, as no recorder may be running.

    Return UNUSED if the devices of this job of ours are unused at this moment.
    """
    read = cache(_read)
    with contextlib.suppress(OSError, NoHomeError):
        Keeper(os.environ).note(read)
    return UNUSED if job is not None and _unused(job, read()) else DONE


def _read() -> Snapshot:
    with opened_in_time(named_source(None, None)) as source:
        return source.read(Want.MONITOR | Want.QUEUE | Want.DETAILS | Want.CLAIM_PROCESSES)


def _unused(job: str, box: Snapshot) -> bool:
    """Return whether the job is known not to use a device: all that it has claimed do nothing, and it is seen
    on no other one."""
    uses = [use for use in claimed_uses(box) if use.own and use.job == job]
    devices = [box.by_key.get(key) for use in uses for key in use.claimed]
    known = bool(uses) and all(use.used is not None and not use.differs for use in uses)
    return known and all(device is not None and _rests(device) for device in devices)


def _rests(device: Device) -> bool:
    """Return whether a device is known to do nothing now, and its processes to have done nothing lately."""
    video = (told.encoder, told.decoder) if (told := device.telemetry) is not None else ()
    return device.utilization == 0 and not any((*video, *(each.sm for each in device.computing)))
