"""Foreign text at every entrance, a few examples of each (`python -m fuzz` tries many)."""

from __future__ import annotations

import pytest

from fuzz.entrances import ENTRANCES
from fuzz.oracle import torchs_reader
from fuzz.trying import some
from table_tests import each_row

EXAMPLES = 6


@each_row("name", ENTRANCES)
def test_nothing_that_a_stranger_writes_ends_in_a_traceback(name: str) -> None:
    some(ENTRANCES[name], EXAMPLES)


def test_torchs_own_reading_of_a_list_is_the_one_that_is_compared() -> None:
    read = torchs_reader()
    if read is None:
        pytest.skip("torch is not installed")
    uuids = ["GPU-ab", "GPU-ac", "GPU-b"]
    assert [read(text, uuids) for text in ("2,0", "0,0", "1,9,0", "GPU-b,GPU-ab", "GPU-a", "")] == [
        [2, 0], [], [1], [2, 0], [], [],
    ]  # fmt: skip
