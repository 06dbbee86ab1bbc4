"""A simulated NVIDIA driver for the tests: a libnvidia-ml.so.1 that answers as a simulated box would.

The real binding, and every other program that reads NVML, runs on it unchanged. A test sets the answers of
the driver (`SimulatedNvml.show_box`), slows it down, breaks it, and counts the calls. By hand: `python -m
simnvml dgx-h100` in `tests/`, then run nvitop, gpustat or nvtop in another terminal.
"""

from simnvml.building import build
from simnvml.session import SHUTDOWN_WHILE_INSIDE, SimulatedNvml

__all__ = ["SHUTDOWN_WHILE_INSIDE", "SimulatedNvml", "build"]
