"""NVIDIA's devices through NVML, by the real nvidia-ml-py. The only file that imports pynvml.

It loads the library, reads the box as a whole, and handles a box without devices. One GPU: `gpu.py`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gputui.inventory.device import Among, Device, one_model
from gputui.inventory.light_dataclasses import field, frozen, replace
from gputui.inventory.process import Process
from gputui.inventory.snapshot import Host, Snapshot
from gputui.sources.source import Clock, NoHardwareError, NoSourceError, Want
from gputui.system.root import HERE, Root
from gputui.vendors.nvidia.gpu import SPEED, Gpu, bare, text_of, words_of
from gputui.vendors.nvidia.patience import LITTLE_PATIENCE, PATIENCE, Part, Reader, Turn
from gputui.vendors.nvidia.refusals import Refusals

if TYPE_CHECKING:
    from gputui.inventory.topology import Locality, Topology
    from gputui.system.processes import HostUse, Owner, ProcessTable
    from gputui.vendors.nvidia.wiring import Wiring

# nvmlReturn_t, nvml.h. Written out so that the remedies below can be looked up without the binding.
NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, MISMATCH = 4, 9, 12, 18

_FUNCTIONS = "/sys/bus/pci/devices"
_VENDOR_ID, _DISPLAY = "0x10de", "0x03"
"""Attributes of PCI functions in /sys: NVIDIA's vendor id, and the class of VGA and 3D
controllers (pci_ids.h)."""

REMEDIES: dict[int, str] = {
    LIBRARY_NOT_FOUND: (
        "no NVIDIA driver: libnvidia-ml.so.1 is not found; install the driver, or start the container"
        " with --gpus all; `gputui --demo` works anywhere"
    ),
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded; try `sudo modprobe nvidia`, or see `dmesg`",
    MISMATCH: (
        "the NVIDIA library and the loaded driver are of different versions; reboot, or reload the driver,"
        " to finish its update"
    ),
    NO_PERMISSION: (
        "no permission to talk to the NVIDIA driver; check the permissions of /dev/nvidiactl and /dev/nvidia*"
    ),
}


class NvmlSource:
    """NVML on this machine.

    `processes` looks up owners; `clock` returns seconds since the epoch, `ticks` seconds of a monotonic
    clock; `root` has the kernel's files. A GPU of which no call returns for `patience` seconds (None: the
    defaults of patience.py) is left out until its call returns. `confined`: whether this process can open
    only some of the devices.
    """

    def __init__(
        self,
        processes: ProcessTable | None = None,
        clock: Clock = time.time,
        root: Root = HERE,
        ticks: Clock = time.monotonic,
        patience: float | None = None,
        confined: bool = False,
    ) -> None:
        self.label = ""
        self._processes = processes
        self._clock, self._root, self._ticks = clock, root, ticks
        self._nvml: Any = None
        self._host = Host()
        self._gpus: list[Gpu] = []
        self._refused: list[Gpu] = []
        """GPUs that the driver counts but gputui may not open: they are left out."""
        self._wired = _NOTHING
        self._waits = Refusals(ticks)
        """Until when NVML is not started again, and an incomplete wiring is not read again."""
        self._patience, self._confined = patience, confined
        self._reader: Reader | None = None
        self._hanging: dict[int, tuple[Gpu, Turn[Gpu]]] = {}
        """The GPUs with a hanging call, by index, and the turns of their threads. A stand-in is listed."""
        self._hanging_wiring: Turn[Wiring] | None = None
        """The same for links; no links are read meanwhile."""
        self._order: tuple[str, ...] | None = None
        self._looked_at: frozenset[str] = frozenset()
        self._uses: Mapping[int, HostUse] = {}
        self._owned: dict[str, tuple[tuple[Process, ...], list[Owner]]] = {}
        """The processes of devices by key, with their owners, and these owners."""

    def open(self) -> None:
        """Load the library and start NVML. Raise NoSourceError."""
        if self._nvml is not None:
            return
        try:
            self._start()
        except NoSourceError as error:
            if _shows_no_card(self._root):
                raise NoHardwareError(*error.args) from None
            raise

    def _start(self) -> None:
        nvml = _binding()
        started = False
        try:
            nvml.nvmlInit()
            started = True
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            if started:
                _shut_down(nvml)
            words = f"NVML cannot be initialized: {words_of(error)}"
            raise NoSourceError(REMEDIES.get(error.value, words)) from None
        self._nvml = nvml
        self._count(count)

    def _count(self, count: int) -> None:
        """Expect this many GPUs. Each GPU requests its handle again and checks whether it is
        still the same device."""
        # Where some GPUs are refused, their places in our list differ from the driver's.
        gpus = [] if self._refused else self._gpus[:count]
        for gpu in self._gpus[len(gpus) :]:
            gpu.close()
        gpus += [
            Gpu(self._nvml, Device(index=index, uuid=""), self._clock, self._ticks)
            for index in range(len(gpus), count)
        ]
        for gpu in gpus:
            gpu.renew(self._nvml)
        self._gpus, self._refused, self._order = gpus, [], None

    def read(self, want: Want = Want.ALL, among: Among = None) -> Snapshot:
        self._start_over_if_nothing_works()
        self.open()
        if Want.MODES in want:
            self._count_again()
        missing = Want.MODES in want and None in (self._host.driver, self._host.cuda)
        if Want.NAMES in want and (missing or self._host == Host()):
            self._host = self._read_host()
        facts = want & ~(Want.WIRING | Want.SPEED | Want.ORDER | Want.NODES)
        detailed, among = (among, None) if Want.DETAILS in want else (None, among)
        self._take_back()
        due = [gpu for gpu in self._gpus if facts or gpu.handle is None]
        self._for_each(due, lambda gpu: gpu.refresh(want, detailed))
        self._leave_out_refused()
        if want & (Want.LOAD | Want.VERDICT):
            self._read_kernel()
        if want & (Want.SPEED | Want.ORDER):
            self._read_speeds(None if Want.ORDER in want else among)
        if Want.ORDER in want:
            self._read_order()
        if Want.NODES in want:
            self._for_each(list(self._gpus), lambda gpu: gpu.read_nodes())
        wiring = want & Want.WIRING
        keys = self._keys
        if wiring or (self._wired.parts and (keys != self._wired.keys or self._wiring_is_due())):
            # Instances have come or gone, or something could not be read: read the wiring again.
            self._read_wiring(wiring or self._wired.want, keys, among)
        for gpu in self._gpus:
            gpu.keep_processes(self._processes.lives if self._processes else lambda pid: False)
        if self._wired.parts and self._keys != self._wired.keys:
            # A GPU was lost while its links were read, and its instances with it.
            self._read_wiring(self._wired.want, self._keys, among)
        if Want.OWNERS in want or self._processes is not None:
            self._find_owners(want)
        devices = tuple(device for gpu in self._gpus for device in gpu.devices)
        if Want.DETAILS in want or self._looked_at:
            devices = self._with_activity(devices, want, detailed)
        return Snapshot(self._host, self._clock(), devices, **self._wired.parts)

    @property
    def _keys(self) -> tuple[str, ...]:
        return tuple(device.key for gpu in self._gpus for device in gpu.devices)

    def _read_kernel(self) -> None:
        """Complete the facts of a Jetson's GPU, whose load and processes NVML does not report."""
        for gpu in self._gpus:
            device = gpu.device
            if device.unified and not device.fault and (device.utilization is None or gpu.never_lists):
                from gputui.vendors.nvidia.tegra import read_nvmap, read_tegra

                if device.utilization is None:
                    load, clock = read_tegra(self._root)
                    gpu.have(utilization=load, sm_clock=device.sm_clock or clock)
                if gpu.never_lists:
                    buffers, processes = read_nvmap(self._root)
                    gpu.have_processes(processes)
                    if device.telemetry is not None:
                        gpu.have(telemetry=replace(device.telemetry, buffers=buffers))

    def _leave_out_refused(self) -> None:
        """In a confined process, leave out the GPUs that NVML counts and refuses (nvml.h,
        nvmlDeviceGetCount_v2).

        No program that gputui starts sees them, and CUDA numbers only the others.
        """
        left = [gpu for gpu in self._gpus if not gpu.refused]
        if self._confined and left and len(left) < len(self._gpus) and not self._hanging:
            for place, gpu in enumerate(left):
                gpu.have(index=place)
            self._refused = [gpu for gpu in self._gpus if gpu.refused]
            self._gpus = left

    def _for_each(self, gpus: list[Gpu], read: Callable[[Gpu], None]) -> None:
        """Call `read` with each of them, and put a stand-in in the place of a GPU that does not answer."""
        patience = self._longest
        while gpus:
            turn = self._begun(gpus, read)
            place = turn.wait(patience)
            if place is None:
                return
            self._end_reader()
            gpu, gpus = gpus[place], gpus[place + 1 :]
            at = self._gpus.index(gpu)
            self._hanging[at] = gpu, turn
            self._gpus[at] = gpu.stand_in()
            patience = min(patience, LITTLE_PATIENCE)

    @property
    def _longest(self) -> float:
        return PATIENCE if self._patience is None else self._patience

    def _begun(self, parts: Sequence[Part], read: Callable[[Part], None]) -> Turn[Part]:
        if self._reader is None:
            self._reader = Reader()
        return self._reader.begin(parts, read)

    def _end_reader(self) -> None:
        if self._reader is not None:
            self._reader.end()
            self._reader = None

    def _take_back(self) -> None:
        """Put back the GPUs whose hanging call has returned."""
        for at, (gpu, turn) in list(self._hanging.items()):
            if turn.over:
                del self._hanging[at]
                self._gpus[at] = gpu
        if self._hanging_wiring is not None and self._hanging_wiring.over:
            # All of the wiring is read again.
            self._hanging_wiring = None
            self._waits.answered(_WIRING)

    def _start_over_if_nothing_works(self) -> None:
        """Restart NVML where no GPU could be read: the driver may have been reloaded and has lost our
        session.

        Known facts of the GPUs are kept; a failed start is retried in the next readings.
        """
        if self._nvml is None or not self._gpus or self._is_inside:
            # Never while a thread is inside NVML.
            return
        if not all(gpu.device.fault for gpu in self._gpus):
            self._waits.answered(_START)
        elif self._waits.due(_START):
            self._waits.refused(_START, *_START_AGAIN)
            for gpu in self._gpus:
                gpu.close()
            nvml, self._nvml = self._nvml, None
            _shut_down(nvml)

    @property
    def _is_inside(self) -> bool:
        """Whether a call hangs in an abandoned thread."""
        return bool(self._hanging) or self._hanging_wiring is not None

    def _count_again(self) -> None:
        """Count the GPUs again: they come and go on virtual machines, with hot plug, and with the driver."""
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError:
            # Keep the count, then; each GPU reports its own error.
            return
        for gpu in self._refused:
            gpu.refresh(Want(0))
        allowed = not all(gpu.refused for gpu in self._refused)
        if (allowed or count != len(self._gpus) + len(self._refused)) and not self._is_inside:
            self._count(count)

    def _wiring_is_due(self) -> bool:
        """Return whether a GPU whose links could not be read is back, or a refused answer is
        due for a retry."""
        if self._hanging_wiring is not None:
            return False
        wired = self._wired
        faults = {gpu.device.key for gpu in self._gpus if gpu.device.fault}
        back = not wired.unread <= faults and self._ticks() - wired.at >= _WIRE_AGAIN[0]
        if not back and not (wired.missed and self._waits.due(_WIRING)):
            return False
        self._waits.refused(_WIRING, *_WIRE_AGAIN)
        return True

    def close(self) -> None:
        """Stop NVML. Never while another thread is inside it: that crashes (nvitop #222)."""
        if self._nvml is None:
            return
        self._end_reader()
        self._take_back()
        hanging = self._is_inside
        self._hanging, self._hanging_wiring = {}, None
        for gpu in self._gpus:
            gpu.close()
        nvml, self._nvml = self._nvml, None
        self._gpus, self._refused, self._wired = [], [], _NOTHING
        self._waits.forget()
        self._looked_at, self._uses, self._owned = frozenset(), {}, {}
        if not hanging:
            _shut_down(nvml)

    def _read_host(self) -> Host:
        def ask(function: Callable[[], Any]) -> Any:
            try:
                return bare(function)()
            except self._nvml.NVMLError:
                return None

        driver = ask(self._nvml.nvmlSystemGetDriverVersion)
        cuda = ask(self._nvml.nvmlSystemGetCudaDriverVersion_v2)
        return Host(
            name=os.uname().nodename,
            driver=None if driver is None else text_of(driver),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        )

    def _find_owners(self, want: Want) -> None:
        """Name the owners of all devices' processes: looked up if they are wanted, else the last known
        owners.

        The GPUs keep the named processes, so that there are not two lists of thousands of processes.
        """
        table = self._process_table()
        every = want & (Want.PROCESSES | Want.VERDICT) or Want.CHANGED_PROCESSES not in want
        owned: dict[str, tuple[tuple[Process, ...], list[Owner]]] = {}
        for reader in (each for gpu in self._gpus for each in gpu.readers):
            device = reader.device
            if not device.processes:
                continue
            listed = reader.listed or Want.VERDICT in want
            # In a list that has just been read, a pid may belong to a new process.
            look = table.still if listed else table.last
            if Want.OWNERS in want and (every or listed):
                look = table.owner
            owners = [look(process.pid) for process in device.processes]
            named, before = self._owned.get(device.key, (None, None))
            if named is not device.processes or before != owners:
                named = tuple(owner.named(p) for owner, p in zip(owners, device.processes, strict=True))
                reader.device = replace(device, processes=named)
            owned[device.key] = named, owners
        self._owned = owned
        if Want.OWNERS in want:
            table.forget_all_but({process.pid for named, _ in owned.values() for process in named})

    def _with_activity(self, devices: tuple[Device, ...], want: Want, among: Among) -> tuple[Device, ...]:
        """Return the devices with their processes' activity on the device and the host, where somebody looks.

        Without a new look, the activity is that of the last look.
        """
        from gputui.sources.process_owners import host_uses, with_uses

        if Want.DETAILS in want:
            of_processes = Want.TABLE not in want
            self._looked_at = frozenset(
                d.key for d in devices if of_processes and (among is None or d.key in among)
            )
            self._uses = host_uses(devices, self._looked_at, self._process_table())
        activities = {gpu.device.key: gpu.activity for gpu in self._gpus}
        return with_uses(devices, self._looked_at, self._uses, activities)

    def _process_table(self) -> ProcessTable:
        if self._processes is None:
            # Imported here: `pick` asks for owners only to explain why there are not enough devices.
            from gputui.system.processes import ProcessTable

            self._processes = ProcessTable()
        return self._processes

    def _read_speeds(self, among: Among) -> None:
        """Read what ranks the GPUs by speed; GPUs of one model need no more than their names."""

        def wanted() -> list[Gpu]:
            return [gpu for gpu in self._gpus if among is None or gpu.device.key in among]

        self._for_each(wanted(), lambda gpu: gpu.read_model())
        if not one_model(gpu.device for gpu in wanted()):
            self._for_each(wanted(), lambda gpu: gpu.read_once(*SPEED))

    def _read_order(self) -> None:
        """Read how CUDA numbers GPUs of several models. That does not change, so CUDA is asked once."""
        if one_model(gpu.device for gpu in self._gpus):
            return
        # Imported here: few boxes have several models, and subprocess alone takes milliseconds to import.
        from gputui.vendors.nvidia import device_order
        from gputui.vendors.registry import vendor_of

        if self._order is None:
            self._order = device_order.driver_order()
        vendor = vendor_of(gpu.device for gpu in self._gpus)
        there = {vendor.bare_uuid(gpu.device.uuid): gpu for gpu in self._gpus}
        left_out = [gpu for uuid, gpu in there.items() if uuid not in self._order]
        if set(self._order) <= set(there) and all(gpu.handle is None for gpu in left_out):
            # CUDA leaves out a lost GPU. Any other difference, under MPS or with MIG instances, means that
            # CUDA's numbers are not those of our list.
            for ordinal, uuid in enumerate(self._order):
                there[uuid].have(ordinal=ordinal)

    def _read_wiring(self, want: Want, keys: tuple[str, ...], among: Among) -> None:
        # Imported here: the first snapshot comes without links.
        from gputui.vendors.nvidia.wiring import Wiring

        # A row for each device; only whole GPUs have answers.
        rows = [gpu if place == 0 else None for gpu in self._gpus for place, _ in enumerate(gpu.devices)]
        asked = [gpu if gpu and (among is None or gpu.device.key in among) else None for gpu in rows]
        wiring, found = Wiring(self._nvml, asked), list[_Wired]()

        def read(wiring: Wiring) -> None:
            found.append(self._wiring_of(wiring, want, keys, rows))

        if self._hanging_wiring is None:
            turn = self._begun([wiring], read)
            if turn.wait(self._longest) is not None:
                self._end_reader()
                wiring.leave()
                self._hanging_wiring = turn
        if self._hanging_wiring is None:
            self._wired = found[0]
        elif self._wired.keys == keys and self._wired.parts:
            # The previous wiring is still true.
            self._wired = replace(self._wired, want=want, missed=True)
        else:
            nothing = dict.fromkeys(("links", "pcie", "peers"), wiring.unknown())
            self._wired = _Wired(want, keys, nothing, missed=True, at=self._ticks())
        if self._wired.missed and self._waits.due(_WIRING):
            self._waits.refused(_WIRING, *_WIRE_AGAIN)

    def _wiring_of(self, wiring: Wiring, want: Want, keys: tuple[str, ...], rows: list[Gpu | None]) -> _Wired:
        before = sum(gpu.missed for gpu in self._gpus)
        whole = Want.TOPOLOGY in want
        links = wiring.links()
        parts = {
            "links": links,
            "peers": wiring.peers(links, every=whole),
            "topology": self._topology(wiring, rows) if whole else None,
            "pcie": wiring.pcie(),
        }
        # A lost device has no links in the answer; they are read when it is back.
        unread = frozenset(gpu.device.key for gpu in self._gpus if gpu.device.fault)
        missed = sum(gpu.missed for gpu in self._gpus) > before
        return _Wired(want, keys, parts, missed, unread, self._ticks())

    def _topology(self, wiring: Wiring, rows: list[Gpu | None]) -> Topology:
        # Imported here: most calls need no topology.
        from gputui.system.rdma import topology

        near: list[Locality] = []
        for place, gpu in enumerate(rows):
            # A MIG instance is near what its GPU is near; the GPU precedes it.
            near.append(wiring.locality(place) if gpu else near[-1])
        return topology(self._root, near, [gpu.device.pci_bus_id if gpu else None for gpu in rows])


@frozen
class _Wired:
    """The wiring as of the last reading, and the keys of its devices.

    parts   matrices and topology by their fields of `Snapshot`
    missed  whether an answer was refused
    unread  the devices that could not be read
    at      the time of the reading (`ticks`)
    """

    want: Want
    keys: tuple[str, ...] = ()
    parts: Mapping[str, Any] = field(default_factory=dict)
    missed: bool = False
    unread: frozenset[str] = frozenset()
    at: float = 0.0


_START, _WIRING = "start", "wiring"
_START_AGAIN, _WIRE_AGAIN = (2.0, 300.0), (15.0, 600.0)
"""Seconds between two starts of NVML, and between two readings of an incomplete wiring (1.3 s on 8 B200): the
first wait and the longest."""


_NOTHING = _Wired(Want(0))


def _shut_down(nvml: Any) -> None:
    """Shut NVML down. An error is harmless here: all calls have been answered."""
    with contextlib.suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


def _shows_no_card(root: Root) -> bool:
    """Return whether the kernel lists PCI devices, but no display controller of NVIDIA's."""

    def is_card(function: str) -> bool:
        vendor, kind = (root.text(f"{_FUNCTIONS}/{function}/{name}") or "" for name in ("vendor", "class"))
        return vendor == _VENDOR_ID and kind.startswith(_DISPLAY)

    functions = root.names(_FUNCTIONS)
    return bool(functions) and not any(map(is_card, functions))


def _binding() -> Any:
    """Return nvidia-ml-py's module. Raise NoSourceError when it is missing or another package
    has its name."""
    try:
        import pynvml
    except ImportError:
        raise NoSourceError("the package nvidia-ml-py is missing; `pip install nvidia-ml-py`") from None
    # The old PyPI package "pynvml" is a directory of that name and hides the real module (gpustat #107).
    if hasattr(pynvml, "__path__") or not hasattr(pynvml, "nvmlMemory_v2"):
        raise NoSourceError(
            f"the module pynvml at {pynvml.__file__} is not NVIDIA's; `pip uninstall pynvml` and"
            " `pip install --force-reinstall nvidia-ml-py`"
        )
    return pynvml
