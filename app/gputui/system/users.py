"""User names: of a uid, and of the user who runs this process."""

from __future__ import annotations

import os
import pwd


def user_name(uid: int) -> str:
    """The name of a user; the number where this system (a container) has none for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own_name() -> str:
    """The name of our effective user, as the owners of processes are named."""
    return user_name(os.geteuid())
