"""The three uses of gputui, from the first key to the environment and arguments that the command received."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.conftest import GPUTUI, Start
from gputui.sources.simulated.boxes import BOXES
from messages import lines_of
from simnvml import SimulatedNvml

pytestmark = pytest.mark.e2e

REPORT = """
import json, os, signal, sys
json.dump({
    "pid": os.getpid(), "argv": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd(),
    "pipe_ignored": signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN,
}, open(os.environ["REPORT"], "w"))
print("the command ran")
sys.exit(int(os.environ.get("STATUS", 0)))
"""


@pytest.fixture
def environment(
    base_environment: dict[str, str], simulated_nvml: SimulatedNvml, tmp_path: Path
) -> dict[str, str]:
    """A machine with the simulated driver, and a command that reports its environment and arguments."""
    script = tmp_path / "report.py"
    # Python itself ignores SIGPIPE when it starts: `-c` in a shell would hide the inherited action.
    script.write_text(REPORT)
    return simulated_nvml.environment({**base_environment, "REPORT": str(tmp_path / "report.json")})


@pytest.fixture
def report(tmp_path: Path) -> Callable[[], dict]:
    """The report of the command."""
    return lambda: json.loads((tmp_path / "report.json").read_text())


def ended(before: dict[str, str], after: dict[str, str]) -> dict[str, str | None]:
    """The variables that differ, with their value after the command (None: unset)."""
    return {
        name: after.get(name)
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name) and name not in ("LINES", "COLUMNS")
    }


def test_two_keys_and_enter_turn_this_process_into_the_command(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml, tmp_path: Path, report
) -> None:
    simulated_nvml.show_box(BOXES["dgx-h100"])
    given = {**environment, "STATUS": "7"}
    terminal = start("--", sys.executable, "report.py", "--lr", "3 e-4", environment=given, cwd=tmp_path)
    terminal.until("○ free")
    terminal.send("52")
    terminal.until("CUDA_VISIBLE_DEVICES=5,2")
    terminal.send("\r")
    assert terminal.end() == 7
    assert "the command ran" in terminal.text
    received = report()
    assert received["pid"] == terminal.pid
    assert received["argv"] == ["--lr", "3 e-4"]
    assert received["cwd"] == str(tmp_path)
    assert ended(given, received["environment"]) == {
        "CUDA_VISIBLE_DEVICES": "5,2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_the_screen_and_the_terminal_are_left_as_they_were(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    shell = start(environment={**environment, "PS1": "ready> "}, argv=["bash", "--norc", "--noprofile", "-i"])
    shell.until("ready>")
    before = shell.modes
    shell.send(f"{' '.join(GPUTUI)} -- sh -c 'exit 7'\r")
    shell.until("○ free")
    shell.send("1\r")
    shell.until(lambda t: t.lines[0].startswith("ready>") and t.text.count("ready>") == 2)
    shell.send("echo status:$?\r")
    shell.until("status:7")
    assert "○ free" not in shell.text
    shell.until(lambda t: t.text.count("ready>") == 3 and t.modes == before)
    # Every mode that was switched on (alternate screen, mouse, focus, paste) was switched off again.
    for mode in (b"1049", b"1000", b"1003", b"1004", b"1006", b"2004"):
        on, off = shell.raw.rfind(b"\x1b[?" + mode + b"h"), shell.raw.rfind(b"\x1b[?" + mode + b"l")
        assert mode == b"2004" or off > on or on == -1, f"mode {mode!r} was left on"
    shell.send("exit\r")
    shell.end()


def test_ctrl_c_in_the_command_gives_130_as_by_hand(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    shell = start(environment={**environment, "PS1": "ready> "}, argv=["bash", "--norc", "--noprofile", "-i"])
    shell.until("ready>")
    shell.send(f"{' '.join(GPUTUI)} -- sh -c 'echo waiting; exec sleep 1000'\r")
    shell.until("○ free")
    shell.send("0\r")
    shell.until("waiting")
    shell.send("\x03")
    shell.until(lambda t: t.text.count("ready>") == 2)
    shell.send("echo status:$?\r")
    shell.until("status:130")
    shell.send("exit\r")
    assert shell.end() == 0


def test_ctrl_c_on_the_screen_leaves_with_130_and_starts_nothing(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["idle"])
    terminal = start("--", "echo", "started", environment=environment)
    terminal.until("○ free")
    terminal.send("0\x03")
    assert terminal.end() == 130
    assert "started" not in terminal.text


@pytest.mark.parametrize(
    ("program", "said"),
    [("no-such-program", "there is no program 'no-such-program'"), ("./plain", "cannot start './plain'")],
)
def test_a_program_that_is_missing_or_none_is_said_and_the_screen_stays(
    start: Start,
    environment: dict[str, str],
    simulated_nvml: SimulatedNvml,
    tmp_path: Path,
    program: str,
    said: str,
) -> None:
    (tmp_path / "plain").write_text("no program")
    simulated_nvml.show_box(BOXES["idle"])
    terminal = start("--", program, environment=environment, cwd=tmp_path)
    terminal.until("○ free")
    terminal.send("0\r")
    terminal.until(said).until("cuda:0 = GPU 0")
    terminal.send("q")
    assert terminal.end() == 0


def test_on_a_shared_box_run_takes_what_is_free_and_says_what_is_not(
    environment: dict[str, str], simulated_nvml: SimulatedNvml, tmp_path: Path, report
) -> None:
    simulated_nvml.show_box(BOXES["shared"])
    done = subprocess.run(
        [*GPUTUI, "run", "-n", "2", "--", sys.executable, "report.py"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert report()["environment"]["CUDA_VISIBLE_DEVICES"] == "4,5"
    short = subprocess.run(
        [*GPUTUI, "run", "-n", "6", "--", "echo", "started"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (short.returncode, short.stdout) == (4, "")
    refusal, *reasons, remedy = lines_of(short.stderr)
    assert "6 GPUs" in refusal and "3 of 8" in refusal and len(reasons) == 5 and "--wait" in remedy
    assert "GPU 0  busy: " in reasons[0] and "GPU 2  held: 22.4G " in reasons[2]


def test_env_and_pick_together_start_a_command(
    environment: dict[str, str], simulated_nvml: SimulatedNvml, tmp_path: Path, report
) -> None:
    simulated_nvml.show_box(BOXES["shared"])
    line = f"env $({' '.join(GPUTUI)} pick -n 2 --format env) {sys.executable} report.py"
    subprocess.run(["sh", "-c", line], env=environment, cwd=tmp_path, check=True)
    assert report()["environment"]["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert report()["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_the_line_that_y_copies_through_tmux_runs_as_the_one_that_enter_starts(
    environment: dict[str, str], simulated_nvml: SimulatedNvml, tmp_path: Path, start: Start, report
) -> None:
    simulated_nvml.show_box(BOXES["shared"])
    hostile = [
        "a b",
        "it's",
        '"q"',
        "$(echo no)",
        "`no`",
        "one\ntwo",
        "🦊👩‍🔬",
        "\u202eback",
        "=ls",
        "~",
        "*",
        "",
    ]
    environment = {**environment, "TMUX_TMPDIR": str(tmp_path)}
    socket = ["tmux", "-L", "gputui-test", "-f", os.devnull]
    inside = start(environment=environment, argv=[*socket, "new-session", "bash", "--norc"], cwd=tmp_path)
    try:
        inside.until("bash-")
        argv = [*GPUTUI, "--", sys.executable, "report.py", *hostile]
        (tmp_path / "argv").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
        inside.send("mapfile -d '' -t words < argv; \"${words[@]}\"\r")
        inside.until("○ free")
        inside.send("54y")
        inside.until("clipboard through tmux")
        copied = subprocess.run(
            [*socket, "show-buffer"], env=environment, capture_output=True, text=True, check=True
        ).stdout
        inside.send("\r")
        inside.until("the command ran")
        executed = report()
        subprocess.run(["bash", "-c", copied], env=environment, cwd=tmp_path, check=True)
        pasted = report()
    finally:
        subprocess.run([*socket, "kill-server"], env=environment, check=False)
    assert executed["argv"] == pasted["argv"] == hostile
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        assert executed["environment"][name] == pasted["environment"][name]
    assert executed["environment"]["CUDA_VISIBLE_DEVICES"] == "5,4"


def test_a_command_that_cannot_be_started_leaves_no_record_of_it(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml, tmp_path: Path
) -> None:
    simulated_nvml.show_box(BOXES["dgx-h100"])
    # Only the start shows that its interpreter is missing.
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    terminal = start("--", "./script", environment=environment, cwd=tmp_path)
    terminal.until("○ free").send("5")
    terminal.until("CUDA_VISIBLE_DEVICES=5").send("\r")
    assert terminal.end() == 127
    assert list((tmp_path / "claims").glob("*.claim")) == []


def test_a_device_taken_between_choosing_and_enter_is_asked_about(
    start: Start, environment: dict[str, str], simulated_nvml: SimulatedNvml
) -> None:
    simulated_nvml.show_box(BOXES["dgx-h100"])
    terminal = start("--", "echo", "started", environment=environment)
    terminal.until("○ free")
    terminal.send("6")
    terminal.until("CUDA_VISIBLE_DEVICES=6")
    # Twenty seconds later, somebody runs on GPU 6.
    simulated_nvml.show_box(BOXES["dgx-h100"], elapsed=20.0)
    terminal.send("\r")
    terminal.until("start anyway").until("GPU 6 (cuda:0) is busy (was free)")
    terminal.send("n")
    terminal.until(lambda t: "start anyway" not in t.text)
    terminal.send("q")
    assert terminal.end() == 0
    assert "started" not in terminal.text


WHOLE = replace(
    BOXES["a100-mig"],
    gpus=(replace(BOXES["a100-mig"].gpus[1], bus="07:00.0"), BOXES["a100-mig"].gpus[1]),
    tasks=(),
)
"""The box with MIG instances, before its first GPU was divided."""

CHANGES: dict[str, tuple[Callable[[SimulatedNvml], object], str | None]] = {
    "prohibited": (lambda driver: driver.show_box(WHOLE, facts={"0": {"compute_mode": 2}}), "prohibited"),
    "divided": (lambda driver: driver.show_box(BOXES["a100-mig"]), "MIG"),
    # One process may still start there: the command.
    "exclusive": (lambda driver: driver.show_box(WHOLE, facts={"0": {"compute_mode": 3}}), None),
}
"""The change that an administrator makes between the selection and Enter, and the question that follows
(None: none)."""


@pytest.mark.parametrize("change", CHANGES)
def test_a_mode_that_changes_between_selection_and_enter_is_asked_about(
    change: str,
    start: Start,
    environment: dict[str, str],
    simulated_nvml: SimulatedNvml,
    tmp_path: Path,
    report: Callable[[], dict],
) -> None:
    """Modes are read every half minute only, and again before a launch."""
    simulated_nvml.show_box(WHOLE)
    terminal = start("--", sys.executable, "report.py", environment=environment, cwd=tmp_path, size=(120, 30))
    terminal.until("○ free")
    terminal.send("0")
    terminal.until("CUDA_VISIBLE_DEVICES=0")
    done, said = CHANGES[change]
    done(simulated_nvml)
    terminal.send("\r")
    if said is None:
        assert terminal.end() == 0
        assert report()["environment"]["CUDA_VISIBLE_DEVICES"] == "0"
    else:
        terminal.until("start anyway").until(said)
        assert not (tmp_path / "report.json").exists()
        terminal.send("n")
        terminal.until(lambda t: "start anyway" not in t.text)
        assert not (tmp_path / "report.json").exists()
