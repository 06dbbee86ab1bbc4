"""The last launches: which are kept, without secrets, and what their file may contain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.launching import history_file
from gputui.launching.history import (
    MOST,
    KeepError,
    Launches,
    PastLaunch,
    again,
    check_name,
    find_launch,
    missing,
    named,
    with_launch,
)
from gputui.launching.history_file import change, load
from gputui.launching.launch_options import LaunchOptions
from gputui.system import files
from table_tests import each_row
from unit.builders import make_homeless

PLAN = LaunchOptions(("python", "train.py"))
WHOLE = LaunchOptions(
    command=("torchrun", "--nproc-per-node=2", "train.py", "größe 👩‍🚀", "", "a\nb"),
    launcher="torchrun",
    ids="uuid",
    additions=(("NCCL_DEBUG", "INFO"), ("EMPTY", "")),
    python="/opt/py/bin/python",
    processes=2,
    logs="logs",
    numa=True,
    nodes=2,
    rendezvous="head:29400",
)


def launches(count: int) -> Launches:
    known: Launches = ()
    for number in range(count):
        known = with_launch(known, LaunchOptions(("python", f"{number}.py")), 1, float(number))
    return known


def scripts(known: Launches) -> list[str]:
    return [each.options.command[1] for each in known]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "gputui" / "launches.json"


def keep(
    environ: dict[str, str], options: LaunchOptions = PLAN, count: int = 2, when: float = 7.0
) -> Launches:
    return change(environ, lambda known: with_launch(known, options, count, when))


# The launches that are kept


def test_the_last_launch_is_the_first() -> None:
    assert scripts(launches(3)) == ["2.py", "1.py", "0.py"]


def test_the_same_launch_is_there_once_with_its_last_time_and_its_name() -> None:
    known = named(launches(3), 2, "nightly")
    known = with_launch(known, LaunchOptions(("python", "0.py")), 1, 99.0)
    assert scripts(known) == ["0.py", "2.py", "1.py"]
    assert (known[0].name, known[0].when) == ("nightly", 99.0)


def test_on_another_number_of_devices_it_is_another_launch() -> None:
    assert len(with_launch(launches(1), LaunchOptions(("python", "0.py")), 2, 1.0)) == 2


def test_so_many_are_kept_and_those_with_a_name_beyond_that() -> None:
    known = named(launches(3), 2, "first")
    for number in range(MOST + 10):
        known = with_launch(known, LaunchOptions(("python", f"x{number}.py")), 1, 5.0)
    assert len(known) == MOST + 1
    assert scripts(known)[:2] == [f"x{MOST + 9}.py", f"x{MOST + 8}.py"]
    assert known[-1].name == "first"


def test_starting_one_that_has_a_name_pushes_none_of_the_others_out() -> None:
    known = named(launches(MOST), 0, "nightly")
    known = with_launch(known, LaunchOptions(("python", "other.py")), 1, 5.0)
    assert len(known) == MOST + 1
    assert len(with_launch(known, LaunchOptions(("python", f"{MOST - 1}.py")), 1, 9.0)) == MOST + 1


def test_a_name_is_one_launches_only_and_can_be_taken_away() -> None:
    known = named(named(launches(2), 0, "nightly"), 1, "nightly")
    assert [each.name for each in known] == [None, "nightly"]
    assert [each.name for each in named(known, 1, None)] == [None, None]


def test_taking_a_name_away_leaves_those_that_have_none_as_they_are() -> None:
    known = named(launches(3), 1, "nightly")
    assert [each.name for each in named(known, 0, None)] == [None, "nightly", None]


@each_row("name", ["", "  ", "-n", "two\nlines", "\x1b[31m", "\u202eback", "x" * 61, "3"])
def test_a_name_that_could_not_be_typed_or_seen_is_refused(name: str) -> None:
    with pytest.raises(KeepError, match=r"not a valid launch name|too long"):
        check_name(name)


def test_one_is_found_by_its_name_and_by_its_number() -> None:
    known = named(launches(3), 1, "größe")
    assert [find_launch(known, word) for word in ("größe", "1", "3")] == [1, 0, 2]
    for word in ("0", "4", "-1", "", "grö", "1.0", "²", "٣", "0" * 9, "9" * 5000):
        assert find_launch(known, word) is None, word


# The directory of a launch


def test_from_another_folder_it_is_started_again_where_it_was(tmp_path: Path) -> None:
    (each,) = with_launch((), PLAN, 1, 1.0, str(tmp_path))
    assert again(each) == replace(PLAN, directory=str(tmp_path))


def test_from_the_same_folder_it_is_started_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (each,) = with_launch((), PLAN, 1, 1.0, str(tmp_path))
    assert again(each) == PLAN


def test_started_again_from_elsewhere_it_is_the_same_launch(tmp_path: Path) -> None:
    known = with_launch((), replace(PLAN, directory="sub"), 1, 1.0, str(tmp_path))
    known = with_launch(known, again(known[0]), 1, 2.0, "/")
    assert [(each.where, each.options.directory) for each in known] == [(str(tmp_path / "sub"), None)]


# Secrets


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "hf_x"),
        ("WANDB_API_KEY", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("PGPASSWORD", "x"),
        ("MYSQL_PWD", "x"),
        ("db_credentials", "x"),
        ("PROXY", "http://me:secret@proxy:3128"),
    ],
)
def test_a_variable_that_looks_like_a_secret_is_not_kept_and_said_when_it_is_missing(
    name: str, value: str, environ: dict[str, str], file: Path
) -> None:
    keep(environ, replace(PLAN, additions=((name, value), ("A", "1"))))
    assert f'"{value}"' not in file.read_text()
    (each,) = load(environ)
    assert each.options.additions == (("A", "1"),)
    assert name in (missing(each, {}) or "")
    assert missing(each, {name: "exported"}) is None


def test_variables_that_are_offered_are_kept() -> None:
    additions = (("TOKENIZERS_PARALLELISM", "false"), ("OMP_NUM_THREADS", "8"), ("HF_TOKEN", ""))
    (each,) = with_launch((), replace(PLAN, additions=additions), 1, 1.0)
    assert each.options.additions == additions
    assert missing(each, {}) is None


@pytest.mark.parametrize(
    "words",
    [
        ("env", "HF_TOKEN=hf_x", "python", "t.py"),
        ("docker", "run", "-e", "WANDB_API_KEY=x", "image"),
        ("python", "t.py", "--api-key=x"),
        ("python", "t.py", "--hf_token", "x"),
        ("python", "t.py", "--db-password", "x"),
        ("python", "t.py", "api_key=x"),
        ("python", "t.py", "--url=postgres://me:pw@host/db"),
        ("git", "clone", "https://me:pw@host/x"),
        ("python", "t.py", "hub.token=x"),
        ("python", "t.py", "++hub.token=x"),
        ("python", "t.py", "--hub.token", "x"),
        ("python", "t.py", "hf_" + "AbCdEfGh" * 4),
        ("python", "t.py", "--login=sk-proj-" + "a1B2" * 8),
    ],
)
def test_a_command_with_a_secret_among_its_words_is_not_remembered(
    words: tuple[str, ...], environ: dict[str, str], file: Path
) -> None:
    with pytest.raises(KeepError, match=r"looks like|password"):
        keep(environ, LaunchOptions(words))
    assert not file.exists()


@each_row(
    "words",
    [
        ("python", "t.py", "--tokenizer", "gpt2", "--max-tokens=512", "--sort-key=loss", "--key", "x"),
        ("python", "t.py", "--token"),
        ("python", "t.py", "--token", "--lr", "1"),
        ("python", "t.py", "sort_key=loss", "passes=3", "monkey.py", "http://host:80/a@b"),
        ("python", "t.py", "model.layers=3", "sk-small", "hf_dataset", "data.tokens=512", "lr=hf_x"),
    ],
)
def test_words_that_only_resemble_one_are_remembered(words: tuple[str, ...]) -> None:
    assert with_launch((), LaunchOptions(words), 1, 1.0)[0].options.command == words


# The file


def test_everything_of_a_launch_comes_back(environ: dict[str, str]) -> None:
    kept = change(environ, lambda known: named(with_launch(known, WHOLE, 4, 1234.5, "/proj"), 0, "größe"))
    assert load(environ) == kept
    assert kept == (PastLaunch(WHOLE, 4, 1234.5, "größe", "/proj"),)


def test_words_that_are_not_utf_8_come_back_as_they_were(environ: dict[str, str]) -> None:
    word = os.fsdecode(b"caf\xe9.py")
    keep(environ, LaunchOptions(("python", word)))
    assert os.fsencode(load(environ)[0].options.command[1]) == b"caf\xe9.py"


def test_only_its_owner_can_read_it_whatever_the_umask(environ: dict[str, str], file: Path) -> None:
    before = os.umask(0)
    try:
        keep(environ)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert (file.parent / ".launches.lock").stat().st_mode & 0o777 == 0o600


def test_nothing_is_left_beside_it(environ: dict[str, str], file: Path) -> None:
    keep(environ)
    keep(environ, count=3)
    assert sorted(each.name for each in file.parent.iterdir()) == [".launches.lock", "launches.json"]


WRITER = """
import sys
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.history import with_launch
from gputui.launching.history_file import change
from gputui.system import files

# (A person who quits does not wait that long for the others.)
files._PATIENCE = 60.0
environ = {"XDG_STATE_HOME": sys.argv[1]}
sys.stdin.readline()
for number in range(10):
    change(environ, lambda known: with_launch(known, LaunchOptions((sys.argv[2], str(number))), 1, 1.0))
"""


def test_processes_that_write_at_once_lose_nothing(environ: dict[str, str]) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, environ["XDG_STATE_HOME"], name],
            stdin=subprocess.PIPE, text=True,
        )
        for name in ("a", "b", "c")
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    words = {each.options.command for each in load(environ)}
    assert words == {(name, str(number)) for name in "abc" for number in range(10)}


def test_a_lock_that_is_never_given_back_is_given_up(
    environ: dict[str, str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    keep(environ)
    monkeypatch.setattr(files, "_PATIENCE", 0.05)
    with (file.parent / ".launches.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(KeepError, match="another gputui holds"):
            keep(environ, count=3)


def test_without_a_file_there_are_none(environ: dict[str, str], file: Path) -> None:
    assert load(environ) == ()
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert load(environ) == ()


GOOD = {"count": 2, "when": 5.0, "command": ["python", "t.py"]}


def document(*rows: object) -> str:
    return json.dumps({"schema": 1, "launches": rows})


DAMAGED = {
    "no JSON": "{",
    "half of it": document(GOOD)[:-20],
    "another document": "[1, 2]",
    "a text": '"launches"',
    "no schema": '{"launches": []}',
    "no list": '{"schema": 1, "launches": {"a": 1}}',
    "deep": "[" * 200_000,
    "a newer one": '{"schema": 2, "launches": []}',
    "no UTF-8": "\udcff\udcfe",
    "a number without end": '{"schema": ' + "9" * 5000 + ', "launches": []}',
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_cannot_be_understood_is_said_and_never_written_over(
    text: str, environ: dict[str, str], file: Path
) -> None:
    file.parent.mkdir(parents=True)
    data = text.encode(errors="surrogateescape")
    file.write_bytes(data)
    with pytest.raises(KeepError, match=r"launches\.json' are (damaged|of a newer)"):
        load(environ)
    with pytest.raises(KeepError, match=r"launches\.json' are (damaged|of a newer)"):
        keep(environ)
    assert file.read_bytes() == data


def test_a_file_without_end_is_not_read(environ: dict[str, str], file: Path) -> None:
    file.parent.mkdir(parents=True)
    with file.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(KeepError, match="more than"):
        load(environ)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_read_and_not_waited_for(
    make: Callable[[Path], None], environ: dict[str, str], file: Path
) -> None:
    file.parent.mkdir(parents=True)
    make(file)
    with pytest.raises(KeepError, match=r"launches\.json"):
        load(environ)


@pytest.mark.parametrize("place", [".", "..", "launches.json"])
def test_launches_that_others_could_have_written_are_not_believed(
    environ: dict[str, str], file: Path, place: str
) -> None:
    keep(environ)
    changed = file.parent / place
    changed.chmod(changed.stat().st_mode | 0o002)
    with pytest.raises(KeepError, match="other users can write"):
        load(environ)
    with pytest.raises(KeepError, match="other users can write"):
        keep(environ)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_a_file_of_another_user_is_not_believed(environ: dict[str, str], file: Path) -> None:
    keep(environ)
    os.chown(file, 54321, 54321)
    with pytest.raises(KeepError, match="another user owns"):
        load(environ)


BAD: dict[str, dict[str, object]] = {
    "no command": {"command": []},
    "a command as text": {"command": "rm -rf /"},
    "a number in it": {"command": ["python", 1]},
    "an unknown launcher": {"launcher": "slurm"},
    "a list as launcher": {"launcher": ["python"]},
    "processes": {"processes": -1},
    "processes as truth": {"processes": True},
    "very many": {"nodes": 10**300},
    "no machines": {"nodes": None},
    "ids": {"ids": "name"},
    "numa": {"numa": 1},
    "additions": {"additions": [["A"]]},
    "a variable of no name": {"additions": [["", "x"]]},
    "a variable of two": {"additions": [["A=B", "x"]]},
    "a directory": {"directory": 3},
    "a count": {"count": -5},
    "no count": {"count": None},
    "a count as truth": {"count": True},
    "no time": {"when": None},
    "a time that is none": {"when": float("nan")},
    "a time for ever": {"when": float("inf")},
    "a time no float has": {"when": 10**400},
    "where": {"where": 1},
    "withheld": {"withheld": [1]},
}


@pytest.mark.parametrize("facts", BAD.values(), ids=BAD)
def test_a_row_that_says_nothing_known_is_left_out_and_the_others_stay(
    facts: dict[str, object], environ: dict[str, str], file: Path
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(document({**GOOD, **facts}, 7, None, GOOD))
    assert load(environ) == (PastLaunch(LaunchOptions(("python", "t.py")), 2, 5.0),)


def test_a_name_that_could_not_have_been_given_is_none(environ: dict[str, str], file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(document({**GOOD, "name": "\x1b]0;pwn\x07"}, {**GOOD, "name": 5, "count": 1}))
    assert [each.name for each in load(environ)] == [None, None]


def test_launches_too_large_for_the_file_push_the_oldest_out_and_never_those_with_a_name(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_file, "_LARGEST", 20_000)
    keep(environ, LaunchOptions(("python", "named.py", "x" * 5000)))
    change(environ, lambda known: named(known, 0, "large"))
    for number in range(6):
        keep(environ, LaunchOptions(("python", f"{number}.py", "x" * 5000)))
    assert scripts(load(environ)) == ["5.py", "4.py", "named.py"]
    with pytest.raises(KeepError, match="no room"):
        keep(environ, LaunchOptions(("python", "huge.py", "x" * 30_000)))
    assert scripts(load(environ)) == ["5.py", "4.py", "named.py"]


def test_where_nothing_can_be_written_the_reason_and_the_remedy_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeepError, match=r"cannot be saved in '.*': Not a directory; set XDG_STATE_HOME"):
        keep({"XDG_STATE_HOME": str(tmp_path / "file")})


def test_a_relative_place_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    kept = keep({"XDG_STATE_HOME": "state"})
    assert load({}) == kept
    assert (tmp_path / ".local" / "state" / "gputui" / "launches.json").exists()


def test_without_a_home_nothing_is_kept_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    make_homeless(monkeypatch)
    assert load({}) == ()
    with pytest.raises(KeepError, match=r"no home folder.*XDG_STATE_HOME"):
        keep({})
