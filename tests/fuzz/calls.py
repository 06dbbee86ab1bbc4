"""One call of the command line in this process, with any words, and the conditions for every call."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from gputui.cli.main import main

STATUSES = {0, 1, 2, 3, 4}


@dataclass(frozen=True)
class Ended:
    """The exit status of a call and its output."""

    status: int
    out: str
    err: str


@contextlib.contextmanager
def own_folders() -> Iterator[Path]:
    """A folder for state, settings and claims, set in the environment of this process for a moment."""
    with tempfile.TemporaryDirectory(prefix="gputui-fuzz-") as made:
        folder = Path(made)
        (folder / "claims").mkdir()
        (folder / "claims").chmod(0o1777)
        variables = {
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "GPUTUI_CLAIMS": str(folder / "claims"),
            "HF_HOME": str(folder / "huggingface"),
        }
        with mock.patch.dict(os.environ, variables):
            yield folder


def call(*words: str) -> Ended:
    """Make a call. Assert that it ends with one of the statuses, and that its messages are plain text with
    the prefix."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(words)
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
    finally:
        gc.enable()
    said = [stream.buffer.getvalue().decode(errors="surrogateescape") for stream in (out, err)]  # type: ignore[attr-defined]
    ended = Ended(status, *said)
    assert ended.status in STATUSES, ended
    assert plain(ended.err), ended.err
    assert not ended.err or ended.err.startswith("gputui: "), ended.err
    return ended


def plain(text: str) -> bool:
    """Whether a text cannot affect a terminal."""
    return all(character.isprintable() or character in "\n\t" for character in text)
