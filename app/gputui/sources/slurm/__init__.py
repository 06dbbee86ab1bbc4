"""Slurm, an existing scheduler: its own programs' reports of its nodes, their devices and the user's jobs."""
