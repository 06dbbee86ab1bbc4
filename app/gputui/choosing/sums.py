"""Sums over sets of devices, for thousands of sets: each is looked up in two halves. Pure.

A set is a number: bit i says whether device i is in it. For up to 16 devices: a table has 2^8 entries.
"""

from __future__ import annotations

from gputui.choosing.pairs import Pairs


class Sums:
    """What sets of the devices of `pairs` come to."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs
        self._half = (len(pairs) + 1) // 2
        self._low = (1 << self._half) - 1
        bits = {node: 1 << n for n, node in enumerate(sorted(set(pairs.node)))}
        ends = range(self._half), range(self._half, len(pairs))
        self._worth = [_pairs_inside(pairs, end) for end in ends]
        self._facts = [_facts(pairs, end, bits) for end in ends]
        # Between the halves: for each device of the high one, what its pairs with a low set are worth.
        self._across = [_row(pairs.worth[i][: self._half]) for i in ends[1]]

    def of(self, chosen: int) -> int:
        """What the pairs within a set are worth."""
        low, high = chosen & self._low, chosen >> self._half
        between = 0
        for place, row in enumerate(self._across):
            if high >> place & 1:
                between += row[low]
        return self._worth[0][low] + self._worth[1][high] + between

    def facts(self, chosen: int) -> tuple[int, int, int, int]:
        """The sum of its devices' degrees, its NUMA nodes, its whole GPUs, its free memory in GiB."""
        one = self._facts[0][chosen & self._low]
        other = self._facts[1][chosen >> self._half]
        nodes = bin(one[1] | other[1]).count("1")
        return one[0] + other[0], nodes, one[2] + other[2], one[3] + other[3]


def _pairs_inside(pairs: Pairs, end: range) -> list[int]:
    """For each set of one half: what its pairs are worth."""
    table = [0]
    for place, device in enumerate(end):
        row = _row([pairs.worth[device][other] for other in end[:place]])
        table += [before + more for before, more in zip(table, row, strict=True)]
    return table


def _row(worth: tuple[int, ...] | list[int]) -> list[int]:
    """For each set of some devices: what one device's pairs with them are worth."""
    table = [0]
    for value in worth:
        table += [before + value for before in table]
    return table


def _facts(pairs: Pairs, end: range, bits: dict[int, int]) -> list[tuple[int, int, int, int]]:
    """For each set of one half: degrees, NUMA nodes as bits, whole GPUs, memory."""
    table = [(0, 0, 0, 0)]
    for device in end:
        node, whole = bits[pairs.node[device]], pairs.devices[device].parent is None
        degree, memory = pairs.degree[device], pairs.memory[device]
        table += [(d + degree, n | node, w + whole, m + memory) for d, n, w, m in table]
    return table
