"""The demands of a call for devices, before the settings and the command are taken into account.

The command line parses it, and the library makes it from its arguments. Combined with the rules of the
settings, it becomes a `Request`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gputui.allocating.request import Request, count_of
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.order import Order
from gputui.choosing.rules import Rules
from gputui.inventory.light_dataclasses import frozen, replace

if TYPE_CHECKING:
    from gputui.inventory.typed_json import WordList, Words


@frozen
class DeviceRequest:
    """The demands of a call. A field is None or false where the call does not give it.

    count, names         `-n` and `--gpus`, as `Request` has them
    auto                 as many devices as the model needs, in place of a count
    group, order, vendor, min_free, max_util, wait, force, if_free, explain   as `Request` has them
    never, prefer, mine, ignore_user, busy_memory, busy_util, window   replace the settings' rules
    demo, recording, root   the source of the devices, where it is not this machine
    """

    if_free: bool = False
    count: int | None = None
    names: Words | None = None
    auto: bool = False
    vendor: Words | None = None
    group: Grouping | None = None
    order: Order | None = None
    min_free: int | None = None
    max_util: int | None = None
    never: WordList | None = None
    prefer: WordList | None = None
    mine: bool = False
    ignore_user: WordList = ()
    busy_memory: int | None = None
    busy_util: int | None = None
    window: float | None = None
    wait: float | None = None
    force: bool = False
    explain: bool = False
    demo: Words | None = None
    recording: Words | None = None
    root: Words | None = None

    def rules(self, rules: Rules) -> Rules:
        """Return the rules with the call's own values in place of theirs."""
        said = {
            "never": self.never,
            "prefer": self.prefer,
            "memory": self.busy_memory,
            "utilization": self.busy_util,
            "window": self.window,
        }
        changes: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        if self.mine:
            from gputui.system.users import own_name

            changes["mine"] = own_name()
        if self.ignore_user:
            changes["ignore"] = rules.ignore.union(self.ignore_user)
        return replace(rules, **changes) if changes else rules

    def request(self, rules: Rules, **more: Any) -> Request:
        """Return the request by the settings' `rules`; `more` are fields of it. Raises RequestError."""
        group = self.group or ALL_REDUCE
        return Request(
            count=count_of(self.count, self.names, group),
            names=self.names,
            group=group,
            order=self.order,
            min_free=self.min_free,
            max_util=self.max_util,
            rules=self.rules(rules),
            wait=self.wait,
            force=self.force,
            if_free=self.if_free,
            vendor=self.vendor,
            **{"explain": self.explain, **more},
        )

    @property
    def words(self) -> list[str]:
        """The equivalent options of `gputui run`."""
        defaults = DeviceRequest()
        given = {name: getattr(self, name) for name in _WORDS}
        said = {name: value for name, value in given.items() if value != getattr(defaults, name)}
        return [word for name, value in said.items() for word in _WORDS[name](value)]


def _size(amount: int) -> str:
    return f"{amount // 1024}K" if amount % 1024 == 0 else f"{amount / 1024!r}K"


_WORDS: Mapping[str, Callable[[Any], Sequence[str]]] = {
    "if_free": lambda _: ["--if-free"],
    "count": lambda count: ["-n", str(count)],
    "names": lambda names: ["--gpus", names],
    "auto": lambda _: ["-n", "auto"],
    "vendor": lambda name: ["--vendor", name],
    "min_free": lambda amount: [f"--min-free={_size(amount)}"],
    "max_util": lambda percent: [f"--max-util={percent}"],
    "group": lambda group: ["--group", group.word],
    "order": lambda order: ["--order", order],
    "never": lambda devices: [f"--never={','.join(devices)}"],
    "prefer": lambda devices: [f"--prefer={','.join(devices)}"],
    "mine": lambda _: ["--mine"],
    "ignore_user": lambda users: [f"--ignore-user={user}" for user in users],
    "busy_memory": lambda amount: [f"--busy-memory={_size(amount)}"],
    "busy_util": lambda percent: [f"--busy-util={percent}"],
    "window": lambda seconds: [f"--window={seconds:.15g}"],
    "wait": lambda seconds: ["--wait" if seconds == math.inf else f"--wait={seconds:.15g}"],
    "force": lambda _: ["--force"],
    "explain": lambda _: ["--why"],
    "demo": lambda box: [f"--demo={box}"],
    "recording": lambda file: [f"--from={file}"],
    "root": lambda folder: [f"--root={folder}"],
}
"""The words of each field, in the order of writing."""
