"""Who can change a file: its owner and mode tell it, with those of each folder and link on the way to it.

Nothing is run or believed that somebody other than root and our own user can change. This file needs nothing
but the standard library: other boxes (sources/hosts) and the release zip run its text before they run gputui.
"""

from __future__ import annotations

import errno
import os
import stat

_UNMAPPED = 65534
"""The number of users who have none in this user namespace (/proc/sys/kernel/overflowuid)."""
_MOST_LINKS = 40
"""As many as the kernel follows (path_resolution(7))."""
_ACCESS_LIST = "system.posix_acl_access"
_USERS = "/etc/passwd"


def who_can_change(path: str) -> str | None:
    """How others can change what is at a path, None where they cannot; what is not there is safe.

    A folder on the way may be one in which everybody can write and remove only what is his (/tmp).
    """
    if not path.startswith("/"):
        path = f"{os.getcwd()}/{path}"  # noqa: PTH109
    place, ahead, links = "", path.split("/")[::-1], 0
    while ahead:
        name = ahead.pop()
        if name == "..":
            place = place.rpartition("/")[0]
        if name in (".", "..") or (not name and ahead and place):
            continue
        here = f"{place}/{name}" if name else place or "/"
        try:
            facts = os.lstat(here)
            target = os.readlink(here) if stat.S_ISLNK(facts.st_mode) else None  # noqa: PTH115
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            # Whoever opens it meets the same error: those who could change that own a folder before it.
            return None
        except OSError as error:
            return f"{error.strerror}: {here!r}"
        reason = how_changed(facts, here, bool(ahead))
        if reason is not None:
            return f"{reason} {here!r}"
        if target is None:
            place = here.rstrip("/")
            continue
        links += 1
        if links > _MOST_LINKS:
            return f"too many links lead to {path!r}"
        place = "" if target.startswith("/") else place
        ahead += target.split("/")[::-1]
    return None


def how_changed(facts: os.stat_result, place: str | int, above: bool = False) -> str | None:
    """The same for one file or folder alone, by its path or descriptor, to which the sentence must be added.

    above  whether it is a folder on the way to what is meant
    """
    if not is_trusted(facts.st_uid):
        return "another user owns"
    mode = facts.st_mode
    if stat.S_ISLNK(mode) or (above and mode & stat.S_ISVTX):
        return None
    if mode & stat.S_IWOTH:
        return "other users can write to"
    if mode & stat.S_IWGRP and not _is_alone_in_group(facts, place):
        return "a group can write to"
    return None


def is_trusted(uid: int) -> bool:
    """Whether it is root or our own user.

    (In a container of an ordinary user, root outside has no number.)
    """
    return uid in (0, os.geteuid()) or is_unmapped(uid)


def is_unmapped(uid: int) -> bool:
    """Whether this number stands for all users who have none in this user namespace."""
    return uid == _UNMAPPED and not _sees_all_users()


def _sees_all_users() -> bool:
    """Whether each user of the machine has a number here (user_namespaces(7))."""
    try:
        with open("/proc/self/uid_map", "rb") as stream:  # noqa: PTH123
            return stream.read().split() == [b"0", b"0", b"4294967295"]
    except OSError:
        return True


def _is_alone_in_group(facts: os.stat_result, place: str | int) -> bool:
    """Whether the group has the owner's name and no other member, as where the umask is 002 (useradd(8)), and
    no access list names others: its mask is what the mode shows as the group's rights (acl(5)).

    Whose first group it is only the file of users tells: to list those of a directory service (LDAP) may take
    minutes, and groups with a user's name are that user's there, too.
    """
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(facts.st_uid), grp.getgrgid(facts.st_gid)
    except KeyError:
        return False
    if group.gr_name != owner.pw_name or not {*group.gr_mem, *_first_of(facts.st_gid)} <= {owner.pw_name}:
        return False
    try:
        return not os.getxattr(place, _ACCESS_LIST)
    except AttributeError:
        return True
    except OSError as error:
        return error.errno in (errno.ENODATA, errno.ENOTSUP)


def _first_of(group: int) -> set[str]:
    """The users of this machine's own file whose first group it is (passwd(5))."""
    try:
        with open(_USERS, encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123
            users = [line.split(":") for line in stream]
    except OSError:
        return set()
    return {user[0] for user in users if user[3:4] == [str(group)]}
