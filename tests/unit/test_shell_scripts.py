"""What is read of a shell script: what it starts, with its words and variables; also against a real bash."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.inventory.others_files import one_reading
from gputui.launching.script_contents.shell import read_shell

COMMANDS = [
    # A script, its arguments, and the words of torchrun with its VISIBLE; "…" for what is not known.
    ("torchrun --nproc_per_node=8 t.py", (), "--nproc_per_node=8 t.py"),
    ("N=4\ntorchrun --nproc_per_node $N t.py", (), "--nproc_per_node 4 t.py"),
    ("N=${1:-4}; torchrun -n ${N}", (), "-n 4"),
    ("N=${1:-4}; torchrun -n ${N}", ("2",), "-n 2"),
    (": ${N:=3}\ntorchrun -n $N", (), "-n 3"),
    ("N=$((2 * 4)); torchrun -n $((N / 2))", (), "-n 4"),
    ('ARGS="--nproc_per_node 8 --nnodes 1"\ntorchrun $ARGS t.py', (), "--nproc_per_node 8 --nnodes 1 t.py"),
    (
        'ARGS=(--nproc_per_node 8)\nARGS+=(--x "a b")\ntorchrun "${ARGS[@]}"',
        (),
        "--nproc_per_node 8 --x 'a b'",
    ),
    ('torchrun "$@" t.py', ("-n", "a b"), "-n 'a b' t.py"),
    ("torchrun \\\n  -n 2 \\\n  t.py > log 2>&1 &", (), "-n 2 t.py"),
    ("export VISIBLE=0,1\ntorchrun t.py", (), "t.py VISIBLE=0,1"),
    ("VISIBLE=2 torchrun t.py", (), "t.py VISIBLE=2"),
    ("VISIBLE=2; torchrun t.py", (), "t.py"),
    ("cd x && VISIBLE=3 torchrun t.py", (), "t.py VISIBLE=3"),
    ("run() { VISIBLE=$1 torchrun $2; }\nrun 1 t.py", (), "t.py VISIBLE=1"),
    ('if [ -z "$1" ]; then N=2; else N=$1; fi\ntorchrun -n $N', ("5",), "-n 5"),
    ("[ $# -gt 0 ] || set -- 7\ntorchrun -n $1", (), "-n 7"),
    ("for g in 1 ; do VISIBLE=$g torchrun $g; done", (), "1 VISIBLE=1"),
    ("CMD='torchrun -n 2 t.py'\neval $CMD", (), "-n 2 t.py"),
    ("CMD='torchrun -n 2 t.py'\n$CMD", (), "-n 2 t.py"),
    ("exec torchrun t.py", (), "t.py"),
    ("cat <<EOF\ntorchrun no\nEOF\ntorchrun yes", (), "yes"),
    ("# torchrun no\necho torchrun no; torchrun yes", (), "yes"),
    ("N=$(nvidia-smi -L | wc -l)\ntorchrun -n $N", (), "-n '$(nvidia-smi -L | wc -l)'"),
    (". ./env.sh\ntorchrun -n $N", (), "-n 6"),
    ("set -a\nVISIBLE=1\nset +a\ntorchrun t.py", (), "t.py VISIBLE=1"),
    ("if ! [ -f data ]; then echo none; exit 1; fi\ntorchrun t.py", (), "t.py"),
    ("declare -i N=4\ntorchrun $N", (), "4"),
    ("cd sub\nsource env.sh\ntorchrun -n $N", (), "-n 5"),
]


@pytest.mark.parametrize(("script", "arguments", "words"), COMMANDS)
def test_what_a_script_starts_is_read_with_its_variables(
    script: str, arguments: tuple[str, ...], words: str
) -> None:
    import shlex

    files = {"./env.sh": "N=6", "sub/env.sh": "N=5"}
    (found,) = [c for c in read_shell(script, arguments, {}, files.get)[0] if c.words[0] == "torchrun"]
    assert found.certain
    visible = found.variables.get("VISIBLE")
    assert [*found.words[1:], *([f"VISIBLE={visible}"] if visible else [])] == shlex.split(words)
    assert bool(found.unknown) == ("$(" in words)


@pytest.mark.parametrize(
    "script",
    [
        "if python -c 'import x'; then torchrun t.py; fi",
        "[ -e /some/file ] && torchrun t.py",
        "case $(hostname) in a) torchrun t.py;; esac",
        "while read line; do torchrun t.py; done",
        "python a.py || torchrun t.py",
        "for i in 1 2; do probe || break; torchrun t.py; done",
        "for i in $(seq 2); do torchrun t.py; done",
        "if probe; then python a.py; exit; fi; torchrun t.py",
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


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('[ -z "$GIVEN" ]', False),
        ('[ -n "$GIVEN" ]', True),
        ("[[ -z ${GIVEN:-} ]]", False),
        ('test -z "$GIVEN"', False),
        ('[ "x$GIVEN" = "" ]', False),
        ('[ "$GIVEN" != "" ]', True),
        ("[[ ! -v GIVEN ]]", False),
        ("[[ $GIVEN ]]", True),
        ('! [ -z "$GIVEN" ]', True),
        ('[ -z "$GIVEN" ] && [ "$1" = a ]', False),
        ('[ -z "${GIVEN+x}" ]', False),
        ('[ "$GIVEN" = "0" ]', None),
        ('[ -z "$(probe)" ]', None),
        ('[[ "$GIVEN" == *,* ]]', None),
        ('[[ "" == * ]]', None),
    ],
)
def test_a_value_that_is_given_is_there_though_nobody_knows_it_yet(
    condition: str, holds: bool | None
) -> None:
    script = f"if {condition}; then torchrun yes; else torchrun no; fi"
    found = [
        (command.words[1], command.certain)
        for command in read_shell(script, (), {}, not_known={"GIVEN": "$GIVEN"})[0]
        if command.words[0] == "torchrun"
    ]
    if holds is None:
        assert found == [("yes", False), ("no", False)]
    else:
        assert found == [("yes" if holds else "no", True)]


def test_what_is_behind_the_end_is_not_started() -> None:
    for script in ("torchrun a\nexit 0\ntorchrun b", "exec torchrun a\ntorchrun b"):
        assert [command.words[1] for command in read_shell(script, (), {})[0]] == ["a"]


@given(st.binary(max_size=200))
def test_any_text_at_all_can_be_read(data: bytes) -> None:
    read_shell(data.decode(errors="replace"), (), {})


@pytest.mark.parametrize(
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


# Against a real bash

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
@settings(max_examples=60, deadline=None)
@given(_SCRIPTS, st.lists(_TEXTS, max_size=3), _ENVIRON)
def test_what_is_said_for_certain_is_what_bash_does(
    recorder: Path, script: str, arguments: list[str], environ: dict[str, str]
) -> None:
    """All scripts here can be followed whole: what is read is what is started, no more and no less."""
    said = [c for c in read_shell(script, arguments, environ)[0] if c.words[0] == "torchrun"]
    real = started(recorder, script, arguments, environ)
    known = [c for c in said if not c.unknown]
    if len(known) == len(said):
        assert [c.words[1:] for c in said] == [words for words, _ in real], script
    for command, (_, variables) in zip(said, real, strict=False):
        for name, value in command.variables.items():
            if value is not None:
                assert variables.get(name) == value, script


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a torchrun that writes down how it is called."""
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
        timeout=20,
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
        ("(cd a); torchrun", ""),
        ("cd /x\ncd y; torchrun", "/x/y"),
        ("cd $(mktemp -d); torchrun", None),
        ("if probe; then cd a; fi\ntorchrun", None),
        ("cd a; cd -; torchrun", None),
    ):
        assert read_shell(script, (), {})[0][-1].directory == directory, script


def test_what_is_too_long_to_be_followed_is_told_with_its_line() -> None:
    found, line = read_shell("torchrun\nfor i in {1..9}; do\n" + "a=1\n" * 30_000 + "done\ntorchrun", (), {})
    assert len(found) == 1 and line is not None and line > 2
    assert read_shell("torchrun\n" * 100, (), {})[1] is None
    for loop in ("for i in $L; do torchrun; done", "for ((i=0;i<99;i++)); do torchrun; done"):
        assert read_shell(f"L='{'x ' * 99}'\n{loop}", (), {})[1] == 2


@pytest.mark.parametrize(
    "script",
    [
        "printf -v N %s 3\ntorchrun $N",
        "N=1; declare -i N=2+3\ntorchrun $N",
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


def test_scripts_are_read_on_several_threads_at_once() -> None:
    """As the screen reads: a parser that two threads are inside of crashes the whole program."""

    def work(number: int) -> None:
        with one_reading():
            read_shell(f"python a{number}.py\n" + "<" * 20_000, (), {})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
