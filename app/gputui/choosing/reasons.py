"""Explains in words why a set of devices was selected, and what the other sets lack. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from gputui.choosing.grouping import Grouping
from gputui.choosing.links import numa_nodes
from gputui.choosing.pair_scores import PairScores
from gputui.choosing.sets import RankedSet, comparison_key
from gputui.inventory.formatting import gpus
from gputui.inventory.link import PCIE_WORDS, direct_links, family, joined_groups, strength

_UNKNOWN_LINKS = "links unknown"


def reason(pairs: PairScores, found: RankedSet, grouping: Grouping, named: bool = False) -> str:
    """The set in words: its kind, its weakest link, and the links that it leaves to others.

    `named`: the user has named the devices individually, so they are not compared with others.
    """
    # Devices that are joined by direct links (NVLink, XGMI), by their places.
    islands = joined_groups(range(len(pairs)), lambda i, j: direct_links(pairs.link(i, j)) > 0)
    whole = [island for island in islands if len(island) > 1]
    what, where = _what(pairs, found, whole, named), _where(pairs, found.members)
    alike = what == (_same_link(pairs, found.members) or None)
    if alike and where.startswith("NUMA node "):
        count = len(found.members)
        what, where = f"{'both' if count == 2 else f'all {count}'} on {where}", what
    elif "NUMA" in what:
        where = ""
    parts = [", ".join(filter(None, (what, where)))]
    if not named:
        parts.append(_unlike(pairs, found.members))
        parts += ["no display attached"] if _avoids_display(pairs, found.members) else []
    if grouping.independent:
        parts.append("independent processes")
    elif found.weakest is not None and what != _UNKNOWN_LINKS and not alike:
        parts.append(_weakest(pairs, found, grouping))
    parts.append(_left(found.members, whole))
    return "; ".join(filter(None, parts))


def why_behind(pairs: PairScores, grouping: Grouping, first: RankedSet, found: RankedSet) -> str:
    """Why a set is ranked behind the first one: the first part of the comparison in which the sets differ."""
    parts = (
        *("weaker link", "includes a MIG instance", "weaker links in total", "more NUMA nodes"),
        *("less memory on its smallest device", "slower", "leaves weaker links to others"),
        *("display attached", "less free memory"),
    )
    keys = [(each.weakest or 0, *comparison_key(pairs, grouping, each.members)) for each in (first, found)]
    difference = next((part for part, a, b in zip(parts, *keys, strict=True) if a != b), "")
    return f"ranked lower: {difference}" if difference else "equal to the first, but with higher indices"


def _what(pairs: PairScores, found: RankedSet, whole: Sequence[Sequence[int]], named: bool) -> str:
    members = found.members
    if len(members) == 1:
        return "" if named else _single(pairs, members[0], whole)
    if len(members) == len(pairs) and not named:
        return f"all {len(members)} available" if len(members) > 2 else "the only two available"
    pieces = [island for island in whole if set(island) <= set(members)]
    if all(len(piece) == 2 for piece in pieces) and 2 * len(pieces) == len(members):
        if len(pieces) == 1:
            return f"{_family(pairs)} pair"
        both = "both" if len(pieces) == 2 == len(whole) else str(len(pieces))
        return f"{both} {_family(pairs)} pairs"
    words = [pairs.link(i, j) for j, i in combinations(members, 2)]
    worst = min(words, key=strength)
    if same := _same_link(pairs, members):
        return same
    if all(map(direct_links, words)):
        return f"{'all ' if len(members) > 2 else ''}connected by {family(worst or '')}"
    if worst is None:
        return _UNKNOWN_LINKS
    # The weakest link is told after this; devices on different sockets have nothing else in common.
    return PCIE_WORDS[worst] if worst != "SYS" else ""


def _single(pairs: PairScores, device: int, whole: Sequence[Sequence[int]]) -> str:
    if len(pairs) == 1:
        return "the only one available"
    if pairs.unlike:
        return _single_of_unlike(pairs, device)
    if whole and not any(device in island for island in whole):
        return f"no {_family(pairs)} to any other available device"
    least = min(pairs.degree)
    if pairs.degree[device] == least < max(pairs.degree):
        return _leaves(pairs, device)
    if len(set(pairs.degree)) > 1:
        return ""
    if len({*zip(pairs.free_gib, pairs.display, strict=True)}) == 1:
        return f"all {len(pairs)} available are alike in links and memory"
    return "most free memory" if pairs.free_gib[device] == max(pairs.free_gib) else ""


def _leaves(pairs: PairScores, device: int) -> str:
    """How the others are linked better than the device whose links are the weakest."""
    others = [i for i in range(len(pairs)) if i != device]
    own = max((pairs.link(device, i) for i in others), key=strength)
    best = max((pairs.link(i, j) for j, i in combinations(others, 2)), key=strength, default=None)
    if best is not None and strength(own) < strength(best):
        return f"{own or 'no known link'} at most to the others, of which some have {best}"
    counts = [pairs.numa.count(node) for node in pairs.numa]
    most = max(counts)
    nodes = numa_nodes([pairs.devices[i] for i in others if counts[i] == most])
    if counts[device] < most and len(nodes) == 1:
        kept = [pairs.devices[i] for i in others if counts[i] == most]
        named = (
            f"the {most}" if any(each.parent for each in kept) else gpus([str(each.index) for each in kept])
        )
        return f"keeps {named.removeprefix('GPUs ')} on NUMA node {nodes[0]} together"
    return "leaves those with more or nearer links to others"


def _same_link(pairs: PairScores, members: Sequence[int]) -> str:
    """ "NV18 between them"; "" where not all direct links are the same or usable."""
    words = {pairs.link(i, j) for j, i in combinations(members, 2)}
    (word, *others) = words or {None}
    usable = not pairs.lacks_peer_access(members, pairs.weakest(members) or 0)
    if others or not direct_links(word) or not usable:
        return ""
    return f"{word} between them"


def _single_of_unlike(pairs: PairScores, device: int) -> str:
    """How one device stands out among several models, by memory and speed; "" where it does not stand out."""
    others = [i for i in range(len(pairs)) if pairs.memory_tier[i] == pairs.memory_tier[device]]
    if pairs.memory_tier[device] < max(pairs.memory_tier) or any(
        pairs.slowness_weight[i] < pairs.slowness_weight[device] for i in others
    ):
        return ""
    if all(pairs.slowness_weight[i] == pairs.slowness_weight[device] for i in others):
        return "most free memory"
    return "fastest" if len(others) == len(pairs) else "fastest of those with the most free memory"


def _unlike(pairs: PairScores, members: Sequence[int]) -> str:
    """That the members are of several models, and whether they could be of one."""
    models = pairs.slowness_weight
    if len({models[i] for i in members}) < 2:
        return ""
    count = len(members)
    return (
        "of several models"
        if max(map(models.count, models)) >= count
        else f"no {count} of one model available"
    )


def _avoids_display(pairs: PairScores, members: Sequence[int]) -> bool:
    """Whether a display is attached to a device, and to none of the members."""
    return any(pairs.display) and not any(pairs.display[i] for i in members)


def _family(pairs: PairScores) -> str:
    """The name of the box's direct links; of the weakest kind where there are several kinds."""
    words = (
        word
        for pair in combinations(range(len(pairs)), 2)
        if (word := pairs.link(*pair)) and direct_links(word)
    )
    return family(min(words, key=strength, default="NV1"))


def _where(pairs: PairScores, members: Sequence[int]) -> str:
    nodes = numa_nodes([pairs.devices[i] for i in members])
    if nodes:
        return f"NUMA node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
    # Without the nodes' numbers, the number of nodes would be a guess.
    alike = pairs.numa_count(members) == 1 and len(members) > 1
    return "one NUMA node" if alike and len(set(pairs.numa)) > 1 else ""


def _weakest(pairs: PairScores, found: RankedSet, grouping: Grouping) -> str:
    word = pairs.link_of_rank(found.members, found.weakest)
    where = ""
    if grouping.tensor > 1:
        where = f" within groups of {grouping.tensor}"
    elif grouping.pipeline > 1:
        where = " between stages"
    elif len(found.members) > 3 and word != pairs.link_of_rank(found.members, pairs.weakest(found.members)):
        where = " in the ring"
    denied = found.weakest is not None and pairs.lacks_peer_access(found.members, found.weakest)
    access = ", no peer access" if denied else ""
    return f"weakest link{where and where + ':'} {word or 'unknown'}{access}"


def _left(members: Sequence[int], whole: Sequence[Sequence[int]]) -> str:
    rest = [island for island in whole if not set(island) & set(members)]
    if not rest:
        return ""
    if len(rest) == 1:
        if len(rest[0]) == 2:
            broken = any(len(island) == 2 and set(island) & set(members) for island in whole)
            other = "the other pair" if broken else "the pair"
            return f"leaves {other} intact"
        return f"leaves a connected group of {len(rest[0])} intact"
    if all(len(island) == 2 for island in rest):
        return f"leaves {len(rest)} pairs intact"
    return f"leaves {len(rest)} connected groups intact"
