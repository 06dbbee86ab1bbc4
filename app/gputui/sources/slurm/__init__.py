"""Slurm, an existing scheduler: what its own programs tell of its nodes, their devices and one's jobs."""
