"""`gputui launches`, and `--saved`: an earlier launch, by its name or its number."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from gputui.launching.history import named, with_launch
from gputui.launching.history_file import change, load
from gputui.launching.launch_options import LaunchOptions
from messages import lines_of, only_warning
from unit.calling import Call

Keep = Callable[..., None]


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A home for one test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def file(environ: dict[str, str]) -> Path:
    return Path(environ["XDG_STATE_HOME"]) / "gputui" / "launches.json"


@pytest.fixture
def keep(environ: dict[str, str]) -> Keep:
    """Remember a launch."""

    def kept(
        options: LaunchOptions, count: int = 1, name: str | None = None, where: str | None = None
    ) -> None:
        change(environ, lambda known: named(with_launch(known, options, count, 1.0, where), 0, name))

    return kept


# The list


@pytest.mark.usefixtures("environ")
def test_without_any_it_says_so_and_prints_nothing(call: Call) -> None:
    done = call("launches")
    assert (done.status, done.out) == (0, "")
    assert len(lines_of(done.err)) == 1 and "no launches" in done.err


def test_the_list_has_a_number_a_name_the_devices_and_the_command(call: Call, keep: Keep) -> None:
    keep(LaunchOptions(("python", "a.py")), 0)
    keep(LaunchOptions(("torchrun", "b c.py"), additions=(("A", "x y"),)), 4, "nightly")
    head, first, second = call("launches").text.splitlines()
    assert head.split() == ["#", "NAME", "DEVICES", "BEGAN", "COMMAND"]
    assert first.split()[:4] == ["1", "nightly", "4", "GPUs"]
    assert first.endswith("ago  A='x y' torchrun 'b c.py'")
    assert second.split()[:3] == ["2", "CPU", "only"]


def test_the_list_as_json_has_everything_that_is_kept(call: Call, keep: Keep) -> None:
    keep(LaunchOptions(("python", "a.py"), launcher="torchrun", numa=True), 2, "größe", "/proj")
    (row,) = call("launches", "--json").json["launches"]
    assert row == {
        "name": "größe", "count": 2, "when": 1.0, "where": "/proj", "command": ["python", "a.py"],
        "launcher": "torchrun", "ids": "index", "additions": [], "numa": True, "nodes": 1,
    }  # fmt: skip


def test_foreign_text_in_it_does_nothing_to_the_terminal(call: Call, keep: Keep) -> None:
    keep(LaunchOptions(("python", "\x1b]0;pwn\x07\n\u202e.py", os.fsdecode(b"\xff"))))
    assert all(line.isprintable() for line in call("launches").text.splitlines())


# Naming and forgetting


def test_a_launch_gets_a_name_and_loses_it(call: Call, keep: Keep, environ: dict[str, str]) -> None:
    keep(LaunchOptions(("python", "a.py")))
    assert call("launches", "name", "1", "nightly").text == ""
    assert load(environ)[0].name == "nightly"
    assert call("launches", "name", "nightly").text == ""
    assert load(environ)[0].name is None


def test_a_launch_is_forgotten_by_its_name_or_its_number(
    call: Call, keep: Keep, environ: dict[str, str]
) -> None:
    for name in ("a", "b", "c"):
        keep(LaunchOptions(("python", f"{name}.py")), name=name)
    assert call("launches", "forget", "a").text == ""
    assert call("launches", "forget", "1").text == ""
    assert [each.name for each in load(environ)] == ["b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("name",), "name needs a launch"),
        (("forget",), "forget needs a launch"),
        (("forget", "a", "b"), "forget needs one launch"),
        (("list", "x"), "list does not take 'x'"),
        (("name", "nobody", "x"), "no launch is saved as 'nobody'"),
        (("forget", "7"), "no launch is saved as '7'"),
        (("name", "1", "2"), "not a valid launch name: '2'"),
        (("name", "1", "a\nb"), "not a valid launch name"),
        (("steal",), "invalid choice: 'steal'"),
        (("list", "--", "python"), "launches does not start commands"),
    ],
)
def test_what_cannot_be_meant_is_a_wrong_call_and_changes_nothing(
    call: Call, keep: Keep, environ: dict[str, str], words: tuple[str, ...], said: str
) -> None:
    keep(LaunchOptions(("python", "a.py")))
    before = load(environ)
    assert said in call("launches", *words).refused(2)
    assert load(environ) == before


@pytest.mark.parametrize("words", [(), ("--json",), ("forget", "1"), ("name", "1", "x")])
def test_a_damaged_file_is_said_and_left_alone(call: Call, file: Path, words: tuple[str, ...]) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("{")
    assert str(file) in call("launches", *words).refused(2)
    assert file.read_text() == "{"


# --saved


def dry(call: Call, *words: str) -> str:
    return call("run", "--demo", "shared", "--dry-run", *words).line


def test_saved_takes_as_many_of_the_best_as_it_ran_on(call: Call, keep: Keep) -> None:
    keep(LaunchOptions(("train.py",), launcher="torchrun", additions=(("A", "1"),)), 2, "nightly")
    wanted = dry(call, "-n", "2", "--launcher", "torchrun", "--env", "A=1", "--", "train.py")
    assert dry(call, "--saved", "nightly") == wanted
    assert dry(call, "--saved", "1") == wanted


def test_what_the_call_says_counts_instead(call: Call, keep: Keep) -> None:
    keep(LaunchOptions(("train.py",), launcher="torchrun", additions=(("A", "1"), ("B", "2"))), 2, "nightly")
    assert "--nproc-per-node=3" in dry(call, "--saved", "nightly", "-n", "3")
    assert "CUDA_VISIBLE_DEVICES=7 " in dry(call, "--saved", "nightly", "--gpus", "7")
    assert "CUDA_VISIBLE_DEVICES= " in dry(call, "--saved", "nightly", "--gpus", "none")
    assert " A=9 B=2 C=3 " in dry(call, "--saved", "nightly", "--env", "A=9", "--", "C=3")
    assert " python train.py" in dry(call, "--saved", "nightly", "--launcher", "python")


def test_a_launch_on_the_cpu_is_one_again_unless_devices_are_asked_for(call: Call, keep: Keep) -> None:
    keep(LaunchOptions(("python", "a.py")), 0, "plain")
    assert dry(call, "--saved", "plain") == "CUDA_VISIBLE_DEVICES= python a.py"
    assert "CUDA_VISIBLE_DEVICES=4,5 " in dry(call, "--saved", "plain", "-n", "2")


def test_it_is_started_in_the_folder_in_which_it_was(call: Call, keep: Keep, tmp_path: Path) -> None:
    keep(LaunchOptions(("python", "a.py")), 0, "there", "/")
    keep(LaunchOptions(("python", "b.py")), 0, "here", str(tmp_path))
    assert dry(call, "--saved", "there") == "cd -- / && CUDA_VISIBLE_DEVICES= python a.py"
    assert dry(call, "--saved", "here") == "CUDA_VISIBLE_DEVICES= python b.py"
    assert dry(call, "--saved", "there", "--directory", "/tmp").startswith("cd -- /tmp && ")


def test_export_takes_a_saved_launch_too(call: Call, keep: Keep) -> None:
    keep(LaunchOptions(("python", "a.py")), 2, "nightly")
    assert call("export", "--demo", "shared", "--saved", "nightly", "--as", "sh").text.endswith(
        "python a.py\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--saved", "nobody"), "no launch is saved as 'nobody'"),
        (("--saved", "2"), "no launch is saved as '2'"),
        (("--saved", ""), "no launch is saved as ''"),
        (("--saved", "nightly", "--", "python", "x.py"), "--saved replaces the command"),
    ],
)
def test_a_saved_launch_that_cannot_be_meant_is_a_wrong_call(
    call: Call, keep: Keep, words: tuple[str, ...], said: str
) -> None:
    keep(LaunchOptions(("python", "a.py")), 1, "nightly")
    assert said in call("run", "--demo", "shared", "--dry-run", *words).refused(2)


def test_a_launch_on_several_machines_is_not_planned(call: Call, keep: Keep) -> None:
    keep(LaunchOptions(("torchrun", "a.py"), nodes=2, rendezvous="node0"), 1, "far")
    call("plan", "8B", "--demo", "shared", "--saved", "far").refused(2)


def test_a_secret_that_is_not_kept_is_missed_aloud(
    call: Call, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    keep(LaunchOptions(("python", "a.py"), additions=(("HF_TOKEN", "hf_x"),)), 0, "nightly")
    done = call("run", "--demo", "shared", "--dry-run", "--saved", "nightly")
    assert done.out == "CUDA_VISIBLE_DEVICES= python a.py\n"
    assert "HF_TOKEN" in only_warning(done.err) and "hf_x" not in done.err
    assert "HF_TOKEN=hf_y" in dry(call, "--saved", "nightly", "--env", "HF_TOKEN=hf_y")
    monkeypatch.setenv("HF_TOKEN", "hf_z")
    assert "HF_TOKEN" not in dry(call, "--saved", "nightly")


def test_a_saved_launch_from_a_damaged_file_is_not_guessed(call: Call, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("[]")
    assert "are damaged" in call("run", "--demo", "--dry-run", "--saved", "1").refused(2)


# Launches that are remembered


def in_a_terminal(environ: dict[str, str], *words: str) -> tuple[int, str]:
    """Call `gputui run` as a person does; return its status and the text of the terminal."""
    argv = ["-m", "gputui", "run", "--demo", "shared", "--gpus", "none", *words]
    child = pexpect.spawn(sys.executable, argv, env={**os.environ, **environ}, timeout=30)
    text = child.read().decode()
    child.close()
    return child.exitstatus or 0, text


def test_run_in_a_terminal_is_remembered_and_in_a_script_it_is_not(
    environ: dict[str, str], tmp_path: Path
) -> None:
    status, text = in_a_terminal(environ, "-q", "--", "A=1", "sh", "-c", "echo ran; exit 3")
    assert (status, "ran" in text) == (3, True)
    (each,) = load(environ)
    assert each.options == LaunchOptions(("sh", "-c", "echo ran; exit 3"), additions=(("A", "1"),))
    assert (each.count, each.where) == (0, str(tmp_path))
    argv = [sys.executable, "-m", "gputui", "run", "--demo", "--gpus", "none", "-q", "--", "true"]
    subprocess.run(argv, stdin=subprocess.DEVNULL, env={**os.environ, **environ}, check=True)
    assert load(environ) == (each,)


def test_what_cannot_be_remembered_is_said_and_started_all_the_same(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("")
    status, text = in_a_terminal(environ, "--", "sh", "-c", "echo ran; exit 3")
    assert (status, "\nran" in text) == (3, True)
    assert "gputui: warning: launches " in text and str(tmp_path / "state") in text


def test_a_saved_launch_that_runs_again_is_there_once_with_its_name(
    environ: dict[str, str], keep: Keep, tmp_path: Path
) -> None:
    keep(LaunchOptions(("true",)), 0, "nightly", str(tmp_path))
    keep(LaunchOptions(("false",)), 0)
    assert in_a_terminal(environ, "-q", "--saved", "nightly")[0] == 0
    assert [(each.name, each.options.command) for each in load(environ)] == [
        ("nightly", ("true",)), (None, ("false",)),
    ]  # fmt: skip


def test_json_is_one_line(call: Call, keep: Keep) -> None:
    keep(LaunchOptions(("python", "a\nb")))
    assert json.loads(call("launches", "--json").line)["schema"] == 1
