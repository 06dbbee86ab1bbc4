"""The matrix of links as `nvidia-smi topo -m` prints it: written from a snapshot, parsed from posted texts.

It is written with tabs, as by nvidia-smi. The parser accepts tabs or spaces, a matrix with or without
affinities, old words (SOC), network devices by name or number, and a prompt, a legend or remarks around it.
In a box of several vendors, each of which counts from 0, a GPU is called "amd:0", as in `gputui ls`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gputui.inventory.formatting import printable
from gputui.inventory.light_dataclasses import frozen, replace
from gputui.inventory.link import SELF, LinkMatrix, direct_links, family, is_link
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality, from_ranges, ranges

NOT_KNOWN = "N/A"
TAIL: tuple[str, ...] = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")

LEGEND = """\
Legend:

  X    = the device itself
  SYS  = PCIe and the link between CPU sockets (NUMA nodes)
  NODE = PCIe and the link between host bridges of one NUMA node
  PHB  = PCIe and one host bridge, that is, through the CPU
  PXB  = several PCIe switches, not through the CPU
  PIX  = one PCIe switch at most
  NVn  = n NVLinks together, directly or through NVSwitches
"""
"""Like nvidia-smi's own legend, which also explains words that the matrix does not have."""

_NVLINK_ROW = LEGEND.splitlines(keepends=True)[-1]
_LEGEND_ROWS = {
    "XGMI": "  XGMI = AMD's links, directly or over another GPU\n",
    "Xe Link": "  XLn  = n lanes of Intel's Xe Link; XL* continues over a tile\n",
    "MDF": "  MDF  = the link between tiles of one card\n",
}
"""Rows by the family of a direct link (`link.family`): for links that no matrix of nvidia-smi has."""

PEER_LEGEND = """\
Legend:

  X    = the device itself
  OK   = peer access works
  CNS  = the chipset does not support it
  GNS  = the GPU does not support it
  TNS  = the topology does not support it
  DR   = disabled by a driver setting
  NS   = not supported
  U    = not known
"""

MOST_BYTES = 1 << 18
MOST_COLUMNS = 256
_MOST_HEADINGS = 20
_MOST_SHOWN = 40
_TAB = 8
_COLUMNS = ("CPUAFFINITY", "NUMAAFFINITY", "GPUNUMAID")

_SELF_CELL = f" {SELF} "
_GPU = re.compile(r"GPU([0-9]{1,5})", re.IGNORECASE)
_OF_VENDOR = re.compile(r"[a-z]{2,16}:[0-9]{1,5}")
_TAIL = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID", re.IGNORECASE)
_STYLING = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_QUOTED = re.compile(r"^\s*(?:> ?)+")
_REMARK = re.compile(r"<--.*|\s#.*")
_NIC_NAME = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*$", re.IGNORECASE)
_OLD_WORDS = {"SOC": "SYS", "QPI": "SYS"}
_NO_WORDS = (NOT_KNOWN, "ERR", "ERR!", "-", "?")


class MatrixError(ValueError):
    """The text has no matrix, or a contradictory one. The message is one line."""


@frozen
class Printed:
    """A printed matrix. `nic_links`: a row for each GPU and then each NIC, a column for each NIC.

    A cell without information is None; `localities` have the values in the text.
    """

    gpus: tuple[str, ...]
    links: LinkMatrix
    localities: tuple[Locality, ...]
    nics: tuple[str, ...] = ()
    nic_links: LinkMatrix = ()


def write(snapshot: Snapshot) -> str:
    """The matrix of the snapshot's GPUs and network devices, with its legend.

    MIG instances have no links and no row, as in nvidia-smi. Where a link is not known, the cell is N/A.
    """
    gpus = snapshot.numbered
    topology = snapshot.topology
    nics = topology.nics if topology else ()
    names = _names(snapshot)
    columns = [*names, *(f"NIC{n}" for n in range(len(nics)))]
    lines = ["\t".join(["", *columns, *TAIL])]
    for device, name in zip(gpus, names, strict=True):
        row = snapshot.position[device.key]
        cells = [SELF if other is device else snapshot.link(device, other) for other in gpus]
        cells += topology.nic_links[row] if topology and nics else ()
        near = topology.localities[row] if topology else Locality()
        lines.append("\t".join([name, *map(_cell, cells), *_tail(near)]))
    for number in range(len(nics)):
        assert topology is not None
        row = len(snapshot.devices) + number
        cells = [topology.nic_links[snapshot.position[device.key]][number] for device in gpus]
        lines.append("\t".join([f"NIC{number}", *map(_cell, [*cells, *topology.nic_links[row]])]))
    names_of_nics = "".join(f"  NIC{number}: {printable(nic.name)}\n" for number, nic in enumerate(nics))
    named = f"\nNIC Legend:\n\n{names_of_nics}" if nics else ""
    return "\n".join(lines) + f"\n\n{_legend(snapshot)}{named}"


def _legend(snapshot: Snapshot) -> str:
    """nvidia-smi's legend, plus other direct links; these replace NVLink where the box has no NVLink."""
    words = {word for row in snapshot.links for word in row if word is not None and direct_links(word)}
    kinds = {family(word) for word in words}
    others = [row for kind, row in _LEGEND_ROWS.items() if kind in kinds]
    own = LEGEND if not others or kinds - _LEGEND_ROWS.keys() else LEGEND.removesuffix(_NVLINK_ROW)
    return own + "".join(others)


def _names(snapshot: Snapshot) -> list[str]:
    """The names of the columns."""
    return [
        snapshot.label(device) if snapshot.mixed else f"GPU{device.index}" for device in snapshot.numbered
    ]


def write_peers(snapshot: Snapshot) -> str:
    """Peer access of every pair of GPUs (reads), in the format of `nvidia-smi topo -p2p r`."""
    gpus = snapshot.numbered
    names = _names(snapshot)
    lines = ["\t".join(["", *names])]
    for device, name in zip(gpus, names, strict=True):
        words = [SELF if o is device else snapshot.peer(device, o) or "U" for o in gpus]
        lines.append("\t".join([name, *words]))
    return "\n".join(lines) + f"\n\n{PEER_LEGEND}"


def _cell(word: str | None) -> str:
    return _SELF_CELL if word == SELF else word or NOT_KNOWN


def _tail(near: Locality) -> list[str]:
    nodes = NOT_KNOWN if near.memory_nodes is None else ranges(near.memory_nodes)
    own = NOT_KNOWN if near.own_node is None else str(near.own_node)
    # Two tabs: "NUMA Affinity" is wider than one stop, and readers of nvidia-smi expect them.
    return [ranges(near.cpus or ()), nodes, "", own]


def read(text: str) -> Printed:
    """The matrix in a text. Raises MatrixError."""
    if len(text) > MOST_BYTES:
        raise MatrixError(f"{len(text)} characters are too many for a matrix")
    lines = _lines(text)
    headings = [place for place, line in enumerate(lines) if _may_be_heading(line)]
    trouble = MatrixError("it has no heading with GPU0, GPU1, …, as `nvidia-smi topo -m` prints")
    # A remark before the matrix may look like its heading ("GPU0 is the one with the display").
    for tried, place in enumerate(headings[:_MOST_HEADINGS]):
        reader: _Reader | None = None
        try:
            reader = _Reader(_Header.of(lines[place]))
            return reader.read(lines[place + 1 :])
        except MatrixError as error:
            if reader is not None and reader.found:
                raise
            trouble = trouble if tried else error
    raise trouble


def looks_like_one(text: str) -> bool:
    """Whether the text may contain the heading of a matrix."""
    return any(map(_may_be_heading, _lines(text)))


def _lines(text: str) -> list[str]:
    """The lines without the frame of a matrix in a mail ("> ") or a table ("|")."""
    lines = (_STYLING.sub("", line) for line in text.removeprefix("\ufeff").splitlines())
    return [_QUOTED.sub("", line).replace("|", " ") for line in lines]


def _may_be_heading(line: str) -> bool:
    tail = _TAIL.search(line)
    names = line[: tail.start() if tail else None].split()
    if not names or not (names[0].upper().startswith("GPU") or _OF_VENDOR.fullmatch(names[0])):
        return False
    return bool(tail) if len(names) == 1 else _word(names[1]) is None


def _short(name: str) -> str:
    return name if len(name) <= _MOST_SHOWN else name[:_MOST_SHOWN] + "…"


@frozen
class _Header:
    """The columns: the devices' names, and the position of each affinity column."""

    names: tuple[str, ...]
    tail: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, line: str) -> _Header:
        line = line.expandtabs(_TAB)
        tail = list(_TAIL.finditer(line))
        names = line[: tail[0].start()].split() if tail else line.split()
        if len(names) > MOST_COLUMNS:
            raise MatrixError(f"{len(names)} columns; at most {MOST_COLUMNS} are read")
        plain = [_plain(name) for name in names]
        if len(set(plain)) < len(plain):
            raise MatrixError("a column appears twice")
        columns = (("".join(match[0].upper().split()), match.start()) for match in tail)
        return cls(tuple(plain), tuple(columns))


def _plain(name: str) -> str:
    """A GPU's name in our spelling, "gpu01" as "GPU1"; any other name unchanged."""
    if not name.upper().startswith("GPU"):
        return name
    match = _GPU.fullmatch(name)
    if match is None:
        raise MatrixError(f"{_short(name)} is not a GPU number")
    return f"GPU{int(match[1])}"


class _Reader:
    """Reads the rows below a header."""

    def __init__(self, header: _Header) -> None:
        self._header = header
        self._cells: dict[tuple[str, str], str] = {}
        self._localities: dict[str, Locality] = {}
        self._nic_names: dict[str, str] = {}

    @property
    def found(self) -> bool:
        """Whether there was any row, which means that the line above was a heading."""
        return bool(self._localities)

    def read(self, lines: Iterable[str]) -> Printed:
        for line in lines:
            named = _NIC_NAME.match(line)
            if named:
                self._nic_names[named[1].upper()] = named[2]
            else:
                self._row(_REMARK.sub("", line))
        names = self._header.names
        if not self._localities:
            raise MatrixError("it has no row below its heading")
        gpus = tuple(name for name in names if _GPU.fullmatch(name) or _OF_VENDOR.fullmatch(name))
        nics = tuple(name for name in names if name not in gpus)
        return Printed(
            gpus=gpus,
            links=self._matrix(gpus, gpus),
            localities=tuple(self._localities.get(name, Locality()) for name in gpus),
            nics=tuple(self._nic_names.get(name.upper(), name) for name in nics),
            nic_links=self._matrix((*gpus, *nics), nics) if nics else (),
        )

    def _row(self, line: str) -> None:
        names = self._header.names
        words = list(re.finditer(r"\S+", line.expandtabs(_TAB)))
        if len(words) < 2 or _word(words[1][0]) is None:
            return
        name = next((n for n in names if n.upper() == words[0][0].upper()), None)
        if name is None:
            return
        cells = [_word(match[0]) for match in words[1 : len(names) + 1]]
        if len(cells) < len(names) or None in cells:
            if name in self._localities:
                # A remark about a device whose row came before ("GPU0 - the one with the display").
                return
            raise MatrixError(
                f"the row of {_short(name)} does not have a link for each of the {len(names)} columns"
            )
        if name in self._localities:
            raise MatrixError(f"the row of {_short(name)} appears twice")
        if cells[names.index(name)] != SELF:
            raise MatrixError(f"the row of {_short(name)} has no X on the diagonal")
        for other, cell in zip(names, cells, strict=True):
            if (cell == SELF) != (other == name):
                raise MatrixError(f"{_short(name)} and {_short(other)} are connected by {cell}")
            self._cells[name, other] = cell or ""
        self._localities[name] = _locality_of(self._tail(line, words[len(names) + 1 :]))

    def _tail(self, line: str, words: Sequence[re.Match[str]]) -> dict[str, str]:
        """The values after the links, by column."""
        columns = [name for name, _ in self._header.tail]
        if len(words) == len(columns):
            # No value is blank.
            return {name: match[0] for name, match in zip(columns, words, strict=True)}
        fields = [field.strip() for field in line.split("\t")]
        if columns == list(_COLUMNS)[: len(columns)] and len(fields) > len(self._header.names) + 1:
            by_tabs = _by_tabs(fields[len(self._header.names) + 1 :])
            return {name: by_tabs[name] for name in columns}
        found = dict.fromkeys(columns, "")
        for match in words:
            above = [name for name, start in self._header.tail if start <= match.start() + 2]
            if above:
                found[above[-1]] = match[0]
        return found

    def _matrix(self, rows: Sequence[str], columns: Sequence[str]) -> LinkMatrix:
        return tuple(tuple(self._link(row, column) for column in columns) for row in rows)

    def _link(self, one: str, other: str) -> str | None:
        there, back = (
            None if word == NOT_KNOWN else word
            for word in (self._cells.get((one, other)), self._cells.get((other, one)))
        )
        if there and back and there != back:
            raise MatrixError(
                f"{_short(one)} and {_short(other)} are connected by {there} one way and by {back} the other"
            )
        return SELF if one == other else there or back


def _by_tabs(fields: Sequence[str]) -> dict[str, str]:
    """The values after the links as nvidia-smi separates them: two tabs before the GPU's own node, and one
    more before a NUMA affinity of N/A."""
    cpus, *rest = fields
    if rest[:1] == [""] and rest[1:2] == [NOT_KNOWN] and len(rest) > 2:
        rest = rest[1:]
    nodes, *rest = rest or [""]
    own = next((field for field in rest if field), "")
    return dict(zip(_COLUMNS, (cpus, nodes, own), strict=True))


def _locality_of(found: Mapping[str, str]) -> Locality:
    near = Locality()
    if "CPUAFFINITY" in found:
        near = replace(near, cpus=_numbers(found["CPUAFFINITY"]))
    if "NUMAAFFINITY" in found:
        near = replace(near, memory_nodes=_numbers(found["NUMAAFFINITY"]))
    own = _numbers(found.get("GPUNUMAID", "")) or ()
    return replace(near, own_node=own[0]) if len(own) == 1 else near


def _word(text: str) -> str | None:
    """A cell's word in our spelling, N/A for a cell without information; None for a text that no cell has."""
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
