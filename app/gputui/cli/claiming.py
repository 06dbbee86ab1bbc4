"""Holding the devices of a call while its command lives: the lease, and what there is to say about it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from gputui.allocating.claims.lease import Lease, TakenError, take, take_unclaimed
from gputui.allocating.queue import in_line_for, in_words
from gputui.cli.choice import Hold, picks
from gputui.cli.common import NotEnoughError, say
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.jobs import FOLDER
from gputui.launching.secrets import program_and_script


def holder(args: argparse.Namespace, command: Sequence[str]) -> Hold | None:
    """What takes the lease of a call; None where the devices are not this machine's."""
    if args.demo is not None or args.recording is not None:
        return None
    told = program_and_script(command)
    folder = os.environ.get(FOLDER)
    job = Path(folder).name if folder else None

    def hold(snapshot: Snapshot, devices: Sequence[Device]) -> Lease:
        _mind_the_line(args, devices)
        keys = [device.key for device in devices]
        lease = _forced(keys, snapshot, told, job) if args.force else take(keys, os.environ, told, job)
        for warning in lease.warnings:
            say(f"warning: {warning}")
        return lease

    return hold


def _forced(keys: Sequence[str], snapshot: Snapshot, told: str, job: str | None) -> Lease:
    """A lease on those of the devices that nobody else holds."""
    lease, taken = take_unclaimed(keys, os.environ, told, job)
    for error in taken:
        say(f"warning: {error.text(snapshot)}; --force")
    return lease


def _mind_the_line(args: argparse.Namespace, devices: Sequence[Device]) -> None:
    """Others may be in line for devices like these: who takes them now keeps a large request waiting.

    Naming devices is a decision, and only a warning. Raises NotEnoughError where they wait for any device,
    and TakenError where they wait for some: there may be others.
    """
    if getattr(args, "wait", None) is not None or args.force or not devices:
        return
    keys = [device.key for device in devices]
    line = in_line_for(keys, os.environ)
    if not line:
        return
    who = in_words(line)
    if not picks(args):
        say(f"warning: there are {who}")
        return
    remedy = "--wait joins them, --force goes ahead"
    if any(each.devices is None for each in line):
        raise NotEnoughError(f"{who}: {remedy}")
    for key in keys:
        if any(each.wants_of([key]) for each in line):
            raise TakenError(key, line=f"{who}: {remedy}")
