"""A package that calls itself torch and says it was built for CUDA, for answers that need a GPU.

It proves that our scripts can read such a torch, and how gputui handles the numbers; it proves nothing about
CUDA. FAKE_TORCH is JSON: {"version", "cuda", "devices": [{"uuid", "bus": [domain, bus, device] or null,
"name", "memory"}], "gb_per_s": {"0>1": 300.0, …}, "wrong": true where copies arrive damaged, "import": an
error, "hangs": true where a copy never ends}.
"""

from __future__ import annotations

from pathlib import Path

TEXT = """
import json, os, time

_told = json.loads(os.environ["FAKE_TORCH"])
if _told.get("import"):
    raise ImportError(_told["import"])
__version__ = _told.get("version", "2.8.0+cu128")
uint8 = "uint8"


class version:
    cuda, hip = _told.get("cuda", "12.8"), None


class Tensor:
    def __init__(self, data, device="cpu"):
        self.data, self.device = memoryview(data), device

    def __len__(self):
        return len(self.data)

    def __getitem__(self, part):
        return Tensor(self.data[part], self.device)

    def repeat(self, times):
        return Tensor(bytearray(bytes(self.data) * times))

    def to(self, device):
        return Tensor(bytearray(self.data), device)

    def cpu(self):
        return self

    def zero_(self):
        self.data[:] = bytes(len(self.data))

    def copy_(self, other, non_blocking):
        while _told.get("hangs"):
            time.sleep(1)
        self.data[:] = other.data
        if _told.get("wrong"):
            self.data[-1] ^= 1
        pair = f"{other.device[5:]}>{self.device[5:]}"
        cuda.passed += 1e-6 + len(self.data) / _told["gb_per_s"][pair] / 1e9


def arange(count, dtype):
    return Tensor(bytearray(range(count)))


def roll(tensor, by):
    return Tensor(bytearray(tensor.data[-by:]) + bytearray(tensor.data[:-by]) if by else tensor.data)


def zeros(count, dtype, device):
    return Tensor(bytearray(count), device)


def equal(one, other):
    return one.data == other.data


def set_num_threads(count):
    pass


class _Properties:
    def __init__(self, told):
        self.name, self.total_memory = told["name"], told["memory"]
        if told.get("uuid"):
            self.uuid = told["uuid"]
        if told.get("bus"):
            self.pci_domain_id, self.pci_bus_id, self.pci_device_id = told["bus"]


class _Event:
    def __init__(self, enable_timing):
        pass

    def record(self):
        self.at = cuda.passed

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.at - self.at) * 1000


class _Here:
    def __init__(self, device):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class cuda:
    passed = 0.0
    Event, device = _Event, _Here

    @staticmethod
    def is_available():
        return bool(_told["devices"])

    @staticmethod
    def init():
        if not _told["devices"]:
            raise RuntimeError("No CUDA GPUs are available")

    @staticmethod
    def device_count():
        return len(_told["devices"])

    @staticmethod
    def get_device_properties(place):
        return _Properties(_told["devices"][place])

    @staticmethod
    def can_device_access_peer(one, other):
        return True

    @staticmethod
    def synchronize(device):
        pass

    @staticmethod
    def set_device(device):
        pass
"""


def install(folder: Path) -> Path:
    """Write the package to a folder for PYTHONPATH; its torch.distributed says that there is no NCCL."""
    package = folder / "fake" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TEXT)
    (package / "distributed.py").write_text(
        "def init_process_group(*words, **more):\n    raise RuntimeError('no NCCL in a fake torch')\n"
    )
    return package.parent
