"""Whether another task fits on a device that others share, by the memory that each is given. Pure."""

from __future__ import annotations


def tasks_that_fit(need: int, free_then: int | None, free_now: int | None, tasks: int) -> int:
    """The number of further tasks with `need` bytes each that fit on a device that runs `tasks` of them.

    `free_then` are the bytes that were free before the first task, `free_now` the bytes that are free now. A
    task that has just started has not taken its memory yet, so `free_now` alone is too large; tasks may also
    use more than stated, so `need` alone is not reliable either. The smaller number counts. 0 where
    memory cannot be read.
    """
    if need <= 0 or free_then is None or free_now is None:
        return 0
    return max(0, min(free_then - tasks * need, free_now) // need)
