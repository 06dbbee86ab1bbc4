"""What is asked for: how many devices or which ones, what restricts them, and how long the caller waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from gputui.allocating.errors import RequestError
from gputui.choosing.grouping import ALL_REDUCE, Grouping
from gputui.choosing.named_devices import NONE
from gputui.choosing.order import Order
from gputui.choosing.rules import DEFAULT_RULES, Rules
from gputui.inventory.light_dataclasses import dataclass
from gputui.sources.source import Want


class CommandList(NamedTuple):
    """That the names of a request are a list in its command, which counts devices as its program does.

    words    where the command has it: "--gpu_ids 2,0"
    environ  what the program inherits that reads it
    """

    words: str
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """One request for devices.

    vendor     whose devices: the name of a vendor, None for any one's
    count      how many of the best; None where `names` says exactly which
    names      devices as `--gpus` names them, in order; with a `count`, the devices to pick from
    command_list  says that `names` stand in the command, and not in `--gpus`
    group      what the devices do together; `count` must be a multiple of its unit
    order      of the devices; None: the best with a count, as named without one
    min_free   bytes that must be free on each device; max_util: percent of utilization at most
    rules      what counts as free
    wait       seconds to wait in line for the devices, `math.inf` for ever, None not at all
    force      take named devices also where others use or have claimed them (`answer_to`), and where too few
               are free any such; and any where others wait for them, or where they cannot be claimed
    if_free    devices that are named are taken only if they are free and nobody waits for one of them
    explain    read the links also where they decide nothing, because the caller shows the reason
    by_index   nothing but the indices of the devices is needed, so that their UUIDs need not be read
    facts      what the caller has to know of the devices
    purpose    what every user may read of the command in claims and in the queue
    job        the id of the job that asks, None outside a job
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
    by_index: bool = False
    facts: Want = Want.VERDICT
    purpose: str = ""
    job: str | None = None
    vendor: str | None = None

    def __post_init__(self) -> None:
        """Raises RequestError for a count that the group does not divide."""
        if self.count is not None and not self.group.fits(self.count):
            raise RequestError(f"{self.count} devices cannot be divided into groups of {self.group}")

    @property
    def picks(self) -> bool:
        """Whether it is left to us which devices."""
        return self.count is not None

    @property
    def insists(self) -> bool:
        """Whether the devices are named, and taken although they are not free."""
        return not self.picks and not self.if_free

    @property
    def cpu_only(self) -> bool:
        """Whether no device is asked for, on purpose."""
        return self.count is None and self.names is not None and self.names.strip() == NONE

    @property
    def size(self) -> int:
        """The number of devices that are asked for; 0 for CPU only."""
        if self.count is not None:
            return self.count
        return 0 if self.names is None or self.cpu_only else len((self.names or "").split(","))


def count_of(number: int | None, names: str | None, group: Grouping) -> int | None:
    """`Request.count` of who asks for a `number` of devices, or for those with these `names`, or for neither:
    then as many as the group needs."""
    return None if number is None and names is not None else number or group.unit


NoticeKind = Literal["warning", "note", "reason"]


class Notice(NamedTuple):
    """Something that the caller is told beside the answer: a sentence, and what kind of one.

    warning  the launch goes on, and may not do what was meant
    note     what happened on the way: a device that was free a moment ago is not any more
    reason   why these devices
    """

    text: str
    kind: NoticeKind = "warning"
