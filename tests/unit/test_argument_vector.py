"""Argument vectors are parsed as the programs' own parsers do, and written back word for word."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.launching import python_command
from gputui.launching.argument_vector import (
    Arguments,
    OptionTable,
    likely_options,
    read_options,
    whole_number,
)
from gputui.launching.launchers import accelerate, deepspeed, mpirun, torchrun
from gputui.launching.launchers.base import ScriptLauncher
from table_tests import each_row
from unit.command_lines import lines_of
from unit.real_parsers import MODULES, installed, need, parsed

OURS = {"torchrun": torchrun, "accelerate": accelerate, "deepspeed": deepspeed}
"""The modules with our tables."""
SCRIPT_LAUNCHERS: Mapping[str, ScriptLauncher] = {
    each.name: each for each in (accelerate.Accelerate(), deepspeed.Deepspeed(), torchrun.Torchrun())
}

SHORTENED = ("torchrun", "deepspeed")
"""Launchers whose parser accepts abbreviated options."""

LINES = 250

TABLE = OptionTable(
    flags="standalone module|m q save-pid",
    valued="nproc-per-node rdzv-id rdzv-conf redirects|r number|num",
    pairs="mca",
    last="exec|x",
    unlisted="value",
    abbreviations=True,
)
GNU = OptionTable(flags="ignore|i|-", valued="unset|u chdir|C")
WORDS = OptionTable(flags="quiet|q", valued="np|n", pairs="mca genv", unlisted="value", letters=False)
SHELL = OptionTable(flags="c", valued="o", signs="-+")


def _read(text: str) -> Arguments:
    return read_options(text.split(), TABLE)


def _older(launcher: str) -> Collection[str]:
    """Flags that the installed version no longer has."""
    return getattr(OURS[launcher], "OLDER", ())


def _values(arguments: Arguments) -> dict[str, str]:
    return {option.name: option.value for option in arguments.options}


# Our tables, compared with the real parsers.


def _names(strings: Sequence[str], table: OptionTable) -> set[str]:
    names = {text.lstrip("-").replace("_", "-") for text in strings}
    return {table.aliases.get(name, name) for name in names}


@pytest.fixture(scope="module")
def lines() -> dict[str, list[list[str]]]:
    """Lines that a person could write, from the launchers' own options, and those of the table of lines."""
    return {name: [*_some_lines(name), *lines_of(SCRIPT_LAUNCHERS[name])] for name in MODULES}


@pytest.fixture(scope="module")
def told(lines: dict[str, list[list[str]]]) -> dict[str, Any]:
    """The answers of the real parsers for these lines."""
    return parsed(lines)


@pytest.mark.parametrize("launcher", MODULES)
def test_the_table_of_options_without_a_value_is_the_parsers_own(launcher: str, told: dict[str, Any]) -> None:
    """The test fails if a new version adds a flag, or gives one a value."""
    need(launcher)
    ours, real = OURS[launcher].OPTIONS, told[launcher]["options"]
    flags = set().union(*(_names(strings, ours) for strings, flag in real if flag))
    valued = set().union(*(_names(strings, ours) for strings, flag in real if not flag))
    assert ours.flags - set(_older(launcher)) == flags
    assert not flags & valued


@pytest.mark.parametrize("launcher", SHORTENED)
def test_the_table_of_options_with_a_value_is_the_parsers_own(launcher: str, told: dict[str, Any]) -> None:
    need(launcher)
    ours, real = OURS[launcher].OPTIONS, told[launcher]["options"]
    long = [text for strings, flag in real if not flag for text in strings if text.startswith("--")]
    listed = {*ours.valued, *(other for other, name in ours.aliases.items() if name in ours.valued)}
    assert {text[2:].replace("_", "-") for text in long} == {name for name in listed if len(name) > 1}


@pytest.mark.parametrize("launcher", MODULES)
def test_every_short_option_is_known(launcher: str, told: dict[str, Any]) -> None:
    need(launcher)
    short = {
        text[1:] for strings, _ in told[launcher]["options"] for text in strings if not text.startswith("--")
    }
    assert short <= OURS[launcher].OPTIONS.aliases.keys()


def _some_lines(launcher: str) -> list[list[str]]:
    """Random lines: options in all their spellings, a script, and arguments that look like options."""
    ours, chance = OURS[launcher].OPTIONS, random.Random(7)
    flags = sorted(ours.flags - {"help", *_older(launcher)})
    valued = {
        "torchrun": ("nproc-per-node", "rdzv-id", "log-dir", "master-port", "node-rank", "tee"),
        "accelerate": ("num-processes", "gpu-ids", "config-file", "main-process-port", "fsdp-version", "tee"),
        "deepspeed": ("include", "num-gpus", "master-port", "hostfile", "launcher-args", "exclude"),
    }[launcher]
    short = {name: letter for letter, name in ours.aliases.items() if len(letter) == 1}
    found = []
    for _ in range(LINES):
        line: list[str] = []
        for _ in range(chance.randrange(4)):
            name = chance.choice(flags if chance.random() < 0.5 else valued)
            line += _written(name, name in flags, short.get(name), launcher in SHORTENED, chance)
        line += ["--"] if chance.random() < 0.1 else []
        # argparse takes a "--" right after the script for its own, so the script would never see it.
        line += ["train.py", chance.choice(("9", "-m"))]
        line += chance.choices(("--nproc-per-node", "9", "-m", "--", "", "-q", "--x=1"), k=2)
        found.append(line)
    return found


def _written(name: str, flag: bool, short: str | None, cut: bool, chance: random.Random) -> list[str]:
    value = "2" if "fsdp" not in name else "1"
    if short is not None and chance.random() < 0.5:
        return chance.choice([["-" + short]] if flag else [[f"-{short}", value], [f"-{short}{value}"]])
    text = "--" + (name.replace("-", "_") if chance.random() < 0.5 else name)
    if cut and "_" not in text and chance.random() < 0.3:
        text = text[: max(5, len(text) - chance.randrange(5))]
    return [text] if flag else chance.choice([[text, value], [f"{text}={value}"]])


@pytest.mark.parametrize("launcher", MODULES)
def test_a_line_is_read_as_the_parser_reads_it(
    launcher: str, lines: dict[str, list[list[str]]], told: dict[str, Any]
) -> None:
    need(launcher)
    agreed = 0
    for line, real in zip(lines[launcher], told[launcher]["parsed"], strict=True):
        if real is None:
            continue
        given = SCRIPT_LAUNCHERS[launcher].given(line)
        assert list(given.words) == line
        script = real.get("training_script", real.get("user_script"))
        arguments = real.get("training_script_args", real.get("user_args"))
        assert list(given.operands) == [script, *arguments], line
        for name, value in _values(given).items():
            key = {"tpu-cluster": "tpu_use_cluster", "no-tpu-cluster": "tpu_use_cluster"}.get(
                name, name.replace("-", "_")
            )
            if name not in OURS[launcher].OPTIONS.flags:
                assert str(real[key]) == value, line
            elif "tpu_use_cluster" not in key:
                assert real[key] is True, line
        agreed += 1
    assert agreed > LINES / 2, "most of the lines are such as the parser takes"


@pytest.mark.parametrize("launcher", MODULES)
def test_the_parser_takes_the_lines_of_the_table(
    launcher: str, lines: dict[str, list[list[str]]], told: dict[str, Any]
) -> None:
    """The lines with an expectation can be started."""
    need(launcher)
    parsed_lines = list(zip(lines[launcher], told[launcher]["parsed"], strict=True))[LINES:]
    assert len(parsed_lines) > 10
    assert [line for line, real in parsed_lines if real is None] == []


# The spellings, one by one.


@each_row(
    ("text", "values", "end"),
    [
        ("", {}, 0),
        ("x.py --standalone", {}, 0),
        ("--standalone x.py", {"standalone": ""}, 1),
        ("--rdzv-id 7 x.py", {"rdzv-id": "7"}, 2),
        ("--rdzv_id=7 x.py", {"rdzv-id": "7"}, 1),
        ("--rdzv-id=a=b x.py", {"rdzv-id": "a=b"}, 1),
        ("--nproc 2 x.py", {"nproc-per-node": "2"}, 2),
        ("--rdzv 2 x.py", {"rdzv": "2"}, 2),
        ("--stand x.py", {"standalone": ""}, 1),
        ("--unknown 2 x.py", {"unknown": "2"}, 2),
        ("-m x", {"module": ""}, 1),
        ("-r3 x.py", {"redirects": "3"}, 1),
        ("-r=3 x.py", {"redirects": "3"}, 1),
        ("-r 3 x.py", {"redirects": "3"}, 2),
        ("-qm x", {"q": "", "module": ""}, 1),
        ("-qr 3 x.py", {"q": "", "redirects": "3"}, 2),
        ("-qr3 x.py", {"q": "", "redirects": "3"}, 1),
        ("--num 2 x.py", {"number": "2"}, 2),
        ("--rdzv-id 1 --rdzv-id 2 x.py", {"rdzv-id": "2"}, 4),
        ("--rdzv-id", {"rdzv-id": ""}, 1),
        ("-- --standalone", {}, 0),
        ("- x.py", {}, 0),
    ],
)
def test_an_option_is_understood_however_it_is_written(text: str, values: Collection[str], end: int) -> None:
    given = _read(text)
    assert (_values(given), len(given.option_words)) == (values, end)
    assert given.rest == tuple(text.split()[end:])


@each_row(
    ("table", "text", "values", "rest"),
    [
        (GNU, "-iuA -u B x", {"ignore": "", "unset": "B"}, "x"),
        (GNU, "- -C /w x", {"ignore": "", "chdir": "/w"}, "x"),
        (GNU, "-vuA x -i", {"v": "", "unset": "A"}, "x -i"),
        (GNU, "-5 x", {"5": ""}, "x"),
        (GNU, "--x y", {"x": ""}, "y"),
        (WORDS, "-np 2 --mca a b -genv A=1 x -q", {"np": "2", "mca": "a b", "genv": "A=1"}, "x -q"),
        (WORDS, "-n 2 -quiet -host=a x", {"np": "2", "quiet": "", "host": "a"}, "x"),
        (WORDS, "--mca a", {"mca": "a"}, ""),
        (SHELL, "-euo pipefail +o errexit -c x", {"e": "", "u": "", "o": "errexit", "c": ""}, "x"),
        (SHELL, "+ x", {}, "+ x"),
        (TABLE, "-x code --standalone", {"exec": "code"}, "--standalone"),
        (TABLE, "-qxcode -m", {"q": "", "exec": "code"}, "-m"),
        (TABLE, "-q=1 x", {"q": "1"}, "x"),
        (python_command.OPTIONS, "-X dev -um a.b -c", {"X": "dev", "u": "", "m": "a.b"}, "-c"),
        (python_command.OPTIONS, "-Wignore -ccode -m", {"W": "ignore", "c": "code"}, "-m"),
        (mpirun.OPTIONS, "--oversubscribe -x A=1 python -n", {"oversubscribe": "", "x": "A=1"}, "python -n"),
    ],
)
def test_each_kind_of_program_is_read_by_its_table(
    table: OptionTable, text: str, values: Mapping[str, str], rest: str
) -> None:
    given = read_options(text.split(), table)
    assert (_values(given), given.rest) == (values, tuple(rest.split()))


def test_one_of_several_letters_can_be_left_out() -> None:
    given = _read("-qmr 3 x.py")
    assert given.without(("module",)).words == ("-qr", "3", "x.py")
    assert given.without(("redirects",)).words == ("-qm", "x.py")
    assert given.without(()).words == ("-qmr", "3", "x.py")


def test_options_are_left_out_with_their_values_and_all_their_repetitions() -> None:
    given = _read("--rdzv-id 1 --standalone --rdzv_id=2 x.py")
    assert given.without(("rdzv-id",)).option_words == ("--standalone",)
    assert given.get("rdzv-id") == "2"


def test_the_dashes_before_a_script_are_not_its_own() -> None:
    given = read_options(["--standalone", "--", "train.py", "--", "x"], TABLE)
    assert given.operands == ("train.py", "--", "x")


def test_the_options_of_an_unknown_program_are_guessed() -> None:
    found = [(o.spelling, o.value) for o in likely_options(["run", "--a", "1", "--b", "--c=2", "x", "-d"])]
    assert found == [("--a", "1"), ("--b", ""), ("--c", "2"), ("-d", "")]


_words = st.lists(
    st.one_of(
        st.sampled_from(
            ("--standalone", "--rdzv-id", "--rdzv=1", "--nproc", "-qm", "-mr3", "-r", "-r=3", "-x")
        ),
        st.sampled_from(("--", "-", "+", "-qr", "--mca", "A=1", "a", "x.py")),
        st.text(st.sampled_from("-+=_amrquxCo1"), max_size=5),
    ),
    max_size=8,
)
_tables = st.sampled_from([TABLE, GNU, WORDS, SHELL, python_command.OPTIONS])


@given(_words, _tables)
@settings(max_examples=100, deadline=None)
def test_what_was_read_is_written_word_for_word(words: list[str], table: OptionTable) -> None:
    assert list(read_options(words, table).words) == words


@given(_words, _tables, st.integers(0, 7))
@settings(max_examples=100, deadline=None)
def test_what_is_left_out_is_gone_and_the_rest_reads_as_before(
    words: list[str], table: OptionTable, which: int
) -> None:
    before = read_options(words, table)
    if not before.options:
        return
    name = before.options[which % len(before.options)].name
    after = read_options(before.without((name,)).option_words, table)
    kept = [(option.name, option.values) for option in before.options if option.name != name]
    assert [(option.name, option.values) for option in after.options] == kept


def test_a_number_is_a_whole_one() -> None:
    assert [whole_number(text) for text in ("3", "0", "", "-1", "2x", "²", "1.0", "9" * 5000)] == [
        *(3, 0, None, None, None, None, None),
        999999999999,
    ]


def test_all_three_parsers_are_asked_where_they_are_installed(told: dict[str, Any]) -> None:
    assert set(told) == {name for name in MODULES if installed(name)}
