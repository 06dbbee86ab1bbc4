"""The table of command lines: each line's devices are read as its program means them."""

from __future__ import annotations

import re
import shlex
from itertools import product

from gputui.inventory.light_dataclasses import replace
from gputui.launching.compose import compose
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.programs import PROGRAMS
from gputui.launching.python_command import started_program
from gputui.launching.read_intent import read_intent
from gputui.launching.wrappers import unwrap
from table_tests import each_row
from unit.builders import gpu
from unit.command_lines import HOST, ROWS, Row


def test_the_table_is_large_and_every_row_says_where_it_is_from() -> None:
    assert len(ROWS) >= 150
    assert len({row.text for row in ROWS}) == len(ROWS)
    assert all(row.source for row in ROWS)


# Hundreds of rows in one test each: a test of its own costs several times as much as a row.


def test_what_a_command_line_says_is_what_is_asked_for() -> None:
    wrong = [(row.text, row.settled(), row.expected) for row in ROWS if row.settled() != row.expected]
    assert wrong == []
    for row in ROWS:
        if row.expected != "refused":
            launch = compose([gpu(0)], replace(row.options, ids="uuid"), row.inherited, HOST)
            assert any("cannot read UUIDs" in each for each in launch.remarks) == ("indices" in row.more), (
                row.text
            )


def test_a_command_is_completed_for_the_devices_that_it_gets() -> None:
    for row in [row for row in ROWS if "runs" in row.more]:
        devices = [gpu(index) for index in row.indices() or ()]
        launch = compose(devices, row.options, row.inherited, HOST)
        assert shlex.join(launch.argv) == row.more["runs"]
        assert not [warning for warning in launch.warnings if "overrides" in warning], row.text


def test_what_is_started_uses_the_devices_that_it_was_given() -> None:
    """If the started line is read again, it names the same devices and number, or none."""
    for row in ROWS:
        indices = row.indices()
        if indices is None:
            continue
        launch = compose([gpu(index) for index in indices], row.options, row.inherited, HOST)
        environ = launch.environment(row.inherited)
        again = read_intent(LaunchOptions(launch.argv), environ, HOST)
        if again.devices is not None and again.devices.firm:
            assert again.devices.listed == ",".join(map(str, indices)), launch.line
        if again.count is not None and again.count.firm and indices and "--force" not in row.call:
            assert again.count.number == len(indices), launch.line


@each_row(
    ("command", "name", "inherited", "started"),
    [
        ("swift sft --model M", "NPROC_PER_NODE", "4", "2"),
        ("swift sft --model M", "NPROC_PER_NODE", "2", "2"),
        ("swift sft --model M", "NPROC_PER_NODE", None, None),
        ("swift sft swift.yaml", "NPROC_PER_NODE", "8", "2"),
        ("llamafactory-cli train c.yaml", "NPROC_PER_NODE", "1", "2"),
        ("composer train.py", "LOCAL_WORLD_SIZE", "8", "2"),
        ("composer -n 2 train.py", "LOCAL_WORLD_SIZE", "8", "8"),
        ("text-generation-launcher --model-id M", "NUM_SHARD", "4", "2"),
        ("NUM_SHARD=4 text-generation-launcher --model-id M", "NUM_SHARD", None, "4"),
    ],
)
def test_an_inherited_number_of_processes_gives_way_to_the_devices(
    command: str, name: str, inherited: str | None, started: str | None
) -> None:
    """A variable typed before the command counts more; a contradiction is refused before that."""
    row = Row(command, "", command, "", "")
    environ = {} if inherited is None else {name: inherited}
    assert compose([gpu(5), gpu(4)], row.options, environ, HOST).environment(environ).get(name) == started


def test_a_number_of_processes_in_a_file_gives_way_to_the_devices() -> None:
    launch = compose([gpu(5), gpu(4), gpu(3)], LaunchOptions(("swift", "sft", "swift.yaml")), {}, HOST)
    assert launch.environment({})["NPROC_PER_NODE"] == "3"


def test_every_program_of_the_table_has_a_command_line() -> None:
    commands = [unwrap(row.options.command)[1] for row in ROWS]
    silent = [
        p.name for p in PROGRAMS if not any(p.own(command, started_program(command)) for command in commands)
    ]
    assert silent == []


def test_every_program_says_where_it_is_from() -> None:
    assert all(
        program.source and (program.starts or program.modules or program.any_python) for program in PROGRAMS
    )


def _spelt(begin: str) -> list[str]:
    """Return "swift pt" and "swift sft" for "swift pt|sft"."""
    return [" ".join(words) for words in product(*(each.split("|") for each in begin.split()))]


def test_programs_are_told_apart_by_how_their_commands_begin() -> None:
    for kind in ("starts", "modules"):
        begins = [each for program in PROGRAMS for begin in getattr(program, kind) for each in _spelt(begin)]
        assert len(begins) == len(set(begins))


def test_a_row_is_read_the_same_by_its_module_and_its_program() -> None:
    """`python -m swift.cli.main sft` is the same as `swift sft`."""
    for program in PROGRAMS:
        for begin in (each for module in program.modules for each in _spelt(module)):
            for words, its in (((*begin.split(), "x"), True), ((f"{begin.split()[0]}x",), False)):
                command = ("python", "-m", *words)
                assert (program.own(command, started_program(command)) > 0) == its


def test_the_words_of_a_command_are_kept_in_their_order() -> None:
    """A completed command keeps every word of the user's that names no device."""
    for row in ROWS:
        if row.expected == "refused" or re.search("dev|gpu|localhost:[0-9]|VISIBLE|env -S", row.command):
            continue
        done = compose([gpu(0), gpu(1)], row.options, row.inherited, HOST).argv
        left = iter(done)
        missing = [
            word for word in row.options.command if not re.search("gpus|np|=", word) and word not in left
        ]
        assert not missing, (row.text, done)
