"""Commands that would outlive their lease are not started on devices whose claim they would lose."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gputui import RequestError, launch
from gputui.launching.daemonizers import daemonizer_in
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.read_intent import read_intent
from table_tests import each_row
from unit.claims_support import Box, holders, until


@each_row(
    ("line", "found"),
    [
        ("screen -dmS x python train.py", "screen"),
        ("/usr/bin/screen -d -m python train.py", "screen"),
        ("screen -S x python train.py", "screen"),
        ("screen", "screen"),
        ("screen -r x", None),
        ("./screen -dm python train.py", None),
        ("nohup screen -dm python train.py", "screen"),
        ("env A=1 nice -n 5 systemd-run --user python train.py", "systemd-run"),
        ("systemd-run --user --scope python train.py", None),
        ("daemonize /usr/bin/python train.py", "daemonize"),
        ("start-stop-daemon -S -b -x /usr/bin/python -- train.py", "start-stop-daemon --background"),
        ("start-stop-daemon --start --background --exec /usr/bin/python", "start-stop-daemon --background"),
        ("start-stop-daemon --start --exec /usr/bin/python -- -b", None),
        ("at -f train.sh now", "at"),
        ("at -l", None),
        ("batch -f train.sh", "batch"),
        ("./batch 8", None),
        ("docker run -d image python train.py", "docker run --detach"),
        ("podman run --rm --detach image", "podman run --detach"),
        ("docker run --rm image python train.py -d", None),
        ("docker ps -d", None),
        ("nohup python train.py", None),
        ("setsid -f python train.py", None),
        ("tmux new-session -d python train.py", None),
        ("python screen -dm", None),
    ],
)
def test_what_leaves_the_lease_is_known(line: str, found: str | None) -> None:
    assert daemonizer_in(tuple(line.split())) == found


@each_row(
    ("script", "found"),
    [
        ("screen -dm python train.py", "screen"),
        ("cd /tmp && at -f x now", "at"),
        ("nohup python train.py > log 2>&1 &", None),
        ("python train.py & wait", None),
    ],
)
def test_what_a_shell_starts_counts_too(tmp_path: Path, script: str, found: str | None) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\n{script}\n")
    for command in (("bash", "-c", script), ("sh", "run.sh")):
        assert read_intent(LaunchOptions(command, directory=str(tmp_path)), {}).unclaimed == found


SCREEN = ("screen", "-dmS", "x", "python", "train.py")


def test_it_is_refused_wherever_devices_would_be_claimed(box: Box, tmp_path: Path) -> None:
    (tmp_path / "screen").touch(0o755)
    there = f"{tmp_path}:{os.defpath}"
    for call in (
        ("run", "-n", "1"),
        ("run", "-n", "1", "--dry-run"),
        ("run", "--gpus", "0", "--detach"),
        ("run", "-n", "1", "--wait", "--detach"),
        ("compare", "-n", "1", "--vary", "env:X=1,2"),
    ):
        status, out, said = box.call(*call, "--", *SCREEN, PATH=there)
        assert (status, out) == (2, "") and "--detach" in said and "--force" in said
        assert box.claimed() == []
    for call in (
        ("run", "-n", "1", "--dry-run", "--force"),
        ("run", "--gpus", "none", "--dry-run"),
        ("export", "-n", "1", "--as", "sh"),
    ):
        assert box.call(*call, "--", *SCREEN)[0] == 0


def test_the_library_refuses_it_too() -> None:
    with pytest.raises(RequestError, match="screen"):
        launch(SCREEN, 1, demo="idle", dry_run=True)
    assert launch(SCREEN, 1, demo="idle", dry_run=True, force=True).argv[0] == "screen"


@pytest.mark.skipif(shutil.which("screen") is None, reason="screen is not installed")
def test_why_screen_is_refused_is_true(box: Box) -> None:
    fifo, sessions = box.folder / "fifo", box.folder / "sessions"
    os.mkfifo(fifo)
    sessions.mkdir(mode=0o700)
    command = ("screen", "-dmS", "gputui-test", "sh", "-c", f"echo $$ > '{fifo}'; read x < '{fifo}'")
    child = box.start("run", "-q", "--force", "-n", "1", "--", *command, SCREENDIR=str(sessions))
    with fifo.open() as stream:
        pid = int(stream.read())
    try:
        assert child.end() == 0, child.err
        until(lambda: box.claimed() == [])
        Path(f"/proc/{pid}").stat()
        assert all(pid not in holders(record) for record in box.claims_folder.glob("*.claim"))
    finally:
        fifo.open("w").close()
        subprocess.run(
            ["screen", "-S", "gputui-test", "-X", "quit"],
            env={**box.environ, "SCREENDIR": str(sessions)},
            capture_output=True,
            check=False,
        )
