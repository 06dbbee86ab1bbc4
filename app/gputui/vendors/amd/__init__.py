"""AMD's GPUs, out of what the kernel's drivers tell: amdkfd and amdgpu."""
