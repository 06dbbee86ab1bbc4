"""The clipboard: the tool that is tried in each case, the fallback after a failure, and the messages."""

from __future__ import annotations

import base64
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputui.launching import clipboard
from gputui.launching.clipboard import Copied, copy, osc52, tools
from table_tests import each_row

TEXT = "CUDA_VISIBLE_DEVICES=5,4 python 'größe 👩\u200d🚀.py'\n"

Install = Callable[..., None]


class Desk:
    """A temporary PATH of fake tools, each of which stores its input."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[str] = []

    def install(self, *names: str, then: str = "exit 0") -> None:
        for name in names:
            tool = self.folder / name
            kept = shlex.quote(str(self.folder / f"{name}.kept"))
            tool.write_text(f'#!/bin/sh\necho "$@" > {kept}.argv\n/bin/cat > {kept}\n{then}\n')
            tool.chmod(0o755)

    def kept(self, name: str) -> str | None:
        file = self.folder / f"{name}.kept"
        return file.read_text() if file.exists() else None

    def argv(self, name: str) -> list[str]:
        return (self.folder / f"{name}.kept.argv").read_text().split()

    def environ(self, **more: str) -> dict[str, str]:
        return {"PATH": str(self.folder), **more}

    def copy(self, **environ: str) -> Copied:
        return copy(TEXT, self.environ(**environ), self.written.append)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(clipboard, "_PATIENCE", 60.0)
    return Desk(tmp_path)


ALL = ("pbcopy", "wl-copy", "xclip", "xsel", "tmux")
EVERYTHING = {"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0", "TMUX": "/tmp/tmux,1,0"}


@pytest.mark.parametrize(
    ("environ", "order"),
    [
        (EVERYTHING, ["wl-copy", "xclip", "xsel", "tmux"]),
        ({"DISPLAY": ":0"}, ["xclip", "xsel"]),
        ({"WAYLAND_DISPLAY": "wayland-0"}, ["wl-copy"]),
        ({"TMUX": "/tmp/tmux,1,0"}, ["tmux"]),
        ({}, []),
        ({"DISPLAY": "", "WAYLAND_DISPLAY": "", "TMUX": ""}, []),
        ({**EVERYTHING, "SSH_TTY": "/dev/pts/1"}, ["tmux"]),
        ({**EVERYTHING, "SSH_CONNECTION": "192.0.2.1 5 192.0.2.2 22"}, ["tmux"]),
        ({"DISPLAY": "localhost:10.0", "SSH_TTY": "/dev/pts/1"}, []),
    ],
)
def test_the_ladder_of_tools(desk: Desk, environ: dict[str, str], order: list[str]) -> None:
    desk.install(*ALL)
    assert [name for name, _ in tools(desk.environ(**environ))] == order


def test_pbcopy_is_of_macos_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.install(*ALL)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert next(tools(desk.environ())) == ("pbcopy", [str(desk.folder / "pbcopy")])


def test_a_tool_that_is_not_installed_is_not_tried(desk: Desk) -> None:
    desk.install("xsel")
    assert [name for name, _ in tools(desk.environ(**EVERYTHING))] == ["xsel"]


def test_the_first_tool_takes_the_text_and_no_other_is_asked(desk: Desk) -> None:
    desk.install("xclip", "xsel", "tmux")
    copied = desk.copy(DISPLAY=":0", TMUX="x")
    assert desk.kept("xclip") == TEXT
    assert desk.argv("xclip") == ["-selection", "clipboard"]
    assert desk.kept("xsel") is None and desk.kept("tmux") is None and not desk.written
    assert copied.sure and "xclip" in copied.message


def test_tmux_is_asked_to_pass_it_on_to_the_terminal_outside(desk: Desk) -> None:
    desk.install("tmux", "xclip")
    copied = desk.copy(SSH_TTY="/dev/pts/1", DISPLAY="localhost:10", TMUX="x")
    assert desk.kept("tmux") == TEXT
    assert desk.argv("tmux") == ["load-buffer", "-w", "-"]
    assert desk.kept("xclip") is None
    assert copied.sure and "tmux" in copied.message


def test_a_tool_that_fails_falls_through_to_the_next(desk: Desk) -> None:
    desk.install("xclip", then="exit 1")
    desk.install("xsel")
    copied = desk.copy(DISPLAY=":0")
    assert copied.sure and "xsel" in copied.message
    assert desk.kept("xsel") == TEXT


@pytest.mark.thorough
def test_a_tool_that_hangs_falls_through_to_the_next(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    # The next tool, which does not hang, has as much time.
    monkeypatch.setattr(clipboard, "_PATIENCE", 3.0)
    desk.install("xclip", then="exec /bin/sleep 600")
    desk.install("xsel")
    assert desk.copy(DISPLAY=":0").message.endswith("with xsel")


def test_a_tool_that_reads_nothing_and_hangs_is_given_up_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clipboard, "_PATIENCE", 0.2)
    (desk.folder / "xclip").write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    (desk.folder / "xclip").chmod(0o755)
    copied = copy("x" * 1_000_000, desk.environ(DISPLAY=":0"), desk.written.append)
    assert not copied.sure and len(desk.written) == 1


def test_a_tool_that_stays_behind_to_serve_the_text_is_not_waited_for(desk: Desk) -> None:
    desk.install("xclip", then="(/bin/sleep 2; :) & exit 0")
    assert desk.copy(DISPLAY=":0").sure


def test_a_tool_that_cannot_be_started_falls_through(desk: Desk) -> None:
    (desk.folder / "xclip").write_bytes(b"\x7fELF of another machine")
    (desk.folder / "xclip").chmod(0o755)
    assert not desk.copy(DISPLAY=":0").sure
    assert desk.written == [osc52(TEXT)]


def test_a_tool_gets_the_environment_that_was_given_and_not_ours(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":99")
    desk.install("xclip", then=f'echo "$DISPLAY" > {shlex.quote(str(desk.folder))}/display')
    desk.copy(DISPLAY=":7")
    assert (desk.folder / "display").read_text() == ":7\n"


def test_bytes_that_are_no_text_reach_a_tool_unchanged(desk: Desk) -> None:
    desk.install("xclip")
    copy("caf\udce9", desk.environ(DISPLAY=":0"), desk.written.append)
    assert (desk.folder / "xclip.kept").read_bytes() == b"caf\xe9"


@pytest.mark.parametrize("environ", [{}, {"SSH_TTY": "/dev/pts/1", "DISPLAY": ":10"}, EVERYTHING])
def test_without_a_tool_the_terminal_is_asked_and_nothing_is_promised(
    desk: Desk, environ: dict[str, str]
) -> None:
    copied = desk.copy(**environ)
    assert desk.written == [osc52(TEXT)]
    assert not copied.sure and "OSC 52" in copied.message


def test_without_a_tool_and_without_a_terminal_it_is_said(desk: Desk) -> None:
    def closed(_: str) -> None:
        raise OSError(6, "No such device or address")

    copied = copy(TEXT, desk.environ(), closed)
    assert not copied.sure and copied.message.startswith("not copied")


@each_row("text", ["", "a", TEXT, "x" * 100_000, "\x1b\x07\x9c"])
def test_osc_52_is_base64_between_the_sequence_and_a_bell(text: str) -> None:
    sequence = osc52(text)
    assert sequence.startswith("\x1b]52;c;") and sequence.endswith("\x07")
    inside = sequence[len("\x1b]52;c;") : -1]
    assert base64.b64decode(inside, validate=True).decode() == text


def test_osc_52_of_a_known_text() -> None:
    assert osc52("gpu") == "\x1b]52;c;Z3B1\x07"


def test_osc_52_takes_bytes_that_are_no_text() -> None:
    assert base64.b64decode(osc52("caf\udce9")[7:-1]) == b"caf\xe9"
