"""What has changed, for the worse, between choosing devices and launching on them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gputui.choosing.selection import Selection
from gputui.choosing.verdict import Verdict
from gputui.inventory.snapshot import Snapshot


def changes(
    selection: Selection, chosen_as: Mapping[str, Verdict], now: Snapshot, verdicts: Mapping[str, Verdict]
) -> tuple[str, ...]:
    """A line for every chosen device that is not as good any more as when it was chosen.

    `chosen_as` has the verdict at the moment each device was chosen. A device that was taken knowingly
    (busy then, busy now by the same) is no news; one that has got free is good news.
    """
    news = []
    for rank, key in enumerate(selection):
        device, before = now.by_key.get(key), chosen_as.get(key)
        if device is None:
            news.append(f"cuda:{rank} = {key} is not there any more")
            continue
        after = verdicts[key]
        if after.free or (before and (before.state, _who(before)) == (after.state, _who(after))):
            continue
        was = f" (was {before.state})" if before else ""
        news.append(f"cuda:{rank} = GPU {now.label(device)} is {after.state}{was}: {after.reason}")
    return tuple(news)


def _who(verdict: Verdict) -> str:
    """The part of a reason that tells who it is, and not what is known of them or how much they take."""
    if verdict.state != "busy":
        return ""
    pid = re.search(r"\bpid [0-9]+", verdict.reason)
    return pid[0] if pid else verdict.reason.split(" % ")[-1]
