"""Packages that call themselves tensorflow and jax, for answers that need a GPU.

They answer as the real ones do (tensorflow 2.21, jax 0.10.2 with and without its CUDA plugin, on a machine
without a GPU; with one, as documented). They prove how gputui handles such answers, and nothing about CUDA.
FAKE_FRAMEWORK is JSON: {"devices": [name, …], "built": false for a CPU build, "import": an error}.
"""

from __future__ import annotations

from pathlib import Path

_BEGINNING = """
import json, os
_told = json.loads(os.environ["FAKE_FRAMEWORK"])
if _told.get("import"):
    raise ImportError(_told["import"])
__version__ = _told.get("version", "2.21.0")
"""

TENSORFLOW = (
    _BEGINNING
    + """
class _Device:
    def __init__(self, place, name):
        self.name, self.device_type, self._name = f"/physical_device:GPU:{place}", "GPU", name


class config:
    @staticmethod
    def list_physical_devices(kind):
        return [_Device(place, name) for place, name in enumerate(_told["devices"])] if kind == "GPU" else []

    class experimental:
        @staticmethod
        def get_device_details(device):
            return {"device_name": device._name, "compute_capability": (9, 0)}


class sysconfig:
    @staticmethod
    def get_build_info():
        if not _told.get("built", True):
            return {"is_cuda_build": False, "is_rocm_build": False, "is_tensorrt_build": False}
        return {"is_cuda_build": True, "is_rocm_build": False, "cuda_version": "12.5.1"}
"""
)

JAX = (
    _BEGINNING
    + """
# It would open the devices with three quarters of their memory.
assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


class _Device:
    def __init__(self, place, name):
        self.id = self.local_hardware_id = place
        self.platform, self.device_kind, self.process_index = "gpu", name, 0


def local_devices(backend=None):
    if not _told["devices"]:
        raise RuntimeError("Unknown backend: 'gpu' requested, but none is present")
    return [_Device(place, name) for place, name in enumerate(_told["devices"])]
"""
)


def install(folder: Path) -> Path:
    """Write both packages to a folder for PYTHONPATH, and jax's plugin to `plugin` next to that folder."""
    home = folder / "fake"
    for name, text in (("tensorflow", TENSORFLOW), ("jax", JAX)):
        (home / name).mkdir(parents=True)
        (home / name / "__init__.py").write_text(text)
    plugin = folder / "plugin" / "jax_plugins" / "xla_cuda12"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").touch()
    return home
