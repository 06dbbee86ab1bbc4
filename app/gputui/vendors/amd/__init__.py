"""AMD's GPUs, from what the kernel drivers amdkfd and amdgpu report."""
