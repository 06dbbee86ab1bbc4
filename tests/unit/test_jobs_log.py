"""Logs: the part that a terminal receives, and the text of their progress bars."""

from __future__ import annotations

import gc
import re
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.cli.job_output import write
from gputui.jobs.ansi_sanitizer import AnsiSanitizer
from gputui.jobs.log_screen import Tail
from gputui.jobs.wait import start_of_last_lines
from table_tests import each_row


def sanitized(data: bytes, colours: bool = True) -> str:
    return AnsiSanitizer(colours).feed(data, final=True)


# The output on a terminal.

HOSTILE = {
    "title": b"\x1b]0;owned\x07",
    "title, other end": b"\x1b]2;owned\x1b\\",
    "clipboard": b"\x1b]52;c;cm0gLXJm\x07",
    "link": b"\x1b]8;;http://x\x1b\\",
    "DCS": b"\x1bPq#0;2\x1b\\",
    "tmux passthrough": b"\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\",
    "APC": b"\x1b_Gf=100\x1b\\",
    "PM, SOS": b"\x1b^x\x1b\\\x1bXx\x1b\\",
    "asks for the cursor": b"\x1b[6n",
    "asks what it is": b"\x1b[c\x1b[>c\x1bZ\x05",
    "reset": b"\x1bc\x1b[!p",
    "other screen": b"\x1b[?1049h",
    "mouse": b"\x1b[?1003h",
    "clear": b"\x1b[2J\x1b[3J",
    "home": b"\x1b[H\x1b[5;5f",
    "insert, delete": b"\x1b[5L\x1b[5M\x1b[5P",
    "scrolling": b"\x1b[2;4r\x1bM\x1bD",
    "charset": b"\x1b(0\x0e\x1b)0",
    "keyboard": b"\x1b[>1u",
    "window": b"\x1b[8;1;1t",
    "bell": b"\x07",
    "unfinished": b"\x1b[0;\x1b]",
}


@each_row("name", HOSTILE)
def test_nothing_but_text_colours_and_bars_reaches_a_terminal(name: str) -> None:
    shown = sanitized(b"before" + HOSTILE[name] + b"\nafter\n")
    assert "\x1b" not in shown and "\x07" not in shown
    assert shown.startswith("before") and shown.endswith("\nafter\n")


def test_the_text_around_a_control_string_is_all_there() -> None:
    for name in ("title", "clipboard", "DCS", "tmux passthrough", "APC", "PM, SOS", "keyboard", "reset"):
        assert sanitized(b"a" + HOSTILE[name] + b"b") == "ab", name


def test_control_characters_of_eight_bits_are_dropped_and_marks_of_direction_seen() -> None:
    assert sanitized("a\x9b31mb\x9d0;c\x9c\u202ed\u2066e".encode()) == "a31mb0;c·d·e"
    assert sanitized(b"a\x9bb\xff") == "a\ufffdb\ufffd"


def test_colours_pass_and_can_be_left_out() -> None:
    coloured = b"\x1b[1;38;5;208mloss\x1b[0m \x1b[38:2::1:2:3mx\x1b[m"
    assert sanitized(coloured) == coloured.decode()
    assert sanitized(coloured, colours=False) == "loss x"


@each_row(
    ("numbers", "shown"),
    [
        ("8", "28"),
        ("1;08;31", "1;28;31"),
        ("31;8", "31;28"),
        ("8:1", "28"),
        ("38;5;8", "38;5;8"),
        ("38;5;8;8", "38;5;8;28"),
        ("48;2;8;8;8", "48;2;8;8;8"),
        ("1;58;5;8;8;4", "1;58;5;8;28;4"),
        ("38;8", "38;28"),
        ("38;2;1;8", "38;2;1;28"),
        ("8;8", "28;28"),
        ("18;80;88", "18;80;88"),
    ],
)
def test_no_text_is_hidden(numbers: str, shown: str) -> None:
    """A user who copies a line would copy text that is not visible."""
    assert sanitized(f"a\x1b[{numbers}mb".encode()) == f"a\x1b[{shown}mb"


@each_row("between", ["", "\x1b[m", "\x1b[?25l", "\x1b]0;x\x07", "\x07", "\x1b[C\x1b[D", "x\b", "\u1161"])
def test_no_pile_of_marks_reaches_a_terminal(between: str) -> None:
    """They would be drawn over the lines above and below, also over those that are not the log's."""
    feed = AnsiSanitizer()
    pieces = ["e", *[f"\u0301{between}"] * 20, "é e\u0301\n", "\u0301"]
    shown = "".join(feed.feed(piece.encode()) for piece in pieces)
    assert shown.count("\u0301") <= 4 and shown.endswith("é e\u0301\n·")


def test_what_progress_bars_do_passes() -> None:
    bars = "\r 45%|███▊   |\n\x1b[2K\x1b[A\r\x1b[K100%\b\b\x1b[3G\x1b[4C\x1b[J\t"
    assert sanitized(bars.encode()) == bars.replace("\x1b[A", "\x1b[1A")


def test_a_log_does_not_write_over_what_was_on_the_screen_before_it() -> None:
    assert sanitized(b"\x1b[5Aover\n\n\x1b[9A\x1b[A") == "over\n\n\x1b[2A"


def test_a_control_string_without_an_end_hides_one_line_at_most() -> None:
    feed = AnsiSanitizer()
    shown = feed.feed(b"\x1b]0;" + b"x" * 100) + feed.feed(b"\nstep 1\nstep 2\n")
    assert shown.endswith("\nstep 1\nstep 2\n")
    long = AnsiSanitizer()
    assert "x" * 1000 in long.feed(b"\x1b]0;" + b"x" * 10_000)


PIECES = st.lists(
    st.sampled_from(
        [*HOSTILE.values(), "é█日".encode(), b"\x1b", b"[", b"1", b"A", b"m", b"\n", b"\r", b"\x9b"]
    )
    | st.binary(max_size=6),
    max_size=30,
).map(b"".join)
ALLOWED = re.compile(r"(?:[^\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f]|\x1b\[[0-9:;]*[mABCDFGJK])*")


@given(PIECES, st.lists(st.integers(1, 9), max_size=40))
@settings(max_examples=60, deadline=None)
def test_in_whatever_pieces_a_log_is_read_the_same_is_shown_and_it_is_sanitized(
    data: bytes, cuts: list[int]
) -> None:
    feed, shown, place = AnsiSanitizer(), "", 0
    for cut in cuts:
        shown += feed.feed(data[place : place + cut])
        place += cut
    shown += feed.feed(data[place:], final=True)
    assert shown == sanitized(data)
    assert ALLOWED.fullmatch(shown)


# The text of a log.


def read_lines(data: bytes, columns: int = 200) -> list[str]:
    """The lines that the jobs page shows of a log with this content."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        tail = Tail(Path(file.name), columns)
        tail.feed()
        return tail.lines()


def test_a_progress_bar_is_one_line() -> None:
    bar = b"".join(b"\r%3d%%|%s| %d/100" % (n, b"#" * (n // 10), n) for n in range(101))
    assert read_lines(b"start\n" + bar + b"\ndone\n") == ["start", "100%|##########| 100/100", "done"]


def test_nested_bars_are_as_many_lines_as_bars() -> None:
    # This is the output of tqdm for two bars: down a line for the inner one, and back up.
    steps = b"".join(b"\router %d/3\n\r\x1b[Kinner %d/9\x1b[A" % (n // 3, n) for n in range(10))
    assert read_lines(steps + b"\n\n") == ["outer 3/3", "inner 9/9"]


def test_the_real_tqdm_reads_well() -> None:
    tqdm = pytest.importorskip("tqdm")
    import io

    out = io.StringIO()
    for _ in tqdm.tqdm(range(5), file=out, desc="epoch", ncols=60, mininterval=0, ascii=False):
        pass
    lines = read_lines(out.getvalue().encode())
    assert len(lines) == 1 and lines[0].startswith("epoch: 100%|█") and "5/5" in lines[0]


def test_text_is_what_it_was() -> None:
    for text in ("größe", "日本語", "e\u0301a", "tab\tb", "👩‍🚀"):
        (line,) = read_lines(text.encode())
        assert line.replace("\u200d", "") == {
            "e\u0301a": "éa",
            "tab\tb": "tab     b",
            "👩‍🚀": "👩🚀",
        }.get(text, text)


@given(st.text(st.sampled_from("ab█é日\u0301\r\n\b\t"), max_size=300))
@settings(max_examples=25, deadline=None)
def test_the_short_way_for_plain_text_shows_what_pyte_shows(text: str) -> None:
    screen = pyte.Screen(12, 400)
    screen.set_mode(pyte.modes.LNM)
    pyte.Stream(screen).feed(sanitized(text.encode()))
    expected = ["".join(screen.buffer[row][place].data for place in range(12)).rstrip() for row in range(400)]
    while expected and not expected[-1]:
        expected.pop()
    found = read_lines(text.encode(), columns=12)
    while found and not found[-1]:
        found.pop()
    assert found == expected


def test_lines_are_wrapped_at_the_columns() -> None:
    assert read_lines(b"abcdefgh\nij", columns=3) == ["abc", "def", "gh", "ij"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def append(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


def test_a_tail_takes_in_what_is_added(log: Path) -> None:
    tail = Tail(log)
    assert not tail.feed() and tail.lines() == []
    append(log, b"one\ntw")
    assert tail.feed() and not tail.feed()
    assert tail.lines() == ["one", "tw"]
    append(log, "o\nthr\rTHRée\n".encode()[:-3])
    append(log, "o\nthr\rTHRée\n".encode()[-3:])
    assert tail.feed() and tail.lines() == ["one", "two", "THRée"]
    assert tail.lines(2) == ["two", "THRée"] and tail.lines(0) == [] and tail.lines(9) == tail.lines()


def test_lines_that_have_scrolled_away_are_there_too(log: Path) -> None:
    append(log, b"".join(b"step %d\n" % number for number in range(1000)))
    tail = Tail(log)
    tail.feed()
    assert tail.lines() == [f"step {number}" for number in range(1000)]
    assert tail.lines(120) == [f"step {number}" for number in range(880, 1000)]


def test_of_a_long_log_the_end_is_read_from_a_whole_line_on(log: Path) -> None:
    append(log, b"".join(b"step %d\n" % number for number in range(100_000)))
    tail = Tail(log, most=1000)
    tail.feed()
    assert all(re.fullmatch(r"step \d{5}", line) for line in tail.lines())
    assert tail.lines(1) == ["step 99999"] and 50 < len(tail.lines()) < 100
    append(log, b"".join(b"more %d\n" % number for number in range(1000)))
    assert tail.feed() and tail.lines(1) == ["more 999"]


def test_a_log_of_a_hundred_megabytes_opens_at_once(log: Path) -> None:
    with log.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
        file.seek(0, 2)
        file.write(b"\n" + b"epoch 1 step 2 loss 0.3\n" * 20_000)

    def opened() -> None:
        tail = Tail(log)
        tail.feed()
        assert tail.lines(1) == ["epoch 1 step 2 loss 0.3"]

    assert_costs(2.0, lambda: cpu_seconds(opened))


def test_a_log_that_was_emptied_begins_anew(log: Path) -> None:
    append(log, b"one\ntwo\n")
    tail = Tail(log)
    tail.feed()
    log.write_bytes(b"new\n")
    assert tail.feed() and tail.lines() == ["new"]


SLOW = {
    "accents": b"a" + "\u0301".encode() * 32_000,
    "strings without an end": b"\x1b]0;" * 16_000,
    "sequences without an end": b"\x1b[" * 32_000,
    "one long sequence": b"\x1b[" + b"0;" * 32_000,
    "empty lines": b"\n" * 65_000,
    "up and down": b"\x1b[A\n" * 16_000,
    "far away": b"\x1b[9999C\x1b[9999B\x1b[9999A" * 3_000,
}


@each_row("name", SLOW)
def test_no_log_takes_long_to_read(name: str) -> None:
    # 64 KiB of plain text take 0.04 s.
    assert_costs(2.0, lambda: cpu_seconds(lambda: read_lines(SLOW[name])))


def test_the_last_lines_of_a_log_are_found(log: Path) -> None:
    assert start_of_last_lines(log, 3) == 0
    append(log, b"one\ntwo\nthree\n")
    assert [start_of_last_lines(log, number) for number in (0, 1, 2, 3, 4)] == [14, 8, 4, 0, 0]
    append(log, b"four")
    assert start_of_last_lines(log, 1) == 14


THOROUGH = pytest.mark.thorough

LONG_LINES = {
    "plain": b"x", "wide": "日".encode(), "accents": "e\u0301".encode(), "bars": b"50%\r",
    "backspaces": b"x\b", "colours": b"\x1b[31mx", "strings without an end": b"\x1b]", "no UTF-8": b"\xff",
    "null bytes": b"\0",
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in ("plain", "wide", "bars", "null bytes") else pytest.param(kind, marks=THOROUGH)
        for kind in LONG_LINES
    ],
)
def test_very_long_lines_cost_a_key_press_little_and_are_not_kept(tmp_path: Path, kind: str) -> None:
    log, piece = tmp_path / "log", LONG_LINES[kind]
    line = piece * ((1 << 18) // len(piece)) + b"\n"
    tail = Tail(log, 500, 96 * 1024)
    tracemalloc.start()
    try:
        log.write_bytes(line * 4)
        tail.feed()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(4):
            with log.open("ab") as file:
                file.write(line)
            tail.feed()
        assert tracemalloc.get_traced_memory()[0] - before < 1 << 20
    finally:
        tracemalloc.stop()

    def cost() -> float:
        with log.open("ab") as file:
            file.write(line)
        return cpu_seconds(lambda: (tail.feed(), tail.lines(40)))

    assert_costs(0.05, cost)
    with log.open("ab") as file:
        file.write(b"the end\n")
    tail.feed()
    assert tail.lines(1) == ["the end"]


def test_of_what_was_shown_of_a_fast_log_nothing_waits_to_be_collected(log: Path) -> None:
    tail = Tail(log, 500, 96 * 1024)
    gc.disable()
    tracemalloc.start()
    try:
        kept = []
        for _ in range(8):
            append(log, b"\n" + b"x" * 2**20)
            tail.feed()
            kept.append(tracemalloc.get_traced_memory()[0])
        assert kept[-1] - kept[1] < 2**18
    finally:
        tracemalloc.stop()
        gc.enable()


def test_a_log_that_is_faster_than_it_can_be_read_takes_little_time(log: Path) -> None:
    append(log, b"x" * 2**20)
    tail = Tail(log, 500, 96 * 1024)

    at_first, later = cpu_seconds(tail.feed), []
    for _ in range(3):
        append(log, b"\n" + b"x" * 2**20)
        later.append(cpu_seconds(tail.feed))
    assert min(later) < at_first / 2


def test_a_sequence_that_was_cut_off_swallows_nothing_of_what_comes_next(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.jobs.log_screen._MOST_TIME", -1.0)
    # The text is written in pieces, the first of which ends within a sequence.
    append(log, b"x" * 2047 + b"\x1b[2C" + b"y" * 9000 + b"\nstep 7")
    tail = Tail(log, 500)
    tail.feed()
    assert tail.lines(1) == ["step 7"]


def test_the_end_of_a_line_that_is_longer_than_what_is_read_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (1 << 20) + b"loss 0.5\n")
    tail = Tail(log, 500, 96 * 1024)
    tail.feed()
    assert tail.lines(1)[0].endswith("loss 0.5")


@pytest.mark.thorough
def test_a_log_that_grows_for_days_keeps_a_bounded_past(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    tail = Tail(log, 500)
    for number in range(40):
        with log.open("ab") as file:
            file.write((f"{number} " + "日" * 200 + "\n").encode() * 200)
        tail.feed()
    assert sum(map(len, tail.lines())) < 600_000
    assert tail.lines(1)[0].startswith("39 ")


def test_a_log_is_read_to_its_end_where_output_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`gputui jobs attach ID >&-`: its status is the job's."""
    pieces = iter((b"a", b"b"))
    monkeypatch.setattr(sys, "stdout", None)
    write(pieces)
    assert list(pieces) == []
