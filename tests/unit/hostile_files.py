"""Files of a machine, broken in every way that a test can arrange without a kernel of its own."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from gputui.choosing.verdict import verdicts
from gputui.inventory.snapshot import Snapshot

PROGRAMS = (
    "exit 3",
    "true",
    "echo garbage",
    "head -c 9000000 /dev/zero",
    "sleep 60",
    "yes '{'",
    "printf 'a\\0b\\n'",
    "echo '{\"device_list\": [{}]}'",
    "head -c 4000 /dev/urandom",
)
"""Scripts for a vendor's program: it fails, prints nothing, prints garbage, or never ends."""


def spoil(root: Path, chance: Random) -> bool:
    """Break half of the files below a folder, and at times a program in its `bin`; return whether one was."""
    broken = False
    for file in sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink()):
        if file.parent == root / "bin":
            if chance.random() < 0.5:
                broken = True
                file.write_text(f"#!/bin/sh\n{chance.choice(PROGRAMS)}\n")
            continue
        match chance.randrange(16):
            case 0:
                file.unlink()
            case 1:
                file.write_bytes(b"")
            case 2:
                file.write_bytes(chance.randbytes(60))
            case 3:
                file.write_text("9" * 100_000)
            case 4:
                file.write_text("-1\n")
            case 5:
                file.unlink()
                file.symlink_to(file.name)
            case 6:
                file.unlink()
                file.symlink_to("/etc/hostname")
            case 7:
                file.unlink()
                file.mkdir()
            case 8:
                file.unlink()
                os.mkfifo(file)
            case 9:
                file.chmod(0)
            case _:
                pass
    return broken


def none_is_free_that_is_not(snapshot: Snapshot, truth: Snapshot) -> bool:
    """Whether the readable rest of the spoiled files calls no used device free."""
    really, found = verdicts(truth), verdicts(snapshot)
    # If a card's model cannot be read, its tiles may be seen as one device.
    used = {device.pci_bus_id for device in truth.devices if not really[device.key].free}
    return not any(device.pci_bus_id in used for device in snapshot.devices if found[device.key].free)
