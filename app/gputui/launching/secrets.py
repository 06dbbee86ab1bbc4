"""Which words of a launch look like secrets: those are shown and run, but not written to a file.

Other users read only the program and the script of a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

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
"""The whole name of an option without its dashes: --sort-key is another kind of key, and --max-tokens counts
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
_HEADER_OPTION = re.compile("-H|--(?:proxy-)?header")
_WHOLE_HEADER = re.compile(
    r"([A-Za-z_][\w.-]{0,99}):\s*(?:(?:Bearer|Basic|Token)\s+)?(.+)", re.IGNORECASE | re.DOTALL
)
"""A header that is a word of its own: its value may have any characters."""
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


class _Program(NamedTuple):
    """A secret that a program takes without a name that says so, or by a letter that means something else to
    other programs, according to its own documentation.

    name     what the secret is called
    called   the program's name
    verbs    the words that follow the program's name
    option   the option, with what is glued to it as "value"
    next     whether the next word is the value where nothing is glued: "" never, "-" even one with a dash
    pair     whether the value is NAME:SECRET
    valued   other options whose value is the next word; needed where `operand` is
    operand  what the first word is that is no option: "" an argument like others, "secret", or the "command"
             with options of its own
    """

    name: str
    called: re.Pattern[str]
    verbs: tuple[str, ...] = ()
    option: re.Pattern[str] = re.compile("(?!)")
    next: str = "-"
    pair: bool = False
    valued: re.Pattern[str] = re.compile("(?!)")
    operand: str = ""


def _program(name: str, called: str, option: str = "(?!)", **more: Any) -> _Program:
    return _Program(name, re.compile(called), option=re.compile(option, re.DOTALL), **more)


_OF_PROGRAMS = (
    _program(
        "wandb login",
        "wandb",
        verbs=("login",),
        valued=re.compile("--(?:host|base-url)"),
        operand="secret",
    ),
    _program(
        "login -p", "docker|podman|nerdctl|buildah|skopeo|oras|oc|az", "-p=?(?P<value>.*)", verbs=("login",)
    ),
    _program("login -p", "helm", "-p=?(?P<value>.*)", verbs=("registry", "login")),
    _program(
        "mysql -p", "(?:mysql|mariadb)(?:-?(?:dump|admin|import|show|check|sh))?", "-p(?P<value>.+)", next=""
    ),
    _program("mongo -p", "mongo(?:sh|dump|restore|import|export)?", "-p(?P<value>.*)", next="word"),
    _program("redis-cli -a", "redis-cli", r"(?:-a|--pass(?:=|\Z))(?P<value>.*)"),
    _program(
        "sshpass -p",
        "sshpass",
        "-[ehvV]*p(?P<value>.*)",
        valued=re.compile("-[ehvV]*[fdP]"),
        operand="command",
    ),
    _program(
        "curl -u",
        "curl",
        r"(?:-[#:0-46aBfgGiIjJklLMnNOpqRsSvVZ]*[uU]|--(?:proxy-)?user(?:=|\Z))(?P<value>.*)",
        pair=True,
    ),
    _program("http -a", "https?|xhs?", r"(?:-[bcdfFhIjmSv]*a|--auth(?:=|\Z))(?P<value>.*)", pair=True),
    _program(
        "aws configure set",
        "aws",
        r"\S*(?:secret|token)[a-z_]*(?P<value>)",
        verbs=("configure", "set"),
    ),
)
_NAMED_ANYWHERE = re.compile("wandb|login|mysql|mariadb|mongo|redis-cli|sshpass|curl|http|xh|aws")
_ENGINES = frozenset(("docker", "podman", "nerdctl"))
_PORTS = re.compile(r"[\d.]*:?[\d-]{1,11}:[\d-]{1,11}(?:/[a-z]{1,4})?")
"""`docker run --name mysql -p3306:3306` publishes a port."""

_PIECE = re.compile(
    r"""'(?P<single>[^']*)'?|"(?P<double>(?:[^"\\]|\\.)*)"?|(?P<redirection>(?:\d+|&)?[<>]+[&|]?)|(?P<blank>(?:[^\S\n]|\\\n)+)|(?P<comment>(?<![^\s;&|(){])#[^\n]*)"""
    r"""|(?P<plain>[^\s'"\\;&|()<>`]+)|\\(?P<escaped>.)|(?P<end>[\n;&|()`])|\\""",
    re.DOTALL,
)
"""The tokens of a shell's text. A quote that is not closed extends to the end."""
_LEVELS = 6
"""How many levels of shells within the quotes of shells are read."""

_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(.*)", re.DOTALL)
_TOKEN = re.compile(rf"{_KNOWN_TOKEN.pattern}|(?=\w*\d)(?=\w*[A-Za-z])[\w-]{{24,}}")
"""What other users must not read: also any long mixture of letters and digits without a dot."""


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
    """The same for a command and the changes to its environment."""
    return secret_word(command) or next(
        (name for name, value in changes if value and is_secret(name, value)), None
    )


def without_secrets(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command with `MARK` for all that looks like a secret, and what that was called, each name once."""
    found = _found(command)
    words = list(command)
    for place, own in groupby(found, key=lambda each: each.place):
        kept, at = "", 0
        for _, _, start, end in own:
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
    for place, word in enumerate(command[1:], start=1):
        header = _HEADER_OPTION.fullmatch(command[place - 1]) and _WHOLE_HEADER.fullmatch(word)
        if header and _is_named(header[1], "x"):
            found.append(_Found(header[1], place, *header.span(2)))
    found += _given_to_programs(command)
    return sorted(set(found), key=lambda each: (each.place, each.start, -each.end))


class _Word(NamedTuple):
    """A word of a command, or one within a shell's text that is a word of it.

    place  the place of the command's word
    text   as the program reads it, without quotes
    at     where each of its characters stands in the command's word
    span   where it stands there, with its quotes
    """

    place: int
    text: str
    at: Sequence[int]
    span: tuple[int, int]

    def secret(self, name: str, start: int) -> Iterator[_Found]:
        """The part from that character on; the whole word where quotes are in between."""
        if start < len(self.text):
            first, end = self.at[start], self.at[-1] + 1
            whole = end - first == len(self.text) - start
            yield _Found(name, self.place, *((first, end) if whole else self.span))


def _given_to_programs(command: Sequence[str]) -> Iterator[_Found]:
    """What the command's programs take as a secret although its name does not say so."""
    calls = [[_Word(place, word, range(len(word)), (0, len(word))) for place, word in enumerate(command)]]
    for level in range(_LEVELS):
        for call in calls:
            names = [_program_of(word.text) for word in call]
            if level and call:
                # (`--wrap=curl` begins the text of another program's option.)
                names[0] = names[0].rpartition("=")[2]
            for program in _OF_PROGRAMS:
                yield from _given_to(program, call, names)
        # Whatever has blanks may be the text of a shell: of `sh -c`, `su -c`, `ssh HOST`, `sbatch --wrap`.
        texts = [
            word
            for call in calls
            for word in call
            if len(word.text.split(None, 1)) > 1 and _NAMED_ANYWHERE.search(word.text)
        ]
        calls = [call for text in texts for call in _calls_in(text)]


def _program_of(text: str) -> str:
    return "" if "://" in text else text.rpartition("/")[2]


def _given_to(program: _Program, call: Sequence[_Word], names: Sequence[str]) -> Iterator[_Found]:
    """The secrets of a program that stands anywhere among the words: wrappers may stand before it."""
    place, reads, publishes = 0, False, not _ENGINES.isdisjoint(names)
    while place < len(call):
        word, here = call[place], place
        place += 1
        if reads:
            option = program.option.fullmatch(word.text)
            if option:
                start = option.start("value")
                if not option["value"]:
                    taken = call[place : place + 1] if program.next else []
                    if not taken or (program.next != "-" and taken[0].text.startswith("-")):
                        continue
                    word, start, place = taken[0], 0, place + 1
                if program.pair:
                    start = (word.text.find(":", start) + 1) or len(word.text)
                if not (publishes and _PORTS.fullmatch(word.text, start)):
                    yield from word.secret(program.name, start)
                continue
            if program.valued.fullmatch(word.text):
                place += 1
                continue
            if program.operand and not word.text.startswith("-"):
                if program.operand == "secret":
                    yield from word.secret(program.name, 0)
                reads = False
                continue
        if program.called.fullmatch(names[here]):
            verbs = tuple(each.text for each in call[place : place + len(program.verbs)])
            if verbs == program.verbs:
                reads, place = True, place + len(verbs)


def _calls_in(text: _Word) -> list[list[_Word]]:
    """The words of each call in a shell's text."""
    calls: list[list[_Word]] = [[]]
    pieces: list[tuple[int, int]] = []
    start = end = 0
    to_file = False

    def end_word() -> None:
        nonlocal to_file
        if pieces and not to_file:
            at = [each for first, last in pieces for each in text.at[first:last]]
            own = "".join(text.text[first:last] for first, last in pieces)
            calls[-1].append(_Word(text.place, own, at, (text.at[start], text.at[end - 1] + 1)))
        to_file = to_file and not pieces
        pieces.clear()

    def apart(start: int, end: int) -> list[_Word]:
        """What is read as a text of its own, where it has blanks."""
        own, at = text.text[start:end], text.at[start:end]
        return [_Word(text.place, own, at, (at[0], at[-1] + 1))] if own else []

    if "<<" in text.text and "\n" in text.text:
        # (An apostrophe in a here-document is no quote.)
        calls += [apart(*match.span()) for match in re.finditer(r"[^\n]+", text.text)] + [[]]
    for match in _PIECE.finditer(text.text):
        kind = match.lastgroup
        if kind == "comment":
            end_word()
            calls += [apart(match.start() + 1, match.end()), []]
            continue
        if kind in ("blank", "end", "redirection"):
            end_word()
            to_file = kind == "redirection" or (to_file and kind == "blank")
            if kind == "end":
                calls.append([])
            continue
        if not pieces:
            start = match.start()
        end = match.end()
        pieces.append(match.span(kind or 0))
    end_word()
    return calls


def _names_secret(name: str) -> bool:
    """Whether the name of an option, or of a key in some document, is a secret's."""
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
