"""Holding the devices of a call while its command lives: the lease, and what there is to say about it."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from gputui.choosing.verdict import claimed_by
from gputui.cli.choice import Hold
from gputui.cli.common import NotEnoughError, say
from gputui.inventory.device import Device
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.wording import printable
from gputui.launching.claims.lease import Lease, TakenError, take
from gputui.launching.claims.queue import waiters
from gputui.launching.jobs.start import FOLDER


def holder(args: argparse.Namespace, command: Sequence[str]) -> Hold | None:
    """What takes the lease of a call; None where the devices are not this machine's."""
    if args.demo is not None or args.recording is not None:
        return None
    line = shlex.join(command)
    folder = os.environ.get(FOLDER)
    job = Path(folder).name if folder else None

    def hold(snapshot: Snapshot, devices: Sequence[Device]) -> Lease:
        _mind_the_line(args, devices)
        try:
            lease = take([device.key for device in devices], os.environ, line, job)
        except TakenError as error:
            if not args.force:
                raise
            who = claimed_by(error.claim, snapshot.time) if error.claim else "by another job"
            device = snapshot.by_key.get(error.key)
            say(f"warning: GPU {snapshot.label(device) if device else error.key} is claimed {who}; --force")
            return Lease()
        for warning in lease.warnings:
            say(f"warning: {warning}")
        return lease

    return hold


def _mind_the_line(args: argparse.Namespace, devices: Sequence[Device]) -> None:
    """Others may be in line for devices like these: who takes them now keeps a large request waiting.

    Naming devices is a decision, and only a warning. Raises NotEnoughError.
    """
    if getattr(args, "wait", None) is not None or args.force or not devices:
        return
    line = [each for each in waiters(os.environ) if each.wants_of([device.key for device in devices])]
    if not line:
        return
    first = line[0]
    who = f"{len(line)} in line before you, first {printable(first.user)} for {first.count}"
    if args.gpus is not None and args.n is None:
        say(f"warning: there are {who}")
    else:
        raise NotEnoughError(f"{who}: --wait joins them, --force goes ahead")
