"""Why these devices: a set in words, "an NVLink pair on NUMA 0; weakest link NV12; leaves the other pair
whole". Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.choosing.grouping import Grouping
from gputui.choosing.pairs import Pairs
from gputui.choosing.sets import Found, key_of
from gputui.inventory.link import connected_components, direct_links, strength

_PCIE_WORDS: dict[str, str] = {
    "PIX": "under one PCIe switch",
    "PXB": "under PCIe switches of one root",
    "PHB": "under one host bridge",
    "NODE": "on one socket",
}


def reason(pairs: Pairs, found: Found, job: Grouping, named: bool = False) -> str:
    """The set in words: what it is, its weakest link, and what it leaves to others.

    `named`: there was no choice, as the devices were asked for one by one.
    """
    whole = [island for island in islands(pairs) if len(island) > 1]
    what, where = _what(pairs, found, whole, named), _where(pairs, found.members)
    parts = [f"{what}{', ' if len(found.members) == 1 else ' '}{where}" if what and where else what or where]
    if job.independent:
        parts.append("processes that do not talk to each other")
    elif found.weakest is not None:
        parts.append(_weakest(pairs, found, job))
    parts.append(_left(found.members, whole))
    return "; ".join(filter(None, parts))


def behind(pairs: Pairs, job: Grouping, first: Found, found: Found) -> str:
    """Why a set stands behind the first one: what they are first told apart by."""
    told = ("a weaker link", "", "less in sum", "more NUMA nodes", "leaves less joined", "less free memory")
    keys = [(each.weakest or 0, *key_of(pairs, job, each.members)) for each in (first, found)]
    apart = next((word for word, a, b in zip(told, *keys, strict=True) if a != b), "")
    return f"behind the first: {apart}" if apart else "equal to the first, with higher numbers"


def islands(pairs: Pairs) -> tuple[tuple[int, ...], ...]:
    """The devices by who is joined by NVLinks, over others too; a device without any is alone."""
    home = connected_components(len(pairs), lambda i, j: direct_links(pairs.words[i][j]) > 0)
    return tuple(tuple(i for i, each in enumerate(home) if each == island) for island in sorted(set(home)))


def _what(pairs: Pairs, found: Found, whole: Sequence[tuple[int, ...]], named: bool) -> str:
    chosen = found.members
    if len(chosen) == 1:
        return "" if named else _single(pairs, chosen[0], whole)
    if len(chosen) == len(pairs) and not named:
        return f"all {len(chosen)} that can be had" if len(chosen) > 2 else "both that can be had"
    pieces = [island for island in whole if set(island) <= set(chosen)]
    if all(len(piece) == 2 for piece in pieces) and 2 * len(pieces) == len(chosen):
        if len(pieces) == 1:
            return f"an {_family(pairs)} pair"
        both = "both" if len(pieces) == 2 == len(whole) else str(len(pieces))
        return f"{both} {_family(pairs)} pairs"
    words = [pairs.words[i][j] for place, i in enumerate(chosen) for j in chosen[:place]]
    if all(map(direct_links, words)):
        return f"{'all ' if len(chosen) > 2 else ''}joined by {_family(pairs)}"
    worst = min(words, key=strength)
    if worst is None:
        return "links not known"
    return _PCIE_WORDS.get(worst, "")


def _single(pairs: Pairs, device: int, whole: Sequence[tuple[int, ...]]) -> str:
    if len(pairs) == 1:
        return "the only one that can be had"
    if whole and not any(device in island for island in whole):
        return f"no {_family(pairs)} to any other that can be had"
    least = min(pairs.degree)
    if pairs.degree[device] == least < max(pairs.degree):
        return "joined least to the others"
    if len(set(pairs.degree)) > 1:
        return ""
    return "as good as any other" if len(set(pairs.memory)) == 1 else "the most free memory"


def _family(pairs: Pairs) -> str:
    """What the direct links of the box are called."""
    words = (word or "" for row in pairs.words for word in row)
    return "XGMI" if any(word.startswith("XGMI") for word in words) else "NVLink"


def _where(pairs: Pairs, chosen: Sequence[int]) -> str:
    known = {pairs.devices[i].numa_node for i in chosen}
    nodes = pairs.nodes(chosen)
    if None not in known and len(known) == nodes:
        return f"on NUMA {', '.join(map(str, sorted(node for node in known if node is not None)))}"
    if len(set(pairs.node)) > 1:
        return "on one NUMA node" if nodes == 1 else f"on {nodes} NUMA nodes"
    return ""


def _weakest(pairs: Pairs, found: Found, job: Grouping) -> str:
    word = pairs.word_of(found.members, found.weakest)
    where = ""
    if job.tensor > 1:
        where = f" in the groups of {job.tensor}"
    elif job.pipeline > 1:
        where = " along the stages"
    elif len(found.members) > 3 and word != pairs.word_of(found.members, pairs.weakest(found.members)):
        where = " around the ring"
    denied = found.weakest is not None and pairs.denied(found.members, found.weakest)
    access = ", without peer access" if denied else ""
    return f"weakest link{where} {word or 'not known'}{access}"


def _left(chosen: Sequence[int], whole: Sequence[tuple[int, ...]]) -> str:
    rest = [island for island in whole if not set(island) & set(chosen)]
    if not rest:
        return ""
    if len(rest) == 1:
        if len(rest[0]) == 2:
            broken = any(len(island) == 2 and set(island) & set(chosen) for island in whole)
            other = "the other pair" if broken else "the pair"
            return f"leaves {other} whole"
        return f"leaves {len(rest[0])} that are joined whole"
    if all(len(island) == 2 for island in rest):
        return f"leaves {len(rest)} pairs whole"
    return f"leaves {len(rest)} groups that are joined whole"
