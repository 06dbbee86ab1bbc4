"""`r`: the command has the terminal while the screen waits, and gives it back however it ends."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from e2e.terminal import PATIENCE, Terminal
from gputui.launching.history_file import load
from gputui.sources.simulated.boxes import BOXES
from simnvml import SimulatedNvml

pytestmark = pytest.mark.e2e

Begin = Callable[..., Terminal]
UP, SAYS_UP = "up-2", "echo up-$((1+1))"
"""The text that a command prints once it runs: it differs from the text on the launch line."""
ENDED = "press Enter to return to gputui"


@pytest.fixture
def begin(start: Start) -> Begin:
    """Start gputui with a command, choose GPU 5, and run it and come back."""

    def begun(*command: str, **more: object) -> Terminal:
        terminal = start("--demo", "shared", "--", *command, **more)
        terminal.until("○ free")
        terminal.send("5:return\r")
        terminal.start_anyway()
        return terminal

    return begun


def back(terminal: Terminal) -> Terminal:
    """Go back to the screen, which must be whole and answer keys."""
    terminal.send("\r")
    for part in (" gputui ", "STATE", "cuda:0 = GPU 5", "─ launch"):
        terminal.until(part)
    terminal.send("4")
    return terminal.until("cuda:1 = GPU 4")


def leave(terminal: Terminal) -> None:
    terminal.send("q")
    assert terminal.end() == 0


def python(folder: Path, script: str) -> tuple[str, str]:
    """A command that runs a script of the test."""
    file = folder / "command.py"
    file.write_text(script)
    return sys.executable, str(file)


# The screen


def test_the_output_stands_below_the_line_and_the_screen_comes_back_with_the_status(
    begin: Begin, base_environment: dict[str, str]
) -> None:
    terminal = begin("sh", "-c", "echo on $CUDA_VISIBLE_DEVICES; exit 7")
    terminal.until(ENDED)
    first, *_, said, ended = [line for line in terminal.lines if line]
    assert first.startswith("gputui: CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=5 sh -c")
    assert said == "on 5"
    assert re.fullmatch(rf"gputui: .*\bstatus 7\b.* \d+s; {ENDED}", ended)
    back(terminal)
    leave(terminal)
    # The child found it by its own HOME.
    (each,) = load({"XDG_STATE_HOME": f"{base_environment['HOME']}/.local/state"})
    assert (each.options.command[0], each.count) == ("sh", 1)


def test_however_it_ends_that_is_said_below_its_output_and_on_the_screen(
    begin: Begin, tmp_path: Path
) -> None:
    ends = tmp_path / "ends.sh"
    ends.write_text("exit 7")
    terminal = begin("sh", str(ends))
    terminal.until(ENDED)
    terminal.send("\r")
    # What is typed before the screen is back belongs to the shell's terminal.
    terminal.until("STATE").until("sh ended with status 7 after")
    # A signal without a name.
    ends.write_text("kill -40 $$")
    terminal.send(":return\r")
    terminal.start_anyway()
    terminal.until("ended by signal 40 after").until(lambda t: t.text.count(ENDED) == 2)
    terminal.send("\r")
    terminal.until("STATE").until("ended by signal 40")
    ends.write_text("printf 'no newline'")
    terminal.send(":return\r")
    terminal.start_anyway()
    terminal.until(lambda t: t.text.count(ENDED) == 3)
    assert "no newline" in terminal.lines, "its last line is kept"
    assert any(line.startswith("gputui: done after") for line in terminal.lines)
    leave(back(terminal))


def test_a_program_that_cannot_be_started_is_said_and_the_screen_is_there(
    begin: Begin, tmp_path: Path
) -> None:
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    terminal = begin("./broken", cwd=tmp_path)
    terminal.until("there is no program './broken'").until("cuda:0 = GPU 5")
    leave(terminal)


# Keys


def test_ctrl_c_and_ctrl_backslash_end_the_command_and_not_the_screen(begin: Begin) -> None:
    terminal = begin("sh", "-c", f"ulimit -c 0; {SAYS_UP}; exec sleep 1000")
    terminal.until(UP)
    terminal.send("\x03")
    terminal.until("ended by SIGINT after").until(ENDED)
    terminal.send("\x03")
    back(terminal)
    terminal.send(":return\r")
    terminal.start_anyway()
    terminal.until(lambda t: t.text.count(UP) == 2)
    terminal.send("\x1c")
    terminal.until("ended by SIGQUIT after")
    leave(back(terminal))


@pytest.mark.thorough
def test_a_command_that_answers_ctrl_c_goes_on(begin: Begin) -> None:
    terminal = begin("sh", "-c", f"trap 'echo caught; exit 5' INT; {SAYS_UP}; while :; do sleep 0.05; done")
    terminal.until(UP)
    terminal.send("\x03")
    terminal.until(lambda t: "caught" in t.lines or "^Ccaught" in t.lines).until("ended with status 5")
    leave(back(terminal))


def test_a_command_reads_what_is_typed(begin: Begin) -> None:
    terminal = begin("sh", "-c", f'{SAYS_UP}; read name; echo "hello $name"')
    terminal.until(UP)
    terminal.send("ada\r")
    terminal.until("hello ada").until(ENDED)
    leave(back(terminal))


@pytest.mark.thorough
def test_what_was_typed_for_a_command_that_did_not_read_it_is_no_key_of_ours(
    begin: Begin, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    terminal = begin("sh", "-c", f"{SAYS_UP}; read gate < gate; exit 3", cwd=tmp_path)
    terminal.until(UP)
    terminal.send("\r\rq\r7x")
    terminal.until("7x")  # the terminal has echoed them
    (tmp_path / "gate").write_text("\n")
    terminal.until("ended with status 3").until(ENDED)
    leave(back(terminal))


@pytest.fixture
def shell(start: Start, base_environment: dict[str, str]) -> Terminal:
    """A shell with job control."""
    environment = {**base_environment, "PS1": "ready> "}
    terminal = start(environment=environment, argv=["bash", "--norc", "--noprofile", "-i"])
    return terminal.until("ready>")


def begin_in(shell: Terminal, command: str) -> None:
    shell.send(f"{' '.join(GPUTUI)} --demo shared -- {command}\r")
    shell.until("○ free")
    shell.send("5:return\r")
    shell.start_anyway()


def exit_from(shell: Terminal) -> None:
    shell.until(lambda t: t.text.rstrip().endswith("ready>"))
    shell.send("exit\r")
    shell.end()


def test_ctrl_z_stops_both_and_fg_goes_on_with_both(shell: Terminal) -> None:
    begin_in(shell, f"sh -c '{SAYS_UP}; read name; echo \"hello $name\"'")
    shell.until(UP)
    shell.send("\x1a")
    shell.until("Stopped").until(lambda t: t.text.rstrip().endswith("ready>") and t.is_stopped)
    shell.send("echo between\r")
    shell.until(lambda t: "between" in t.lines)
    shell.send("fg\r")
    # At any place the terminal wraps the line, also at a space.
    shell.until(lambda t: "".join(t.text.split()).count("--demoshared") >= 3)
    # The shell says so before it hands the terminal over.
    shell.until(lambda t: t.foreground != t.pid)
    shell.send("ada\r")
    shell.until("hello ada").until(ENDED)
    back(shell)
    shell.send("q")
    exit_from(shell)


@pytest.mark.thorough
def test_an_end_in_the_background_takes_nothing_from_the_shell(shell: Terminal, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    begin_in(shell, f"sh -c '{SAYS_UP}; read gate < {tmp_path}/gate; exit 3'")
    shell.until(UP)
    shell.send("\x1a")
    shell.until("Stopped").until(lambda t: t.is_stopped)
    shell.send("bg\r")
    shell.until(lambda t: t.text.rstrip().endswith("ready>"))
    (tmp_path / "gate").write_text("\n")
    shell.send("echo $((40 + 2)) between\r")
    # Its next use of the terminal stops it. (A stop during `fg` would stop it once more.)
    shell.until("42 between").until(lambda t: t.is_stopped)
    shell.send("fg\r")
    shell.until("ended with status 3").until(ENDED)
    back(shell)
    shell.send("q")
    exit_from(shell)


# The terminal afterwards

UNTIDY = r"""
import os, signal, sys, tty
tty.setraw(0)
sys.stdout.write(
    "\x1b[?1049h\x1b[?1000h\x1b[?1003h\x1b[?1006h\x1b[?1004h\x1b[?2004h\x1b[?25l\x1b[?1h\x1b=\x1b[?7l"
    "\x1b[5;10r\x1b[31m\x1b(0untidy"
)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.thorough
def test_a_command_that_was_killed_with_the_terminal_upside_down_leaves_no_trace(
    shell: Terminal, tmp_path: Path
) -> None:
    before = shell.modes
    begin_in(shell, " ".join(python(tmp_path, UNTIDY)))
    shell.until("ended by SIGKILL").until(ENDED)
    back(shell)
    shell.send("q")
    shell.until(lambda t: t.text.rstrip().endswith("ready>") and t.modes == before)
    for mode in (b"1000", b"1003", b"1004", b"1006", b"1"):
        on, off = shell.raw.rfind(b"\x1b[?" + mode + b"h"), shell.raw.rfind(b"\x1b[?" + mode + b"l")
        assert off > on, f"mode {mode!r} was left on"
    for mode in (b"25", b"7"):
        on, off = shell.raw.rfind(b"\x1b[?" + mode + b"h"), shell.raw.rfind(b"\x1b[?" + mode + b"l")
        assert on > off, f"mode {mode!r} was left off"
    shell.send("echo still $((40 + 2))\r")
    shell.until("still 42")
    exit_from(shell)


FOREGROUND = """
import os, signal
child = os.fork()
if not child:
    os.setpgid(0, 0)
    signal.pause()
os.setpgid(child, child) if os.getpgid(child) != child else None
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, child)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.thorough
def test_a_command_that_took_the_foreground_with_it_does_not_stop_us(shell: Terminal, tmp_path: Path) -> None:
    begin_in(shell, " ".join(python(tmp_path, FOREGROUND)))
    shell.until("ended by SIGKILL").until(ENDED)
    back(shell)
    shell.send("q")
    exit_from(shell)


@pytest.mark.thorough
def test_a_window_that_is_resized_meanwhile_is_painted_at_its_new_size(begin: Begin) -> None:
    terminal = begin("sh", "-c", f"{SAYS_UP}; read name")
    terminal.until(UP)
    terminal.resize(130, 40)
    terminal.send("\r")
    terminal.until(ENDED)
    terminal.send("\r")
    terminal.until("─ timelines").until(lambda t: "? help" in t.lines[39])
    leave(terminal)


# Signals


UNTOUCHED = """
import os, signal
# What Python ignores, and hands on to this shell, no terminal does.
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
"""


@pytest.mark.thorough
def test_the_command_has_the_signals_that_a_shell_would_give_it(
    start: Start, base_environment: dict[str, str], tmp_path: Path
) -> None:
    environment = {**base_environment, "PS1": "ready> "}
    shell = start(environment=environment, argv=[sys.executable, "-c", UNTOUCHED], cwd=tmp_path)
    shell.until("ready>")
    asks = "sh -c 'exec grep Sig /proc/self/status > $0'"
    shell.send(f"{asks} plain\r")
    begin_in(shell, f"{asks} ours")
    shell.until(ENDED)
    back(shell)
    shell.send("q")
    exit_from(shell)
    assert _signals(tmp_path / "ours") == _signals(tmp_path / "plain")


def _signals(file: Path) -> dict[str, str]:
    """The ignored, blocked and caught signals, as /proc/PID/status has them."""
    found = dict(line.split(":") for line in file.read_text().splitlines())
    return {name: found[name].strip() for name in ("SigIgn", "SigBlk", "SigCgt")}


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.thorough)],
)
def test_a_signal_that_ends_us_ends_the_command_first(begin: Begin, number: int, status: int) -> None:
    name = signal.Signals(number).name[3:]
    terminal = begin("sh", "-c", f"trap 'echo saved; exit 0' {name}; {SAYS_UP}; while :; do sleep 0.05; done")
    terminal.until(UP)
    terminal.signal(number)
    assert terminal.end() == status
    assert "saved" in terminal.lines
    assert "gputui: done after" in terminal.text


@pytest.mark.thorough
def test_a_signal_while_the_end_of_the_output_is_read_ends_us(begin: Begin) -> None:
    terminal = begin("true")
    terminal.until(ENDED)
    terminal.signal(signal.SIGTERM)
    assert terminal.end() == 143


@pytest.mark.thorough
def test_a_terminal_that_is_closed_ends_both(begin: Begin, tmp_path: Path) -> None:
    terminal = begin("sh", "-c", f"echo $$ > pid; {SAYS_UP}; exec sleep 1000", cwd=tmp_path)
    terminal.until(UP)
    command = int((tmp_path / "pid").read_text())
    terminal.hang_up()
    deadline = time.monotonic() + PATIENCE
    while any(map(_alive, (terminal.pid, command))):
        assert time.monotonic() < deadline, "something lives on without a terminal"
        signal.sigtimedwait([signal.SIGCHLD], 0.1)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# The box


def test_the_box_is_read_anew_when_the_screen_is_back(
    start: Start, base_environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["dgx-h100"])
    environment = simulated_nvml.environment(base_environment)
    terminal = start("--", "sh", "-c", f"{SAYS_UP}; read name", environment=environment)
    terminal.until("○ free")
    terminal.send("5:return\r")
    terminal.until(UP)
    # Twenty seconds later, somebody runs on GPU 6.
    simulated_nvml.show_box(BOXES["dgx-h100"], elapsed=20.0)
    terminal.send("\r")
    terminal.until(ENDED)
    terminal.send("\r")
    terminal.until(lambda t: any(re.match(r"[ ▸]+6 .*● ", line) for line in t.lines))
    leave(terminal)
