"""The table in docs/launchers.md: every cell is a launch that is really started on a simulated box."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from e2e.ranks import Ended, need, with_mpirun, workplace
from gputui.launching.launchers import LAUNCHERS
from gputui.sources.simulated.source import named

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs" / "launchers.md"
BEGIN, END = "<!-- launchers -->", "<!-- /launchers -->"

YES, SECOND, INCLUDE, CPU, SINGLE, EACH, VARIABLE, REFUSED, FIRST = (
    "yes",
    "its second stage",
    "`--include`",
    "`--cpu`",
    "without `--multi_gpu`",
    "`--virtual-local-rank`",
    "`PET_VIRTUAL_LOCAL_RANK`",
    "refused",
    "the first, with a warning",
)

COLUMNS = ("order kept", "subset", "UUID", "one MIG instance", "several", "CPU only", "one device")

CELLS: dict[str, tuple[str, ...]] = {
    "python": (YES, YES, YES, YES, FIRST, YES, YES),
    "torchrun": (YES, YES, YES, YES, EACH, YES, YES),
    "accelerate": (YES, YES, YES, YES, VARIABLE, CPU, SINGLE),
    "deepspeed": (SECOND, INCLUDE, SECOND, SECOND, REFUSED, SECOND, INCLUDE),
    "mpirun": (YES, YES, YES, YES, REFUSED, YES, YES),
}
"""By launcher, in the order of the columns: the way in which it works."""

PROOFS: dict[str, Callable[[list[str], str], bool]] = {
    YES: lambda words, launcher: launcher in words,
    SECOND: lambda words, launcher: "deepspeed.launcher.launch" in words and launcher not in words,
    INCLUDE: lambda words, launcher: any(word.startswith("--include=localhost:") for word in words),
    CPU: lambda words, launcher: launcher in words and "--cpu" in words,
    SINGLE: lambda words, launcher: launcher in words and "--multi_gpu" not in words,
    EACH: lambda words, launcher: launcher in words and "--virtual-local-rank" in words,
    VARIABLE: lambda words, launcher: launcher in words and "PET_VIRTUAL_LOCAL_RANK=1" in words,
    FIRST: lambda words, launcher: launcher in words,
}
"""The meaning of a word of the table on the line that is started."""

ASKED = {
    "order kept": ("dgx-1", "6,3,5"),
    "subset": ("dgx-1", "2,5"),
    "UUID": ("dgx-1", "4,1"),
    "one MIG instance": ("a100-mig", "MIG"),
    "several": ("a100-mig", "MIGs"),
    "CPU only": ("dgx-1", "none"),
    "one device": ("dgx-1", "3"),
}
"""The box and the devices with which a column is tried."""

MODULES = {"torchrun": "torch", "accelerate": "accelerate", "deepspeed": "deepspeed"}


def devices(column: str) -> tuple[list[str], list[str]]:
    """The options that request the devices, and the devices as the variable must name them."""
    box, text = ASKED[column]
    if text == "none":
        return ["--gpus", "none"], []
    source = named(box)
    source.open()
    known = source.read().devices
    source.close()
    if text.startswith("MIG"):
        parts = [device.uuid for device in known if device.parent][: 2 if text == "MIGs" else 1]
        return ["--gpus", ",".join(parts)], parts
    if column == "UUID":
        uuids = [known[int(index)].uuid for index in text.split(",")]
        return ["--gpus", text, "--ids", "uuid"], uuids
    return ["--gpus", text], text.split(",")


Tried = Callable[[str, str], tuple[Ended, list[str]]]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """Start the launch of a cell once; the second result is the devices that it must see."""

    @cache
    def launch(launcher: str, box: str, asked: tuple[str, ...]) -> Ended:
        place = workplace(tmp_path_factory.mktemp(launcher))
        place = with_mpirun(place) if launcher == "mpirun" else place
        own = ("--demo", box, *asked, "--force", "--launcher", launcher)
        return place.ended(place.begin(*own, "--", "python", "train.py", "--lr", "3 e-4"))

    def both(launcher: str, column: str) -> tuple[Ended, list[str]]:
        # Where the order is kept, one launch shows both.
        shared = column == "subset" and CELLS[launcher][0] == YES
        asked, expected = devices("order kept" if shared else column)
        return launch(launcher, ASKED[column][0], tuple(asked)), expected

    return both


@pytest.mark.thorough
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("launcher", CELLS)
def test_a_cell_is_what_happens(tried: Tried, launcher: str, column: str) -> None:
    need(MODULES.get(launcher, "json"))
    done, expected = tried(launcher, column)
    word = CELLS[launcher][COLUMNS.index(column)]
    if word == REFUSED:
        assert (done.status, done.ranks) == (2, []) and "MIG instance" in done.err
        return
    assert done.status == 0, done.err
    assert PROOFS[word](done.line.split(), launcher), done.line
    if word in (EACH, VARIABLE):
        # Each process sees exactly its own device, and numbers it 0.
        assert [rank["CUDA_VISIBLE_DEVICES"] for rank in done.ranks] == expected
        assert done.every("LOCAL_RANK") == ["0"] and done.every("WORLD_SIZE") == [str(len(expected))]
        return
    if word == FIRST:
        assert "MIG instance" in done.err
    assert done.every("CUDA_VISIBLE_DEVICES") == [",".join(expected)]
    assert len(done.ranks) == (1 if launcher == "python" else max(1, len(expected)))
    if expected and expected[0].isdigit():
        assert done.every("CUDA_DEVICE_ORDER") == ["PCI_BUS_ID"]
    assert all(rank["argv"][-2:] == ["--lr", "3 e-4"] for rank in done.ranks)


def markdown() -> str:
    """The table as it is on the page."""
    rows = [("launcher", *COLUMNS), *((name, *cells) for name, cells in CELLS.items())]
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join((head, "|---" * (len(COLUMNS) + 1) + "|", *body))


def test_every_launcher_has_its_row_and_every_row_its_cells() -> None:
    assert list(CELLS) == list(LAUNCHERS)
    assert {len(cells) for cells in CELLS.values()} == {len(COLUMNS)}
    assert list(ASKED) == list(COLUMNS)


def test_the_page_shows_this_table() -> None:
    text = PAGE.read_text()
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == markdown()
