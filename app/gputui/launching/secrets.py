"""Which words of a launch look like secrets: those are shown and run, but not written to a file.

Other users read only the program and the script of a command.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gputui.launching.argument_vector import likely_options, program_name
from gputui.launching.launchers import recognised
from gputui.launching.python_command import read_python
from gputui.launching.shells import shell_of
from gputui.launching.wrappers import unwrap

MARK = "***"
"""What is written for a secret."""

_VARIABLE = re.compile(r"KEY|TOKEN(?!IZ)|SECRET|PASS|CREDENTIAL|_PWD$|_PAT$", re.IGNORECASE)
"""In a variable's name; but not TOKENIZERS_PARALLELISM, which the launch page suggests."""

_OPTION = re.compile(
    r"(?:.*[-_.])?(?:(?:api|access|secret|private|auth|hf|wandb|openai|anthropic|account|client|encryption"
    r"|master|signing|storage)[-_]?key|(?:auth|access|api|hf|hub|refresh|session)?token|secret|password|passwd"
    r"|passphrase|credentials?|creds|(?:db|user|smtp)[-_]?pass|bearer|jwt|(?:proxy[-_])?authorization)",
    re.IGNORECASE,
)
"""The whole name of an option, without its dashes: --sort-key is another kind of key, and --max-tokens counts
tokens."""
_OF_TEXT = re.compile(
    r"(?:.*[-_.])?(?:bos|eos|pad|unk|sep|cls|mask|image|stop|start|end|special)[-_]?token", re.IGNORECASE
)
"""--pad-token is a part of a tokenizer."""
_HUMP = re.compile("(?<=[a-z])(?=[A-Z])")
"""Where "hubToken" has two words."""

_ASSIGNED = re.compile(r"[+~]*([A-Za-z_][\w.-]*)=(.+)", re.DOTALL)
"""A variable, and an override of Hydra's (`++hub.token=x`)."""
_NAME = r"(?<![\w.-])-{0,2}([A-Za-z_][\w.-]{0,99})"
_NAMED_WITHIN = re.compile(f"{_NAME}=")
_VALUE = re.compile(r"""'[^']*'?|"[^"]*"?|\$\([^)]*\)|[^\s'";&|]+""")
_QUOTED_WITHIN = re.compile(
    rf"""{_NAME}\\?['"]?\]?\s?(?::|=>?)\s?\\?(?P<quote>['"])(?=((?:(?!(?P=quote))[^\\])+))"""
)
"""`"token": "x"` in JSON, `environ["TOKEN"] = "x"` in Python."""
_SAID_WITHIN = re.compile(
    rf"{_NAME}:\s?(?:(?:Bearer|Basic|Token)\s+)?(?!(?:Bearer|Basic|Token)\s)(?=([\w.+/=~-]{{6,999}})(?![\w.+/=~(-]))",
    re.IGNORECASE,
)
"""`X-Api-Key: xxxxxx`, `{token: xxxxxx}`."""
_OPTION_WITHIN = re.compile(r"""(?<!\S)(--?[\w.-]{1,99})[=\s]\s*('[^']*'|"[^"]*"|[^\s'";&|-][^\s'";&|]*)""")
_HEADER = re.compile(r"\b(?:Bearer|Basic)\s+([^\s'\"]{8,})", re.IGNORECASE)
"""The same within a word that is a shell's text, and a header of HTTP."""
_IN_ADDRESS = re.compile(
    r"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}://(?:[^/\s:@]*:)?((?<=:)[^/\s@]+|(?<=/)[^/\s:@]{20,})@",
    re.IGNORECASE,
)
"""https://user:password@host, and https://token@host"""

_ADDRESS = "an address with a password"

_KNOWN_TOKEN = re.compile(
    r"(hf_|[sprk]k[-_]|gsk_|xai-|nvapi-|npm_|pypi-|r8_|dckr_pat_|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA"
    r"|AIza|ya29\.|eyJ)[-_.0-9A-Za-z]{6,}"
)
"""Tokens of Hugging Face, OpenAI, Stripe, Groq, xAI, NVIDIA, npm, PyPI, Replicate, Docker, GitHub, GitLab,
Slack, AWS, Google, and JWT, by how they begin."""
_LEAST_TOKEN = 20
"""Characters of the shortest token that a launch is not saved for: AWS's have 20, and names are shorter."""
_KNOWN_WITHIN = re.compile(rf"(?<![^\s=:,'\"`(\[{{<>|;&@]){_KNOWN_TOKEN.pattern}(?![^\s'\"`,;&|<>)\]}}\\])")
_BETWEEN = "\x1f"
"""Stands between the words of a command where they are read as one text, as a shell's text is."""
_GAP, _WORD = rf"[\s{_BETWEEN}]+", rf"""(?:'[^'{_BETWEEN}]*'|"[^"{_BETWEEN}]*"|[^\s{_BETWEEN}'";&|]+)"""
_BEFORE = rf"(?:(?![;&|]).){{0,300}}?{_GAP}"
"""Other options of the same call."""
_OF_PROGRAMS = tuple(
    (name, re.compile(rf"(?<![\w.-]){pattern}", re.DOTALL))
    for name, pattern in (
        (
            "wandb login",
            rf"wandb{_GAP}login(?:{_GAP}(?:--(?:host|base-url){_GAP}{_WORD}|-{_WORD})){{0,9}}{_GAP}(?!-)({_WORD})",
        ),
        (
            "login -p",
            rf"(?:docker|podman|nerdctl|buildah|skopeo|helm{_GAP}registry|oras|oc|az){_GAP}login{_BEFORE}-p"
            rf"(?:{_GAP}|=)?({_WORD})",
        ),
        (
            "mysql -p",
            rf"(?:mysql|mariadb)(?:-?(?:dump|admin|import|show|check|sh))?(?={_GAP}){_BEFORE}-p({_WORD})",
        ),
        ("mongo -p", rf"mongo(?:sh|dump|restore|import|export)?(?={_GAP}){_BEFORE}-p{_GAP}?({_WORD})"),
        ("redis-cli -a", rf"redis-cli(?={_GAP}){_BEFORE}(?:-a|--pass){_GAP}({_WORD})"),
        ("sshpass -p", rf"sshpass(?={_GAP}){_BEFORE}-p{_GAP}?({_WORD})"),
        (
            "curl -u",
            rf"curl(?={_GAP}){_BEFORE}(?:-[A-Za-z#]*?[uU]{_GAP}?|--(?:proxy-)?user(?:{_GAP}|=))"
            rf"""['"]?[^\s{_BETWEEN}'":]*:({_WORD})""",
        ),
        (
            "http -a",
            rf"(?:https?|xhs?)(?={_GAP}){_BEFORE}(?:-a{_GAP}?|--auth(?:{_GAP}|=))"
            rf"""['"]?[^\s{_BETWEEN}'":]*:({_WORD})""",
        ),
        ("aws configure set", rf"aws{_GAP}configure{_GAP}set{_GAP}\S*(?:secret|token)[a-z_]*{_GAP}({_WORD})"),
    )
)
"""What programs are given without a name that says so, or by a letter that is something else to others: as
their own documentation has it."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(.*)", re.DOTALL)
_TOKEN = re.compile(rf"{_KNOWN_TOKEN.pattern}|(?=\w*\d)(?=\w*[A-Za-z])[\w-]{{24,}}")
"""What other users do not read: also any long mixture of letters and digits without a dot."""


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like one that holds a secret."""
    return bool(value) and bool(_VARIABLE.search(name) or _IN_ADDRESS.match(value))


class _Found(NamedTuple):
    """A secret: what it is called, and where it stands in which word."""

    name: str
    place: int
    start: int
    end: int


def secret_changes(changes: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, str | None], ...]:
    """Environment changes with `MARK` for the values that look like secrets."""
    return tuple((name, MARK if value and is_secret(name, value) else value) for name, value in changes)


def secret_word(command: Sequence[str]) -> str | None:
    """The option or variable within a command that looks like one with a secret, None where there is none."""
    return next((each.name for each in _found(command)), None)


def secret_in(command: Sequence[str], changes: Iterable[tuple[str, str | None]]) -> str | None:
    """The same of a command and the changes of its environment."""
    return secret_word(command) or next(
        (name for name, value in changes if value and is_secret(name, value)), None
    )


def without_secrets(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command with `MARK` for all that looks like a secret, and what that was called, each name once."""
    found = _found(command)
    words = list(command)
    for place in {each.place for each in found}:
        kept, at = "", 0
        for _, _, start, end in sorted(each for each in found if each.place == place):
            if start >= at:
                kept += words[place][at:start] + MARK
            at = max(at, end)
        words[place] = kept + words[place][at:]
    return tuple(words), tuple(dict.fromkeys(each.name for each in found))


def _found(command: Sequence[str]) -> list[_Found]:
    found = []
    for option in likely_options(command):
        if option.value and _names_secret(option.spelling):
            glued = option.glue is not None
            place, start = (option.place, len(option.spelling) + 1) if glued else (option.place + 1, 0)
            found.append(_Found(option.spelling, place, start, len(command[place])))
    for place, word in enumerate(command):
        found += [_Found(name, place, *span) for name, span in (*_assignments(word), *_within(word))]
    found += _given_to_programs(command)
    return sorted(set(found), key=lambda each: (each.place, each.start, -each.end))


def _given_to_programs(command: Sequence[str]) -> Iterator[_Found]:
    """What the command's programs take as a secret although nothing names it so."""
    text, starts = _BETWEEN.join(command), [0]
    for word in command:
        starts.append(starts[-1] + len(word) + 1)
    for name, pattern in _OF_PROGRAMS:
        for match in pattern.finditer(text):
            place = bisect_right(starts, match.start(1)) - 1
            yield _Found(name, place, match.start(1) - starts[place], match.end(1) - starts[place])


def _names_secret(name: str) -> bool:
    """Whether an option, or a key of some document, is called like a secret."""
    plain = _HUMP.sub("_", name.lstrip("-"))
    return bool(_OPTION.fullmatch(plain)) and not _OF_TEXT.fullmatch(plain)


def _assignments(word: str) -> Iterator[tuple[str, tuple[int, int]]]:
    whole = _ASSIGNED.fullmatch(word)
    if whole and _is_named(whole[1], whole[2]):
        yield whole[1], whole.span(2)
        return
    # (A word with blanks may be a shell's own text, and one without have several: `A=1,TOKEN=x`.)
    at = 0
    while match := _NAMED_WITHIN.search(word, at):
        at = match.end()
        value = _VALUE.match(word, at) if _is_named(match[1], "x") else None
        if value:
            at = value.end()
            yield match[1], value.span()


def _is_named(name: str, value: str) -> bool:
    """Whether what has this name and value is a secret by its name."""
    # In lower case it is a program's own word (sort_key=loss), told from a secret as an option is.
    return is_secret(name, value) if name.isupper() else _names_secret(name)


def _within(word: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """What is a secret wherever it stands in a word."""
    for match in _IN_ADDRESS.finditer(word):
        yield _ADDRESS, match.span(1)
    for match in _KNOWN_WITHIN.finditer(word):
        if len(match[0]) >= _LEAST_TOKEN:
            yield f"a word that begins with {match[1]}", match.span()
    for match in _OPTION_WITHIN.finditer(word):
        if _names_secret(match[1]):
            yield match[1], match.span(2)
    for pattern in (_QUOTED_WITHIN, _SAID_WITHIN):
        for match in pattern.finditer(word):
            if _is_named(match[1], "x"):
                yield match[1], match.span(match.re.groups)
    for match in _HEADER.finditer(word):
        yield "Authorization", match.span(1)
    for match in _PRIVATE_KEY.finditer(word):
        yield "a private key", match.span(1)


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
