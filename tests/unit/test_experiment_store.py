"""Comparisons and sweeps in the state folder: a record that cannot be read."""

from __future__ import annotations

import pytest

from unit.claims_support import Box


@pytest.mark.parametrize(
    ("subcommand", "kept"),
    [("compare", "comparisons/k3f9/comparison.json"), ("each", "sweeps/k3f9/sweep.json")],
)
@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 2}', "[" * 100_000, "\0"])
def test_a_record_that_cannot_be_read_is_told_and_can_be_forgotten(
    box: Box, subcommand: str, kept: str, text: str
) -> None:
    file = box.folder / "state/gputui" / kept
    file.parent.mkdir(parents=True)
    file.write_text(text)
    status, out, err = box.call(subcommand, "--list")
    assert (status, out) == (0, "") and "k3f9" in err
    assert [box.call(subcommand, reader, "k3f9")[0] for reader in ("--show", "--resume")] == [2, 2]
    assert box.call(subcommand, "--forget", "k3f9")[0] == 0 and not file.parent.exists()


def test_a_link_that_somebody_has_put_there_is_not_followed_and_says_why_it_stays(box: Box) -> None:
    kept = box.folder / "state/gputui/comparisons"
    kept.mkdir(parents=True)
    (kept / "k3f9").symlink_to(box.folder)
    status, out, err = box.call("compare", "--forget", "k3f9")
    assert (status, out) == (2, "") and "None" not in err and err.count("\n") == 1
    assert box.folder.exists()


@pytest.mark.parametrize("place", ["comparisons/k3f9", "."])
def test_a_record_that_others_could_have_changed_is_named_and_not_read(box: Box, place: str) -> None:
    folder = box.folder / "state/gputui/comparisons/k3f9"
    folder.mkdir(parents=True, mode=0o700)
    changed = (box.folder / "state/gputui" / place).resolve()
    changed.chmod(0o777)
    _, out, err = box.call("compare", "--list")
    assert not out and "other users can write to" in err and changed.name in err


@pytest.mark.parametrize("words", [("jobs",), ("launches",), ("compare", "--list"), ("each", "--list")])
def test_whatever_is_kept_where_others_can_write_is_named_and_not_used(
    box: Box, words: tuple[str, ...]
) -> None:
    state = box.folder / "state"
    (state / "gputui").mkdir(parents=True, mode=0o700)
    state.chmod(0o777)
    status, out, err = box.call(*words)
    assert (status, out) == (2, "") and repr(str(state)) in err
