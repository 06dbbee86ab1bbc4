"""The list of texts that a user can meet has those of each kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "release" / "list_words.py"


@pytest.mark.thorough
def test_messages_helps_errors_and_labels_are_listed_with_their_places() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert "cli/people.py" in lines and "tui/actions.py" in lines
    texts = {line[7:] for line in lines}
    assert "no processes or claims on this box" in texts, "a message"
    assert "maximum utilization" in texts, "a help"
    assert "{…} is not {…}" in texts, "an error"
    assert "VALUE" not in texts and not any("Return " in text for text in texts), "no docstring"


def test_a_folder_can_be_named() -> None:
    words = [sys.executable, SCRIPT, "cli"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    files = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert files and all(file.startswith("cli/") for file in files)
