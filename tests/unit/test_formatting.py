"""Sizes, spans and names as people read them; and foreign text made harmless to a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.inventory.formatting import (
    duration,
    gpus,
    peak_size,
    printable,
    program,
    read_duration,
    short_bus_id,
    short_name,
    size,
)
from table_tests import each_row
from unit.builders import GIB, MIB

HOUR, DAY = 3600, 86400


@each_row(
    ("amount", "shown"),
    [
        (0, "0.0G"),
        (40 * MIB, "0.0G"),
        (512 * MIB, "0.5G"),
        (GIB, "1.0G"),
        (81559 * MIB, "79.6G"),
        (2048 * GIB, "2048.0G"),
    ],
)
def test_a_size_is_in_gib_with_one_decimal(amount: int, shown: str) -> None:
    assert size(amount) == shown


def test_the_peak_of_a_small_program_is_not_shown_as_nothing() -> None:
    assert peak_size(9 << 20) == peak_size(0) == "under 0.1G" and peak_size(5 << 30) == size(5 << 30)


@each_row(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (HOUR - 1, "59m"),
        (HOUR, "1h"),
        (HOUR + 59, "1h"),
        (2 * HOUR + 600, "2h10m"),
        (2 * HOUR + 60, "2h01m"),
        (DAY, "1d"),
        (3 * DAY + 4 * HOUR, "3d4h"),
        (10 * DAY + 4 * HOUR, "10d"),
        (400 * DAY, "400d"),
    ],
)
def test_a_span_has_at_most_two_units(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_span_of_a_clock_that_went_back_is_nothing() -> None:
    assert duration(-5) == "0s"


@given(st.floats(min_value=0, max_value=1e9))
@settings(max_examples=40, deadline=None)
def test_a_span_fits_a_narrow_column(seconds: float) -> None:
    assert 2 <= len(duration(seconds)) <= 6


@each_row(
    ("name", "shown"),
    [
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "1g.10gb MIG"),
        ("AMD Instinct MI300X", "MI300X"),
        ("DG2 [Arc A380]", "Arc A380"),
        ("Intel(R) Graphics [0x020a]", "Intel(R) Graphics [0x020a]"),
        ("NVIDIA \x1b[31mH100", "·[31mH100"),
        ("", ""),
    ],
)
def test_a_name_is_short_and_harmless(name: str, shown: str) -> None:
    assert short_name(name) == shown


@pytest.mark.parametrize(
    ("bus_id", "shown"), [("00000000:57:00.0", "57:00.0"), ("00010002:57:00.0", "0002:57:00.0")]
)
def test_a_bus_id_leaves_out_only_the_first_domain(bus_id: str, shown: str) -> None:
    assert short_bus_id(bus_id) == shown


@each_row(
    ("command", "shown"),
    [
        ("/usr/bin/python3 -m train", "train"),
        ("python3 games/train.py --lr 1", "train.py"),
        ("/opt/venv/bin/python3.11 -X dev -u -W ignore /home/a/train.py --token x", "train.py"),
        ("python -c import torch", "python"),
        ("python", "python"),
        ("bash sweep.sh", "sweep.sh"),
        ("bash -c make", "bash"),
        ("pythonic train.py", "pythonic"),
        ("python", "python"),
        ("", "–"),
        ("   ", "–"),
        ("/opt/\x1b[2Jevil x", "·[2Jevil"),
        ("a\nb", "a"),
    ],
)
def test_the_program_of_a_command_line(command: str, shown: str) -> None:
    assert program(command) == shown


@each_row(
    ("what", "text", "shown"),
    [
        ("an escape sequence", "\x1b[2J\x1b]0;owned\x07", "·[2J·]0;owned·"),
        ("an 8-bit escape sequence", "\x9b31m", "·31m"),
        ("a newline", "one\ntwo\r\nthree", "one two  three"),
        ("a line separator", "one\u2028two\u2029three\x85four", "one two three four"),
        ("a tab", "a\tb", "a b"),
        ("a null", "a\x00b", "a·b"),
        ("a backspace", "rm\x08\x08ls", "rm··ls"),
        ("right-to-left override", "abc\u202etxt.exe", "abc·txt.exe"),
        ("bidirectional isolates", "\u2066a\u2069\u200f", "·a··"),
        ("zero width", "a\u200bb\u200dc\ufeffd", "a·b·c·d"),
        ("a soft hyphen", "a\u00adb", "a·b"),
        ("tags that nobody sees", "a\U000e0041b", "a·b"),
        ("a lone surrogate", "caf\udce9", "caf·"),
        ("a no-break space", "a\u00a0b", "a b"),
        ("private use", "\ue000", "·"),
        ("a pile of marks", "a" + "\u0301" * 5 + "b", "a\u0301\u0301\u0301··b"),
        ("marks on no letter", "\u0338\u0489free", "··free"),
        ("a pile of Korean vowels", "\u1100\u1161\u1161\u1161\u1161", "\u1100\u1161\u1161\u1161·"),
        ("fillers that nobody sees", "a\u3164\uffa0\u115fb", "a···b"),
        ("a skin tone, two cells wide in a terminal", "a\U0001f3fbb", "a·b"),
        ("marks on a line's end", "a\n\u0301", "a \u0301"),
    ],
)
def test_what_moves_hides_or_reorders_is_shown_as_a_dot(what: str, text: str, shown: str) -> None:
    assert printable(text) == shown, what


@each_row("text", ["", "python train.py --lr 3e-4", "größe 温度 🚀", "a  b", "e\u0301", "שָׁ֑"])
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@given(st.text(alphabet=st.characters()))
@settings(max_examples=80, deadline=None)
def test_no_text_leaves_a_control_character_behind(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert printable(shown) == shown


@each_row(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("0.5", 0.5), ("30m", 1800), ("2h", 2 * HOUR), ("1d", DAY)]
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@each_row("text", ["", "m", "x", "-1", "nan", "inf", "9999d", "3 hours"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        read_duration(text)
    with pytest.raises(ValueError, match="is not a time"):
        read_duration("2h", most=HOUR)
    with pytest.raises(ValueError, match=r"from 0\.1s to 1h"):
        read_duration("0", least=0.1, most=HOUR)


def test_devices_in_a_sentence() -> None:
    assert gpus(["4"]) == "GPU 4"
    assert gpus(["4", "5"]) == "GPUs 4 and 5"
    assert gpus(["0:1", "4", "5"]) == "GPUs 0:1, 4 and 5"
