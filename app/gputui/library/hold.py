"""`pick()` and `hold()`: the best free devices, in order; `hold` also claims them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import subprocess

    # Importing `hold` is cheap: its dependencies are imported when it is called.
    from gputui.allocating.allocation import Allocation
    from gputui.allocating.allocator import Approve
    from gputui.allocating.device_request import DeviceRequest
    from gputui.allocating.request import Request
    from gputui.choosing.order import Order
    from gputui.inventory.device import Device
    from gputui.inventory.typed_json import Json
    from gputui.library.request import File, Names, Quiet
    from gputui.vendors.visibility import Confine


class Picked(Sequence["Device"]):
    """Devices in order: a program that is started with `env` sees the n-th device as its n-th."""

    def __init__(self, allocation: Allocation) -> None:
        self._allocation = allocation

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices as they were when they were chosen."""
        return self._allocation.devices

    @property
    def labels(self) -> tuple[str, ...]:
        """The numbers that users see: "3", "0:1"."""
        return self._allocation.labels

    @property
    def reason(self) -> str | None:
        """Why these devices were chosen, as a phrase; None where there was no choice."""
        return self._allocation.reason

    @property
    def weakest_link(self) -> str | None:
        """The weakest link between them ("NV18"); None where it is not known or did not affect the choice."""
        return self._allocation.weakest_link

    @property
    def ids(self) -> str:
        """The devices by index, in the form of the vendor's variable: "5,4"."""
        return self._allocation.visibility.identifiers(self.devices)

    @property
    def uuids(self) -> tuple[str, ...]:
        """Their UUIDs; "" for a device without its own UUID."""
        return tuple(device.name_by_uuid for device in self.devices)

    @property
    def variables(self) -> dict[str, str | None]:
        """The variables that make exactly these devices visible, in this order; None: must be unset.

        gputui sets none of them in this process. Raises RequestError where there is no such variable (Apple).
        """
        return dict(self._allocation.changes(os.environ))

    @property
    def env(self) -> dict[str, str]:
        """A copy of `os.environ` with these variables: `subprocess.run(…, env=picked.env)`."""
        from gputui.vendors.visibility import with_changes

        return with_changes(os.environ, self.variables.items())

    def document(self) -> Json:
        """Return the document of `gputui pick --json` as JSON-ready values."""
        return self._allocation.document("index")

    def __len__(self) -> int:
        return len(self.devices)

    @overload
    def __getitem__(self, place: int) -> Device: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Device, ...]: ...

    def __getitem__(self, place: int | slice) -> Device | tuple[Device, ...]:
        return self.devices[place]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} GPU {','.join(self.labels) or 'none'}>"


class Held(Picked):
    """Devices that this process has claimed.

    Other gputui users cannot claim them until the `with` block or this process ends, for whatever reason.
    """

    def __init__(self, allocation: Allocation, confine: Confine = "never") -> None:
        super().__init__(allocation)
        self._confine = confine

    def popen(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, **how: Any
    ) -> subprocess.Popen[Any]:
        """Start a command on these devices with `subprocess.Popen`, which gets the arguments `how`.

        The command's environment is `env` (None: `os.environ`) with the variables of these devices. The
        command keeps the claim as long as it runs, also after the block. A confined command (see `hold`) can
        open these devices only, whatever it sets, and numbers them from 0; this process is not confined. The
        first start after a boot may take two seconds, for the proof that the confinement works.

        Raises RequestError where the command must be confined and cannot be, StartError where the kernel
        refuses to confine it, and the errors of Popen.
        """
        import subprocess

        from gputui.inventory.job import Trouble
        from gputui.launching.confine import confined
        from gputui.launching.intent import Intent
        from gputui.launching.launch import Launch
        from gputui.launching.start import cannot_start
        from gputui.system.landlock import LandlockError, started

        base = os.environ if env is None else env
        words = tuple(map(os.fspath, command))

        def made(devices: Sequence[Device], _said: Intent) -> Launch:
            changes = self._allocation._replace(devices=tuple(devices)).changes(base)
            return Launch(words, tuple(changes), devices=tuple(devices))

        snapshot = self._allocation.snapshot
        launch = confined(self.devices, made, Intent(), snapshot, base, self._confine).started
        how["pass_fds"] = (*how.get("pass_fds", ()), *self.pass_fds)

        def start() -> subprocess.Popen[Any]:
            return subprocess.Popen(launch.argv, env=launch.environment(base), **how)

        try:
            return started(launch.left_out, start)
        except LandlockError as error:
            raise cannot_start(Trouble("confinement", error.errno or 0), words[0], None) from None

    @property
    def claimed(self) -> bool:
        """Whether all are claimed: not on a demo box or a recording, nor where `force` ignored a claim."""
        lease = self._allocation.lease
        return lease is not None and {device.key for device in self.devices} <= set(lease.keys)

    @property
    def pass_fds(self) -> tuple[int, ...]:
        """Descriptors that keep the claim for a program that outlives this one:
        `subprocess.Popen(…, env=held.env, pass_fds=held.pass_fds)`."""
        lease = self._allocation.lease
        return () if lease is None else tuple(lease.passed_on)


def pick(
    n: int | None = None,
    *,
    devices: Names | None = None,
    min_free: int | str | None = None,
    max_util: int | None = None,
    group: str | None = None,
    order: Order | None = None,
    vendor: str | None = None,
    never: Names = (),
    wait: float | bool | None = None,
    window: float | None = None,
    force: bool = False,
    demo: str | None = None,
    recording: File | None = None,
) -> Picked:
    """Pick the best `n` free devices, in order, as `gputui pick` does, without claiming them: see `hold`.

    n         the number of devices; default: one, or as many as `group` needs
    devices   the devices to take, in this order, or with `n` the ones to pick from: indices, UUIDs, `Device`
              values
    min_free  memory that must be free on each: bytes, or "20G";  max_util: the highest utilization in percent
    group     how they work together: "tp=2,pp=2", "all" (default), "none"
    order     "best", "given", "fastest", "emptiest"
    vendor    only devices of this vendor
    never     devices that are not picked, instead of those of the settings
    wait      seconds to wait in the queue; True: without a timeout
    window    seconds for which devices must have been free during a wait (default of the settings: 10)
    force     take named devices even where other users use or have claimed them
    demo, recording   as in `read`

    Raises NotEnoughError, WaitedTooLongError, RequestError, NoSourceError, SettingsError. Warns by
    DeviceWarning.
    """
    from gputui.library.request import device_request, warn

    asked = device_request(n, devices, min_free, max_util, group, order, vendor, never, wait, force, window)
    allocation = allocated(_request(asked), demo, recording, holds=False)
    warn(allocation, 2)
    return Picked(allocation)


@contextmanager
def hold(
    n: int | None = None,
    *,
    devices: Names | None = None,
    min_free: int | str | None = None,
    max_util: int | None = None,
    group: str | None = None,
    order: Order | None = None,
    vendor: str | None = None,
    never: Names = (),
    wait: float | bool | None = None,
    window: float | None = None,
    force: bool = False,
    confine: Confine | None = None,
    demo: str | None = None,
    recording: File | None = None,
) -> Iterator[Held]:
    """Claim devices for a `with` block: `with hold(2) as held: held.popen(["python", "train.py"]).wait()`.

    The arguments are those of `pick`; with `force`, `hold` also takes devices for which others wait. The
    devices are chosen at the start of the block, read again after they are claimed, and released at its end.
    Two holds of one process, also in threads, never get the same device. A process made by `os.fork` has the
    claim too, until it ends.

    `confine`: whether a command of `held.popen` can open these devices only: "always", "auto" (where that is
    proved on this machine) or "never"; None: the value of the settings. This process itself is never
    confined, as a confinement cannot be removed.

    Raises and warns as `pick` does.
    """
    from gputui.library.request import device_request, warn

    asked = device_request(n, devices, min_free, max_util, group, order, vendor, never, wait, force, window)
    how = _confine(confine, demo is None and recording is None)
    allocation = allocated(_request(asked, nodes=how != "never"), demo, recording, holds=True)
    with held(allocation):
        warn(allocation, 3)
        yield Held(allocation, how)


def _confine(given: Confine | None, here: bool) -> Confine:
    from gputui.allocating.errors import RequestError
    from gputui.allocating.settings import settings
    from gputui.launching.launch_options import LaunchOptions
    from gputui.requesting.prepared_launch import how_confined
    from gputui.vendors.visibility import CONFINE

    if given not in (None, *CONFINE):
        raise RequestError(f"confine: {given!r} is not one of {', '.join(CONFINE)}")
    return how_confined(LaunchOptions(confine=given), settings(os.environ), here)


def _request(asked: DeviceRequest, nodes: bool = False) -> Request:
    from gputui.allocating.settings import settings
    from gputui.library.request import own_purpose
    from gputui.sources.source import Want

    facts = Want.VERDICT | (Want.NODES if nodes else Want(0))
    return asked.request(settings(os.environ).rules, purpose=own_purpose(), facts=facts)


def allocated(
    request: Request,
    demo: str | None,
    recording: File | None,
    holds: bool,
    approve: Approve | None = None,
    listener: Quiet | None = None,
) -> Allocation:
    """Allocate devices without messages; the allocation keeps its warnings."""
    from gputui.allocating.allocate import allocate
    from gputui.library.request import Quiet
    from gputui.library.source import opened

    listener = listener or Quiet()
    with opened(demo, recording, request.cpu_only) as source:
        return allocate(request, source, os.environ, listener, holds, approve, listener.sleep)


@contextmanager
def held(allocation: Allocation) -> Iterator[None]:
    """Show the leased devices as held by this process, and release them at the end."""
    from gputui.library.source import shown_as_held

    keys = () if allocation.lease is None else allocation.lease.keys
    with shown_as_held(keys, allocation.request.purpose):
        try:
            yield
        finally:
            allocation.release()
