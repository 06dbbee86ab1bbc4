"""Ways to set the list of devices that no reading of a command can follow to the end: confined, each runs on
the claimed devices.

Each way is a file, its text and the command that uses it. SEEN is replaced by a program that prints the
devices that it sees, OTHERS by a list of numbers: on the machine these are two other devices, and inside they
are the two claimed ones.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import NamedTuple

import pytest

from confinement import Confined, needs_landlock, script

pytestmark = [pytest.mark.e2e, needs_landlock]

TERMINAL = "import os, termios; termios.tcgetattr(os.openpty()[1])"


class Form(NamedTuple):
    """A way: `needs` is a program that may not be installed; `none` says that the program sees no device,
    which is noticed."""

    text: str
    command: tuple[str, ...] = ("sh", "x.sh")
    file: str = "x.sh"
    needs: str = ""
    none: bool = False


def of(tool: str, text: str, suffix: str = "x") -> Form:
    """A script of another language."""
    return Form(text, (tool, f"x.{suffix}"), f"x.{suffix}", tool)


def bash(text: str) -> Form:
    return Form(text, ("bash", "x.sh"), needs="bash")


def python(text: str) -> Form:
    """A Python script, followed by the printing program in the same process."""
    return Form(f"{text}\nexec(open('seen.py').read())", (sys.executable, "x.py"), "x.py")


def make(text: str) -> Form:
    return Form(text, ("make", "-s"), "Makefile", "make")


_NODE = """
process.env.CUDA_VISIBLE_DEVICES = 'OTHERS'
require('child_process').execSync('SEEN', {stdio: 'inherit'})
"""
_JSON = '{"name": "x", "version": "1.0.0", "scripts": {"go": "CUDA_VISIBLE_DEVICES=OTHERS SEEN"}}'
_TOML = '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3"\n'

FORMS = {
    # Constructs of a shell.
    "plain": Form("SEEN"),
    "unset": Form("unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER; SEEN"),
    "env -u": Form('env -u "CUDA_$(printf VISIBLE)_DEVICES" SEEN'),
    "env -i": Form('env -i $(env | grep "^SIM\\|^LD_") SEEN'),
    "env -S": Form("env -S 'CUDA_VISIBLE_DEVICES=OTHERS SEEN'"),
    "eval": Form('N=CUDA_VISIBLE; eval "export ${N}_DEVICES=OTHERS"; SEEN'),
    "arithmetic": Form("export CUDA_VISIBLE_DEVICES=$((1-1)),$((2-1)); SEEN"),
    "beyond the count": Form("export CUDA_VISIBLE_DEVICES=$((1+2)),$((2+2)); SEEN", none=True),
    "here-doc": Form("sh <<'END'\nexport \"CUDA_VISIBLE\"_DEVICES=OTHERS\nSEEN\nEND"),
    "here-string": bash("bash <<< 'export CUDA_VISIBLE_DEVICES=OTHERS; SEEN'"),
    "pipe to a shell": Form("echo 'CUDA_VISIBLE_DEVICES=OTHERS SEEN' | sh"),
    "base64": Form("echo 'CUDA_VISIBLE_DEVICES=OTHERS SEEN' | base64 | base64 -d | sh"),
    "dirname": bash('cd "$(dirname "$0")"; . ./own.inc; SEEN'),
    "process substitution": bash(". <(echo export CUDA_VISIBLE_DEVICES=OTHERS); SEEN"),
    "set -a": Form("set -a; . ./own.inc; set +a; SEEN"),
    "read": Form(
        "echo OTHERS > list; read -r CUDA_VISIBLE_DEVICES < list; export CUDA_VISIBLE_DEVICES; SEEN"
    ),
    "function": bash("f() { CUDA_VISIBLE_DEVICES=$1 SEEN; }; f OTHERS"),
    "nameref": bash("declare -n v=CUDA_VISIBLE_DEVICES; v=OTHERS; export CUDA_VISIBLE_DEVICES; SEEN"),
    "printf -v": bash("printf -v CUDA_VISIBLE_DEVICES %s OTHERS; export CUDA_VISIBLE_DEVICES; SEEN"),
    "trap": bash("trap 'CUDA_VISIBLE_DEVICES=OTHERS SEEN' EXIT"),
    "alias": bash("shopt -s expand_aliases\nalias go='CUDA_VISIBLE_DEVICES=OTHERS SEEN'\ngo"),
    "coprocess": bash('coproc { CUDA_VISIBLE_DEVICES=OTHERS SEEN; }; cat <&"${COPROC[0]}"'),
    "BASH_ENV": bash("BASH_ENV=./own.inc bash -c 'SEEN'"),
    "zsh": of("zsh", "typeset -x CUDA_VISIBLE_DEVICES=OTHERS\nSEEN"),
    "fish": of("fish", "set -gx CUDA_VISIBLE_DEVICES OTHERS\nSEEN"),
    "ksh": of("ksh", "typeset -x CUDA_VISIBLE_DEVICES=OTHERS\nSEEN"),
    "tcsh": of("tcsh", "setenv CUDA_VISIBLE_DEVICES OTHERS\nSEEN"),
    "busybox": Form("CUDA_VISIBLE_DEVICES=OTHERS SEEN", ("busybox", "sh", "x.sh"), needs="busybox"),
    # Programs that start other programs.
    "xargs": Form("echo OTHERS | xargs -I{} env CUDA_VISIBLE_DEVICES={} SEEN"),
    "find -exec": Form("find . -name seen.py -exec env CUDA_VISIBLE_DEVICES=OTHERS PYTHON {} ';'"),
    "nohup": Form("nohup env CUDA_VISIBLE_DEVICES=OTHERS SEEN"),
    "setsid": Form("setsid -w env CUDA_VISIBLE_DEVICES=OTHERS SEEN"),
    "timeout": Form("timeout 60 env CUDA_VISIBLE_DEVICES=OTHERS SEEN"),
    "flock": Form("flock lock env CUDA_VISIBLE_DEVICES=OTHERS SEEN", needs="flock"),
    "script -c": Form("script -qec 'CUDA_VISIBLE_DEVICES=OTHERS SEEN' /dev/null | tail -1", needs="script"),
    "parallel": Form("parallel -j1 env CUDA_VISIBLE_DEVICES={} SEEN ::: OTHERS", needs="parallel"),
    "strace": Form("strace -f -o trace env CUDA_VISIBLE_DEVICES=OTHERS SEEN", needs="strace"),
    "tmux, a new server": Form(
        "export TMUX_TMPDIR=$(mktemp -d)\n"
        "tmux -L own -f /dev/null new -d 'CUDA_VISIBLE_DEVICES=OTHERS SEEN > out; tmux -L own wait -S done'"
        " && tmux -L own wait done; cat out; rm -r $TMUX_TMPDIR",
        needs="tmux",
    ),
    "screen, a new server": Form(
        "export SCREENDIR=$(mktemp -d)\n"
        "screen -D -m sh -c 'CUDA_VISIBLE_DEVICES=OTHERS SEEN > out'; cat out; rm -r $SCREENDIR",
        needs="screen",
    ),
    "expect": of("expect", 'log_user 0\nset env(CUDA_VISIBLE_DEVICES) "OTHERS"\nputs [exec SEEN]'),
    # Other languages.
    "awk": Form("awk 'BEGIN { system(\"CUDA_VISIBLE_DEVICES=OTHERS SEEN\") }'", needs="awk"),
    "sed": Form("echo | sed 's|.*|CUDA_VISIBLE_DEVICES=OTHERS SEEN|e'"),
    "perl": Form('perl -e \'$ENV{CUDA_VISIBLE_DEVICES}="OTHERS"; system("SEEN")\'', needs="perl"),
    "ruby": of("ruby", 'ENV["CUDA_VISIBLE_DEVICES"] = "OTHERS"\nsystem("SEEN")'),
    "lua": of("lua5.4", 'os.execute("CUDA_VISIBLE_DEVICES=OTHERS SEEN")'),
    "php": of("php", '<?php putenv("CUDA_VISIBLE_DEVICES=OTHERS"); passthru("SEEN");'),
    "tcl": of("tclsh", 'set env(CUDA_VISIBLE_DEVICES) "OTHERS"\nputs [exec SEEN]'),
    "node": of("node", _NODE, "js"),
    "an interpreter line": Form(
        "#!/usr/bin/env -S CUDA_VISIBLE_DEVICES=OTHERS PYTHON\nexec(open('seen.py').read())", ("./x",), "x"
    ),
    "an imported module": python("import own"),
    "environ.update": python("import os\nos.environ.update({'CUDA_' + 'VISIBLE_DEVICES': 'OTHERS'})"),
    "unsetenv": python("import os\nos.unsetenv('CUDA_VISIBLE_DEVICES')"),
    "setenv of C": python("import ctypes\nctypes.CDLL(None).setenv(b'CUDA_VISIBLE_DEVICES', b'OTHERS', 1)"),
    "python -c": Form(
        'PYTHON -c \'import os; os.environ["CUDA_VISIBLE_DEVICES"]="OTHERS"; os.system("SEEN")\''
    ),
    "subprocess": Form(
        "import os, subprocess\n"
        "subprocess.run('SEEN'.split(), env={**os.environ, 'CUDA_VISIBLE_DEVICES': 'OTHERS'})",
        (sys.executable, "x.py"),
        "x.py",
    ),
    "execve": Form(
        "import os\nos.execve('PYTHON', 'SEEN'.split(), {**os.environ, 'CUDA_VISIBLE_DEVICES': 'OTHERS'})",
        (sys.executable, "x.py"),
        "x.py",
    ),
    "multiprocessing": Form(
        "import multiprocessing, os, runpy\nif __name__ == '__main__':\n"
        "    os.environ['CUDA_VISIBLE_' + 'DEVICES'] = 'OTHERS'\n"
        "    own = multiprocessing.get_context('spawn').Process(target=runpy.run_path, args=('seen.py',))\n"
        "    own.start(); own.join()",
        (sys.executable, "x.py"),
        "x.py",
    ),
    "sitecustomize": Form("mv own.py sitecustomize.py; PYTHONPATH=. SEEN"),
    "a package": Form("mkdir p; cp own.py p/__init__.py; cp seen.py p/__main__.py; PYTHON -m p"),
    "zipapp": Form(
        "mkdir p; (cat own.py seen.py) > p/__main__.py; PYTHON -m zipapp p -o p.pyz; PYTHON p.pyz"
    ),
    # Programs that read a configuration file.
    "make export": make("export CUDA_VISIBLE_DEVICES := OTHERS\nall:\n\t@SEEN"),
    "make define": make("V = CUDA_VISIBLE_DEVICES\nall:\n\t@env $(V)=OTHERS SEEN"),
    "make include": make("include own.mk\nexport\nall:\n\t@SEEN"),
    "make $(shell)": make("all:\n\t@echo '$(shell CUDA_VISIBLE_DEVICES=OTHERS SEEN)'"),
    "ninja": Form(
        "rule go\n  command = CUDA_VISIBLE_DEVICES=OTHERS SEEN\n  pool = console\nbuild all: go\n",
        ("ninja", "--quiet"),
        "build.ninja",
        "ninja",
    ),
    "just": Form(
        'export CUDA_VISIBLE_DEVICES := "OTHERS"\ngo:\n    @SEEN\n', ("just", "go"), "justfile", "just"
    ),
    "npm run": Form(_JSON, ("npm", "run", "-s", "go"), "package.json", "npm"),
    "snakemake": Form(
        'rule all:\n    shell: "CUDA_VISIBLE_DEVICES=OTHERS SEEN"\n',
        ("snakemake", "-q", "-c1", "-s", "x"),
        "x",
        "snakemake",
    ),
    "uv run": Form(
        "uv run --no-project --offline -p PYTHON --env-file own.env seen.py", ("sh", "x.sh"), needs="uv"
    ),
    "poetry run": Form(
        "POETRY_VIRTUALENVS_CREATE=false poetry run env CUDA_VISIBLE_DEVICES=OTHERS SEEN", needs="poetry"
    ),
    "conda run": Form("conda run -n base env CUDA_VISIBLE_DEVICES=OTHERS SEEN", needs="conda"),
    "git alias": Form(
        "git init -q .; git config alias.go '!CUDA_VISIBLE_DEVICES=OTHERS SEEN'; git go", needs="git"
    ),
    "git hook": Form(
        "git init -q .; echo 'CUDA_VISIBLE_DEVICES=OTHERS SEEN >&9' > .git/hooks/post-commit\n"
        "chmod +x .git/hooks/post-commit\n"
        "git -c user.name=a -c user.email=a@b commit -qm a --allow-empty 9>&1",
        needs="git",
    ),
}

BESIDE = {
    "own.py": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = 'OTHERS'\n",
    "own.inc": "export CUDA_VISIBLE_DEVICES=OTHERS\n",
    "own.env": "CUDA_VISIBLE_DEVICES=OTHERS\n",
    "own.mk": "CUDA_VISIBLE_DEVICES = OTHERS\n",
    "pyproject.toml": _TOML,
}
"""Files that the forms read."""


def _is_here(box: Confined, form: Form) -> bool:
    """Whether the form's programs are installed and work here."""
    if form.needs and shutil.which(form.needs) is None:
        return False
    return form.needs not in ("script", "tmux", "screen") or _has_terminals(box)


def _has_terminals(box: Confined) -> bool:
    """Whether a terminal can be made in a user namespace here."""
    return box.outside(sys.executable, "-c", TERMINAL).returncode == 0


def _write(box: Confined, form: Form) -> None:
    for file, text in {**BESIDE, form.file: form.text}.items():
        script(box, re.sub(r"\bPYTHON\b", sys.executable, text.replace("OTHERS", "0,1")), file)


_RUN_ALL = """
import json, subprocess
for folder, command in json.load(open("forms.json")):
    with open(f"{folder}/out", "wb") as out, open(f"{folder}/err", "wb") as err:
        subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
"""


@pytest.mark.thorough
def test_no_form_reaches_another_device_from_within(box: Confined) -> None:
    """One confined command starts all forms, and gputui reads none of them."""
    forms = {name: form for name, form in FORMS.items() if _is_here(box, form)}
    folders = {name: box.folder / str(number) for number, name in enumerate(forms)}
    for name, form in forms.items():
        folders[name].mkdir()
        _write(box.in_folder(folders[name]), form)
    todo = [(str(folders[name]), form.command) for name, form in forms.items()]
    (box.folder / "forms.json").write_text(json.dumps(todo))
    (box.folder / "all.py").write_text(_RUN_ALL)
    done = box.call("run", "--confine", "--gpus", "6,2", "--", sys.executable, "all.py")
    assert done.returncode == 0, done.stderr
    seen = {name: (folder / "out").read_text() for name, folder in folders.items()}
    silent = {name: (folders[name] / "err").read_text() for name, text in seen.items() if not text}
    assert silent == {}
    expected = {name: set() if form.none else {2, 6} for name, form in forms.items()}
    assert {name: set(box.told(text)) for name, text in seen.items()} == expected


def test_every_form_can_be_tried_here() -> None:
    missing = {form.needs for form in FORMS.values() if form.needs and shutil.which(form.needs) is None}
    if missing:
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["plain", "unset", "eval", "an imported module", "execve"])
def test_no_form_of_a_command_reaches_another_device(box: Confined, name: str) -> None:
    """gputui reads these forms, and may refuse them."""
    form = FORMS[name]
    _write(box, form)
    done = box.call("run", "--confine", "--gpus", "6,2", "--force", "--", *form.command)
    if done.returncode == 2 and "gputui: note: sees only" not in done.stderr:
        assert done.stderr and not done.stdout
        return
    assert done.stdout, done.stderr
    assert set(box.told(done.stdout)) == (set() if form.none else {2, 6}), done.stderr
