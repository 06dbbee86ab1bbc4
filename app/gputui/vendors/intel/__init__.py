"""Intel's GPUs, from what the kernel drivers xe and i915 report, and from xpu-smi where it is installed."""
