"""The fish form: the real fish reads exactly the words and values from our line that an exec would pass."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputui.inventory.quoting import fish as quoted
from gputui.launching.exports.shell_lines import to_fish
from gputui.launching.launch import Launch
from unit.test_quoting_in_shells import DUMP, HOSTILE, PROGRAMS, words

FISH = shutil.which("fish")
pytestmark = pytest.mark.skipif(FISH is None, reason="fish is not installed")

BASE = {"PATH": "/usr/bin:/bin", "KEPT": "kept", "GONE": "to be unset"}
OWN = {b"_", b"PWD", b"OLDPWD", b"SHLVL", b"HOME", b"USER", b"LOGNAME", b"TERM"}
"""Variables that fish sets by itself."""

MORE = [
    "%self",
    "%",
    "~/x",
    "%1",
    "^",
    "a^b",
    "$status",
    "(pwd)",
    "\\X41",
    "\uf600",
    "\uf6ff",
    "{",
    "}",
    "%s",
]
"""Words that fish, or an older fish, treats specially; and the characters in which it stores stray bytes."""

Changes = tuple[tuple[str, str | None], ...]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder for fish, which writes to it."""
    return tmp_path_factory.mktemp("home")


def _run(script: str, home: Path, environ: Mapping[str, str] = BASE, cwd: Path | None = None) -> list[dict]:
    """The reports of the programs that the script started."""
    assert FISH
    done = subprocess.run(
        [FISH, "--no-config"],
        input=os.fsencode(script + "\n"),
        capture_output=True,
        env={"HOME": str(home), **environ},
        cwd=cwd,
        timeout=60,
        check=False,
    )
    assert done.stderr == b"" and done.returncode == 0, (done.returncode, done.stderr, script)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _launch(*argv: str, changes: Changes = (), directory: str | None = None) -> Launch:
    return Launch((sys.executable, "-S", "-E", str(DUMP), *argv), changes, directory)


def _argv(told: dict) -> list[bytes]:
    return [bytes.fromhex(word) for word in told["argv"][1:]]


def _environ(told: dict) -> dict[bytes, bytes]:
    decoded = {bytes.fromhex(name): bytes.fromhex(value) for name, value in told["environ"].items()}
    return {name: value for name, value in decoded.items() if name not in OWN}


def _expected(launch: Launch, base: Mapping[str, str] = BASE) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in launch.environment(base).items()}


def _values(values: list[str]) -> Changes:
    return tuple((f"VALUE_{place}", word) for place, word in enumerate(values))


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_hostile_words_and_values_arrive_as_they_are(home: Path, locale: str) -> None:
    base = {**BASE, "LC_ALL": locale}
    launch = _launch(*HOSTILE, *MORE, changes=_values([*HOSTILE, *MORE]))
    (told,) = _run(to_fish(launch), home, base)
    assert _argv(told) == [os.fsencode(word) for word in launch.argv[4:]]
    assert _environ(told) == _expected(launch, base)


@pytest.mark.thorough
@given(st.lists(st.tuples(st.lists(words, max_size=8), st.lists(words, max_size=3)), min_size=1, max_size=12))
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_words_and_values_arrive_as_they_are(
    home: Path, launches: list[tuple[list[str], list[str]]]
) -> None:
    made = [_launch(*argv, changes=_values(values)) for argv, values in launches]
    told = _run("\n".join(map(to_fish, made)), home)
    assert [_argv(each) for each in told] == [[os.fsencode(w) for w in launch.argv[4:]] for launch in made]
    assert [_environ(each) for each in told] == [_expected(launch) for launch in made]


@given(words)
@settings(max_examples=60, deadline=None)
def test_a_word_for_fish_can_be_shown(word: str) -> None:
    assert quoted(word).isprintable()


def test_variables_are_set_and_unset_for_the_command_only(home: Path) -> None:
    launch = _launch("x", changes=(("GONE", None), ("NEVER_SET", None), ("NEW", "a b"), ("KEPT", "")))
    with_them, without = _run(f"{to_fish(launch)}\n{to_fish(_launch())}", home)
    assert _environ(with_them) == _expected(launch)
    assert _environ(without) == _expected(_launch())


@given(st.lists(words, min_size=1, max_size=6))
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_variables_alone_can_be_sourced(home: Path, values: list[str]) -> None:
    alone = Launch((), (("GONE", None), ("NEVER_SET", None), ("KEPT", ""), *_values(values)))
    file = home / "variables.fish"
    file.write_text(to_fish(alone) + "\n")
    (told,) = _run(f"source {quoted(str(file))}\n{to_fish(_launch())}", home)
    assert _environ(told) == _expected(alone)


def test_a_variable_that_fish_keeps_as_a_list_is_exported_as_it_was(home: Path) -> None:
    alone = Launch((), (("PYTHONPATH", "a::b:"), ("LD_LIBRARY_PATH", "")))
    (told,) = _run(f"{to_fish(alone)}\n{to_fish(_launch())}", home)
    assert _environ(told) == _expected(alone)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["plain", "two words", "it's", "-", "new\nline", "caf\udce9", "~", "$HOME"])
def test_the_command_starts_in_its_directory(tmp_path: Path, home: Path, name: str) -> None:
    place = tmp_path / name
    os.mkdir(os.fsencode(place))  # noqa: PTH102 - a name of bytes
    lines = "\n".join(
        f"cd {quoted(str(tmp_path))}; {to_fish(_launch(directory=d))}" for d in (str(place), name)
    )
    told = _run(lines, home, {**BASE, "CDPATH": "/"}, tmp_path)
    assert [bytes.fromhex(each["directory"]) for each in told] == [os.fsencode(place)] * 2


def test_nothing_starts_when_the_directory_is_not_there(tmp_path: Path, home: Path) -> None:
    assert FISH
    line = to_fish(_launch(directory=str(tmp_path / "none")))
    done = subprocess.run(
        [FISH, "--no-config", "-c", line], capture_output=True, env={"HOME": str(home), **BASE}, check=False
    )
    assert done.returncode != 0 and done.stdout == b""


NAMES = [*PROGRAMS, "test", "[", "and", "begin", "command", "echo", "%self", "true", "}"]


@pytest.mark.thorough
def test_a_program_of_any_name_is_the_one_that_starts(tmp_path: Path, home: Path) -> None:
    for name in NAMES:
        file = Path(os.fsdecode(os.fsencode(tmp_path / name)))
        file.write_text(f"#!{sys.executable} -SE\n{DUMP.read_text()}")
        file.chmod(0o755)
    base = {**BASE, "PATH": f"{tmp_path}:{BASE['PATH']}"}
    launches = [Launch((name, "word", name), (("VALUE", name),)) for name in NAMES]
    told = _run("\n".join(map(to_fish, launches)), home, base)
    assert [_argv(each) for each in told] == [[b"word", os.fsencode(name)] for name in NAMES]
