"""The matrix as text, in the form of `nvidia-smi topo -m`: the written text reads back, and pasted text of
any kind is either read correctly or refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.inventory.device import Device
from gputui.inventory.link import PCIE_CLASSES, SELF, LinkMatrix, is_link
from gputui.inventory.matrix_text import (
    LEGEND,
    MOST_BYTES,
    MOST_COLUMNS,
    PEER_LEGEND,
    MatrixError,
    Printed,
    looks_like_one,
    read,
    write,
    write_peers,
)
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality, Nic, Topology, from_ranges, ranges
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.simulated.printed import box_of
from table_tests import each_row
from unit.builders import NOW, box, gpu, instance

FILES = sorted((Path(__file__).parents[1] / "data" / "topologies").glob("*.txt"))

HEAD = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
PLAIN = f"""\
{HEAD.replace("CPU", "NIC0	NIC1	CPU", 1)}
GPU0\t X \tNV4\tPIX\tSYS\t0-7,16-23\t0\t\tN/A
GPU1\tNV4\t X \tSYS\tNODE\t8-15,24-31\t1\t\t12
NIC0\tPIX\tSYS\t X \tSYS
NIC1\tSYS\tNODE\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""
TRUTH = Printed(
    gpus=("GPU0", "GPU1"),
    links=(("X", "NV4"), ("NV4", "X")),
    localities=(
        Locality((*range(8), *range(16, 24)), (0,)),
        Locality((*range(8, 16), *range(24, 32)), (1,), 12),
    ),
    nics=("mlx5_0", "mlx5_bond_0"),
    nic_links=(("PIX", "SYS"), ("SYS", "NODE"), ("X", "SYS"), ("SYS", "X")),
)


def rows(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def pair(one: str = "NV4", back: str | None = None, tail: str = "\t0-7\t0\t\tN/A") -> str:
    """Two GPUs."""
    return rows(HEAD, f"GPU0\t X \t{one}{tail}", f"GPU1\t{back or one}\t X {tail}")


def refused(text: str) -> str:
    with pytest.raises(MatrixError) as error:
        read(text)
    assert "\n" not in str(error.value)
    return str(error.value)


def known(place: Locality) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    """The affinities of a GPU, in a form in which blank and N/A are equal."""
    return place.cpus or (), place.memory_nodes or (), place.own_node


# Writing.


def test_the_text_is_that_of_nvidia_smi_with_tabs() -> None:
    one, other = gpu(0), gpu(3)
    snapshot = box(one, other, links=(("X", "NV4"), ("NV4", "X")))
    places = (Locality((0, 1, 2, 3, 8), (0,), None), Locality((4, 5), (1, 2, 3), 9))
    cells = (("PIX", None), ("SYS", "PHB"), ("X", "NODE"), ("NODE", "X"))
    snapshot = replace(snapshot, topology=Topology(places, (Nic("mlx5_0"), Nic("mlx5_1")), cells))
    assert write(snapshot) == (
        "\tGPU0\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV4\tPIX\tN/A\t0-3,8\t0\t\tN/A\n"
        "GPU3\tNV4\t X \tSYS\tPHB\t4-5\t1-3\t\t9\n"
        "NIC0\tPIX\tSYS\t X \tNODE\n"
        "NIC1\tN/A\tPHB\tNODE\t X \n"
        f"\n{LEGEND}\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
    )


def test_a_box_without_nics_has_no_legend_of_them() -> None:
    text = write(box(gpu(0), gpu(1), links=(("X", "SYS"), ("SYS", "X"))))
    assert "NIC" not in text
    assert text.endswith(LEGEND)


def test_before_the_places_are_read_the_affinities_are_blank_and_not_known() -> None:
    assert "GPU0\t X \t\tN/A\t\tN/A\n" in write(box(gpu(0), links=(("X",),)))


def test_instances_have_no_row_and_no_column() -> None:
    parent = gpu(0, mig=True)
    snapshot = box(parent, instance(parent, 0), gpu(1), links=(("X", None, "NV12"), (None, "X", None)))
    snapshot = replace(snapshot, links=(*snapshot.links, ("NV12", None, "X")))
    topology = Topology(
        (Locality((0,)), Locality((1,)), Locality((2,))), (Nic("a"),), (("PIX",), (None,), ("SYS",), ("X",))
    )
    printed = read(write(replace(snapshot, topology=topology)))
    assert printed.gpus == ("GPU0", "GPU1")
    assert printed.links == (("X", "NV12"), ("NV12", "X"))
    assert printed.nic_links == (("PIX",), ("SYS",), ("X",))
    assert [place.cpus for place in printed.localities] == [(0,), (2,)]


def test_a_link_that_is_not_known_is_not_available() -> None:
    text = write(box(gpu(0), gpu(1), links=(("X", None), (None, "X"))))
    assert "GPU0\t X \tN/A\t" in text
    assert read(text).links == (("X", None), (None, "X"))


def test_a_device_is_itself_also_before_the_links_have_been_read() -> None:
    assert read(write(box(gpu(0), gpu(1)))).links == (("X", None), (None, "X"))


def test_peer_access_has_its_own_matrix_and_legend() -> None:
    parent = gpu(1, mig=True)
    snapshot = box(gpu(0), parent, instance(parent))
    assert write_peers(snapshot) == f"\tGPU0\tGPU1\nGPU0\tX\tU\nGPU1\tU\tX\n\n{PEER_LEGEND}"
    peers = (("X", "CNS", None), ("OK", "X", None), (None, None, "X"))
    assert write_peers(replace(snapshot, peers=peers)).startswith("\tGPU0\tGPU1\nGPU0\tX\tCNS\nGPU1\tOK\tX\n")


def test_every_word_that_is_written_is_in_the_legend() -> None:
    for word in (SELF, *PCIE_CLASSES, "NVn"):
        assert f"\n  {word:4} = " in LEGEND


def test_a_nic_cannot_move_the_cursor() -> None:
    topology = Topology(
        (Locality(),), (Nic("mlx5_0"), Nic("mlx5_1")), (("PIX", "PIX"), ("X", None), (None, "X"))
    )
    snapshot = replace(box(gpu(0), links=(("X",),)), topology=topology)
    assert write(snapshot).replace("\n", "").replace("\t", "").isprintable()


@each_row("name", ["\x1b[2J", "mlx5_0\n\nGPU9", "\u202emlx5_0", "\x1b]0;owned\x07"], ids=repr)
def test_a_nic_with_a_hostile_name_cannot_either(name: str) -> None:
    topology = Topology((Locality(),), (Nic(name),), (("PIX",), ("X",)))
    text = write(replace(box(gpu(0), links=(("X",),)), topology=topology))
    assert text.replace("\n", "").replace("\t", "").isprintable()
    assert text.count("\n") == write(box(gpu(0), links=(("X",),))).count("\n") + 5


# Pasted text.


def underlined(text: str) -> str:
    """The header as nvidia-smi underlines it on a terminal."""
    head, rest = text.split("\n", 1)
    return f"\t\x1b[4m{head[1:]}\x1b[0m\n{rest}"


PASTED = {
    "as it is": PLAIN,
    "spaces for tabs": PLAIN.expandtabs(8),
    "one space for each gap": "\n".join(" ".join(line.split()) for line in PLAIN.splitlines()),
    "tabs and spaces": PLAIN.replace("\t X \t", "    X    "),
    "non-breaking spaces": PLAIN.expandtabs(8).replace(" ", "\xa0"),
    "lines of Windows": PLAIN.replace("\n", "\r\n"),
    "lines of an old Mac": PLAIN.replace("\n", "\r"),
    "underlined heading": underlined(PLAIN),
    "underlined by tput": f"\x1b[4m{PLAIN}".replace("NUMA ID\n", "NUMA ID\x1b(B\x1b[m\n", 1),
    "blanks at every end": "".join(f"{line}  \t\n" for line in PLAIN.splitlines()),
    "without a last line end": PLAIN.rstrip(),
    "a prompt before and after": f"mira@dgx:~$ nvidia-smi topo -m\n{PLAIN}mira@dgx:~$ \n",
    "a root's prompt with its numbers": f"[root@gpu0 ~]# nvidia-smi topo -m # GPU0 GPU1\n{PLAIN}",
    "a fence of markdown": f"Here it is:\n\n```\n{PLAIN}```\nAny ideas?\n",
    "a fence with a language": f"<details>\n\n```text\n{PLAIN}```\n</details>\n",
    "a block that is set in": "".join(f"    {line}\n" for line in PLAIN.expandtabs(8).splitlines()),
    "empty lines between": PLAIN.replace("\n", "\n\n"),
    "small letters": PLAIN.replace("NV4", "nv4").replace("PIX", "pix").replace("SYS", "Sys"),
    "words of old drivers": PLAIN.replace("SYS", "SOC"),
    "remarks behind rows": PLAIN.replace("\tN/A\n", "\tN/A  <-- display, X runs here\n").replace(
        "NIC0\tPIX\tSYS\t X \tSYS", "NIC0\tPIX\tSYS\t X \tSYS   # slot 3"
    ),
    "warnings of the driver": f"Warning: persistence mode is off\nwarning: GPU 1 is hot\n{PLAIN}",
    "no space around X": PLAIN.replace(" X ", "X"),
    "zero bytes behind": PLAIN + "\x00\x00",
    "the legend with capitals missing": PLAIN.replace("NIC Legend", "nic legend").replace("NIC1:", "nic1 :"),
}


@each_row("text", PASTED.values(), ids=PASTED.keys())
def test_the_same_matrix_is_read_however_it_was_pasted(text: str) -> None:
    assert read(text) == TRUTH
    assert looks_like_one(text)


@each_row("lines", [list(range(1, 5)), [4, 3, 2, 1], [3, 1, 4, 2]])
def test_rows_may_come_in_any_order(lines: list[int]) -> None:
    head, *body = PLAIN.splitlines()
    assert read(rows(head, *(body[n - 1] for n in lines), *body[4:])) == TRUTH


@each_row(
    "line",
    [
        "GPU0 is the one with the display",
        "GPU0 and GPU1 are bridged:",
        "GPU0 RTX 3090, GPU1 RTX 3090",
    ],
)
def test_a_remark_about_a_gpu_before_the_heading_is_no_heading(line: str) -> None:
    assert read(f"{line}\n\n{PLAIN}") == TRUTH


@pytest.mark.parametrize("line", ["GPU0 - NVIDIA RTX A6000", "GPU1 SYS only because of the riser"])
def test_a_remark_about_a_gpu_below_the_rows_is_no_row(line: str) -> None:
    assert read(f"{PLAIN}\n{line}\n") == TRUTH


def test_a_byte_order_mark_is_no_device() -> None:
    assert read("\ufeff" + PLAIN) == TRUTH


def test_nics_are_called_by_their_legend_and_else_as_in_the_heading() -> None:
    text = PLAIN.replace("  NIC1: mlx5_bond_0\n", "")
    assert read(text).nics == ("mlx5_0", "NIC1")
    assert read(PLAIN.replace("NIC0", "mlx5_2").replace("NIC1", "mlx5_3")).nics == ("mlx5_2", "mlx5_3")
    assert read(f"{PLAIN}  NIC7: not_there\n").nics == TRUTH.nics


@each_row("name", ["rocep1s0f0", "bnxt_re_bond0", "hfi1_0", "ibp24s0", "efa_0", "mana_0"])
def test_a_legend_names_nics_of_every_maker(name: str) -> None:
    assert read(PLAIN.replace("mlx5_bond_0", name)).nics == ("mlx5_0", name)


def test_nics_without_rows_of_their_own_are_known_by_those_of_the_gpus() -> None:
    text = "\n".join(line for line in PLAIN.splitlines() if not line.startswith("NIC"))
    printed = read(text)
    assert printed.nics == TRUTH.nics
    assert printed.nic_links == (("PIX", "SYS"), ("SYS", "NODE"), ("X", None), (None, "X"))


def test_gpus_may_stand_behind_nics() -> None:
    printed = read(
        rows("\tGPU0\tmlx5_0\tGPU1", "GPU0\tX\tPIX\tNV4", "mlx5_0\tPIX\tX\tSYS", "GPU1\tNV4\tSYS\tX")
    )
    assert (printed.gpus, printed.nics) == (("GPU0", "GPU1"), ("mlx5_0",))
    assert printed.links == (("X", "NV4"), ("NV4", "X"))
    assert printed.nic_links == (("PIX",), ("SYS",), ("X",))


def test_numbers_of_gpus_may_have_gaps() -> None:
    text = PLAIN.replace("GPU1", "GPU5").replace("GPU0", "GPU2")
    assert read(text) == replace(TRUTH, gpus=("GPU2", "GPU5"))


def test_a_single_gpu_is_a_matrix_where_its_columns_say_so() -> None:
    text = rows("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID", "GPU0\t X \t0-15\t0\t\tN/A")
    assert read(text) == Printed(("GPU0",), (("X",),), (Locality(tuple(range(16)), (0,)),))
    assert "no heading with GPU0" in refused(rows("\tGPU0", "GPU0\t X "))


def test_seventy_two_gpus_are_read() -> None:
    head = "\t".join(["", *(f"GPU{n}" for n in range(72)), "CPU Affinity"])
    body = [
        "\t".join([f"GPU{i}", *(" X " if i == j else "NV18" for j in range(72)), "0-71"]) for i in range(72)
    ]
    printed = read(rows(head, *body))
    assert len(printed.gpus) == 72
    assert {word for row in printed.links for word in row} == {"X", "NV18"}
    assert all(place.cpus == tuple(range(72)) for place in printed.localities)


@each_row("word", ["N/A", "n/a", "ERR", "ERR!", "-", "?"])
def test_a_cell_that_says_nothing_is_not_known(word: str) -> None:
    assert read(pair(word)).links == (("X", None), (None, "X"))


def test_of_a_pair_that_is_told_one_way_only_that_is_believed() -> None:
    assert read(pair("N/A", "NV4")).links == (("X", "NV4"), ("NV4", "X"))


@pytest.mark.parametrize("missing", [0, 1])
def test_a_row_that_is_missing_is_known_from_the_other_side(missing: int) -> None:
    lines = pair().splitlines()
    del lines[1 + missing]
    printed = read(rows(*lines))
    assert printed.links == (("X", "NV4"), ("NV4", "X"))
    assert printed.localities[missing] == Locality()
    assert printed.localities[1 - missing] == Locality(tuple(range(8)), (0,))


def test_of_two_rows_that_are_missing_the_link_between_them_is_not_known() -> None:
    printed = read(rows("\tGPU0\tGPU1\tGPU2", "GPU1\tNV4\tX\tSYS"))
    assert printed.links == (("X", "NV4", None), ("NV4", "X", "SYS"), (None, "SYS", "X"))


def test_rows_of_devices_that_have_no_column_are_passed_over() -> None:
    assert read(pair() + "GPU7\tNV4\tX\tNV4\n").gpus == ("GPU0", "GPU1")


# Affinities.


@each_row(
    ("tail", "place"),
    [
        ("\t0-7\t0\t\tN/A", Locality(tuple(range(8)), (0,))),
        ("\t0-7,16-23\t\tN/A\t\tN/A", Locality((*range(8), *range(16, 24)), None)),
        ("\t0-71\t\t0,5-11\t\t4", Locality(tuple(range(72)), (0, *range(5, 12)), 4)),
        ("\t0-0,8-8,16-16\t0\t\tN/A", Locality((0, 8, 16), (0,))),
        ("\t0-7\tN/A\t\tN/A", Locality(tuple(range(8)))),
        ("\tN/A\tN/A\t\tN/A", Locality()),
        ("\t\t\t\tN/A", Locality((), ())),
        ("\t0-7", Locality(tuple(range(8)), ())),
        ("", Locality((), ())),
        ("\tall\t0\t\tN/A", Locality(None, (0,))),
        ("\t7-0\t0\t\tN/A", Locality(None, (0,))),
        ("\t0-99999999999\t0\t\tN/A", Locality(None, (0,))),
        ("\t0-7\t0\t\t0-3", Locality(tuple(range(8)), (0,))),
        ("\t" + "9" * 5_000 + "\t0\t\tN/A", Locality(None, (0,))),
    ],
)
def test_where_a_device_hangs_is_read_from_behind_its_links(tail: str, place: Locality) -> None:
    found = read(pair(tail=tail)).localities[0]
    assert known(found) == known(place)


def test_affinities_that_have_no_column_are_not_known() -> None:
    text = rows("\tGPU0\tGPU1", "GPU0\tX\tNV4", "GPU1\tNV4\tX")
    assert read(text).localities == (Locality(), Locality())


def test_an_old_matrix_with_cpus_only_says_nothing_of_nodes() -> None:
    text = rows("\tGPU0\tGPU1\tCPU Affinity", "GPU0\tX\tSOC\t0-7", "GPU1\tSOC\tX\t")
    assert read(text).localities == (Locality(tuple(range(8))), Locality(()))
    assert read(text).links[0][1] == "SYS"


def test_blanks_between_affinities_are_told_apart_by_the_column_that_they_are_under() -> None:
    head = "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID"
    one = "GPU0     X      NV4                     1               N/A"
    other = "GPU1    NV4      X      8-15                            12"
    assert list(map(known, read(rows(head, one, other)).localities)) == [
        ((), (1,), None),
        (tuple(range(8, 16)), (), 12),
    ]


def test_a_blank_cpu_affinity_does_not_shift_the_node_into_its_place() -> None:
    """A container that may use no CPU near the GPU: nvidia-smi and write() print `\\t\\t1\\t\\tN/A`."""
    assert known(read(pair(tail="\t\t1\t\tN/A")).localities[0]) == ((), (1,), None)


def test_a_blank_numa_affinity_does_not_shift_the_own_node_into_its_place() -> None:
    assert known(read(pair(tail="\t0-7\t\t\t4")).localities[0]) == (tuple(range(8)), (), 4)


@given(st.sets(st.integers(0, 9_000), min_size=1, max_size=40))
@settings(max_examples=40, deadline=None)
def test_lists_of_numbers_come_back(numbers: set[int]) -> None:
    assert from_ranges(ranges(numbers)) == tuple(sorted(numbers))


@given(st.text(alphabet="0123456789,- x", max_size=12))
@settings(max_examples=60, deadline=None)
def test_no_text_breaks_a_list_of_numbers(text: str) -> None:
    try:
        found = from_ranges(text)
    except ValueError:
        return
    assert found == tuple(sorted(set(found))) and found[-1] < 1 << 16


def test_a_list_that_says_the_same_a_thousand_times_costs_little() -> None:
    """128 KiB of it in one place of a recording, which the limits allow, would take half a minute."""
    text = ",".join(["0-65535"] * 500)
    assert len(from_ranges(text)) == 65536
    assert_costs(0.15, lambda: cpu_seconds(lambda: from_ranges(text)))


# Text that is no matrix.

REFUSED = {
    "nothing": ("", "no heading with GPU0"),
    "another text": ("No devices were found\n", "no heading with GPU0"),
    "a driver's failure": ("NVIDIA-SMI has failed because it couldn't communicate\n", "no heading with GPU0"),
    "only rows": ("GPU0\t X \tNV4\nGPU1\tNV4\t X \n", "no heading with GPU0"),
    "only a heading": (HEAD + "\n", "no row"),
    "a heading and a legend": (f"{HEAD}\n\nLegend:\n\n  X = Self\n", "no row"),
    "cells that contradict": (pair("NV4", "SYS"), "GPU0 and GPU1 are connected by NV4 one way and by SYS"),
    "numbers that contradict": (pair("NV4", "NV2"), "NV4 one way and by NV2 the other"),
    "a row twice": (pair() + "GPU0\t X \tNV4\n", "the row of GPU0 appears twice"),
    "a matrix twice": (pair() + pair(), "twice"),
    "a column twice": (pair().replace("GPU1\tCPU", "GPU0\tCPU"), "column appears twice"),
    "a cell too few": (rows(HEAD, "GPU0\tX", "GPU1\tNV4\tX"), "the row of GPU0 does not have a link"),
    "a word that no link has": (pair("FOO"), "the row of GPU0 does not have a link"),
    "no links": (pair("NV0"), "the row of GPU0 does not have a link"),
    "a thousand links": (pair("NV1000"), "the row of GPU0 does not have a link"),
    "peer access": (pair("OK"), "the row of GPU0 does not have a link"),
    "no X on the diagonal": (pair().replace("GPU0\t X ", "GPU0\tPIX"), "GPU0 has no X on the diagonal"),
    "X beside the diagonal": (pair("X"), "GPU0 and GPU1 are connected by X"),
    "a row shifted by one": (rows(HEAD, "GPU0\tNV4\tX", "GPU1\tX\tNV4"), "no X on the diagonal"),
    "too many columns": (
        "\t" + "\t".join(f"GPU{n}" for n in range(MOST_COLUMNS + 1)) + "\n",
        f"at most {MOST_COLUMNS}",
    ),
    "a book": (pair() + " " * MOST_BYTES, "characters are too many"),
}


@each_row(("text", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_matrix_is_refused_in_one_line_that_says_why(text: str, words: str) -> None:
    assert words in refused(text)


HUGE = {
    "tabs": "\t" * MOST_BYTES,
    "spaces before nothing": "GPU0" + " " * (MOST_BYTES - 4),
    "line ends": "\n" * MOST_BYTES,
    "headings of one": "GPU0\n" * (MOST_BYTES // 5),
    "beginnings of a style": "\x1b[" * (MOST_BYTES // 2),
    "one style without an end": "\x1b[" + "1;" * (MOST_BYTES // 2 - 1),
    "a column heading that goes on": f"\tGPU0\tGPU1\tCPU{' ' * (MOST_BYTES - 20)}x",
    "a legend that goes on": f"{HEAD}\nGPU0\tX\tNV4\nNIC0:{' ' * (MOST_BYTES - 120)}",
    "a legend's name that goes on": f"{HEAD}\nGPU0\tX\tNV4\nNIC0: {'x' * (MOST_BYTES - 120)} y",
    "remarks": f"{HEAD}\nGPU0\tX\tNV4{' #' * (MOST_BYTES // 2 - 60)}",
    "a row that goes on": f"{HEAD}\nGPU0\tX{' NV4' * (MOST_BYTES // 4 - 60)}",
}


@each_row("text", HUGE.values(), ids=HUGE.keys())
def test_a_megabyte_of_anything_is_answered(text: str) -> None:
    assert len(text) <= MOST_BYTES
    looks_like_one(text)
    try:
        read(text)
    except MatrixError as error:
        assert len(str(error)) < 300


def test_a_gpu_with_a_number_of_very_many_digits_is_refused() -> None:
    many = "GPU" + "9" * 5_000
    refused(rows(f"\tGPU0\t{many}", "GPU0\tX\tSYS"))


@each_row("other", ["GPU01", "gpu1", "GPU١"])
def test_one_gpu_by_two_names_is_refused(other: str) -> None:
    refused(rows(f"\tGPU1\t{other}", "GPU1\tX\tSYS"))


def test_a_complaint_does_not_repeat_a_whole_book() -> None:
    name = "A" * 50_000
    assert len(refused(rows(f"\tGPU0\t{name}", "GPU0\tX\tNV4", f"{name}\tNV3\tX"))) < 300


# Any text: it round-trips, or is refused in one line.

_WORD = st.sampled_from([None, *PCIE_CLASSES, "NV1", "NV4", "NV18", "NV144", "XGMI2"])
_CPUS = st.sets(st.integers(0, 300), max_size=20).map(lambda found: tuple(sorted(found)))
_NODES = st.one_of(st.none(), st.sets(st.integers(0, 40), min_size=1, max_size=5).map(sorted).map(tuple))


_PLACES = st.builds(Locality, st.none() | _CPUS, st.just(()) | _NODES, st.none() | st.integers(0, 99))


@st.composite
def _symmetric(draw: st.DrawFn, told: list[bool]) -> LinkMatrix:
    """Words of every pair; None where the pair is unknown."""
    cells: list[list[str | None]] = [[None] * len(told) for _ in told]
    for i, mine in enumerate(told):
        cells[i][i] = SELF
        for j in range(i):
            cells[i][j] = cells[j][i] = draw(_WORD) if mine and told[j] else None
    return tuple(map(tuple, cells))


@st.composite
def _snapshots(draw: st.DrawFn) -> Snapshot:
    """Boxes of some GPUs with gaps in their numbers, with instances and network devices."""
    devices: list[Device] = []
    for index in sorted(draw(st.sets(st.integers(0, 130), min_size=1, max_size=5))):
        devices.append(gpu(index))
        devices += [instance(devices[-1], n) for n in range(draw(st.sampled_from([0, 0, 0, 2])))]
    names = draw(st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,14}", fullmatch=True), unique=True, max_size=4))
    told = [device.parent is None for device in devices] + [True] * len(names)
    every, count = draw(_symmetric(told)), len(devices)
    topology = None
    if names or draw(st.booleans()):
        places = tuple(draw(_PLACES) for _ in devices)
        nic_links = tuple(row[count:] for row in every) if names else ()
        topology = Topology(places, tuple(Nic(name) for name in names), nic_links)
    return replace(box(*devices, links=tuple(row[:count] for row in every[:count])), topology=topology)


@given(_snapshots())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_written_of_any_snapshot_reads_back(snapshot: Snapshot) -> None:
    again = read(write(snapshot))
    whole = [place for place, device in enumerate(snapshot.devices) if device.parent is None]
    assert again.gpus == tuple(f"GPU{snapshot.devices[place].index}" for place in whole)
    assert again.links == tuple(tuple(snapshot.links[i][j] for j in whole) for i in whole)
    topology = snapshot.topology or Topology((Locality(),) * len(snapshot.devices))
    assert list(map(known, again.localities)) == [known(topology.localities[place]) for place in whole]
    assert again.nics == tuple(nic.name for nic in topology.nics)
    nic_rows = [*whole, *range(len(snapshot.devices), len(topology.nic_links))]
    assert again.nic_links == (tuple(topology.nic_links[row] for row in nic_rows) if topology.nics else ())


_ODD = st.sampled_from(
    [
        *(
            "",
            " ",
            "\t",
            "\n",
            "\r\n",
            "\x1b[4m",
            "\x00",
            "N/A",
            "X",
            "SYS",
            "NV4",
            "NV0",
            "GPU0",
            "GPU7",
            "-",
        ),
        *("NIC0: ", "NIC0", "CPU Affinity", "0-7", "0-", "65536", "<--", " # ", "```\n", "\ufeff", "é", "²"),
    ]
)


@st.composite
def _damaged(draw: st.DrawFn) -> str:
    """The output of nvidia-smi on a real box, with some text removed, doubled, or inserted."""
    text = draw(st.sampled_from(FILES)).read_text()
    for _ in range(draw(st.integers(1, 3))):
        lines = text.splitlines(keepends=True)
        place = draw(st.integers(0, len(lines) - 1)) if lines else 0
        how = draw(st.sampled_from(["drop", "double", "swap", "cut", "put"]))
        if how in ("drop", "double", "swap") and lines:
            other = draw(st.integers(0, len(lines) - 1))
            changed = {"drop": "", "double": lines[place] * 2, "swap": lines[other]}[how]
            lines[other if how == "swap" else place] = lines[place] if how == "swap" else changed
            text = "".join(lines)
        else:
            start = draw(st.integers(0, len(text)))
            end = min(len(text), start + draw(st.integers(1, 20))) if how == "cut" else start
            text = text[:start] + ("" if how == "cut" else draw(_ODD)) + text[end:]
    return text


def _read_or_refused(text: str) -> Printed | None:
    try:
        printed = read(text)
    except MatrixError as error:
        assert str(error) and "\n" not in str(error)
        return None
    _is_whole(printed)
    return printed


def _is_whole(printed: Printed) -> None:
    """Assert that the shapes are right, the words are valid, and both directions of a link are the same."""
    gpus, nics = len(printed.gpus), len(printed.nics)
    assert gpus and len(printed.localities) == gpus
    assert [len(row) for row in printed.links] == [gpus] * gpus
    assert [len(row) for row in printed.nic_links] == ([nics] * (gpus + nics) if nics else [])
    cells: dict[tuple[int, int], Any] = {
        (i, j): printed.links[i][j] for i in range(gpus) for j in range(gpus)
    }
    cells |= {(i, gpus + j): word for i, row in enumerate(printed.nic_links) for j, word in enumerate(row)}
    for (i, j), word in cells.items():
        assert (word == SELF) == (i == j)
        assert word is None or is_link(word)
        assert cells.get((j, i), word) == word


@given(_damaged())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(FILES[0].read_text())
def test_a_damaged_matrix_is_one_that_can_be_shown_or_one_line(text: str) -> None:
    printed = _read_or_refused(text)
    if printed is not None:
        again = read(write(at(box_of(printed, "damaged"), 0.0, NOW)))
        assert again.links == printed.links
        assert again.nic_links == printed.nic_links


@given(st.text(max_size=80))
@settings(max_examples=50, deadline=None)
def test_text_out_of_nowhere_is_no_matrix(text: str) -> None:
    assert _read_or_refused(text) is None


@each_row(
    ("name", "explained"),
    [
        ("dgx-1", {"NVn"}),
        ("idle", {"NVn"}),
        ("amd", {"XGMI"}),
        ("intel", {"XLn", "MDF"}),
        ("gaudi", {"NVn"}),
    ],
)
def test_the_legend_has_the_words_of_links_that_the_box_has_beside_nvidia_smis(
    name: str, explained: set[str]
) -> None:
    said = write(at(BOXES[name], 0.0, 0.0))
    rows = {line.split()[0] for line in said.splitlines() if " = " in line}
    assert rows - {"X", "SYS", "NODE", "PHB", "PXB", "PIX"} == explained
