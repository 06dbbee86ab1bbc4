"""A job once more: the launch request that its record keeps, without secrets, read again for a rerun."""

from __future__ import annotations

import os.path
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from gputui.allocating.device_request import DeviceRequest
from gputui.choosing.named_devices import NONE
from gputui.inventory.job import Job
from gputui.inventory.light_dataclasses import dataclass, replace
from gputui.inventory.typed_json import DocumentError, Record
from gputui.launching.history import here
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.secrets import is_secret, without_secrets
from gputui.requesting.launch_request import LaunchRequest, sparse

if TYPE_CHECKING:
    from gputui.inventory.typed_json import Words


@dataclass(frozen=True, slots=True)
class _Kept:
    """A launch request for a record, `where` it was made (its words mean files there), and the names of the
    variables that are left out, as their values look like secrets."""

    request: LaunchRequest
    where: Words | None = None
    withheld: tuple[Words, ...] = ()


_KEPT = Record(_Kept)
_KEPT_OF_DEVICES = (
    *("vendor", "group", "order", "never", "prefer", "mine", "ignore_user", "busy_memory", "busy_util"),
    *("window", "wait"),
)


class Again(NamedTuple):
    """What starts a job once more, as from where we are.

    lost      what of the command was not kept, as it looks like a secret: a mark stands in its place
    withheld  the same of variables, which are left out
    problem   why what it was started from is not known, "" where it is: then it is the command as it ran
    """

    request: LaunchRequest
    lost: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    problem: str = ""

    def lacks(self, variables: Collection[str]) -> str | None:
        """That what it was started from is not known, or that secrets have to be typed again, which ones, and
        how; None where these variables are enough."""
        missing = [name for name in self.withheld if name not in variables]
        how = []
        if self.lost:
            how.append(f"type the command again with {', '.join(self.lost)}")
        if missing:
            how.append(f"set {', '.join(missing)}")
        return self.problem or (f"secrets are not saved: {' and '.join(how)}" if how else None)


def as_kept(request: LaunchRequest) -> object:
    """The launch request of a job for its record.

    All of its variables but secrets; of the devices what says which ones will do, as a rerun is on the best
    of them that are free then.
    """
    options, asked = request.options, request.devices
    withheld = tuple(name for name, value in options.additions if is_secret(name, value))
    additions = tuple(pair for pair in options.additions if pair[0] not in withheld)
    options = replace(options, command=without_secrets(options.command)[0], additions=additions)
    devices = DeviceRequest(**{name: getattr(asked, name) for name in _KEPT_OF_DEVICES})
    return sparse(_KEPT.write(_Kept(LaunchRequest(options, devices, near=request.near), here(), withheld)))


def again(job: Job) -> Again:
    """What starts a job once more from where we are. Without a launch request it is the command as it ran."""
    number = len(job.devices) if job.waits is None else job.waits
    devices = DeviceRequest(count=number) if number else DeviceRequest(names=NONE)
    kept, problem = None, ""
    try:
        kept = None if job.launch is None else _KEPT.read(job.launch)
    except DocumentError as error:
        problem = f"what job {job.id} was started from cannot be read ({error}): type its command again"
    if kept is None:
        options = LaunchOptions(job.argv, directory=_from_here(job.directory))
        return Again(LaunchRequest(options, devices), job.withheld, problem=problem)
    options, directory = kept.request.options, kept.request.options.directory
    if kept.where is not None:
        directory = os.path.normpath(os.path.join(kept.where, directory or "."))  # noqa: PTH118
    options = replace(options, directory=_from_here(directory))
    request = replace(kept.request, options=options, devices=replace(kept.request.devices, count=number))
    if not number:
        request = LaunchRequest(options, devices)
    return Again(request, job.withheld, kept.withheld)


def _from_here(directory: str | None) -> str | None:
    """A folder as a launch option: None for the one that we are in."""
    return None if directory == here() else directory
