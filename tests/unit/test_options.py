"""A launcher's options are read as its own parser reads them."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from gputui.launching.launchers import accelerate, deepspeed, torchrun
from gputui.launching.launchers.options import Given, number, read
from gputui.launching.launchers.script_launcher import ScriptLauncher
from unit.real_parsers import MODULES, installed, need, parsed

OURS = {"torchrun": torchrun, "accelerate": accelerate, "deepspeed": deepspeed}
"""The files with our tables."""
SCRIPT_LAUNCHERS: Mapping[str, ScriptLauncher] = {
    each.name: each for each in (accelerate.Accelerate(), deepspeed.Deepspeed(), torchrun.Torchrun())
}

SHORTENED = ("torchrun", "deepspeed")
"""Launchers whose parser takes beginnings of options."""

LINES = 250

FLAGS = frozenset(("standalone", "module", "q", "save-pid"))
ALIASES = {"m": "module", "r": "redirects", "num": "number"}


def _read(text: str) -> Given:
    return read(text.split(), FLAGS, ALIASES, FLAGS | {"nproc-per-node", "rdzv-id", "rdzv-conf"})


# The tables beside the real parsers.


def _names(strings: Sequence[str], aliases: Mapping[str, str]) -> set[str]:
    names = {text.lstrip("-").replace("_", "-") for text in strings}
    return {aliases.get(name, name) for name in names}


@pytest.fixture(scope="module")
def lines() -> dict[str, list[list[str]]]:
    """Lines that a person could write, from the launchers' own options."""
    return {name: _some_lines(name) for name in MODULES}


@pytest.fixture(scope="module")
def told(lines: dict[str, list[list[str]]]) -> dict[str, Any]:
    """What the real parsers say of them."""
    return parsed(lines)


@pytest.mark.parametrize("launcher", MODULES)
def test_the_table_of_options_without_a_value_is_the_parsers_own(launcher: str, told: dict[str, Any]) -> None:
    """A flag that a new version adds, or gives a value, fails here."""
    need(launcher)
    ours, real = OURS[launcher], told[launcher]["options"]
    flags = set().union(*(_names(strings, ours._ALIASES) for strings, flag in real if flag))
    valued = set().union(*(_names(strings, ours._ALIASES) for strings, flag in real if not flag))
    assert {ours._ALIASES.get(name, name) for name in ours._FLAGS} == flags
    assert not flags & valued


@pytest.mark.parametrize("launcher", SHORTENED)
def test_the_table_of_options_with_a_value_is_the_parsers_own(launcher: str, told: dict[str, Any]) -> None:
    need(launcher)
    ours, real = OURS[launcher], told[launcher]["options"]
    long = [text for strings, flag in real if not flag for text in strings if text.startswith("--")]
    assert {text[2:].replace("_", "-") for text in long} == set(ours._VALUED)


@pytest.mark.parametrize("launcher", MODULES)
def test_every_short_option_is_known(launcher: str, told: dict[str, Any]) -> None:
    need(launcher)
    short = [
        text[1:] for strings, _ in told[launcher]["options"] for text in strings if not text.startswith("--")
    ]
    assert {name for name in short if name not in OURS[launcher]._ALIASES} <= set(OURS[launcher]._FLAGS)


def _some_lines(launcher: str) -> list[list[str]]:
    """Random lines: options in all their ways of writing, a script, arguments that look like options."""
    ours, chance = OURS[launcher], random.Random(7)
    flags = sorted(ours._FLAGS - {"h", "help"})
    valued = {
        "torchrun": ("nproc-per-node", "rdzv-id", "log-dir", "master-port", "node-rank", "tee"),
        "accelerate": ("num-processes", "gpu-ids", "config-file", "main-process-port", "fsdp-version", "tee"),
        "deepspeed": ("include", "num-gpus", "master-port", "hostfile", "launcher-args", "exclude"),
    }[launcher]
    short = {name: letter for letter, name in ours._ALIASES.items() if len(letter) == 1}
    found = []
    for _ in range(LINES):
        line: list[str] = []
        for _ in range(chance.randrange(4)):
            name = chance.choice(flags if chance.random() < 0.5 else valued)
            line += _written(name, name in flags, short.get(name), launcher in SHORTENED, chance)
        line += ["--"] if chance.random() < 0.1 else []
        # (A "--" just behind the script argparse takes for its own, and the script never sees it.)
        line += ["train.py", chance.choice(("9", "-m"))]
        line += chance.choices(("--nproc-per-node", "9", "-m", "--", "", "-q", "--x=1"), k=2)
        found.append(line)
    return found


def _written(name: str, flag: bool, short: str | None, cut: bool, chance: random.Random) -> list[str]:
    if len(name) == 1:
        return [f"-{name}"]
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
        script = real.get("training_script", real.get("user_script"))
        arguments = real.get("training_script_args", real.get("user_args"))
        assert list(given.behind(line)) == [script, *arguments], line
        for name, value in given.values.items():
            key = {"tpu-cluster": "tpu_use_cluster", "no-tpu-cluster": "tpu_use_cluster", "q": "quiet"}.get(
                name, name.replace("-", "_")
            )
            if name not in OURS[launcher]._FLAGS:
                assert str(real[key]) == value, line
            elif "tpu_use_cluster" not in key:
                assert real[key] is True, line
        agreed += 1
    assert agreed > LINES / 2, "most of the lines are such as the parser takes"


# The ways of writing, one by one.


@pytest.mark.parametrize(
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
    assert (dict(given.values), given.end) == (values, end)


def test_one_of_several_letters_can_be_left_out() -> None:
    given = _read("-qmr 3 x.py")
    assert given.without(("module",)) == ("-q", "-r", "3")
    assert given.without(()) == ("-q", "-m", "-r", "3")


def test_options_are_left_out_with_their_values_and_all_their_repetitions() -> None:
    given = _read("--rdzv-id 1 --standalone --rdzv_id=2 x.py")
    assert given.without(("rdzv-id",)) == ("--standalone",)


def test_the_dashes_before_a_script_are_not_its_own() -> None:
    words = ["--standalone", "--", "train.py", "--", "x"]
    assert read(words, FLAGS).behind(words) == ("train.py", "--", "x")


def test_a_number_is_a_whole_one() -> None:
    assert [number(text) for text in ("3", "0", "", "-1", "2x", "²", "1.0", "9" * 5000)] == [
        *(3, 0, None, None, None, None, None),
        999999999999,
    ]


def test_all_three_parsers_are_asked_where_they_are_installed(told: dict[str, Any]) -> None:
    assert set(told) == {name for name in MODULES if installed(name)}
