"""The PowerShell form: its documented rules read the words and values of the launch from it.

So does a real PowerShell where it is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputui.launching.exports import ExportError
from gputui.launching.exports.shell_lines import to_powershell
from gputui.launching.launch import Launch
from unit import powershell_reader
from unit.powershell_reader import read
from unit.test_quoting_in_shells import DUMP, HOSTILE, is_text, words

PWSH = shutil.which("pwsh")


TYPOGRAPHIC = [
    "‘",
    "it’s",
    "‚low‛",
    "''",
    "’’",
    "a’'b",
    "-x.y",
    "-x:y",
    "--%",
    "--",
    "1kb",
    "0x10",
    "@(1)",
    "`n",
]
TEXTS = [*(word for word in HOSTILE if is_text(word)), *TYPOGRAPHIC]
texts = st.one_of(
    words.filter(is_text), st.text(st.sampled_from(powershell_reader.QUOTES + 'a "`$'), max_size=8)
)


def test_hostile_words_are_read_as_they_are() -> None:
    launch = Launch(("prog", *TEXTS), (("VALUE", "it's"), ("GONE", None)), "/a b's")
    meant = read(to_powershell(launch))
    assert meant.argv == list(launch.argv)
    assert meant.variables == {"VALUE": "it's", "GONE": None}
    assert meant.directory == "/a b's"


@given(st.lists(texts, min_size=1, max_size=6), st.lists(texts.filter(bool), max_size=3))
@settings(max_examples=60, deadline=None)
@example(["’"], ["’'"])
def test_any_words_and_values_are_read_as_they_are(argv: list[str], values: list[str]) -> None:
    changes = tuple((f"VALUE_{place}", value) for place, value in enumerate(values))
    meant = read(to_powershell(Launch(tuple(argv), changes)))
    assert meant.argv == argv
    assert meant.variables == dict(changes)


def test_a_value_is_never_a_bare_word_which_would_be_a_command() -> None:
    assert "= 'PCI_BUS_ID'" in to_powershell(Launch((), (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),)))


def test_no_device_is_said_by_an_index_that_none_has_as_older_ones_cannot_set_an_empty_variable() -> None:
    meant = read(to_powershell(Launch(("x",), (("CUDA_VISIBLE_DEVICES", ""),))))
    assert meant.variables == {"CUDA_VISIBLE_DEVICES": "-1"}
    assert any("7.5" in comment for comment in meant.comments)


def test_another_empty_variable_stops_a_powershell_that_cannot_set_it() -> None:
    meant = read(to_powershell(Launch(("x",), (("EMPTY", ""),))))
    assert meant.variables == {"EMPTY": ""}
    assert meant.stops_before == 705


@pytest.mark.parametrize("word", ["", 'say "x"'])
def test_an_argument_that_older_ones_pass_wrongly_is_named_in_a_comment(word: str) -> None:
    assert any("7.3" in comment for comment in read(to_powershell(Launch(("x", word)))).comments)
    assert not read(to_powershell(Launch(("x", "plain")))).comments


def test_bytes_that_are_no_text_are_refused() -> None:
    for launch in (
        Launch(("x", "caf\udce9")),
        Launch(("x",), (("A", "\udcff"),)),
        Launch(("x",), (), "\udcff"),
    ):
        with pytest.raises(ExportError, match="UTF-8"):
            to_powershell(launch)


def test_variables_alone_are_a_line_each() -> None:
    text = to_powershell(Launch((), (("A", "1"), ("B", None))))
    assert text == "$env:A = '1'\n$env:B = $null"


@pytest.mark.skipif(PWSH is None, reason="pwsh is not installed")
def test_a_real_powershell_starts_the_program_with_these_words(tmp_path: Path) -> None:
    assert PWSH
    launch = Launch((sys.executable, "-S", "-E", str(DUMP), *TEXTS), (("VALUE", "it’s $x"), ("GONE", None)))
    file = tmp_path / "launch.ps1"
    file.write_text(to_powershell(launch) + "\n", "utf-8")
    done = subprocess.run(
        [PWSH, "-NoProfile", "-NonInteractive", "-File", str(file)],
        env={**os.environ, "GONE": "x"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    told = json.loads(done.stdout)
    assert [bytes.fromhex(word).decode() for word in told["argv"][1:]] == TEXTS
    environ = {bytes.fromhex(k): bytes.fromhex(v) for k, v in told["environ"].items()}
    assert environ[b"VALUE"] == "it’s $x".encode() and b"GONE" not in environ
