"""The values of --vary: axes, the variants that they span, and the changes to a command."""

from __future__ import annotations

import shlex

import pytest

from gputui.jobs.experiments.axes import (
    MOST_TASKS,
    Axis,
    AxisError,
    read_axis,
    variants,
    varied_command,
)
from table_tests import each_row

OPTIONS = ("launcher", "processes", "numa-binding", "threads")


def axis(text: str) -> Axis:
    return read_axis(text, OPTIONS)


@each_row(
    ("text", "kind", "key", "values"),
    [
        ("launcher=python,torchrun", "option", "launcher", ("python", "torchrun")),
        ("env:NCCL_P2P_DISABLE=0,1", "env", "NCCL_P2P_DISABLE", ("0", "1")),
        ("env:NCCL_ALGO=,Ring", "env", "NCCL_ALGO", ("", "Ring")),
        ("env:A=x=1,y", "env", "A", ("x=1", "y")),
        (r"env:A=a\,b,c", "env", "A", ("a,b", "c")),
        ("arg:--batch-size=8,16", "arg", "--batch-size", ("8", "16")),
        ("arg:trainer.lr=0.1,0.2", "arg", "trainer.lr", ("0.1", "0.2")),
        ("arg:--bf16", "switch", "--bf16", ("off", "on")),
        ("--lr=1e-4,3e-4", "arg", "--lr", ("1e-4", "3e-4")),
        ("--bf16", "switch", "--bf16", ("off", "on")),
        ("word:mode=a,b", "word", "mode", ("a", "b")),
        ("n=1,2,4", "n", "n", ("1", "2", "4")),
        ("gpus=0+1,2+3", "gpus", "gpus", ("0+1", "2+3")),
        ("threads=4", "option", "threads", ("4",)),
    ],
)
def test_an_axis_is_read(text: str, kind: str, key: str, values: tuple[str, ...]) -> None:
    found = axis(text)
    assert (found.kind, found.key, found.values) == (kind, key, values)
    assert found.name.endswith(text.partition("=")[0])


@each_row(
    "text",
    [
        "",
        "launcher",
        "=1",
        "nothing=1",
        "launcher=",
        "launcher=python,",
        "launcher=python,python",
        "env:1A=2",
        "env:=2",
        "env:A",
        "arg:lr",
        "word:",
        "nodes=1,2",
        "env:A=\0",
        "env:A=" + "x" * 20_000,
    ],
)
def test_what_cannot_be_meant_is_refused_with_one_line(text: str) -> None:
    with pytest.raises(AxisError) as error:
        axis(text)
    assert len(str(error.value).splitlines()) == 1


def test_the_variants_are_every_combination_and_the_last_axis_changes_first() -> None:
    found = variants([axis("launcher=a,b"), axis("env:X=0,1")])
    assert [tuple(value for _, value in each) for each in found] == [
        ("a", "0"),
        ("a", "1"),
        ("b", "0"),
        ("b", "1"),
    ]


@each_row(
    "texts",
    [
        ("env:A=1", "env:A=2"),
        ("n=1,2", "gpus=0,1"),
        ("arg:--x", "arg:--x=1,2"),
        tuple(f"env:A{place}={','.join(map(str, range(22)))}" for place in range(3)),
    ],
)
def test_axes_that_do_not_go_together_are_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(AxisError):
        variants([axis(text) for text in texts])
    assert MOST_TASKS < 22**3


@each_row(
    ("text", "command", "expected"),
    [
        ("arg:--bs=8", "t.py --bs 4 --lr 1", "t.py --bs 8 --lr 1"),
        ("arg:--bs=8", "t.py --bs=4 --lr 1", "t.py --bs=8 --lr 1"),
        ("arg:--bs=8", "t.py --lr 1", "t.py --lr 1 --bs 8"),
        ("arg:--bs=8", "t.py --bs --lr 1", "t.py --bs 8 --lr 1"),
        ("arg:--bs=8", "t.py --bs 1 --bs 2", "t.py --bs 1 --bs 8"),
        ("arg:--lr=8", "t.py --lr -1", "t.py --lr 8"),
        ("arg:--bs=", "t.py --bs 4 --lr 1", "t.py --lr 1"),
        ("arg:--bs=", "t.py --lr 1", "t.py --lr 1"),
        ("arg:lr=8", "t.py lr=1 x", "t.py lr=8 x"),
        ("arg:lr=8", "t.py x", "t.py x lr=8"),
        ("arg:lr=", "t.py lr=1 x", "t.py x"),
        ("word:b=8", "t.py --bs {b} out-{b}", "t.py --bs 8 out-8"),
        ("word:b=", "t.py {b} out-{b}", "t.py out-"),
    ],
)
def test_a_value_changes_the_words_of_the_command(text: str, command: str, expected: str) -> None:
    found = axis(text)
    assert varied_command(shlex.split(command), [(found, found.values[0])]) == tuple(shlex.split(expected))


def test_a_switch_is_there_or_not() -> None:
    bf16 = axis("arg:--bf16")
    for command in ("t.py", "t.py --bf16"):
        assert varied_command(shlex.split(command), [(bf16, "on")]) == ("t.py", "--bf16")
        assert varied_command(shlex.split(command), [(bf16, "off")]) == ("t.py",)


def test_a_word_that_the_command_does_not_have_is_refused() -> None:
    with pytest.raises(AxisError):
        varied_command(("t.py", "b"), [(axis("word:b=8"), "8")])
