"""Whether another task fits beside those that share a device, by the memory that each is given. Pure."""

from __future__ import annotations


def tasks_that_fit(need: int, free_then: int | None, free_now: int | None, tasks: int) -> int:
    """How many more tasks with `need` bytes each fit on a device that runs `tasks` such ones.

    `free_then` are the bytes that were free before the first of them, `free_now` are those free now. A task
    that has just started has not taken its memory yet, so what is free now is not the whole answer; and
    tasks may use more than was said, so what was said is not either: the smaller number counts. 0 where
    memory cannot be read.
    """
    if need <= 0 or free_then is None or free_now is None:
        return 0
    return max(0, min(free_then - tasks * need, free_now) // need)
