"""Environment variables that the launch page, `--help` and the completion suggest, each with its effect.

None of them is set unless the user asks for it. Sources: the documentation of NCCL's and PyTorch's
environment variables, and the frameworks' own documentation on GPU memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gputui.inventory.device import Device
from gputui.inventory.light_dataclasses import frozen
from gputui.inventory.snapshot import Snapshot
from gputui.vendors.registry import vendor_of, vendors_here, vendors_of

THREADS = "OMP_NUM_THREADS"


@frozen
class EnvironmentHint:
    """A variable, the suggested value, and its effect."""

    name: str
    value: str
    about: str


_OF_NCCL: tuple[EnvironmentHint, ...] = (
    EnvironmentHint("NCCL_P2P_DISABLE", "1", "disable GPU-to-GPU copies: to locate a hang"),
    EnvironmentHint("NCCL_SHM_DISABLE", "1", "disable shared memory: if /dev/shm is small"),
    EnvironmentHint("NCCL_IB_DISABLE", "1", "disable InfiniBand: to locate a hang"),
    EnvironmentHint("NCCL_DEBUG", "INFO", "NCCL logs its rings and links"),
)
"""For collectives over NCCL, and over AMD's RCCL, which reads the same variables."""

_OF_COLLECTIVES = EnvironmentHint("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "check that the ranks agree; slow")

_OF_FRAMEWORKS: tuple[EnvironmentHint, ...] = (
    EnvironmentHint("TF_FORCE_GPU_ALLOW_GROWTH", "true", "TensorFlow allocates memory as needed"),
    EnvironmentHint("XLA_PYTHON_CLIENT_PREALLOCATE", "false", "JAX allocates memory as needed"),
    EnvironmentHint("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5", "JAX allocates this fraction, not 0.75"),
    EnvironmentHint("TOKENIZERS_PARALLELISM", "false", "avoid tokenizer deadlocks after a fork"),
    EnvironmentHint("PYTHONUNBUFFERED", "1", "print without buffering"),
)


def hints(snapshot: Snapshot | None, devices: Sequence[Device]) -> tuple[EnvironmentHint, ...]:
    """Return the suggestions for a launch on these devices, with the threads where the CPUs are known."""
    near = threads_near(snapshot, devices) if snapshot is not None else None
    share = "its share of the nearby CPUs (torchrun: 1)"
    threads = () if near is None else (EnvironmentHint(THREADS, str(near), share),)
    vendor = vendor_of(devices, vendors_of(snapshot.devices) if snapshot is not None else vendors_here())
    of_nccl = _OF_NCCL if vendor.backend == "nccl" else ()
    vendors_own = (EnvironmentHint(*hint) for hint in vendor.environment_hints)
    return (*threads, *of_nccl, _OF_COLLECTIVES, *vendors_own, *_OF_FRAMEWORKS)


def threads_near(snapshot: Snapshot, devices: Sequence[Device]) -> int | None:
    """Return each process's share of the CPUs near its device, with one process per device; None: not known.

    A CPU that is near several GPUs of the box is divided among all of them, as the other GPUs will have
    processes too. The share of a GPU is divided among its chosen instances. CPUs are logical, as the driver
    counts them.
    """
    topology = snapshot.topology
    if topology is None or not devices:
        return None
    near = {
        device.key: place.cpus
        for device, place in zip(snapshot.devices, topology.localities, strict=True)
        if place.cpus and device.parent is None
    }
    sharing = Counter(cpu for cpus in near.values() for cpu in cpus)
    gpus = Counter(device.parent or device.key for device in devices)
    shares = []
    for gpu, processes in gpus.items():
        if gpu not in near:
            return None
        # The small summand corrects rounding: halves and thirds do not add up to whole numbers exactly.
        shares.append(int(sum(1 / sharing[cpu] for cpu in near[gpu]) / processes + 1e-6))
    return max(1, min(shares))
