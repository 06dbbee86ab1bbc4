"""What looks like a secret in a launch: shown and run like everything else, but not kept in a file."""

from __future__ import annotations

import re
from collections.abc import Sequence

_VARIABLE = re.compile(r"KEY|TOKEN(?!IZ)|SECRET|PASS|CREDENTIAL|_PWD$|_PAT$", re.IGNORECASE)
"""In a variable's name. Not TOKENIZERS_PARALLELISM, which is offered beside every launch."""

_OPTION = re.compile(
    r"--?(?:.*[-_])?(?:(?:api|access|secret|private|auth|hf|wandb)[-_]?key"
    r"|(?:auth|access|api)?token|secret|password|passwd|passphrase|credentials?)",
    re.IGNORECASE,
)
"""The whole name of an option. Many an option is a key of another kind (--sort-key), or counts tokens."""

_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.DOTALL)
_IN_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)
"""https://user:password@host"""


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like one that holds a secret."""
    return bool(value) and bool(_VARIABLE.search(name) or _IN_ADDRESS.match(value))


def secret_word(command: Sequence[str]) -> str | None:
    """The option or variable within a command that looks like one with a secret, None where there is none."""
    for place, word in enumerate(command):
        name, equals, value = word.partition("=")
        following = command[place + 1] if place + 1 < len(command) else "-"
        if _OPTION.fullmatch(name) and (value if equals else not following.startswith("-")):
            return name
        if _IN_ADDRESS.match(value if equals and word.startswith("-") else word):
            return "an address with a password"
        assigned = _ASSIGNED.fullmatch(word)
        # In lower case it is a program's own word (sort_key=loss), told from a secret as an option is.
        if assigned and (
            is_secret(assigned[1], assigned[2])
            if assigned[1].isupper()
            else _OPTION.fullmatch(f"--{assigned[1]}")
        ):
            return assigned[1]
    return None
