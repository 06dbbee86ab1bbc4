"""The program that a command starts, behind an interpreter, a debugger, a profiler or uv."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gputui.launching.python_command import Started, started_program
from table_tests import each_row

RUN = "torch.distributed.run"


@each_row(
    ("text", "started"),
    [
        ("torchrun x.py", Started("torchrun", None, 1)),
        ("/opt/bin/torchrun x.py", Started("torchrun", None, 1)),
        ("python /opt/bin/torchrun x.py", Started("torchrun", None, 2)),
        ("python -u bin/torchrun x.py", Started("torchrun", None, 3)),
        ("python torchrun.py", Started("python", None, 1)),
        (f"python -m {RUN} -m a", Started(None, RUN, 3)),
        (f"python -Xdev -m{RUN} x.py", Started(None, RUN, 3)),
        (f"python -m debugpy --listen 1 -m {RUN} -m a", Started(None, RUN, 7)),
        (f"python -m debugpy --listen 1 --configure-subProcess true -m {RUN} x.py", Started(None, RUN, 9)),
        ("python -m debugpy --connect 1 --wait-for-client bin/torchrun x.py", Started("torchrun", None, 7)),
        ("python -m debugpy --listen 1 x.py -m a", Started(None, "debugpy", 3)),
        (f"python -m cProfile -o p -s time -m {RUN} x.py", Started(None, RUN, 9)),
        (f"python -m pdb -c continue -m {RUN} x.py", Started(None, RUN, 7)),
        (f"python -m coverage run --source a -p -m {RUN} x.py", Started(None, RUN, 9)),
        ("python -m coverage report -m", Started(None, "coverage", 3)),
        (f"python -m memray run -o p --follow-fork -m {RUN} x.py", Started(None, RUN, 9)),
        (f"python -m cProfile -m pdb -m {RUN} x.py", Started(None, RUN, 7)),
        (f"uv run -m {RUN} x.py", Started(None, RUN, 4)),
        (f"uv run --with a --module {RUN} -m a", Started(None, RUN, 6)),
        ("uv run -m", Started("uv", None, 1)),
        ("python", Started("python", None, 1)),
        ("", Started(None, None, 0)),
    ],
)
def test_the_program_that_a_command_starts(text: str, started: Started) -> None:
    assert started_program(text.split()) == started


@pytest.mark.parametrize(
    "before",
    [
        "-m cProfile -o profile",
        "-m cProfile -o profile -s tottime",
        "-m pdb -c continue -c quit",
        "-m coverage run --data-file covered",
        "-m debugpy --listen 127.0.0.1:0 --log-to-stderr",
        "-u -X dev -m cProfile --outfile=profile",
    ],
)
def test_the_real_module_starts_the_other_one_at_the_same_place(before: str, tmp_path: Path) -> None:
    words = before.split()
    runner = words[words.index("-m") + 1]
    if importlib.util.find_spec(runner) is None:
        pytest.skip(f"{runner} is not installed")
    (tmp_path / "shown.py").write_text("import json, sys; print('GIVEN', json.dumps(sys.argv[1:]))")
    # Since Python 3.13 pdb takes a word that looks like an option for its own, at any place.
    given = ["-m", "x", "--listen", "--"] if runner != "pdb" or sys.version_info < (3, 13) else ["x"]
    command = [sys.executable, *words, "-m", "shown", *given, "a b"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False, input=""
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("GIVEN")]
    assert told, done.stderr
    started = started_program(command)
    assert started.module == "shown"
    assert json.loads(told[0].removeprefix("GIVEN")) == command[started.words :]
