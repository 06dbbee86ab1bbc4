"""The request: how many devices or which devices, their constraints, and how long the caller waits."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gputui.allocating.errors import RequestError
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.named_devices import NONE
from gputui.choosing.order import Order
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.light_dataclasses import frozen
from gputui.sources.source import Want
from gputui.system.environment import Environ


class CommandList(NamedTuple):
    """The names of a request are a list in its command, which counts devices as its program does.

    words    the place in the command: "--gpu_ids 2,0"
    environ  the environment of the program that reads the list
    """

    words: str
    environ: Environ


@frozen
class Request:
    """One request for devices.

    vendor     the name of the vendor of the devices, None for any single vendor
    count      how many of the best devices; None where `names` gives them exactly
    names      devices as `--gpus` names them, in order; with a `count`, the devices to pick from
    command_list  set where `names` come from the command, and not from `--gpus`
    group      how the devices work together; `count` must be a multiple of its unit
    order      the order of the devices; None: the best order with a count, the order of the names without one
    min_free   bytes that must be free on each device
    max_util   the largest utilization of each device, in percent
    rules      the rules for verdicts
    wait       seconds to wait in line for the devices, `math.inf` without limit, None for no wait
    force      take named devices even if others use or have claimed them (`answer_to`), and any such devices
               if too few are free; and take devices that others wait for, or that cannot be claimed
    if_free    take named devices only if they are free and nobody waits for one of them
    explain    read the links even if they decide nothing, because the caller shows the reason
    ranked     whether the devices may be for several processes, which NCCL connects
    by_index   only the indices of the devices are needed, so their UUIDs need not be read
    facts      the facts about the devices that the caller needs
    purpose    the text about the command that every user may read in claims and in the queue
    job        the id of the requesting job, None outside a job
    time_limit the seconds that the command may run, None for no limit; every user may read it
    client     the name of the requesting agent, None for a person or a script; every user may read it
    """

    count: int | None = None
    names: str | None = None
    command_list: CommandList | None = None
    group: Grouping = ALL_REDUCE
    order: Order | None = None
    min_free: int | None = None
    max_util: int | None = None
    rules: Rules = DEFAULT_RULES
    wait: float | None = None
    force: bool = False
    if_free: bool = False
    explain: bool = False
    ranked: bool = True
    by_index: bool = False
    facts: Want = Want.VERDICT
    purpose: str = ""
    job: str | None = None
    time_limit: float | None = None
    client: str | None = None
    vendor: str | None = None

    def __post_init__(self) -> None:
        """Raise RequestError for a count that the group does not divide."""
        if self.count is not None and not self.group.fits(self.count):
            raise RequestError(self.group.misfit(self.count))

    @property
    def picks(self) -> bool:
        """Whether we choose the devices."""
        return self.count is not None

    @property
    def insists(self) -> bool:
        """Whether the devices are named, and taken even if they are not free."""
        return not self.picks and not self.if_free

    @property
    def cpu_only(self) -> bool:
        """Whether no device is requested, on purpose."""
        return self.count is None and self.names is not None and self.names.strip() == NONE

    @property
    def size(self) -> int:
        """The number of requested devices; 0 for CPU only."""
        if self.count is not None:
            return self.count
        return 0 if self.names is None or self.cpu_only else len((self.names or "").split(","))


def count_of(number: int | None, names: str | None, group: Grouping) -> int | None:
    """The `Request.count` for a `number` of devices, or for devices with `names`; for neither, the unit of
    the group."""
    return None if number is None and names is not None else number or group.unit


NoticeKind = Literal["warning", "note", "reason"]


class Notice(NamedTuple):
    """A sentence that the caller receives in addition to the result, and its kind.

    warning  the launch goes on, but may not do what the user meant
    note     an event on the way: a device that was free a moment ago no longer is
    reason   why these devices were chosen
    """

    text: str
    kind: NoticeKind = "warning"
