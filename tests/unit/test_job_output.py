"""The output of several boxes as one: whole lines, each with its box, however the pieces arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputui.cli import job_output
from gputui.cli.job_output import PrefixedOutput


class Out:
    """A stand-in for standard output."""

    def __init__(self) -> None:
        self.buffer = self
        self.data = b""

    terminal = False

    def isatty(self) -> bool:
        return self.terminal

    def write(self, data: bytes) -> None:
        self.data += data

    def flush(self) -> None:
        pass


def printed(monkeypatch: pytest.MonkeyPatch, *pieces: tuple[str, bytes]) -> bytes:
    """The output of two boxes, a and b, that write these pieces in turn."""
    out = Out()
    with monkeypatch.context() as patch:
        patch.setattr(job_output.sys, "stdout", out)
        output = PrefixedOutput("ab")
        for box, data in pieces:
            output.write(box, data)
        for box in "ab":
            output.write(box, b"", final=True)
    return out.data


def test_no_box_writes_over_the_name_of_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """By backspaces it could give its lines the name of another box."""
    monkeypatch.setattr(Out, "terminal", True)
    shown = printed(monkeypatch, ("b", b"\b\b\ba: all is well\r\b\b\ba: x\x1b[9D\x1b[Ga: y\n"))
    assert all(line.startswith(b"b: ") for line in shown.splitlines()) and b"\b" not in shown


def test_lines_are_never_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [("a", b"one "), ("b", b"two\nthr"), ("a", b"half\n"), ("b", b"ee\n\xff\r5%\n")]
    assert printed(monkeypatch, *pieces) == b"b: two\na: one half\nb: three\nb: \xff\r5%\n"


def test_what_has_no_end_is_a_line_at_the_end_and_one_that_is_too_long_is_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert printed(monkeypatch, ("b", b"x"), ("a", b"y")) == b"a: y\nb: x\n"
    long = printed(monkeypatch, ("a", b"z" * 200_000)).splitlines()
    assert len(long) == 4 and sum(line.count(b"z") for line in long) == 200_000


@given(st.lists(st.binary(max_size=8).map(lambda data: data.replace(b"\0", b"\n")), max_size=12))
def test_pieces_of_any_size_make_the_same_lines(pieces: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whole = printed(patch, ("a", b"".join(pieces)))
        assert printed(patch, *(("a", piece) for piece in pieces)) == whole
    text = b"".join(pieces)
    lines = text.split(b"\n")
    assert whole == b"".join(b"a: " + line + b"\n" for line in (lines if lines[-1] else lines[:-1]))
