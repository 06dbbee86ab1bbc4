"""Terminal hygiene: signals, hang-ups, suspension, colours, and calls that never return."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from e2e.terminal import PATIENCE, Terminal
from gputui import __file__ as gputui_file
from gputui.sources.simulated.boxes import BOXES
from simnvml import SimulatedNvml
from table_tests import quick_first

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_with_the_screen_restored(start: Start, number: int, status: int) -> None:
    terminal = start("--demo")
    terminal.until("○ free")
    terminal.signal(number)
    assert terminal.end() == status
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")


NOTES_IMPORTS = """
import os, sys, threading
class Notes:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("gputui."):
            with open(os.environ["IMPORTS"], "a") as file:
                file.write(f"{threading.current_thread() is threading.main_thread()} {name}\\n")
sys.meta_path.insert(0, Notes())
"""


def test_no_key_waits_for_the_modules_that_compose_a_launch(
    start: Start, base_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOTES_IMPORTS)
    imports = tmp_path / "imports"
    imports.touch()
    terminal = start(
        "--demo", environment=base_environment | {"PYTHONPATH": str(tmp_path), "IMPORTS": str(imports)}
    )
    terminal.until(lambda _: "False gputui.launching.launchers" in imports.read_text())
    terminal.until("○ free")
    terminal.send("4")
    terminal.until("cuda:0 = GPU 4")
    assert "True gputui.launching.compose" not in imports.read_text()
    terminal.send("q")
    assert terminal.end() == 0


@pytest.mark.thorough
def test_a_setting_that_was_changed_just_before_the_end_is_saved_or_said_not_to_be(
    start: Start, base_environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    home, environment = Path(base_environment["HOME"]), simulated_nvml.environment(base_environment)
    config = home / ".config" / "gputui" / "config.toml"
    terminal = start(environment=environment)
    terminal.until("○ free")
    terminal.send(":theme light\rq")
    assert terminal.end() == 0 and b"not saved" not in terminal.raw
    before = config.read_text()
    assert "light" in before
    with (home / ".local" / "state" / "gputui" / ".settings.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        terminal = start(environment=environment)
        terminal.until("○ free")
        terminal.send(":theme ansi\rq")
        assert terminal.end() == 0 and b"not saved" in terminal.raw.rpartition(b"\x1b[?1049l")[2]
    assert config.read_text() == before


@pytest.mark.thorough
def test_it_ends_when_the_terminal_is_gone_though_hangups_are_ignored(start: Start) -> None:
    terminal = start(argv=["sh", "-c", f"trap '' HUP; exec {' '.join(GPUTUI)} --demo"])
    terminal.until("○ free")
    terminal.hang_up()
    deadline = time.monotonic() + PATIENCE
    while _alive(terminal.pid):
        assert time.monotonic() < deadline, "it lives on without a terminal"
        signal.sigtimedwait([signal.SIGCHLD], 0.1)


def test_nobody_waits_for_keys_by_looking_again_and_again(
    start: Start, base_environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    environment = simulated_nvml.environment(base_environment)
    terminal = start("--interval", "0.1", environment=environment)
    terminal.until("○ free")
    terminal.send("1")
    terminal.until("cuda:0 = GPU 1")
    before = _wakings(terminal.pid)
    simulated_nvml.reset_counts()
    enough = 30 * len(BOXES["idle"].gpus)
    terminal.until(lambda _: simulated_nvml.counts().get("nvmlDeviceGetUtilizationRates", 0) > enough)
    woken = [n for thread, n in _wakings(terminal.pid).items() if n - before.get(thread, 0) > 2]
    # These are the thread that reads the box, the one that waits inside the driver, the one that draws, and
    # the one that writes on the terminal.
    assert 2 <= len(woken) <= 4, woken


def _wakings(pid: int) -> dict[str, int]:
    """The number of voluntary context switches of each thread of a process."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # (A thread may end meanwhile.)
        with contextlib.suppress(OSError):
            status = (thread / "status").read_text()
            found[thread.name] = int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.M)[1])  # type: ignore[index]
    return found


@pytest.mark.thorough
def test_keys_come_once_after_it_was_stopped_and_continued_from_outside(start: Start) -> None:
    terminal = start("--demo", "idle")
    terminal.until("○ free")
    terminal.send("1")
    terminal.until("cuda:0 = GPU 1")
    for _ in range(3):
        terminal.signal(signal.SIGSTOP)
        terminal.signal(signal.SIGCONT)
    for keys, shown in (("0", "cuda:1 = GPU 0"), ("1", "cuda:0 = GPU 0"), ("1", "cuda:1 = GPU 1")):
        terminal.send(keys)
        terminal.until(shown)
    terminal.send("q")
    assert terminal.end() == 0


def test_a_terminal_that_was_closed_takes_no_descriptor_of_another_test_with_it() -> None:
    """This is about the tests' own terminal, not about gputui."""
    terminal = Terminal(["sleep", "1000"], os.environ)
    number = terminal._child.child_fd
    terminal.hang_up()
    other = os.open(os.devnull, os.O_RDONLY)
    os.dup2(other, number)
    terminal.close()
    del terminal
    gc.collect()
    # This raises where the number has been closed.
    os.close(number)
    os.close(other)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_ctrl_z_gives_the_shell_back_and_fg_the_screen(
    start: Start, base_environment: dict[str, str]
) -> None:
    shell = start(
        environment={**base_environment, "PS1": "ready> "}, argv=["bash", "--norc", "--noprofile", "-i"]
    )
    shell.until("ready>")
    shell.send(f"{' '.join(GPUTUI)} --demo\r")
    shell.until("○ free")
    shell.send("\x1a")
    shell.until("Stopped")
    shell.send("echo between\r")
    shell.until(lambda t: "between" in t.lines)
    shell.send("fg\r")
    # Every part is there again, not only the parts that have changed meanwhile.
    for part in (" gputui ", "STATE", "○ free", "─ selected ─", "nothing: space", "─ launch", "? help"):
        shell.until(part)
    shell.send("5")
    shell.until("cuda:0 = GPU 5")
    shell.send("q")
    shell.until(lambda t: t.text.rstrip().endswith("ready>"))
    shell.send("exit\r")
    assert shell.end() == 0


def test_a_terminal_that_is_resized_is_painted_anew(start: Start) -> None:
    terminal = start("--demo")
    terminal.until("○ free")
    terminal.resize(130, 40)
    terminal.until("─ timelines")
    terminal.resize(60, 15)
    terminal.until(lambda t: "─ timelines" not in t.text and "? help" in t.lines[14])
    terminal.send("q")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("environment", "forbidden", "wanted"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, rb"^$", rb"\x1b\[[0-9;]*38;2;"),
        ({"TERM": "xterm"}, rb"[34]8;[25];", rb"\x1b\[[0-9;]*3[1-7]"),
        (
            {"TERM": "xterm-256color", "NO_COLOR": "1"},
            rb"\x1b\[[0-9;]*[34]8;5;(?!1[56]|23\d|24\d|25[0-5]|[078])\d+",
            rb"\x1b\[",
        ),
    ],
    ids=["true colour", "16 colours", "no colour"],
)
def test_colours_are_those_that_the_terminal_has(
    start: Start,
    base_environment: dict[str, str],
    environment: dict[str, str],
    forbidden: bytes,
    wanted: bytes,
) -> None:
    terminal = start("--demo", environment={**base_environment, **environment})
    terminal.until("○ free")
    terminal.send("5")
    terminal.until("cuda:0 = GPU 5").until("[1]  5")
    assert "●" in terminal.text
    assert "◐ held" in terminal.text
    assert re.search(wanted, terminal.raw)
    assert not re.search(forbidden, terminal.raw)
    terminal.send("q")
    assert terminal.end() == 0


def test_a_dumb_terminal_gets_the_table_and_the_reason(
    start: Start, base_environment: dict[str, str]
) -> None:
    terminal = start("--demo", environment={**base_environment, "TERM": "dumb"})
    assert terminal.end() == 0
    assert "o free" in terminal.text, "few glyphs"
    assert "TERM=dumb" in terminal.text


@pytest.fixture
def environment(base_environment: dict[str, str], simulated_nvml: SimulatedNvml) -> dict[str, str]:
    return simulated_nvml.environment(base_environment)


def test_a_call_that_hangs_stops_neither_keys_nor_the_exit_and_is_shown_as_stale(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["dgx-h100"])
    terminal = start("--", "echo", "started", environment=environment)
    terminal.until("○ free")
    simulated_nvml.hang("nvmlDeviceGetUtilizationRates")
    terminal.until("stale")
    terminal.send("5")
    terminal.until("cuda:0 = GPU 5")
    terminal.send("\r")
    terminal.until("the driver does not answer")
    # The call hangs until it is healed.
    terminal.send("nq")
    assert terminal.end() == 0
    simulated_nvml.heal()


def test_one_gpu_that_hangs_is_unknown_and_the_others_stay_fresh(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["dgx-h100"])
    terminal = start("--", "echo", "started", environment=environment)
    terminal.until("○ free")
    simulated_nvml.hang("nvmlDeviceGetUtilizationRates", 3)
    terminal.until("? driver error").until(lambda t: "stale" not in t.text)
    terminal.send("5")
    terminal.until("cuda:0 = GPU 5")
    terminal.send("\r")
    assert terminal.end() == 0
    assert "started" in terminal.text
    simulated_nvml.heal()


@pytest.mark.parametrize("leave", quick_first(["q", "\x03"]), ids=["q", "Ctrl-C"])
def test_a_driver_that_hangs_while_it_starts_leaves_a_screen_that_says_so_and_can_be_left(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml, leave: str
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    simulated_nvml.hang_init()
    terminal = start("--", "echo", "started", environment=environment)
    terminal.until("not answered").until("? help")
    terminal.send(leave)
    assert terminal.end() in (0, 130)


def test_a_driver_that_starts_late_is_shown_when_it_has(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    simulated_nvml.hang_init()
    terminal = start(environment=environment)
    terminal.until("not answered")
    simulated_nvml.heal()
    terminal.until("○ free").until(lambda t: "not answered" not in t.text)
    assert _quit(terminal) == 0


@pytest.mark.thorough
def test_a_driver_that_goes_away_is_told_and_the_box_is_back_with_it(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    terminal = start(environment=environment)
    terminal.until("○ free")
    simulated_nvml.error("*", 9)
    terminal.until("driver is not loaded")
    simulated_nvml.heal()
    terminal.until("○ free").until(lambda t: "stale" not in t.lines[0])
    assert _quit(terminal) == 0


@pytest.mark.thorough
def test_stale_heals_when_the_call_comes_back(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["dgx-h100"])
    terminal = start(environment=environment)
    terminal.until("○ free")
    simulated_nvml.hang("nvmlDeviceGetMemoryInfo_v2", 0)
    terminal.until("stale")
    simulated_nvml.heal()
    terminal.until(lambda t: "stale" not in t.text)
    quit_status = _quit(terminal)
    assert quit_status == 0


@pytest.mark.thorough
def test_a_gpu_lost_while_it_is_watched_takes_no_other_with_it_and_heals(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["rtx4090"])
    terminal = start(environment=environment)
    terminal.until("○ free")
    simulated_nvml.error("*", 15, device=3)
    terminal.until("✕ lost").until(lambda t: t.text.count("○ free") == 5)
    simulated_nvml.heal()
    terminal.until(lambda t: "✕ lost" not in t.text and t.text.count("○ free") == 6)
    assert _quit(terminal) == 0


def _quit(terminal: Terminal) -> int:
    terminal.send("q")
    return terminal.end()


@pytest.mark.thorough
def test_the_screen_works_though_output_or_errors_lead_to_a_file(start: Start, tmp_path: Path) -> None:
    for redirection in ("> out", "2> out"):
        program = f"{' '.join(GPUTUI)} --demo -- sh -c 'echo to-out; echo to-err >&2' {redirection}"
        terminal = start(argv=["sh", "-c", program], cwd=tmp_path)
        terminal.until("○ free")
        terminal.send("5")
        terminal.until("cuda:0 = GPU 5")
        terminal.send("\r")
        terminal.start_anyway()
        assert terminal.end() == 0
        kept, shown = ("to-out", "to-err") if redirection == "> out" else ("to-err", "to-out")
        assert (tmp_path / "out").read_text() == f"{kept}\n"
        assert shown in terminal.text


def test_a_key_pressed_before_the_screen_is_there_is_not_lost(start: Start) -> None:
    terminal = start("--demo")
    terminal.send("54")
    terminal.until("cuda:0 = GPU 5").until("cuda:1 = GPU 4")
    assert terminal.lines[0].startswith(" gputui")
    terminal.send("q")
    assert terminal.end() == 0


def test_the_cursor_of_the_shell_is_where_it_was(start: Start, base_environment: dict[str, str]) -> None:
    shell = start(
        environment={**base_environment, "PS1": "ready> "}, argv=["bash", "--norc", "--noprofile", "-i"]
    )
    shell.until("ready>")
    shell.send(f"echo one; echo two; {' '.join(GPUTUI)} --demo; echo three\r")
    shell.until("○ free")
    shell.send("q")
    shell.until(lambda t: t.text.count("ready>") == 2)
    place = next(n for n, line in enumerate(shell.lines) if line == "two")
    assert shell.lines[place + 1] == "three"
    shell.send("exit\r")
    shell.end()


def _replaced(package: Path) -> None:
    """Replace files with other files, as an installation does."""
    new = package / "new"
    shutil.copy(package / "__init__.py", new)
    new.replace(package / "__init__.py")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changed", "keys", "how"),
    [
        ("tui/screens/help.py", "?", "fails"),
        ("tui/screens/processes.py", "p", "is gone"),
        ("tui/start_launch.py", ":return\r", "is another"),
    ],
)
def test_an_update_while_it_runs_ends_it_with_one_sentence(
    start: Start, base_environment: dict[str, str], tmp_path: Path, changed: str, keys: str, how: str
) -> None:
    package = tmp_path / "site" / "gputui"
    # The copy leaves out compiled files, whose half-written versions vanish.
    shutil.copytree(Path(gputui_file).parent, package, ignore=shutil.ignore_patterns("*.pyc.*"))
    environment = {**base_environment, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    terminal = start("--demo", "idle", "--", "sleep", "9", environment=environment)
    terminal.send("0")
    terminal.until("[1]")
    module = package / changed
    if how == "fails":
        module.write_text("from gputui.tui import nothing_of_this_name\n")
    elif how == "is gone":
        module.unlink()
    else:
        module.write_text("")
        _replaced(package)
    terminal.send(keys)
    assert terminal.end() == 1
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h")
    said = [line for line in terminal.lines if line]
    assert len(said) == 1 and "updated while it ran" in said[0], said
