"""The bandwidths that `check --bandwidth` and the screen have measured on this machine, kept for plans.

One file in the state folder holds GB/s by the keys of the two devices, the newest last. An unreadable file
counts as no measurement: a plan then models the links, and says so.
"""

from __future__ import annotations

import json
from pathlib import Path

from gputui.choosing.bandwidth import Rates
from gputui.inventory.formatting import MIB
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.typed_json import DocumentError, Record, loads
from gputui.system.environment import Environ
from gputui.system.files import NoHomeError, private_folder, read_own, state_folder, write_private

_MOST_PAIRS = 16384
"""The most pairs that are kept: three times those of 72 devices, in both directions."""

_LARGEST = 4 * MIB
"""The most bytes of the file."""


@frozen
class Pair:
    """The bandwidth from one device to another; None, in an answer of `check`, where it is not known."""

    source: str
    target: str
    gb_per_s: float | None


@frozen
class Kept:
    """All bandwidths that are kept, or were measured."""

    pairs: tuple[Pair, ...]

    @property
    def rates(self) -> Rates:
        """The known GB/s by (source, target)."""
        return {(each.source, each.target): each.gb_per_s for each in self.pairs if each.gb_per_s is not None}


PAIRS, MEASURED = Record(Kept), Record(Kept, "copies=pairs")


def kept_bandwidths(environ: Environ) -> Rates:
    """The bandwidths that were measured on this machine, the newest last."""
    try:
        return PAIRS.read(loads(read_own(_file(environ), _LARGEST + 1))).rates
    except (OSError, NoHomeError, DocumentError):
        return {}


def keep(environ: Environ, measured: Rates) -> str | None:
    """Keep these bandwidths, and replace older ones of the same pairs. Returns the error, None on success."""
    if not measured:
        return None
    try:
        before = kept_bandwidths(environ)
        pairs = {**{pair: rate for pair, rate in before.items() if pair not in measured}, **measured}
        rows = tuple(Pair(*ends, rate) for ends, rate in [*pairs.items()][-_MOST_PAIRS:])
        file = _file(environ)
        private_folder(file.parent)
        write_private(file, json.dumps(PAIRS.write(Kept(rows))))
    except (OSError, NoHomeError) as error:
        return f"the measured bandwidths are not kept for `gputui plan`: {error}"
    return None


def _file(environ: Environ) -> Path:
    return state_folder(environ) / "bandwidths.json"
