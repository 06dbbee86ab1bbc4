"""`gputui topo`: the matrix on stdout as text or JSON, problems on stderr, and an exit status."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gputui.cli.main import main
from gputui.inventory.device import Fault
from gputui.inventory.link import direct_links
from gputui.inventory.matrix_text import LEGEND, PEER_LEGEND, read, write
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.topology import Locality, Nic, Topology
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.vendors.nvidia.source import REMEDIES
from messages import lines_of
from simnvml import SimulatedNvml
from table_tests import each_row
from unit.builders import NOW, box, document, gpu, instance, recording
from unit.calling import Call, caller

FILES = sorted((Path(__file__).parents[1] / "data" / "topologies").glob("*.txt"))
HEAD = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
PRINTED = f"{HEAD}GPU0\t X \tNV4\t0-7\t0\t\tN/A\nGPU1\tNV4\t X \t8-15\t1\t\tN/A\n"
TWO = replace(
    box(gpu(0), gpu(1), links=(("X", "NV18"), ("NV18", "X"))),
    pcie=(("X", "SYS"), ("SYS", "X")),
    peers=(("X", "OK"), ("OK", "X")),
    topology=Topology(
        (Locality((0, 1), (0,), pcie_generation=5, pcie_width=16), Locality((2, 3), (1,), None, True, 4, 8)),
        (Nic("mlx5_0", "00000000:19:00.0", 0),),
        (("PIX",), ("SYS",), ("X",)),
        between_cpus=22.0,
    ),
)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Call `gputui topo` with these words."""
    return partial(caller(capsys), "topo")


Save = Callable[..., str]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a text, bytes, JSON or a snapshot to a file, for --from and --demo."""

    def _save(content: str | bytes | dict[str, Any] | Snapshot, name: str = "box.txt") -> str:
        if isinstance(content, Snapshot):
            return recording(tmp_path, content, name)
        if isinstance(content, dict):
            content = json.dumps(content)
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(file)

    return _save


# The matrix as text.

WHOLE: dict[str, str] = {
    "idle": HEAD + "GPU0\t X \tNV4\t0-31\tN/A\t\tN/A\nGPU1\tNV4\t X \t0-31\tN/A\t\tN/A\n",
    "mixed": HEAD + "GPU0\t X \tPHB\t0-31\tN/A\t\tN/A\nGPU1\tPHB\t X \t0-31\tN/A\t\tN/A\n",
    "a100-mig": HEAD + "GPU0\t X \tNV12\t0-31\t0\t\tN/A\nGPU1\tNV12\t X \t0-31\t0\t\tN/A\n",
    "laptop": HEAD.replace("\tGPU1", "") + "GPU0\t X \t0-31\tN/A\t\tN/A\n",
    "gb10": HEAD.replace("\tGPU1", "") + "GPU0\t X \t0-31\tN/A\t\tN/A\n",
    "rtx3090": (
        "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV4\tPHB\tPHB\t0-31\tN/A\t\tN/A\n"
        "GPU1\tNV4\t X \tPHB\tPHB\t0-31\tN/A\t\tN/A\n"
        "GPU2\tPHB\tPHB\t X \tNV4\t0-31\tN/A\t\tN/A\n"
        "GPU3\tPHB\tPHB\tNV4\t X \t0-31\tN/A\t\tN/A\n"
    ),
}


@each_row("name", WHOLE)
def test_the_text_is_exactly_that_of_nvidia_smi(call: Call, name: str) -> None:
    assert call("--demo", name).text == f"{WHOLE[name]}\n{LEGEND}"


@each_row("name", [name for name in BOXES if name not in ("lost", "mixed-vendors")])
def test_the_text_of_every_box_reads_back(call: Call, name: str) -> None:
    printed = read(call("--demo", name).text)
    assert printed.gpus == tuple(f"GPU{n}" for n in range(len(BOXES[name].gpus)))
    assert printed.links == BOXES[name].links


def test_devices_of_two_vendors_are_called_as_in_the_list(call: Call) -> None:
    printed = read(call("--demo", "mixed-vendors").text)
    assert printed.gpus == ("nvidia:0", "nvidia:1", "intel:0", "intel:1")
    assert printed.links == (
        ("X", "PHB", None, None),
        ("PHB", "X", None, None),
        (None, None, "X", "PHB"),
        (None, None, "PHB", "X"),
    )
    links = call("--demo", "mixed-vendors", "--json").json["links"]
    assert [link["labels"] for link in links if link["link"]] == [
        ["nvidia:0", "nvidia:1"],
        ["intel:0", "intel:1"],
    ]
    assert "nvidia:0" in call("--demo", "mixed-vendors", "--p2p").text.splitlines()[0].split()


def test_network_devices_have_rows_columns_and_a_legend(call: Call, save: Save) -> None:
    assert call("--from", save(TWO)).text == (
        "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV18\tPIX\t0-1\t0\t\tN/A\n"
        "GPU1\tNV18\t X \tSYS\t2-3\t1\t\tN/A\n"
        "NIC0\tPIX\tSYS\t X \n"
        f"\n{LEGEND}\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    )


@each_row("form", [[], ["--p2p"], ["--tree"]])
@each_row("name", [name for name in BOXES if name != "lost"])
def test_every_form_of_every_box_is_plain_text(call: Call, name: str, form: list[str]) -> None:
    text = call("--demo", name, *form).text
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert text.replace("\n", "").replace("\t", "").isprintable()


def test_the_tree_has_every_device_once(call: Call) -> None:
    text = call("--demo", "a100-mig", "--tree").text
    for label in ("GPU 0 ", "GPU 0:0 ", "GPU 0:1 ", "GPU 0:2 ", "GPU 0:3 ", "GPU 1 "):
        assert text.count(label) == 1
    assert "NV12" in text


# Peer access.


@each_row(("name", "word"), [("idle", "OK"), ("mixed", "OK"), ("a100-mig", "OK")])
def test_peer_access_is_a_matrix_of_its_own(call: Call, name: str, word: str) -> None:
    matrix = f"\tGPU0\tGPU1\nGPU0\tX\t{word}\nGPU1\t{word}\tX\n"
    assert call("--demo", name, "--p2p").text == f"{matrix}\n{PEER_LEGEND}"


def test_geforce_without_peer_access_says_so_of_every_pair(call: Call) -> None:
    lines = call("--p2p", "--demo", "rtx4090").text.splitlines()
    assert lines[0] == "\t" + "\t".join(f"GPU{n}" for n in range(8))
    for n, line in enumerate(lines[1:9]):
        assert line.split("\t") == [f"GPU{n}", *("X" if n == other else "CNS" for other in range(8))]


def test_peer_access_that_has_not_been_read_is_not_known(call: Call, save: Save) -> None:
    text = call("--p2p", "--from", save(box(gpu(0), gpu(4)))).text
    assert text.startswith("\tGPU0\tGPU4\nGPU0\tX\tU\nGPU4\tU\tX\n\nLegend:")


def test_peer_access_may_be_another_each_way(call: Call, save: Save) -> None:
    text = call("--p2p", "--from", save(replace(TWO, peers=(("X", "DR"), (None, "X"))))).text
    assert text.startswith("\tGPU0\tGPU1\nGPU0\tX\tDR\nGPU1\tU\tX\n")


# JSON.

LINK_KEYS = {"devices", "labels", "link", "kind", "count", "generation", "gb_per_s", "weight", "peer_access"}


@each_row("name", [name for name in BOXES if name not in ("lost", "mixed-vendors")])
def test_json_has_every_pair_of_gpus_once(call: Call, name: str) -> None:
    told = call("--demo", name, "--json").json
    assert set(told) == {"schema", "host", "devices", "matrix", "links", "topology"}
    assert (told["schema"], told["host"]) == (1, BOXES[name].host)
    assert all(
        set(device) == {"vendor", "index", "uuid", "name", "pci_bus_id", "parent", "numa_node"}
        for device in told["devices"]
    )
    assert [len(row) for row in told["matrix"]] == [len(told["devices"])] * len(told["devices"])
    count = len(BOXES[name].gpus)
    assert [link["devices"] for link in told["links"]] == [
        [i, j] for i in range(count) for j in range(i + 1, count)
    ]
    for link in told["links"]:
        assert set(link) == LINK_KEYS
        i, j = link["devices"]
        assert link["link"] == BOXES[name].links[i][j]
        assert (link["kind"] in ("NVLink", "Xe Link", "MDF")) == bool(
            direct_links(link["link"]) and link["kind"] != "XGMI"
        )
        assert link["count"] is None or link["count"] == direct_links(link["link"])


@each_row(
    ("name", "pair", "expected"),
    [
        ("dgx-h100", [0, 7], ("NV18", "NVLink", 18, 4, 370.8, "OK")),
        ("a100-mig", [0, 1], ("NV12", "NVLink", 12, 3, 240.0, "OK")),
        ("dgx-2", [0, 15], ("NV6", "NVLink", 6, 2, 120.0, "OK")),
        ("dgx-1", [0, 1], ("NV1", "NVLink", 1, 2, 20.0, "OK")),
        ("dgx-1", [0, 2], ("NV2", "NVLink", 2, 2, 40.0, "OK")),
        ("rtx3090", [0, 1], ("NV4", "NVLink", 4, 3, 48.0, "OK")),
        ("rtx3090", [0, 2], ("PHB", "PHB", None, 4, 24.0, "OK")),
        ("mixed", [0, 1], ("PHB", "PHB", None, 3, 12.0, "OK")),
        ("rtx4090", [0, 1], ("NODE", "NODE", None, 4, 24.0, "CNS")),
        # The link between the sockets of a demo box is unknown.
        ("rtx4090", [0, 4], ("SYS", "SYS", None, 4, None, "CNS")),
    ],
)
def test_a_pair_has_kind_count_generation_and_speed(
    call: Call, name: str, pair: list[int], expected: tuple[Any, ...]
) -> None:
    (link,) = (link for link in call("--json", "--demo", name).json["links"] if link["devices"] == pair)
    keys = ("link", "kind", "count", "generation", "gb_per_s", "peer_access")
    assert tuple(link[key] for key in keys) == expected


@each_row(
    ("word", "ends", "between", "speed"),
    [
        ("PIX", ((5, 16), (5, 16)), None, 48.0),
        ("PHB", ((5, 16), (4, 8)), None, 12.0),
        ("NODE", ((3, 16), (3, 16)), None, 12.0),
        ("SYS", ((5, 16), (5, 16)), 22.0, 22.0),
        ("SYS", ((3, 16), (5, 16)), 22.0, 12.0),
        ("SYS", ((5, 16), (5, 16)), None, None),
        ("PIX", ((None, 16), (5, 16)), None, None),
        ("PIX", ((5, None), (5, 16)), None, None),
        ("PIX", ((9, 16), (9, 16)), None, None),
        (None, ((5, 16), (5, 16)), 22.0, None),
    ],
)
def test_the_speed_over_pcie_is_that_of_the_narrower_end(
    call: Call, save: Save, word: str | None, ends: Any, between: float | None, speed: float | None
) -> None:
    places = tuple(Locality(pcie_generation=age, pcie_width=lanes) for age, lanes in ends)
    cells = (("X", word), (word, "X"))
    snapshot = replace(
        box(gpu(0), gpu(1), links=cells), pcie=cells, topology=Topology(places, between_cpus=between)
    )
    (link,) = call("--json", "--from", save(snapshot)).json["links"]
    assert link["gb_per_s"] == speed
    assert link["kind"] == word
    assert link["count"] is None


@each_row(
    ("capability", "generation", "speed"),
    [
        ("6.0", 1, 72.0),
        ("7.0", 2, 80.0),
        ("8.0", 3, 80.0),
        ("8.6", 3, 48.0),
        ("9.0", 4, 82.4),
        ("10.0", 5, 160.0),
    ],
)
def test_the_speed_of_nvlinks_follows_from_their_generation(
    call: Call, save: Save, capability: str, generation: int, speed: float
) -> None:
    gpus = (gpu(0, compute_capability=capability), gpu(1, compute_capability=capability))
    (link,) = call("--json", "--from", save(box(*gpus, links=(("X", "NV4"), ("NV4", "X"))))).json["links"]
    assert (link["kind"], link["count"], link["generation"], link["gb_per_s"]) == (
        "NVLink",
        4,
        generation,
        speed,
    )


@each_row("capability", [None, "8.9", "99.0", "", "x", "9"])
def test_nvlinks_of_a_gpu_that_is_not_known_have_no_speed(
    call: Call, save: Save, capability: str | None
) -> None:
    gpus = (gpu(0, compute_capability=capability), gpu(1, compute_capability=None))
    (link,) = call("--json", "--from", save(box(*gpus, links=(("X", "NV4"), ("NV4", "X"))))).json["links"]
    assert (link["kind"], link["count"]) == ("NVLink", 4)
    assert (link["generation"], link["gb_per_s"]) == (None, None)


def test_links_of_amd_are_no_nvlinks(call: Call, save: Save) -> None:
    cells = (("X", "XGMI4"), ("XGMI4", "X"))
    (link,) = call("--json", "--from", save(box(gpu(0), gpu(1), links=cells))).json["links"]
    assert (link["kind"], link["count"]) == ("XGMI", 4)
    assert link["gb_per_s"] is None


def test_a_pair_of_which_nothing_is_known_is_null(call: Call, save: Save) -> None:
    (link,) = call("--json", "--from", save(box(gpu(0), gpu(1)))).json["links"]
    named = {"devices": [0, 1], "labels": ["0", "1"]}
    assert link == named | dict.fromkeys(LINK_KEYS - set(named))


def test_json_tells_where_each_device_hangs(call: Call, save: Save) -> None:
    told = call("--json", "--from", save(TWO)).json
    assert told["topology"] == document(TWO)["topology"]
    assert told["topology"]["places"][0]["cpus"] == "0-1"
    assert told["matrix"] == [["X", "NV18"], ["NV18", "X"]]
    assert call("--json", "--from", save(box(gpu(0)))).json["topology"] is None


def test_json_is_what_a_recording_has(call: Call, save: Save) -> None:
    for name in ("dgx-1", "a100-mig", "gb10"):
        written = document(at(BOXES[name], 0.0, NOW))
        told = call("--json", "--from", save(written, "box.json")).json
        assert told["topology"] == written["topology"]
        assert told["matrix"] == written["links"]


# MIG.


def test_instances_have_no_row_in_the_text_and_no_pair_in_json(call: Call) -> None:
    assert read(call("--demo", "a100-mig").text).gpus == ("GPU0", "GPU1")
    told = call("--demo", "a100-mig", "--json").json
    assert [device["parent"] is None for device in told["devices"]] == [True, *([False] * 4), True]
    assert [link["devices"] for link in told["links"]] == [[0, 1]]
    assert told["matrix"][0] == ["X", None, None, None, None, "NV12"]
    assert len(told["topology"]["places"]) == 6


def test_a_recording_of_instances_under_a_later_gpu_is_printed(call: Call, save: Save) -> None:
    parent = gpu(1, mig=True)
    cells = (("X", "NV4", None), ("NV4", "X", None), (None, None, "X"))
    text = call("--from", save(box(gpu(0), parent, instance(parent), links=cells))).text
    assert read(text).links == (("X", "NV4"), ("NV4", "X"))


# Lost devices.


def test_a_device_that_is_lost_is_told_on_stderr(call: Call) -> None:
    ended = call("--demo", "lost")
    assert ended.status == 0
    (note,) = lines_of(ended.err)
    assert note.startswith("GPU 6: ") and "links" in note
    assert len(read(ended.out).gpus) == 8


def test_links_that_are_said_to_be_unknown_are_not_printed(call: Call) -> None:
    printed = read(call("--demo", "lost").out)
    assert printed.links[6] == (*([None] * 6), "X", None)


def test_a_recording_with_lost_devices_tells_each_of_them(call: Call, save: Save) -> None:
    gpus = (
        gpu(0, fault=Fault("lost", "GPU is lost")),
        gpu(1, fault=Fault("error", "GetName: Unknown Error")),
        gpu(2, fault=Fault("reset", "\x1b[2Jreset")),
    )
    cells = tuple(tuple("X" if i == j else None for j in range(3)) for i in range(3))
    ended = call("--json", "--from", save(box(*gpus, links=cells)))
    assert ended.status == 0
    assert [note.partition(";")[0] for note in lines_of(ended.err)] == [
        "GPU 0: GPU is lost",
        "GPU 2: ·[2Jreset",
    ]
    assert [link["link"] for link in json.loads(ended.out)["links"]] == [None] * 3


@pytest.mark.parametrize(("code", "words"), [(15, "GPU is lost"), (16, "requires restart")])
def test_a_gpu_that_nvml_has_lost_is_told_and_the_others_have_their_links(
    call: Call, nvml_here: SimulatedNvml, code: int, words: str
) -> None:
    nvml_here.show_box(BOXES["dgx-h100"])
    nvml_here.error("*", code, device=3)
    ended = call("--json")
    assert ended.status == 0
    assert len(ended.err.splitlines()) == 1
    assert "GPU 3: " in ended.err and words in ended.err
    told = json.loads(ended.out)
    known = {tuple(link["devices"]): link["link"] for link in told["links"]}
    assert all(word == (None if 3 in pair else "NV18") for pair, word in known.items())
    assert "GPU3\tN/A\tN/A\tN/A\t X \tN/A" in call().out


def test_a_real_box_is_asked_for_its_wiring_only(call: Call, nvml_here: SimulatedNvml) -> None:
    nvml_here.show_box(BOXES["dgx-1"])
    nvml_here.reset_counts()
    assert read(call().text).links == BOXES["dgx-1"].links
    asked = {name for name, count in nvml_here.counts().items() if count}
    assert not {name for name in asked if "Process" in name or "Utilization" in name or "Memory" in name} - {
        "nvmlDeviceGetMemoryAffinity"
    }


@each_row("code", sorted(REMEDIES))
def test_no_driver_is_status_3_with_cause_and_remedy(
    call: Call, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert REMEDIES[code] in call().refused(3)


# --from: a recording, or the output of nvidia-smi.


@each_row("name", ["dgx-1", "shared", "a100-mig", "gb10"])
def test_a_recording_prints_as_the_box_did(call: Call, save: Save, name: str) -> None:
    file = save(at(BOXES[name], 0.0, NOW), "box.json")
    for form in ([], ["--p2p"], ["--json"]):
        assert call("--from", file, *form) == call("--demo", name, *form)


def test_a_recording_of_an_older_version_has_its_links(call: Call, save: Save) -> None:
    written = document(TWO)
    for key in ("pcie", "peers", "topology"):
        del written[key]
    assert read(call("--from", save(written, "old.json")).text).links == TWO.links


def test_a_printed_matrix_prints_as_it_was(call: Call, save: Save) -> None:
    assert call("--from", save(PRINTED)).text == f"{PRINTED}\n{LEGEND}"


@each_row("option", ["--from", "--demo"])
@each_row("file", FILES, ids=lambda file: file.stem)
def test_every_recorded_matrix_can_be_replayed(call: Call, file: Path, option: str) -> None:
    truth, again = read(file.read_text()), read(call(option, str(file)).text)
    assert (again.links, again.nics, again.nic_links) == (truth.links, truth.nics, truth.nic_links)


def test_a_printed_matrix_tells_the_wiring_and_nothing_else(call: Call, save: Save) -> None:
    told = call("--json", "--from", save(PRINTED, "node7.txt")).json
    assert told["host"] == "node7"
    assert [(d["index"], d["name"], d["numa_node"]) for d in told["devices"]] == [(0, None, 0), (1, None, 1)]
    (link,) = told["links"]
    assert (link["kind"], link["count"], link["generation"], link["gb_per_s"]) == ("NVLink", 4, None, None)
    assert [place["cpus"] for place in told["topology"]["places"]] == ["0-7", "8-15"]


def test_gpus_with_gaps_in_their_numbers_keep_them(call: Call, save: Save) -> None:
    text = call("--from", save(PRINTED.replace("GPU1", "GPU6"))).text
    assert read(text).gpus == ("GPU0", "GPU6")


@pytest.mark.parametrize("text", [PRINTED, json.dumps(document(TWO))], ids=["matrix", "recording"])
def test_both_can_come_from_standard_input(call: Call, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert "NV" in call("--from", "-").text


@each_row("words", [["--from", "F"], ["--from=F"], ["--demo", "F"], ["--demo=F"]])
def test_a_file_may_be_named_in_either_form(call: Call, save: Save, words: list[str]) -> None:
    file = save(PRINTED)
    assert read(call(*(word.replace("F", file) for word in words)).text).links[0][1] == "NV4"


# --demo FILE: idle GPUs with this wiring.


def test_a_demo_of_a_printed_matrix_has_idle_gpus_to_choose_from(
    capsys: pytest.CaptureFixture[str], save: Save
) -> None:
    cells = "GPU0\t X \tSYS\tNV4\nGPU1\tSYS\t X \tSYS\nGPU2\tNV4\tSYS\t X \n"
    file = save(f"\tGPU0\tGPU1\tGPU2\n{cells}")
    assert main(["pick", "-n", "2", "--demo", file]) == 0
    assert capsys.readouterr().out == "0,2\n"
    assert main(["ls", "--json", "--demo", file]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [device["verdict"]["state"] for device in told["devices"]] == ["free"] * 3
    assert told["links"][0] == ["X", "SYS", "NV4"]


def test_a_demo_of_a_file_may_be_named_before_the_subcommand(
    capsys: pytest.CaptureFixture[str], save: Save
) -> None:
    assert main(["--demo", save(PRINTED), "topo"]) == 0
    assert capsys.readouterr().out.startswith(PRINTED)


def test_a_file_without_an_ending_is_one_where_its_name_has_a_slash(call: Call, save: Save) -> None:
    assert call("--demo", save(PRINTED, "matrix")).text.startswith(PRINTED)
    assert "moonbase" in call("--demo", "moonbase").refused(2)


@pytest.mark.parametrize("option", ["--from", "--demo"])
def test_a_file_that_is_not_there_is_status_3(call: Call, tmp_path: Path, option: str) -> None:
    assert "cannot read" in call(option, str(tmp_path / "none.txt")).refused(3)
    assert "cannot read" in call(option, f"{tmp_path}/").refused(3)


def test_a_demo_of_a_recording_is_no_matrix(call: Call, save: Save) -> None:
    file = save(TWO, "box.json")
    refusal = call("--demo", file).refused(3)
    assert file in refusal and "matrix" in refusal


# Wrong calls, and files with hostile content: one line, nothing on stdout.


@each_row(
    "words",
    [
        ["nonsense"],
        ["--nonsense"],
        ["--jso"],
        ["--demo", "--json", "--p2p"],
        ["--demo", "--tree", "--json"],
        ["--demo", "--from", "x"],
        ["--demo", "moonbase"],
        ["--demo=moonbase"],
        ["--from"],
        ["--demo", "--", "python"],
        ["--demo", "--"],
        ["--demo", "-n", "2"],
        ["--demo", "idle", "idle"],
        ["--demo", "\x1b[2J"],
    ],
    ids=lambda words: " ".join(words).encode("unicode_escape").decode(),
)
def test_a_wrong_call_is_one_line_and_status_2(call: Call, words: list[str]) -> None:
    assert call(*words).refused(2)


def test_the_help_says_what_it_prints(call: Call) -> None:
    text = call("--help").text
    for word in ("gputui topo", "--json", "--p2p", "--tree", "--from", "--demo", "nvidia-smi topo -m"):
        assert word in text


GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "zeros": bytes(1000),
    "no text": b"\xff\xfe\x80\x81",
    "another encoding": PRINTED.encode("utf-16"),
    "compressed": b"\x1f\x8b\x08\x00\x00",
    "a program": b"\x7fELF\x02\x01\x01" + bytes(range(256)),
    "a list": b"[]",
    "an object": b"{}",
    "half an object": b'{"schema": 1',
    "deep": b"[" * 100_000,
    "null": b"null",
    "prose": b"Dear all,\n\nGPU 0 is broken.\n",
    "an error of nvidia-smi": b"No devices were found\n",
    "a heading only": HEAD.encode(),
    "a heading in the dark": b"\x00\x00\tGPU0\tGPU1\nGPU0\tX\tNV4\n",
    "rows only": b"GPU0\tX\tNV4\nGPU1\tNV4\tX\n",
    "a contradiction": PRINTED.replace("GPU1\tNV4", "GPU1\tNV2").encode(),
    "a row too short": (HEAD + "GPU0\tX\n").encode(),
    "peer access": b"\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n",
    "hostile names": b"\tGPU0\t\x1b]0;x\x07\nGPU0\tX\tNV4\n\x1b]0;x\x07\tNV3\tX\n",
    "too much of it": PRINTED.encode() + b" " * (1 << 20),
}


@each_row("option", ["--from", "--demo"])
@each_row("content", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_file_that_is_neither_is_one_line_and_status_3(
    call: Call, save: Save, option: str, content: bytes
) -> None:
    assert "box.txt" in call(option, save(content)).refused(3)


HEADINGS = {
    "a column twice": b"\tGPU0\tGPU0\nGPU0\tX\tX\n",
    "too many columns": b"\t" + b"\t".join(b"GPU%d" % n for n in range(300)) + b"\n",
    "in prose": b"GPU0 was fine and is fine\n",
}


@each_row("content", HEADINGS.values(), ids=HEADINGS.keys())
def test_a_demo_with_a_heading_that_cannot_be_is_one_line_and_status_3(
    call: Call, save: Save, content: bytes
) -> None:
    assert call("--demo", save(content)).refused(3)


@each_row("content", HEADINGS.values(), ids=HEADINGS.keys())
def test_a_recording_with_a_heading_that_cannot_be_is_too(call: Call, save: Save, content: bytes) -> None:
    assert call("--from", save(content)).refused(3)


@pytest.mark.parametrize("option", ["--from", "--demo"])
def test_a_number_of_very_many_digits_is_one_line_too(call: Call, save: Save, option: str) -> None:
    many = "GPU" + "9" * 5_000
    assert call(option, save(f"\tGPU0\t{many}\nGPU0\tX\tSYS\n")).refused(3)


@pytest.mark.parametrize("option", ["--from", "--demo"])
def test_a_matrix_in_a_file_whose_name_is_no_text_is_printed(call: Call, save: Save, option: str) -> None:
    assert call(option, save(PRINTED, "caf\udce9.txt")).text.startswith(PRINTED)


def test_a_recording_of_nics_without_their_links_is_no_traceback(call: Call, save: Save) -> None:
    written = document(TWO)
    written["topology"]["nic_links"] = []
    assert call("--from", save(written, "box.json")).status in (0, 3)


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07", "\u202emlx5_0"], ids=repr)
def test_no_name_of_a_nic_can_move_the_cursor(call: Call, save: Save, name: str) -> None:
    printed = f"\tGPU0\tNIC0\nGPU0\tX\tPIX\nNIC0\tPIX\tX\n\nNIC Legend:\n\n  NIC0: {name}\n"
    recorded = document(TWO)
    recorded["topology"]["nics"][0]["name"] = name
    for file in (save(printed), save(recorded, "box.json")):
        assert call("--from", file).text.replace("\n", "").replace("\t", "").isprintable()


def test_a_recording_without_links_prints_a_matrix_that_reads_back(call: Call, save: Save) -> None:
    assert read(call("--from", save(box(gpu(0), gpu(1)))).text).links == (("X", None), (None, "X"))


def test_what_topo_prints_is_what_the_rest_of_the_program_writes(call: Call) -> None:
    assert call("--demo", "dgx-2").text == write(at(BOXES["dgx-2"], 0.0, NOW))
