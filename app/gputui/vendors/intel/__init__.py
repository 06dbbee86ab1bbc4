"""Intel's GPUs, out of what the kernel's drivers xe and i915 tell, and xpu-smi where it is installed."""
