"""A span of time as text.

The supervisor of a job loads this file by its path (jobs/supervise.py), so it imports nothing of gputui.
"""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A span in at most two units: "40s", "12m", "2h10m", "3d4h"."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, hours, days = whole // 60 % 60, whole // 3600 % 24, whole // 86400
    if whole < 3600:
        return f"{minutes}m"
    if not days:
        return f"{hours}h{minutes:02}m" if minutes and hours < 10 else f"{hours}h"
    return f"{days}d{hours}h" if hours and days < 10 else f"{days}d"
