"""Try entrances for a long time: `python -m fuzz [ENTRANCE …] [--minutes M] [--seed S]`, in the folder
tests/.

`--bounds` measures the most time and memory that each reader of a command's files takes (bounds.py). A
failure is printed with the smallest example that was found and the way to repeat it. The exit status is 1 if
anything failed.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback

from fuzz import bounds, trying
from fuzz.entrances import ENTRANCES

_EXAMPLES = 200
"""Examples of one entrance, before the next has its turn."""


def main() -> int:
    made = argparse.ArgumentParser(prog="python -m fuzz")
    made.add_argument("entrances", nargs="*", choices=[*ENTRANCES, []], default=[], metavar="ENTRANCE")
    made.add_argument("--minutes", type=float, default=10.0)
    made.add_argument("--seed", type=int, default=None)
    made.add_argument("--bounds", action="store_true")
    args = made.parse_args()
    if args.bounds:
        return int(bounds.table() > 0)
    seeds = random.Random(args.seed)
    end = time.monotonic() + 60 * args.minutes
    left, tried = list(args.entrances or ENTRANCES), 0
    failed: list[str] = []
    while left and time.monotonic() < end:
        for name in list(left):
            if time.monotonic() > end:
                break
            seed = seeds.getrandbits(32)
            try:
                trying.some(ENTRANCES[name], _EXAMPLES, seed)
                tried += _EXAMPLES
            except Exception:  # noqa: BLE001 - whatever an entrance lets through
                failed.append(name)
                left.remove(name)
                print(f"--- {name} (--seed {seed})")
                traceback.print_exc()
    print(f"{tried} examples; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
