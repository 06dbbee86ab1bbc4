"""The shown line is the line that runs: real shells read the same words that an exec would pass."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gputui.inventory.job import Job
from gputui.inventory.quoting import fish, posix, quote
from gputui.launching.exports import to_sh
from gputui.launching.launch import Launch
from gputui.launching.shell_words import command_line, for_a_shell, split
from table_tests import each_row

DUMP = Path(__file__).with_name("dump.py")
SHELLS = [shell for shell in ("bash", "zsh") if shutil.which(shell)]
# Not "/bin:/usr/bin": with exactly that PATH, zsh on Debian sets another.
BASE = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "KEPT": "kept", "GONE": "to be unset"}
SHELLS_OWN = {b"_", b"PWD", b"OLDPWD", b"SHLVL", b"LOGNAME"}
"""Variables that a shell sets by itself."""


def is_text(word: str) -> bool:
    """Whether the launch has no stray bytes, which some forms cannot carry."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


HOSTILE = [
    "",
    " ",
    "two words",
    " around ",
    "it's",
    '"quoted"',
    """both ' and " """,
    "''",
    "$(touch owned)",
    "${HOME}",
    "$HOME",
    "$",
    "$'x'",
    "`touch owned`",
    "back\\slash",
    "ends with \\",
    "\\",
    "\\n",
    "line\nbreak",
    "\n",
    "it's\na \\n line",
    "tab\tstop",
    "carriage\rreturn",
    "\x1b[31mred",
    "\x07\x08\x7f",
    "\x01",
    "bell\x01\x7f'end",
    "👩\u200d🚀",
    "größe 温度",
    "e\u0301",
    "abc\u202etxt.exe",
    "\u200b",
    "\u00a0",
    "\ufeff",
    "caf\udce9",
    "\udcff\udc80",
    "\udcc3\udca9",
    "a\udc81b\udc88",
    "=ls",
    "=",
    "=it's",
    "a=b",
    "A=1",
    "~",
    "~root",
    "a:~",
    "#comment",
    "a#b",
    "!",
    "!!",
    "it's!x",
    "line\n!!",
    "*",
    "?",
    "[a-z]*",
    "{a,b}",
    "a{1..3}",
    "<in",
    ">out",
    "2>&1",
    "|",
    "||",
    "&",
    "&&",
    ";",
    "(sub)",
    "-n",
    "--",
    "-",
    "^a^b",
    "%1",
    "@file",
    "+x",
    "a,b",
    "\\x41",
    "\x0bf",
    "\x1bfade",
    "x" * 5_000,
]


def _run(
    shell: list[str], script: str, environ: Mapping[str, str] = BASE, cwd: Path | None = None
) -> list[dict]:
    """The report of each program that the script started."""
    done = subprocess.run(
        shell,
        input=os.fsencode(script),
        capture_output=True,
        env=dict(environ),
        cwd=cwd,
        timeout=60,
        check=False,
    )
    assert done.stderr == b"" and done.returncode == 0, (done.returncode, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _shell(name: str) -> list[str]:
    found = shutil.which(name)
    assert found
    return {"bash": [found, "--norc", "-s"], "zsh": [found, "-f", "-s"]}.get(name, [found, "-s"])


def _launch(
    *words: str, changes: tuple[tuple[str, str | None], ...] = (), directory: str | None = None
) -> Launch:
    return Launch((sys.executable, "-S", "-E", str(DUMP), *words), changes, directory)


def _argv(told: dict) -> list[bytes]:
    return [bytes.fromhex(word) for word in told["argv"]]


def _environ(told: dict) -> dict[bytes, bytes]:
    decoded = {bytes.fromhex(name): bytes.fromhex(value) for name, value in told["environ"].items()}
    return {name: value for name, value in decoded.items() if name not in SHELLS_OWN}


def _expected_environ(launch: Launch, base: Mapping[str, str] = BASE) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in launch.environment(base).items()}


def _lines(launch: Launch) -> list[tuple[list[str], str]]:
    """Every installed shell, with the line for it."""
    return [*((_shell(name), launch.line) for name in SHELLS), (_shell("sh"), launch.render(posix))]


def _check(launch: Launch, base: Mapping[str, str] = BASE) -> None:
    for shell, line in _lines(launch):
        (told,) = _run(shell, line + "\n", base)
        assert _argv(told)[1:] == [os.fsencode(word) for word in launch.argv[4:]], (shell, line)
        assert _environ(told) == _expected_environ(launch, base), (shell, line)


# A word of every kind, alone and among others.

_bytes_as_words = st.binary(max_size=12).map(lambda raw: os.fsdecode(raw.replace(b"\0", b"")))
_text_words = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
_shell_words = st.text(st.sampled_from("'\"\\$`!~#=*?[]{}()<>|&; \n\t\rab\x1b\x01\x7f\udce9é"), max_size=12)
words = st.one_of(st.sampled_from(HOSTILE), _shell_words, _text_words, _bytes_as_words)

FAST = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_hostile_words_arrive_as_they_are() -> None:
    launch = _launch(*HOSTILE)
    _check(launch)
    assert len(launch.argv) == len(HOSTILE) + 4


def test_hostile_values_arrive_as_they_are() -> None:
    launch = _launch(changes=tuple((f"VALUE_{place}", word) for place, word in enumerate(HOSTILE)))
    _check(launch)
    assert len(launch.changes) == len(HOSTILE)


@given(st.lists(words, min_size=1, max_size=12), st.lists(words, max_size=4))
@FAST
@example(["$'\\''"], ["\n'\\"])
@example(["\udce9f", "\x0bc"], ["\x01\x01", "\x7f"])
def test_any_words_and_values_arrive_as_they_are(argv: list[str], values: list[str]) -> None:
    launch = _launch(*argv, changes=tuple((f"VALUE_{place}", word) for place, word in enumerate(values)))
    _check(launch)
    assert launch.line.isprintable()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_the_line_means_the_same_in_every_locale(locale: str) -> None:
    base = {**BASE, "LC_ALL": locale}
    launch = _launch(*HOSTILE, changes=(("VALUE", "größe\n👩\u200d🚀caf\udce9"),))
    _check(launch, base)
    assert launch.environment(base)["LC_ALL"] == locale


def test_history_expansion_finds_nothing_in_our_line() -> None:
    launch = _launch(
        *(word for word in HOSTILE if "!" in word or "^" in word), "a\n'!x", "\x1b!!'", "'!'\t!$"
    )
    (told,) = _run(_shell("bash"), f"set -o history\nset -H\n{launch.line}\n")
    assert _argv(told)[1:] == [os.fsencode(word) for word in launch.argv[4:]]


def test_variables_are_set_and_unset_for_the_command_only() -> None:
    launch = _launch("x", changes=(("GONE", None), ("NEW", "a b"), ("KEPT", "changed")))
    for shell, line in _lines(launch):
        both = _run(shell, f"{line}\n{_launch().line}\n")
        assert _environ(both[0]) == _expected_environ(launch)
        assert _environ(both[1]) == _expected_environ(_launch())


def test_a_variable_that_is_unset_need_not_have_been_there() -> None:
    launch = _launch(changes=(("NEVER_SET", None),))
    _check(launch)
    assert "env -u NEVER_SET" in launch.line


def test_of_a_variable_that_is_set_twice_the_last_value_counts() -> None:
    launch = _launch(changes=(("TWICE", "one"), ("TWICE", "two")))
    _check(launch)
    assert launch.environment({})["TWICE"] == "two"


# The program's own name.

PROGRAMS = [
    *("FOO=1", "FOO+=1", "_=", "=ls", "a b", "it's", "$(x)", "~x", "#x", "!x", "*", "caf\udce9", "new\nline"),
    *("👩\u200d🚀", "-x", "a=b c", "if", "time", "function", "[x]", "{x}", "a,b", "@x", "+x", "A-B=1"),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of programs with hostile names: each reports how it was started."""
    folder = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS:
        file = Path(os.fsdecode(os.fsencode(folder / name)))
        file.write_text(f"#!{sys.executable} -SE\n{DUMP.read_text()}")
        file.chmod(0o755)
    return folder


@pytest.mark.thorough
def test_a_program_of_any_name_is_the_one_that_starts(programs: Path) -> None:
    base = {**BASE, "PATH": f"{programs}:{BASE['PATH']}"}
    launches = [Launch((name, "word", name), (("VALUE", name),)) for name in PROGRAMS]
    for shell in SHELLS:
        told = _run(_shell(shell), "".join(f"{launch.line}\n" for launch in launches), base)
        assert [Path(os.fsdecode(_argv(each)[0])).name for each in told] == PROGRAMS
        assert [_argv(each)[1:] for each in told] == [[b"word", os.fsencode(name)] for name in PROGRAMS]
    told = _run(_shell("sh"), "".join(f"{launch.render(posix)}\n" for launch in launches), base)
    assert [_argv(each)[1:] for each in told] == [[b"word", os.fsencode(name)] for name in PROGRAMS]


# The directory.


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["plain", "it's", "-P", "new\nline", "caf\udce9", "$HOME"])
def test_the_command_starts_in_its_directory(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    os.mkdir(os.fsencode(place))  # noqa: PTH102 - a name of bytes
    elsewhere = tmp_path / "elsewhere" / "plain"
    elsewhere.mkdir(parents=True)
    base = {**BASE, "CDPATH": str(elsewhere.parent), "OLDPWD": str(elsewhere)}
    for directory in (str(place), name):
        launch = _launch("x", directory=directory)
        for shell, line in _lines(launch):
            (told,) = _run(shell, line + "\n", base, cwd=tmp_path)
            assert bytes.fromhex(told["directory"]) == os.fsencode(place)


def test_nothing_starts_when_the_directory_is_not_there(tmp_path: Path) -> None:
    launch = _launch(directory=str(tmp_path / "none"))
    for shell, line in _lines(launch):
        done = subprocess.run(shell, input=line.encode(), capture_output=True, env=BASE, check=False)
        assert done.returncode != 0 and done.stdout == b""


# The exported form.


@pytest.mark.thorough
@given(st.lists(words, min_size=1, max_size=6))
@FAST
def test_variables_alone_can_be_read_with_eval(values: list[str]) -> None:
    changes = (("GONE", None), *((f"VALUE_{place}", word) for place, word in enumerate(values)))
    alone = Launch((), changes)
    for shell in ["sh", *SHELLS]:
        (told,) = _run(_shell(shell), f"{to_sh(alone)}\n{_launch().line}\n")
        assert _environ(told) == _expected_environ(alone)


def test_an_exported_line_survives_eval() -> None:
    launch = _launch(*HOSTILE, changes=(("VALUE", "a'b\n$c"),))
    (told,) = _run(_shell("sh"), f"eval {posix(to_sh(launch))}\n")
    assert _argv(told)[1:] == [os.fsencode(word) for word in HOSTILE]


# The text on the screen.


@given(words)
@settings(max_examples=80, deadline=None)
def test_a_shown_word_can_be_shown(word: str) -> None:
    assert quote(word).isprintable()


@each_row("word", ["train.py", "--lr", "3e-4", "a/b_c-d.e", "A=1", "5,4", "x:y", "@x", "größe"[:2]])
def test_a_plain_word_stays_plain(word: str) -> None:
    assert quote(word) == word


@each_row("word", ["time", "if", "FOO=1", "FOO+=x"])
def test_a_program_that_a_shell_would_read_as_its_own_is_quoted(word: str) -> None:
    assert Launch((word, word)).line == f"'{word}' {word}"


@each_row("word", ["timeout", "iffy", "python", "FOO-1=x", "./time"])
def test_a_program_that_only_looks_alike_is_not(word: str) -> None:
    assert Launch((word,)).line == word


@each_row("word", ["=ls", "~x", "!x", "#x", "a b", ""])
def test_a_word_that_some_shell_expands_is_quoted(word: str) -> None:
    assert quote(word) == posix(word) == f"'{word}'"


PYTHON = "print('hello'); print('all of it')"


def test_a_program_in_single_quotes_is_shown_as_it_would_be_typed() -> None:
    command = ("python", "-c", PYTHON)
    line = f'python -c "{PYTHON}"'
    assert Launch(command).line == command_line((), command) == line
    assert Job(id="c3x5", state="ended", created=1000.0, argv=command).title == line
    assert fish(PYTHON) == posix(PYTHON) == f'"{PYTHON}"' == for_a_shell(PYTHON)[8:]
    assert split(line) == command


@each_row("word", ["it's $x", "it's `x`", "it's \\ ", "it's!x", """both ' and " """, "it's\na"])
def test_what_a_shell_replaces_in_double_quotes_stays_in_single_ones(word: str) -> None:
    assert not posix(word).startswith('"') and not (word.isprintable() and fish(word).startswith('"'))
    assert split(posix(word)) == (word,)


@given(_shell_words.filter(lambda word: "'" in word))
@settings(max_examples=40, deadline=None)
def test_a_plain_sh_reads_the_quoted_word(word: str) -> None:
    shown = subprocess.run(["sh", "-c", f"printf %s {posix(word)}"], capture_output=True, check=True)
    assert os.fsdecode(shown.stdout) == word


def test_a_launch_without_changes_is_the_command_itself() -> None:
    assert Launch(("python", "train.py", "--lr", "3e-4")).line == "python train.py --lr 3e-4"
