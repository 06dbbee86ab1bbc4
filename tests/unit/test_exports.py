"""`gputui export`: every form from the command line, its destination, and the messages about it."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import stat
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path

import pytest

from gputui.launching.exports import FORMS, ExportError, ExportOptions
from gputui.launching.launch import Launch
from gputui.system.files import write_result
from table_tests import each_row
from unit.builders import box, gpu, recording
from unit.calling import Call
from unit.test_quoting_in_shells import HOSTILE

GPUTUI = (sys.executable, "-m", "gputui")


@pytest.fixture
def one(tmp_path: Path) -> str:
    """A recording of a box with two idle GPUs."""
    return recording(tmp_path, box(gpu(0), gpu(1)))


BEGINNINGS = {
    "sh": "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1,0 python train.py",
    "fish": "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1,0 python train.py",
    "powershell": "$env:CUDA_DEVICE_ORDER = 'PCI_BUS_ID'; $env:CUDA_VISIBLE_DEVICES = '1,0'; & 'python'",
    "dotenv": "# CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1,0 python train.py\nCUDA_DEVICE_ORDER=",
    "docker": "docker run --rm -it --gpus '\"device=GPU-00000001-",
    "compose": "# docker compose run --rm train\nservices:\n  train:\n    image: IMAGE\n",
    "sbatch": "#!/bin/bash\n#SBATCH --job-name=train\n",
    "ray": "ray job submit --working-dir=. --entrypoint-num-gpus=2 -- python train.py",
    "kubernetes": "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: train\n",
    "accelerate": "# CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1,0 accelerate launch --config_file",
    "vscode": '{\n    "version": "0.2.0",\n',
    "json": '{"schema": 1, "argv": ["python", "train.py"]',
}


def test_every_form_has_its_beginning_here() -> None:
    assert list(BEGINNINGS) == list(FORMS)


@each_row("form", FORMS)
def test_every_form_is_written(call: Call, one: str, form: str) -> None:
    ended = call("export", "--as", form, "--gpus", "1,0", "--from", one, "--", "python", "train.py")
    assert ended.status == 0
    assert ended.out.startswith(BEGINNINGS[form]) and ended.out.endswith("\n")
    assert not ended.out.endswith("\n\n")


@each_row("form", FORMS)
def test_a_form_is_written_or_refused_and_nothing_else(form: str) -> None:
    commands = ((), ("python", "t.py", *HOSTILE), ("x\n#SBATCH -x", "'"), tuple(HOSTILE))
    for devices, argv in itertools.product(((), (gpu(0),), (gpu(3), gpu(1))), commands):
        launch = Launch(argv, (("A", "1"), ("B", None), ("C", "a\nb")), devices=devices)
        try:
            assert FORMS[form].write(launch, ExportOptions())
        except ExportError as error:
            assert str(error)
        else:
            assert all(note.isprintable() for note in FORMS[form].notes(launch, ExportOptions()))


def test_json_is_the_whole_launch(call: Call, one: str) -> None:
    told = call("export", "--as", "json", "--gpus", "1", "--from", one, "--", "A=1", "python", "x").json
    assert told == {
        "schema": 1,
        "argv": ["python", "x"],
        "environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1", "A": "1"},
        "directory": None,
        "devices": [{"index": 1, "uuid": gpu(1).uuid, "name": gpu(1).name}],
        "launcher": "python",
        "warnings": [],
        "remarks": [],
        "line": "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 A=1 python x",
        "time_limit": None,
    }


def test_what_the_form_changes_is_said_on_stderr(call: Call, one: str) -> None:
    ended = call("export", "--as", "sbatch", "-n", "2", "--from", one, "--", "python", "train.py")
    assert any("Slurm" in line for line in ended.err.splitlines())
    assert all(line.startswith("gputui: ") for line in ended.err.splitlines())


REFUSED = [
    (["--as", "dotenv", "--", "A=${HOME}", "x"], "--as sh"),
    (["--as", "vscode", "--", "sh", "x"], "not Python"),
    (["--as", "vscode"], "after --"),
    (["--as", "sbatch"], "after --"),
    (["--as", "docker", "--image", "-x", "--", "y"], "image"),
    (
        ["--as", "sh", "--image", "i", "--", "y"],
        "--image is for docker and compose and kubernetes, not for sh",
    ),
    (
        ["--as", "json", "--name", "i", "--", "y"],
        "--name is for docker and compose and sbatch and kubernetes and vscode, not",
    ),
    (["--as", "sbatch", "--name", "a b", "--", "y"], "name of a job"),
    (["--as", "sbatch", "--nodes", "2", "--", "python", "y"], "--launcher torchrun"),
    (["--as", "sh", "--copy", "-o", "x", "--", "y"], "not allowed with"),
]


@each_row(("words", "reason"), REFUSED, ids=lambda value: " ".join(value)[:40])
def test_what_a_form_cannot_express_is_one_line_and_status_2(
    call: Call, one: str, words: list[str], reason: str
) -> None:
    assert reason in call("export", "--from", one, *words).refused(2)


def test_an_option_that_means_something_to_the_form_is_taken(call: Call, one: str) -> None:
    ended = call("export", "--as", "docker", "--image", "me/it:1", "--name", "n", "--from", one, "--", "x")
    assert (ended.status, ended.err) == (0, "")
    words = shlex.split(ended.out)
    assert words[-2:] == ["me/it:1", "x"] and words[words.index("--name") + 1] == "n"


def test_every_option_of_a_form_is_one_of_the_options() -> None:
    names = {field.name for field in fields(ExportOptions)}
    assert all(form.takes <= names for form in FORMS.values())


# To a file.


def test_it_is_written_to_a_file(call: Call, one: str, tmp_path: Path) -> None:
    file = tmp_path / "a b.yaml"
    ended = call("export", "--as", "accelerate", "-n", "2", "-o", str(file), "--from", one, "--", "t.py")
    assert (ended.status, ended.out) == (0, "")
    assert f"wrote {file}" in ended.err
    assert f"--config_file '{file}' t.py" in file.read_text(), "the line names the file that it is in"
    assert file.read_text().endswith("\n")


def test_a_dash_is_stdout(call: Call, one: str) -> None:
    assert call("export", "--as", "sh", "-o", "-", "--gpus", "0", "--from", one, "--", "x").line.endswith(
        " x"
    )


@each_row("form", ["sh", "json", "sbatch"])
@each_row("words", [("--env", "HF_TOKEN=x", "--", "true"), ("--", "true", "--hub.token", "x")])
def test_a_new_file_with_a_secret_is_for_its_owner_alone(
    call: Call, one: str, tmp_path: Path, form: str, words: tuple[str, ...]
) -> None:
    file, given = tmp_path / "new", tmp_path / "there"
    given.touch()
    given.chmod(0o644)
    for place, mode in ((file, 0o600), (given, 0o644)):
        ended = call("export", "-n", "1", "--from", one, "--as", form, "-o", str(place), *words)
        assert ended.status == 0, ended.err
        assert stat.S_IMODE(place.stat().st_mode) == mode


def test_bytes_that_are_no_text_are_in_the_file(one: str, tmp_path: Path) -> None:
    words = [*GPUTUI, "export", "--as", "sh", "-o", "line.sh", "--gpus", "0", "--from", one, "--", b"caf\xe9"]
    subprocess.run(words, cwd=tmp_path, timeout=60, check=True, capture_output=True)
    assert b"'caf\xe9'\n" in (tmp_path / "line.sh").read_bytes()


@pytest.mark.parametrize(("form", "encoding"), [("dotenv", "utf-8"), ("vscode", "utf-8"), ("sh", "latin-1")])
@pytest.mark.parametrize("to_file", [False, True], ids=["stdout", "file"])
def test_a_file_format_is_utf8_and_a_line_has_the_bytes_of_the_arguments(
    one: str, tmp_path: Path, form: str, encoding: str, to_file: bool
) -> None:
    # This simulates a locale of another encoding, so that none has to be installed.
    script = (
        "import os, sys\n"
        "os.fsencode = lambda text: text.encode('latin-1', 'surrogateescape')\n"
        "sys.stdout.reconfigure(encoding='latin-1')\n"
        "from gputui.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    where = ("-o", "out") if to_file else ()
    words = ["export", "--as", form, "--gpus", "0", *where, "--from", one, "--", "A=é", "python", "t.py"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=tmp_path, timeout=60, check=True, capture_output=True
    )
    text = (tmp_path / "out").read_bytes() if to_file else done.stdout
    assert "é".encode(encoding) in text and text.decode(encoding)


def test_a_refused_form_leaves_the_file_as_it_was(call: Call, one: str, tmp_path: Path) -> None:
    file = tmp_path / "launch.json"
    file.write_text("mine")
    assert call("export", "--as", "vscode", "-o", str(file), "--from", one, "--", "sh").status == 2
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["none/x", "."])
def test_a_file_that_cannot_be_written_is_one_line(call: Call, one: str, tmp_path: Path, name: str) -> None:
    words = ("--as", "sh", "--gpus", "0", "-o", str(tmp_path / name), "--from", one, "--", "x")
    assert "cannot write" in call("export", *words).refused(2)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_a_file_is_replaced_as_a_whole_and_readable_as_others_are(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"a long text before")
    inode = file.stat().st_ino
    write_result(file, b"short")
    other = tmp_path / "y"
    other.touch()
    assert file.read_bytes() == b"short" and file.stat().st_ino != inode
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["x", "y"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_result(pipe, b"text")
    reader.join(60)
    assert read == [b"text"] and stat.S_ISFIFO(pipe.stat().st_mode)


# To the clipboard.


def test_it_is_copied_whole(one: str, tmp_path: Path) -> None:
    tool = tmp_path / "xclip"
    tool.write_text(f"#!/bin/sh\ncat > {shlex.quote(str(tmp_path / 'kept'))}\n")
    tool.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "DISPLAY": ":0"}
    words = [*GPUTUI, "export", "--as", "json", "--copy", "--gpus", "0", "--from", one, "--", "x"]
    done = subprocess.run(words, env=environ, timeout=60, check=True, capture_output=True, text=True)
    assert done.stdout == "" and "xclip" in done.stderr
    assert json.loads((tmp_path / "kept").read_text())["argv"] == ["x"]


def test_what_could_not_be_copied_is_no_success(one: str) -> None:
    words = [*GPUTUI, "export", "--as", "sh", "--copy", "--gpus", "0", "--from", one, "--", "x"]
    # A process in a session of its own has no terminal to ask.
    done = subprocess.run(
        words, env={"PATH": "/nowhere"}, timeout=60, capture_output=True, text=True, start_new_session=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "not copied" in done.stderr
