"""The interpreter in which a command will train, from the command and the first lines of real scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputui.launching.interpreter import InterpreterError, interpreter, shebang
from table_tests import each_row


def program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> Path:
    """An executable script."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)
    return file


@pytest.fixture
def path(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH contains a python and nothing else."""
    program(tmp_path / "bin", "python")
    return {"PATH": str(tmp_path / "bin")}


def found(path: dict[str, str], *command: str) -> str:
    """The words before a script, as one line; asserts that there is no doubt about them."""
    answer = interpreter(command, path)
    assert answer.doubt is None, answer
    return " ".join(answer.argv)


def doubted(path: dict[str, str], *command: str) -> str:
    """The reason for the doubt; asserts that the python of the PATH is taken."""
    answer = interpreter(command, path)
    assert answer.argv == ("python",) and answer.doubt
    return answer.doubt


@each_row(
    ("command", "expected"),
    [
        ("python train.py --lr 1", "python"),
        ("python3.11 train.py", "python3.11"),
        ("/opt/venv/bin/python -m pkg.train", "/opt/venv/bin/python"),
        ("python -m torch.distributed.run train.py", "python"),
        ("python -u -I train.py -s", "python -u -I"),
        ("python -X dev -W error train.py", "python -X dev -W error"),
        ("python -Xdev -um train", "python -Xdev -u"),
        ("python -c pass -I", "python"),
        ("python -i train.py", "python"),
        ("env A=1 python train.py", "env A=1 python"),
        ("nice -n 5 python -s train.py", "nice -n 5 python -s"),
        ("numactl --cpunodebind=0 --membind 0 python train.py", "numactl --cpunodebind=0 --membind 0 python"),
        ("timeout 60 nohup python train.py", "timeout 60 nohup python"),
        ("mpirun -np 2 python train.py", "python"),
        ("mpirun -np 2 /opt/venv/bin/python -m train", "/opt/venv/bin/python"),
        ("torchrun --nproc-per-node=2 --no-python /opt/venv/bin/python -s t.py", "/opt/venv/bin/python -s"),
        ("uv run train.py", "uv run python"),
        ("uv run --with rich torchrun train.py", "uv run --with rich python"),
        ("uv run -p python3.12 python train.py", "uv run -p python3.12 python"),
        ("uv run -m train", "uv run python"),
        ("conda run -n torch28 --no-capture-output python train.py",
         "conda run -n torch28 --no-capture-output python"),
        ("poetry run train", "poetry run python"),
    ],
)  # fmt: skip
def test_the_interpreter_is_told_by_the_command_itself(
    path: dict[str, str], command: str, expected: str
) -> None:
    assert found(path, *command.split()) == expected


def test_behind_setsid_nobody_would_wait(path: dict[str, str]) -> None:
    assert found(path, "setsid", "-f", "nice", "python", "train.py") == "nice python"


@pytest.mark.parametrize("name", ["torchrun", "accelerate", "deepspeed", "llamafactory-cli"])
def test_a_script_of_the_path_is_looked_up_and_its_first_line_read(
    path: dict[str, str], tmp_path: Path, name: str
) -> None:
    program(tmp_path / "bin", name, "#!/opt/a venv/bin/python3 -s\nimport sys\n".replace("a venv", "venv"))
    assert found(path, name, "train.py") == "/opt/venv/bin/python3 -s"
    assert found(path, "nice", name, "train.py") == "nice /opt/venv/bin/python3 -s"


@each_row(
    ("text", "expected"),
    [
        ("#!/usr/bin/env python3\n", ("python3",)),
        ("#!/usr/bin/env -S python3 -u\n", ("python3", "-u")),
        ("#!/usr/bin/env -S -i -u B A=1 python3 -u\n", ("python3", "-u")),
        ("#! /usr/bin/python3.11\n", ("/usr/bin/python3.11",)),
        ("#!/bin/sh\n'''exec' \"/a long place/bin/python3\" \"$0\" \"$@\"\n' '''\n",
         ("/a long place/bin/python3",)),
        ("#!/bin/sh\n'''exec' /long/bin/python3 -s \"$0\" \"$@\"\n' '''\n", ("/long/bin/python3", "-s")),
        ("#!/bin/bash\n", ("/bin/bash",)),
        ("#!\n", None),
        ("print()\n", None),
        ("\x7fELF\0", None),
    ],
)  # fmt: skip
def test_first_lines_of_every_kind_are_read(
    tmp_path: Path, text: str, expected: tuple[str, ...] | None
) -> None:
    assert shebang(str(program(tmp_path, "script", text))) == expected


def test_an_interpreter_beside_its_script_is_found_beside_it(tmp_path: Path) -> None:
    text = "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python3' \"$0\" \"$@\"\n' '''\n"
    script = program(tmp_path / "venv" / "bin", "torchrun", text)
    link = tmp_path / "torchrun"
    link.symlink_to(script)
    assert shebang(str(link)) == (str(script.parent.resolve() / "python3"),)


def test_the_trick_of_long_paths_is_the_one_that_really_starts_python(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) / "with a space"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(sys.executable)
    text = f"#!/bin/sh\n'''exec' \"{folder}/python3\" \"$0\" \"$@\"\n' '''\nimport sys; print(sys.executable)"
    script = program(tmp_path, "tool", text)
    told = shebang(str(script))
    done = subprocess.run([str(script)], capture_output=True, text=True, check=True, timeout=60)
    assert told == (done.stdout.strip(),)


def test_torchrun_takes_another_interpreter_from_python_exec(path: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "bin", "torchrun", "#!/opt/venv/bin/python3\n")
    assert found({**path, "PYTHON_EXEC": "/other/python"}, "torchrun", "train.py") == "/other/python"


def test_a_shim_stands_beside_the_python_that_it_would_start(tmp_path: Path) -> None:
    shims = tmp_path / "shims"
    python = program(shims, "python", "#!/usr/bin/env bash\n")
    program(shims, "torchrun", "#!/usr/bin/env bash\n")
    assert found({"PATH": str(shims)}, "torchrun", "train.py") == str(python)


def test_env_in_the_command_has_a_path_of_its_own(path: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "other", "torchrun", "#!/opt/venv/bin/python3\n")
    other = f"PATH={tmp_path / 'other'}"
    assert found(path, "env", other, "torchrun", "t.py") == f"env {other} /opt/venv/bin/python3"


def test_a_script_is_looked_for_where_the_command_starts(path: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "work", "train.py", "#!/opt/venv/bin/python3\n")
    assert interpreter(("./train.py",), path, str(tmp_path / "work")).argv == ("/opt/venv/bin/python3",)


def test_what_cannot_be_told_is_said_and_the_python_of_the_path_taken(
    path: dict[str, str], tmp_path: Path
) -> None:
    program(tmp_path / "bin", "train.sh", "#!/bin/bash\npython train.py\n")
    program(tmp_path / "bin", "trainer", "\x7fELF\0")
    assert "train.sh (a script of /bin/bash)" in doubted(path, "train.sh")
    assert "PATH" in doubted(path, "trainer") and "--python" in doubted(path, "trainer")


def test_a_script_with_dependencies_of_its_own_is_doubted(path: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("# /// script\n# dependencies = ['torch']\n# ///\n")
    answer = interpreter(("uv", "run", "train.py"), path, str(tmp_path))
    assert answer.argv == ("uv", "run", "python")
    assert answer.doubt and "train.py" in answer.doubt and "dependencies" in answer.doubt


def test_without_a_command_it_is_the_python_of_the_path(tmp_path: Path, path: dict[str, str]) -> None:
    assert found(path) == "python"
    program(tmp_path / "other", "python3")
    assert found({"PATH": str(tmp_path / "other")}) == "python3"


def test_a_python_of_the_folder_where_gputui_is_started_is_passed_over(
    path: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may have put it into a shared folder."""
    program(tmp_path / "shared", "python")
    monkeypatch.chdir(tmp_path / "shared")
    for first in (".", ""):
        assert found({"PATH": f"{first}:{path['PATH']}"}) == str(tmp_path / "bin" / "python")


def test_no_interpreter_at_all_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InterpreterError, match="no python on PATH; name one with --python"):
        interpreter((), {"PATH": str(tmp_path)})


def test_a_program_that_is_not_there_is_an_error(path: dict[str, str]) -> None:
    with pytest.raises(InterpreterError, match="there is no program 'torchrun'"):
        interpreter(("torchrun", "train.py"), path)
    with pytest.raises(InterpreterError, match=r"there is no program '\./nnn"):
        interpreter((f"./{'n' * 300}", "train.py"), path)


def test_a_named_interpreter_is_the_one_and_means_the_place_where_it_was_named(path: dict[str, str]) -> None:
    answer = interpreter(("train.sh",), path, "/elsewhere", python=".venv/bin/python")
    assert answer.argv == (os.path.abspath(".venv/bin/python"),)  # noqa: PTH100
    assert interpreter(("train.sh",), path, python="python3.12").argv == ("python3.12",)
