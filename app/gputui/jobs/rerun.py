"""Rerun a job: the launch request that its record keeps, without secrets, is read again."""

from __future__ import annotations

import os.path
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from gputui.allocating.device_request import DeviceRequest
from gputui.choosing.named_devices import NONE
from gputui.inventory.job import Job
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.typed_json import DocumentError, Record
from gputui.launching.history import working_directory
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.secrets import is_secret, without_secrets
from gputui.requesting.launch_request import LaunchRequest, sparse

if TYPE_CHECKING:
    from gputui.inventory.typed_json import WordList, Words


@frozen
class _Kept:
    """A launch request for a record; `where`, the working directory to which its paths are relative; and the
    names of the variables that are left out because their values look like secrets."""

    request: LaunchRequest
    where: Words | None = None
    withheld: WordList = ()


_KEPT = Record(_Kept)
_KEPT_OF_DEVICES = (
    *("vendor", "min_free", "max_util", "group", "order", "never", "prefer", "mine", "ignore_user"),
    *("busy_memory", "busy_util", "window", "wait", "demo"),
)


class Rerun(NamedTuple):
    """The launch request that reruns a job from the current working directory.

    lost      the parts of the command that look like secrets and were not kept: a mark replaces each
    withheld  the variables that look like secrets and were left out
    problem   why the original launch request cannot be read, and `request` is the command as it ran; else ""
    """

    request: LaunchRequest
    lost: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    problem: str = ""

    def lacks(self, variables: Collection[str]) -> str | None:
        """The reason that the job cannot be rerun: its launch request is unreadable, or the named secrets
        must be typed again. None where `variables` are enough."""
        missing = [name for name in self.withheld if name not in variables]
        how = []
        if self.lost:
            how.append(f"type the command again with {', '.join(self.lost)}")
        if missing:
            how.append(f"set {', '.join(missing)}")
        return self.problem or (f"secrets are not saved; {' and '.join(how)}" if how else None)


def as_kept(request: LaunchRequest) -> object:
    """The launch request of a job, for its record.

    It keeps all variables except secrets. Of the device request it keeps the options that say which devices
    are suitable: a rerun runs on the best of these that are free then. A job of a demo stays one.
    """
    options, asked = request.options, request.devices
    withheld = tuple(name for name, value in options.additions if is_secret(name, value))
    additions = tuple(pair for pair in options.additions if pair[0] not in withheld)
    options = replace(options, command=without_secrets(options.command)[0], additions=additions)
    devices = DeviceRequest(**{name: getattr(asked, name) for name in _KEPT_OF_DEVICES})
    kept = _Kept(LaunchRequest(options, devices, near=request.near), working_directory(), withheld)
    return sparse(_KEPT.write(kept))


def runs_experiment(job: Job) -> bool:
    """Whether a job is gputui itself, which runs an experiment; see `experiment_of` in jobs/queued.py."""
    return isinstance(job.launch, dict) and "experiment" in job.launch


def rerun_of(job: Job) -> Rerun:
    """The rerun of a job from the current working directory. A record without a launch request, as that of an
    experiment, yields the command as it ran."""
    number = len(job.devices) if job.waits is None else job.waits
    devices = DeviceRequest(count=number) if number else DeviceRequest(names=NONE)
    kept, problem = None, ""
    try:
        kept = None if job.launch is None or runs_experiment(job) else _KEPT.read(job.launch)
    except DocumentError as error:
        problem = f"the launch request of job {job.id} cannot be read ({error}); type its command again"
    if kept is None:
        options = LaunchOptions(job.argv, directory=_in_launch(job.directory))
        return Rerun(LaunchRequest(options, devices), job.withheld, problem=problem)
    options, directory = kept.request.options, kept.request.options.directory
    if kept.where is not None:
        directory = os.path.normpath(os.path.join(kept.where, directory or "."))  # noqa: PTH118
    options = replace(options, directory=_in_launch(directory))
    request = replace(kept.request, options=options, devices=replace(kept.request.devices, count=number))
    if not number:
        request = LaunchRequest(options, devices)
    return Rerun(request, job.withheld, kept.withheld)


def demo_of(job: Job) -> str | None:
    """The demo box that a job was started on; None for this machine."""
    return rerun_of(job).request.devices.demo


def _in_launch(directory: str | None) -> str | None:
    """A directory as a launch option: None for the current working directory."""
    return None if directory == working_directory() else directory
