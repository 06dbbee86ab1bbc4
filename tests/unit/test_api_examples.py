"""Every example of docs/api.md and docs/sweeps.md runs unchanged on a simulated driver."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from unit.claims_support import Box

DOCS = Path(__file__).parents[2] / "docs"
TEXT = "".join((DOCS / name).read_text() for name in ("api.md", "sweeps.md"))
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)

TRAINING = """
import os, sys
assert os.environ["CUDA_VISIBLE_DEVICES"].replace(",", "").isdigit()
print("loss", 0.5)
"""


def _title(example: str) -> str:
    """The last call in an example, which identifies it."""
    return re.findall(r"\b(read|pick|hold|launch|files|create_study|store)\(|$", example)[0] or "import"


def _words(example: str) -> list[str]:
    """The arguments that the page gives an example, where it is a program with arguments."""
    if "__main__" not in example:
        return []
    called = re.search(r"^python sweep\.py (.+)$", TEXT, re.MULTILINE)
    assert called is not None
    return shlex.split(called[1])


@pytest.mark.parametrize("example", EXAMPLES, ids=map(_title, EXAMPLES))
def test_an_example_runs(example: str, box: Box, tmp_path: Path) -> None:
    for name in re.findall(r"^(?:import|from) (\w+)", example, re.MULTILINE):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "example.py").write_text(example)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "example.py", *_words(example)],
            env=box.environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    finally:
        box.call("jobs", "wait", "nightly")
    assert box.claimed() == []


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 10
