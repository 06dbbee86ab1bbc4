"""The matrix of links as text, in the form of `nvidia-smi topo -m`: written from a snapshot, and read from
what people have posted.

Written with tabs, as nvidia-smi does. Read with tabs or spaces, with or without affinities, with old words
(SOC), with network devices by name or number, with a prompt, a legend or remarks around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gputui.inventory.device import Device
from gputui.inventory.link import SELF, LinkMatrix, is_link
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Place, from_ranges, ranges

NOT_KNOWN = "N/A"
TAIL: tuple[str, ...] = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")

LEGEND = """\
Legend:

  X    = the device itself
  SYS  = PCIe and the link between CPU sockets (NUMA nodes)
  NODE = PCIe and the way between host bridges of one NUMA node
  PHB  = PCIe and one host bridge, that is, through the CPU
  PXB  = several PCIe switches, not through the CPU
  PIX  = one PCIe switch at most
  NVn  = n NVLinks together, directly or through NVSwitches
"""

PEER_LEGEND = """\
Legend:

  X    = the device itself
  OK   = reads the other's memory itself
  CNS  = the chipset does not support it
  GNS  = the GPU does not support it
  TNS  = the topology does not support it
  DR   = switched off in the driver's settings
  NS   = not supported
  U    = not known
"""

MOST_BYTES = 1 << 20
MOST_COLUMNS = 256

_SELF_CELL = f" {SELF} "
_GPU = re.compile(r"GPU(\d+)", re.IGNORECASE)
_TAIL = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID", re.IGNORECASE)
_STYLING = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_REMARK = re.compile(r"<--.*|\s#.*")
_NIC_NAME = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*$", re.IGNORECASE)
_OLD_WORDS = {"SOC": "SYS", "QPI": "SYS"}
_NO_WORDS = (NOT_KNOWN, "ERR", "ERR!", "-", "?")


class MatrixError(ValueError):
    """The text has no matrix, or one that contradicts itself. The message is one line."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A matrix as it was printed. `nic_links`: a row for each GPU and then each NIC, a column for each NIC.

    A cell that says nothing is None; of `places` only what the text has is known.
    """

    gpus: tuple[str, ...]
    links: LinkMatrix
    places: tuple[Place, ...]
    nics: tuple[str, ...] = ()
    nic_links: LinkMatrix = ()


def write(snapshot: Snapshot) -> str:
    """The matrix of the snapshot's GPUs and network devices, with its legend.

    MIG instances have no links and no row, as in nvidia-smi. Where a link is not known, the cell is N/A.
    """
    gpus = _whole(snapshot)
    topology = snapshot.topology
    nics = topology.nics if topology else ()
    names = [f"GPU{device.index}" for device in gpus]
    columns = [*names, *(f"NIC{n}" for n in range(len(nics)))]
    lines = ["\t".join(["", *columns, *TAIL])]
    for device, name in zip(gpus, names, strict=True):
        row = snapshot.position[device.key]
        cells = [snapshot.link(device, other) for other in gpus]
        cells += topology.nic_links[row] if topology and nics else ()
        place = topology.places[row] if topology else Place()
        lines.append("\t".join([name, *map(_cell, cells), *_tail(place)]))
    for number in range(len(nics)):
        assert topology is not None
        row = len(snapshot.devices) + number
        cells = [topology.nic_links[snapshot.position[device.key]][number] for device in gpus]
        lines.append("\t".join([f"NIC{number}", *map(_cell, [*cells, *topology.nic_links[row]])]))
    names_of_nics = "".join(f"  NIC{number}: {nic.name}\n" for number, nic in enumerate(nics))
    named = f"\nNIC Legend:\n\n{names_of_nics}" if nics else ""
    return "\n".join(lines) + f"\n\n{LEGEND}{named}"


def write_peers(snapshot: Snapshot) -> str:
    """Peer access of every pair of GPUs (reads), in the form of `nvidia-smi topo -p2p r`."""
    gpus = _whole(snapshot)
    names = [f"GPU{device.index}" for device in gpus]
    lines = ["\t".join(["", *names])]
    for device, name in zip(gpus, names, strict=True):
        words = [SELF if o is device else snapshot.peer(device, o) or "U" for o in gpus]
        lines.append("\t".join([name, *words]))
    return "\n".join(lines) + f"\n\n{PEER_LEGEND}"


def _whole(snapshot: Snapshot) -> list[Device]:
    return [device for device in snapshot.devices if device.parent is None]


def _cell(word: str | None) -> str:
    return _SELF_CELL if word == SELF else word or NOT_KNOWN


def _tail(place: Place) -> list[str]:
    nodes = NOT_KNOWN if place.memory_nodes is None else ranges(place.memory_nodes)
    own = NOT_KNOWN if place.own_node is None else str(place.own_node)
    # Two tabs: "NUMA Affinity" is wider than one stop, and readers of nvidia-smi expect them.
    return [ranges(place.cpus or ()), nodes, "", own]


def read(text: str) -> Printed:
    """The matrix in a text. Raises MatrixError."""
    if len(text) > MOST_BYTES:
        raise MatrixError(f"{len(text)} characters are too many for a matrix")
    lines = [_STYLING.sub("", line).expandtabs(8) for line in text.splitlines()]
    for place, line in enumerate(lines):
        header = _Header.of(line)
        if header:
            return _Reader(header).read(lines[place + 1 :])
    raise MatrixError("there is no line of GPU0, GPU1, … in it, as `nvidia-smi topo -m` prints")


def looks_like_one(text: str) -> bool:
    """Whether there is a matrix's heading in the text."""
    return any(_Header.of(_STYLING.sub("", line).expandtabs(8)) for line in text.splitlines())


@dataclass(frozen=True, slots=True)
class _Header:
    """The columns: the devices' names, and where each of the last ones begins."""

    names: tuple[str, ...]
    tail: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, line: str) -> _Header | None:
        tail = list(_TAIL.finditer(line))
        names = line[: tail[0].start()].split() if tail else line.split()
        if not names or not _GPU.fullmatch(names[0]) or (len(names) > 1 and _word(names[1]) is not None):
            return None
        if len(names) == 1 and not tail:
            return None
        if len(names) > MOST_COLUMNS:
            raise MatrixError(f"{len(names)} columns; at most {MOST_COLUMNS} are read")
        if len(set(names)) < len(names):
            raise MatrixError("a column is there twice")
        columns = (("".join(match[0].upper().split()), match.start()) for match in tail)
        return cls(tuple(names), tuple(columns))


class _Reader:
    """Reads the rows below a header."""

    def __init__(self, header: _Header) -> None:
        self._header = header
        self._cells: dict[tuple[str, str], str] = {}
        self._places: dict[str, Place] = {}
        self._nic_names: dict[str, str] = {}

    def read(self, lines: Iterable[str]) -> Printed:
        for line in lines:
            named = _NIC_NAME.match(line)
            if named:
                self._nic_names[named[1].upper()] = named[2]
            else:
                self._row(_REMARK.sub("", line))
        names = self._header.names
        missing = [name for name in names if name not in self._places]
        if len(missing) == len(names):
            raise MatrixError("there is no row below its heading")
        gpus = tuple(name for name in names if _GPU.fullmatch(name))
        nics = tuple(name for name in names if name not in gpus)
        return Printed(
            gpus=tuple(f"GPU{int(name[3:])}" for name in gpus),
            links=self._matrix(gpus, gpus),
            places=tuple(self._places.get(name, Place()) for name in gpus),
            nics=tuple(self._nic_names.get(name.upper(), name) for name in nics),
            nic_links=self._matrix((*gpus, *nics), nics) if nics else (),
        )

    def _row(self, line: str) -> None:
        names = self._header.names
        words = list(re.finditer(r"\S+", line))
        if len(words) < 2 or words[0][0] not in names or _word(words[1][0]) is None:
            return
        name, cells = words[0][0], [_word(match[0]) for match in words[1 : len(names) + 1]]
        if len(cells) < len(names) or None in cells:
            raise MatrixError(f"the row of {name} has not a link for each of the {len(names)} columns")
        if name in self._places:
            raise MatrixError(f"the row of {name} is there twice")
        if cells[names.index(name)] != SELF:
            raise MatrixError(f"the row of {name} has no X where it meets itself")
        for other, cell in zip(names, cells, strict=True):
            if (cell == SELF) != (other == name):
                raise MatrixError(f"{name} and {other} are joined by {cell}")
            self._cells[name, other] = cell or ""
        self._places[name] = self._place(words[len(names) + 1 :])

    def _place(self, words: Sequence[re.Match[str]]) -> Place:
        """What stands behind the links: in order where nothing is blank, else by what stands above it."""
        columns = self._header.tail
        found = {name: "" for name, _ in columns}
        if len(words) == len(columns):
            found = {name: match[0] for (name, _), match in zip(columns, words, strict=True)}
        else:
            for match in words:
                above = [name for name, start in columns if start <= match.start() + 2]
                if above:
                    found[above[-1]] = match[0]
        place = Place()
        if "CPUAFFINITY" in found:
            place = replace(place, cpus=_numbers(found["CPUAFFINITY"]))
        if "NUMAAFFINITY" in found:
            place = replace(place, memory_nodes=_numbers(found["NUMAAFFINITY"]))
        own = _numbers(found.get("GPUNUMAID", "")) or ()
        return replace(place, own_node=own[0]) if len(own) == 1 else place

    def _matrix(self, rows: Sequence[str], columns: Sequence[str]) -> LinkMatrix:
        return tuple(tuple(self._link(row, column) for column in columns) for row in rows)

    def _link(self, one: str, other: str) -> str | None:
        there, back = self._cells.get((one, other)), self._cells.get((other, one))
        if there and back and there != back:
            raise MatrixError(f"{one} and {other} are joined by {there} one way and {back} the other")
        word = there or back
        if one == other:
            return SELF
        return None if word in (None, NOT_KNOWN) else word


def _word(text: str) -> str | None:
    """A cell's word as we write it, N/A where it says nothing; None for what no cell has in it."""
    word = text.upper()
    word = _OLD_WORDS.get(word, word)
    if word in _NO_WORDS:
        return NOT_KNOWN
    return word if is_link(word) else None


def _numbers(text: str) -> tuple[int, ...] | None:
    if text.upper() == NOT_KNOWN:
        return None
    if not text:
        return ()
    try:
        return from_ranges(text)
    except ValueError:
        return None
