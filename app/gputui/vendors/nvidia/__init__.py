"""NVIDIA: NVML as the source, CUDA's variables."""
