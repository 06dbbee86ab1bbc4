"""The real shells complete `--env` with the variables that the launch page suggests."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pexpect
import pytest

from gputui.launching.environment_hints import hints
from table_tests import each_row
from unit.calling import Call

OFFERED = {f"{hint.name}={hint.value}": hint.about for hint in hints(None, ())}
OF_FRAMEWORKS = {word for word in OFFERED if word.startswith(("TF_", "XLA_"))}


def _script(call: Call, shell: str, folder: Path) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = folder / f"gputui.{shell}"
    file.write_text(call("completion", shell).out)
    return shlex.quote(str(file))


def test_tensorflow_and_jax_are_among_them() -> None:
    assert {word.partition("=")[0] for word in OF_FRAMEWORKS} == {
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
    }


@each_row("subcommand", ["run", "export", "check"])
def test_help_lists_them_with_what_they_do(call: Call, subcommand: str) -> None:
    told = call(subcommand, "--help-all").out.splitlines()
    for word, about in OFFERED.items():
        assert any(line.split(maxsplit=1) == [word, about] for line in told), word


@each_row("subcommand", ["run", "export", "check"])
def test_bash_offers_them(call: Call, tmp_path: Path, subcommand: str) -> None:
    ask = (
        f"source {_script(call, 'bash', tmp_path)};"
        ' ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_gputui;'
        ' echo "${COMPREPLY[@]}"; };'
        f" ask gputui {subcommand} -n 2 --env ''; ask gputui {subcommand} --env XLA_"
    )
    done = subprocess.run(["bash", "--norc", "-c", ask], text=True, capture_output=True, check=False)
    everything, begun = done.stdout.splitlines()
    assert set(everything.split()) == OFFERED.keys()
    assert set(begun.split()) == {word for word in OFFERED if word.startswith("XLA_")}


def test_fish_offers_them_with_what_they_do(call: Call, tmp_path: Path) -> None:
    ask = f"source {_script(call, 'fish', tmp_path)}; complete -C 'gputui run --env '"
    done = subprocess.run(
        ["fish", "--no-config", "-c", ask], text=True, capture_output=True, check=True, timeout=60
    )
    assert dict(line.split("\t") for line in done.stdout.splitlines()) == OFFERED


def test_zsh_offers_them_with_what_they_do(call: Call, tmp_path: Path) -> None:
    script = _script(call, "zsh", tmp_path)
    child = pexpect.spawn(
        "zsh",
        ["-f", "-i"],
        cwd=str(tmp_path),
        env={"PATH": "/usr/bin:/bin", "TERM": "dumb", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
        dimensions=(40, 200),
        timeout=30,
        encoding="utf-8",
    )
    try:
        load = f'autoload -U compinit && compinit -u -D && eval "$(cat {script})"'
        child.sendline(f"PS1='ready''> '; {load} && echo lo''aded")
        child.expect("loaded")
        child.expect("ready> ")
        child.send("gputui run --env TF_F\t")
        child.expect("TF_FORCE_GPU_ALLOW_GROWTH=true")
        child.send("\x15gputui run --env \t")
        child.expect("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True +-- less fragmentation")
        child.expect("XLA_PYTHON_CLIENT_PREALLOCATE=false +-- JAX allocates memory as needed")
    finally:
        child.terminate(force=True)
