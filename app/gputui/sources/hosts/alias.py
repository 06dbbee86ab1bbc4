"""The name of a box: an alias of the user's ssh configuration, a host name, or user@host."""

from __future__ import annotations

import re

from gputui.inventory.errors import WrongCallError

ALL, ANYWHERE = "all", "anywhere"
"""Words of the command line that are not aliases: the boxes of the settings, and the best of them."""
_ALIAS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@%+-]{0,254}")


class AliasError(WrongCallError, ValueError):
    """The text cannot be the name of a box; the message is one line."""


def alias(text: str) -> str:
    """Return the text unchanged. Raise AliasError where ssh or a shell would parse it differently.

    A name that begins with "-" would be an option of ssh; ":" separates a box from a job.
    """
    if not _ALIAS.fullmatch(text):
        raise AliasError(f"{text[:80]!r} is not the name of a box, which has letters, digits and ._@%+- only")
    if text in (ALL, ANYWHERE):
        raise AliasError(f"no box can be called {text!r}: the name is reserved")
    return text
