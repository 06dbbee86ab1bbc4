"""Which words of a launch look like secrets: those are shown and run, but not written to a file.

Other users read only the program and the script of a command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.launching.argument_vector import likely_options, program_name
from gputui.launching.launchers import recognised
from gputui.launching.python_command import read_python
from gputui.launching.shells import shell_of
from gputui.launching.wrappers import unwrap

_VARIABLE = re.compile(r"KEY|TOKEN(?!IZ)|SECRET|PASS|CREDENTIAL|_PWD$|_PAT$", re.IGNORECASE)
"""In a variable's name; but not TOKENIZERS_PARALLELISM, which the launch page suggests."""

_OPTION = re.compile(
    r"--?(?:.*[-_.])?(?:(?:api|access|secret|private|auth|hf|wandb)[-_]?key"
    r"|(?:auth|access|api)?token|secret|password|passwd|passphrase|credentials?)",
    re.IGNORECASE,
)
"""The whole name of an option: --sort-key is another kind of key, and --max-tokens counts tokens."""

_ASSIGNED = re.compile(r"[+~]*([A-Za-z_][\w.-]*)=(.+)", re.DOTALL)
"""A variable, and an override of Hydra's (`++hub.token=x`)."""
_IN_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)
"""https://user:password@host"""

_ADDRESS = "an address with a password"

_KNOWN_TOKEN = re.compile(
    r"(hf_|[sprk]k[-_]|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|AIza|ya29\.|eyJ)[-_.0-9A-Za-z]{6,}"
)
"""Tokens of Hugging Face, OpenAI, Stripe, GitHub, GitLab, Slack, AWS, Google, and JWT, by how they begin."""
_LEAST_TOKEN = 20
"""Characters of the shortest token that a launch is not saved for: AWS's have 20, and names are shorter."""
_TOKEN = re.compile(rf"{_KNOWN_TOKEN.pattern}|(?=\w*\d)(?=\w*[A-Za-z])[\w-]{{24,}}")
"""What other users do not read: also any long mixture of letters and digits without a dot."""


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like one that holds a secret."""
    return bool(value) and bool(_VARIABLE.search(name) or _IN_ADDRESS.match(value))


def secret_word(command: Sequence[str]) -> str | None:
    """The option or variable within a command that looks like one with a secret, None where there is none."""
    for option in likely_options(command):
        if option.value and _OPTION.fullmatch(option.spelling):
            return option.spelling
        if _IN_ADDRESS.match(option.value):
            return _ADDRESS
    for word in command:
        if _IN_ADDRESS.match(word):
            return _ADDRESS
        token = _KNOWN_TOKEN.fullmatch(word.rpartition("=")[2])
        if token and len(token[0]) >= _LEAST_TOKEN:
            return f"a word that begins with {token[1]}"
        assigned = _ASSIGNED.fullmatch(word)
        # In lower case it is a program's own word (sort_key=loss), told from a secret as an option is.
        if assigned and (
            is_secret(assigned[1], assigned[2])
            if assigned[1].isupper()
            else _OPTION.fullmatch(f"--{assigned[1]}")
        ):
            return assigned[1]
    return None


_SCRIPT = re.compile(r"[\w.@%+-]{1,80}\.(?:py|pyc|pyz|sh|bash|zsh|ksh|fish)")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_PROGRAM = re.compile(r"[\w.@%+][\w.@%+-]{0,79}")


def program_and_script(command: Sequence[str]) -> str:
    """What other users may read of a command: its program, and the script or module that it starts.

    "torchrun train.py", "python -m pkg.train". Any other word may be a secret: no option, argument or
    variable is among them. "" where not even the program has a plain name.
    """
    prefix, inner = unwrap(command)
    launcher = recognised(inner)
    if launcher.name != "python":
        entrypoint = launcher.entrypoint(inner)
        name = (*entrypoint.words, "")[0]
        what = _module(name) if entrypoint.kind == "module" else _script(name)
        return " ".join(filter(None, (launcher.name, what)))
    name, shell, python = program_name(inner), shell_of(inner), read_python(inner)
    if python is not None:
        script = _module(python.module or "") or _script(python.script or "")
    else:
        script = _script((shell.script if shell else None) or "")
        if prefix and not shell and not _script(name):
            # An option that is not in our table may have a value, which then looks like the program.
            name = program_name(prefix)
    if not _PROGRAM.fullmatch(name) or _TOKEN.fullmatch(name):
        return ""
    return " ".join(filter(None, (name, script)))


def _script(word: str) -> str:
    """The name of the file, "" where the word does not look like a script's."""
    name = word.rsplit("/", 1)[-1]
    return name if _SCRIPT.fullmatch(name) and not _TOKEN.fullmatch(name) else ""


def _module(word: str) -> str:
    """ "-m" and the module, "" where the word does not look like a module's name."""
    return f"-m {word}" if len(word) <= 80 and _MODULE.fullmatch(word) and not _TOKEN.fullmatch(word) else ""
