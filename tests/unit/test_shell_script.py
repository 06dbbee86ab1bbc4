"""The reading of a shell script: the commands that it starts, with their words and variables; compared with a
real bash, too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputui.launching.shell_script import read_shell
from table_tests import each_row

COMMANDS = [
    # A script, its arguments, and the words of torchrun with its VISIBLE; "…" stands for an unknown part.
    ("torchrun --nproc_per_node=8 t.py", (), "--nproc_per_node=8 t.py"),
    ("N=4\ntorchrun --nproc_per_node $N t.py", (), "--nproc_per_node 4 t.py"),
    ("N=${1:-4}; torchrun -n ${N}", (), "-n 4"),
    ("N=${1:-4}; torchrun -n ${N}", ("2",), "-n 2"),
    ("set -euo pipefail\nset -x\ntorchrun -n $1", ("2",), "-n 2"),
    (": ${N:=3}\ntorchrun -n $N", (), "-n 3"),
    ('ARGS="--nproc_per_node 8 --nnodes 1"\ntorchrun $ARGS t.py', (), "--nproc_per_node 8 --nnodes 1 t.py"),
    ('torchrun "$@" t.py', ("-n", "a b"), "-n 'a b' t.py"),
    ("torchrun \\\n  -n 2 \\\n  t.py > log 2>&1 &", (), "-n 2 t.py"),
    ("export VISIBLE=0,1\ntorchrun t.py", (), "t.py VISIBLE=0,1"),
    ("VISIBLE=2 torchrun t.py", (), "t.py VISIBLE=2"),
    ("VISIBLE=2; torchrun t.py", (), "t.py"),
    ("cd x && VISIBLE=3 torchrun t.py", (), "t.py VISIBLE=3"),
    ("for g in 1 ; do VISIBLE=$g torchrun $g; done", (), "1 VISIBLE=1"),
    ("CMD='torchrun -n 2 t.py'\n$CMD", (), "-n 2 t.py"),
    ("exec torchrun t.py", (), "t.py"),
    ("cat <<EOF\ntorchrun no\nEOF\ntorchrun yes", (), "yes"),
    ("# torchrun no\necho torchrun no; torchrun yes", (), "yes"),
    ("N=$(nvidia-smi -L | wc -l)\ntorchrun -n $N", (), "-n '$(nvidia-smi -L | wc -l)'"),
    ("if ! [ -f data ]; then echo none; exit 1; fi\ntorchrun t.py", (), "t.py"),
    ("declare -i N=4\ntorchrun $N", (), "4"),
    (
        'ARGS=(--nproc_per_node 8)\nARGS+=(--x "a b")\ntorchrun "${ARGS[@]}"',
        (),
        "--nproc_per_node 8 --x 'a b'",
    ),
    ("for g in {2..2}; do torchrun $g; done", (), "2"),
]


@each_row(("script", "arguments", "words"), COMMANDS)
def test_what_a_script_starts_is_read_with_its_variables(
    script: str, arguments: tuple[str, ...], words: str
) -> None:
    import shlex

    (found,) = [c for c in read_shell(script, arguments, {})[0] if c.words[0] == "torchrun"]
    assert found.certain
    visible = found.variables.get("VISIBLE")
    assert [*found.words[1:], *([f"VISIBLE={visible}"] if visible else [])] == shlex.split(words)
    assert bool(found.unknown) == ("$(" in words)


@each_row(
    "script",
    [
        "if python -c 'import x'; then torchrun t.py; fi",
        "[ -e /some/file ] && torchrun t.py",
        "case $(hostname) in a) torchrun t.py;; esac",
        "while read line; do torchrun t.py; done",
        "python a.py || torchrun t.py",
        "for i in $(seq 2); do torchrun t.py; done",
    ],
)
def test_what_is_perhaps_started_is_not_certain(script: str) -> None:
    found = [command for command in read_shell(script, (), {})[0] if command.words[0] == "torchrun"]
    assert found and not any(command.certain for command in found)


def test_a_branch_that_is_perhaps_taken_leaves_its_variables_unknown() -> None:
    script = "export VISIBLE=0 N=1\nif probe; then VISIBLE=1; N=1; fi\ntorchrun $N"
    found = read_shell(script, (), {})[0][-1]
    assert (found.words, found.variables["VISIBLE"]) == (("torchrun", "1"), None)
    assert "VISIBLE" in found.not_known and "N" not in found.not_known


def test_what_a_branch_sets_a_variable_to_that_is_given_is_not_known() -> None:
    script = 'if [ -z "$GIVEN" ]; then export GIVEN=0,1; fi\ntorchrun t.py'
    found = read_shell(script, (), {}, {"GIVEN": "$GIVEN"})[0][-1]
    assert found.not_known == {"GIVEN": "$GIVEN"}


def test_what_both_branches_set_is_not_known() -> None:
    script = "if probe; then N=1; else N=8; fi\ntorchrun --nproc_per_node $N t.py"
    found = read_shell(script, (), {})[0][-1]
    assert found.words[2] == "$N" and found.unknown == ("$N",)


def test_a_loop_is_turned_for_each_value_that_is_written_out() -> None:
    found = read_shell("for g in 0 1; do for s in a b; do VISIBLE=$g torchrun $s; done; done", (), {})[0]
    assert [(c.words[1], c.variables["VISIBLE"], c.certain) for c in found] == [
        ("a", "0", True),
        ("b", "0", True),
        ("a", "1", True),
        ("b", "1", True),
    ]


def test_what_is_behind_the_end_is_not_started() -> None:
    for script in ("torchrun a\nexit 0\ntorchrun b", "exec torchrun a\ntorchrun b"):
        assert [command.words[1] for command in read_shell(script, (), {})[0]] == ["a"]


@given(st.binary(max_size=200))
def test_any_text_at_all_can_be_read(data: bytes) -> None:
    read_shell(data.decode(errors="replace"), (), {})


@each_row(
    "text",
    [
        *(each * 5000 for each in ("(", "$(", "${a:-", "if a; then ", "x=$((", "for a in b; do ")),
        "f() { f; f; }; f",
        "a=1\n" + "a=$a$a\n" * 400,
        "l=(1 2)\n" + "l=(${l[@]} ${l[@]})\n" * 400,
    ],
)
def test_a_text_made_to_be_endless_ends(text: str) -> None:
    read_shell(text, (), {})


# Comparison with a real bash

_NAMES = st.sampled_from(["A", "B", "N"])
_TEXTS = st.sampled_from(["0", "1", "4", "0,1", "a b", "", "--x=3"])
_WORDS = st.one_of(
    _TEXTS.map(lambda text: f"'{text}'"),
    _NAMES.map(lambda name: f"${name}"),
    _NAMES.map(lambda name: f'"${name}"'),
    _NAMES.map(lambda name: f'"x ${{{name}}} y"'),
    st.tuples(_NAMES, _TEXTS).map(lambda p: f"${{{p[0]}:-'{p[1]}'}}"),
    st.tuples(_NAMES, _NAMES).map(lambda p: f'"${{{p[0]}-${p[1]}}}"'),
    st.tuples(_NAMES, _TEXTS).map(lambda p: f"${{{p[0]}:+'{p[1]}'}}"),
    st.sampled_from(
        ["$1", '"$2"', '"$@"', "$#", '"${L[@]}"', "${L[1]}", "$((2 * 3 - 1))", "a\\ b", "--n=$1"]
    ),
)
_TESTS = st.one_of(
    _NAMES.map(lambda name: f'[ -z "${name}" ]'),
    st.tuples(_NAMES, _TEXTS).map(lambda p: f"[ \"${p[0]}\" = '{p[1]}' ]"),
    st.tuples(
        st.sampled_from(
            [
                '[ "${}" ]',
                'test -n "${}"',
                '[ ! -z "${}" ]',
                "[ -v {} ]",
                '[ -z "${{{}+x}}" ]',
                '[ "${}" != "" ]',
            ]
        ),
        _NAMES,
    ).map(lambda p: p[0].format(p[1])),
    st.sampled_from(["[ $# -gt 1 ]", "[ $# -eq 0 ]", "true", "! false"]),
)
_SIMPLE = st.one_of(
    st.lists(_WORDS, max_size=3).map(lambda words: f"torchrun {' '.join(words)}"),
    st.tuples(_NAMES, _WORDS).map(lambda p: f"{p[0]}={p[1]}"),
    st.tuples(_NAMES, _WORDS).map(lambda p: f"export {p[0]}={p[1]}"),
    st.tuples(_NAMES, _WORDS).map(lambda p: f"{p[0]}={p[1]} torchrun ${p[0]}"),
    st.lists(_WORDS, max_size=3).map(lambda words: f"L=({' '.join(words)})"),
    _WORDS.map(lambda word: f"L+=({word})"),
    st.lists(_WORDS, max_size=2).map(lambda words: f"set -- {' '.join(words)}"),
    st.sampled_from(["shift", "unset A", "export B", "f 7 8", "eval torchrun $A", "A+=1"]),
)


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(_TESTS, inner, inner).map(lambda p: f"if {p[0]}; then\n{p[1]}\nelse\n{p[2]}\nfi"),
        st.tuples(_TESTS, inner).map(lambda p: f"{p[0]} && {p[1]}"),
        st.tuples(_TESTS, inner).map(lambda p: f"{p[0]} || {p[1]}"),
        st.tuples(_NAMES, _WORDS, inner).map(lambda p: f"for {p[0]} in {p[1]} z; do {p[2]}\ndone"),
        inner.map(lambda body: f"( {body} )"),
        inner.map(lambda body: f"f() {{ local N=9; {body}\n}}"),
    )


_SCRIPTS = st.lists(st.recursive(_SIMPLE, _compound, max_leaves=4), min_size=1, max_size=6).map("\n".join)
_ENVIRON = st.dictionaries(_NAMES, _TEXTS, max_size=2)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@settings(max_examples=25, deadline=None)
@given(_SCRIPTS, st.lists(_TEXTS, max_size=3), _ENVIRON)
@example("if false; then\nfor A in 0 z; do L=()\ndone\nelse\nL=()\nfi\ntorchrun", [], {"A": "1"})
@example("if true; then\nfor A in 0 z; do L=()\ndone\nelse\ntorchrun\nfi", [], {"A": "1"})
@example("[ \"$A\" = '0' ] && for A in '0' z; do torchrun\ndone", [], {})
@example("true || for A in 0 z; do torchrun\ndone", [], {})
def test_what_is_said_for_certain_is_what_bash_does(
    recorder: Path, script: str, arguments: list[str], environ: dict[str, str]
) -> None:
    """A program that is reported as certainly started, with known words, is started so."""
    real = [(words, variables) for words, variables in started(recorder, script, arguments, environ)]
    for command in read_shell(script, arguments, environ)[0]:
        if command.words[0] != "torchrun" or command.unknown or not command.certain:
            continue
        alike = [variables for words, variables in real if words == command.words[1:]]
        assert alike, (script, command, real)
        known = {name: value for name, value in command.variables.items() if value is not None}
        assert any(known.items() <= variables.items() for variables in alike), (script, command, real)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a torchrun that writes down its arguments and variables."""
    folder = tmp_path_factory.mktemp("recorder")
    program = folder / "torchrun"
    program.write_text(
        '#!/bin/sh\nprintf "%s\\0" "$@" "A=$A" "B=$B" "N=$N" "$(printf "\\001")" >> "$RECORD"\n'
    )
    program.chmod(0o755)
    return folder


def started(
    folder: Path, script: str, arguments: list[str], environ: dict[str, str]
) -> list[tuple[tuple[str, ...], dict[str, str]]]:
    """The calls of torchrun that bash makes: their words, and their variables."""
    record = folder / "record"
    record.write_text("")
    subprocess.run(
        ["bash", "-c", script, "script", *arguments],
        env={**environ, "PATH": f"{folder}:/usr/bin:/bin", "RECORD": str(record)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=100,
        check=False,
    )
    calls = []
    for chunk in record.read_text().split("\1\0")[:-1]:
        *words, a, b, n = chunk.split("\0")[:-1]
        calls.append((tuple(words), dict(each.split("=", 1) for each in (a, b, n))))
    return calls


def test_where_a_command_is_started_is_followed() -> None:
    for script, directory in (
        ("torchrun", ""),
        ("cd a; cd b\ntorchrun", "a/b"),
        ("(cd a); torchrun", None),
        ("cd /x\ncd y; torchrun", "/x/y"),
        ("cd $(mktemp -d); torchrun", None),
        ("if probe; then cd a; fi\ntorchrun", None),
        ("cd a; cd -; torchrun", None),
    ):
        assert read_shell(script, (), {})[0][-1].directory == directory, script


def test_what_is_too_long_to_be_read_is_told() -> None:
    found, whole = read_shell("torchrun\n" + "python x.py\n" * 3000, (), {})
    assert found[0].words == ("torchrun",) and not whole
    assert read_shell("torchrun\n" * 100, (), {})[1]
    assert not read_shell("torchrun\necho 'never closed", (), {})[1]


@each_row(
    "script",
    [
        "read N\ntorchrun $N",
        "N=$((2 + 3))\ntorchrun $N",
        "while getopts 'g:' o; do G=$OPTARG; done; shift $((OPTIND-1)); torchrun $1",
    ],
)
def test_what_a_builtin_computes_is_not_known(script: str) -> None:
    assert read_shell(script, ("-g", "1", "t"), {})[0][-1].unknown


def test_a_variable_that_was_unset_is_not_handed_on_when_it_is_set_again() -> None:
    found = read_shell("unset VISIBLE\nVISIBLE=1\ntorchrun", (), {"VISIBLE": "0"})[0][-1]
    assert found.variables["VISIBLE"] is None
    found = read_shell("unset VISIBLE\nexport VISIBLE=1\ntorchrun", (), {"VISIBLE": "0"})[0][-1]
    assert found.variables["VISIBLE"] == "1"
