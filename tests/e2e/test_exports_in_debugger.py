"""The VS Code form, run by the adapter of the real debugpy, which VS Code starts too."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from e2e.debug_adapter import debug
from gputui.launching.compose import compose
from gputui.launching.exports.vscode import to_vscode
from gputui.launching.launch import Launch
from gputui.launching.launch_options import LaunchOptions
from unit.builders import gpu
from unit.test_quoting_in_shells import HOSTILE

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("debugpy") is None, reason="debugpy is not installed"),
]

SCRIPT = """
import json, os, sys
place = os.environ["TOLD"] + os.environ.get("RANK", "")
with open(place, "w") as file:
    json.dump({"argv": sys.argv[1:], "environ": dict(os.environ), "directory": os.getcwd()}, file)
sys.exit(0 if "RANK" in os.environ else 7)
"""
TWO = (gpu(2), gpu(0))


def _configuration(launch: Launch) -> dict[str, Any]:
    configuration: dict[str, Any] = json.loads(to_vscode(launch))["configurations"][0]
    return configuration


def _environ(folder: Path) -> dict[str, str]:
    return {"TOLD": str(folder / "told"), "GONE": "x", "HOME": str(folder), "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("argv", [("sub dir/train.py",), ("-m", "train")], ids=["program", "module"])
def test_a_program_is_debugged_with_its_words_variables_and_directory(
    tmp_path: Path, argv: tuple[str, ...]
) -> None:
    place = tmp_path / "sub dir"
    place.mkdir()
    (place / "train.py").write_text(SCRIPT)
    texts = [word for word in HOSTILE if "${" not in word and word.encode(errors="replace").decode() == word]
    module = argv[0] == "-m"
    launch = Launch(
        (sys.executable, *argv, *texts),
        (("CUDA_VISIBLE_DEVICES", "2,0"), ("VALUE", "a'b\n$c"), ("EMPTY", ""), ("GONE", None)),
        str(place) if module else None,
    )
    assert debug(_configuration(launch), _environ(tmp_path), tmp_path) == 7
    told = json.loads((tmp_path / "told").read_text())
    assert told["argv"] == texts
    assert told["directory"] == str(place if module else tmp_path)
    environ = told["environ"]
    assert (environ["CUDA_VISIBLE_DEVICES"], environ["VALUE"], environ["EMPTY"]) == ("2,0", "a'b\n$c", "")
    assert "GONE" not in environ


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_the_ranks_of_torchrun_start_from_the_debugger(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    launch = compose(TWO, LaunchOptions(("torchrun", "train.py", "--lr", "3 e-4"), python=sys.executable), {})
    # Without debugging the ranks: for each rank the editor opens another session, and the ranks wait for it.
    configuration = {**_configuration(launch), "subProcess": False}
    assert debug(configuration, _environ(tmp_path), tmp_path) == 0
    told = [json.loads(file.read_text()) for file in sorted(tmp_path.glob("told*"))]
    assert [rank["environ"]["LOCAL_RANK"] for rank in told] == ["0", "1"]
    assert {rank["environ"]["CUDA_VISIBLE_DEVICES"] for rank in told} == {"2,0"}
    assert all(rank["argv"] == ["--lr", "3 e-4"] for rank in told)
