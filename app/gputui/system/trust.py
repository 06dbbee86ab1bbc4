"""The users who can change a file, by its owner and mode, and those of each folder and link on the way to it.

Nothing is run or trusted that a user other than root and our own can change. This file needs only the
standard library: other boxes (sources/hosts) and the release zip run its text before they run gputui.
"""

from __future__ import annotations

import errno
import os
import stat

_UNMAPPED = 65534
"""The uid of users that have no uid in this user namespace (/proc/sys/kernel/overflowuid)."""
MOST_LINKS = 40
"""The kernel's own limit of links (path_resolution(7))."""
ACCESS_LIST = "system.posix_acl_access"
"""The attribute of a file with the access list that it has beside its mode (acl(5))."""
_USERS = "/etc/passwd"


def who_can_change(path: str, groups: bool = True) -> str | None:
    """Return how other users can change the file at a path, None where they cannot; a missing file is safe.

    A folder on the way may be one in which everybody can write but can remove only their own files (/tmp).
    Without `groups`, those who have write access as members of a group do not count.
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
            # Opening it fails with the same error: a user who could change that owns an earlier folder.
            return None
        except OSError as error:
            return f"{error.strerror}: {here!r}"
        reason = how_changed(facts, here, bool(ahead), groups)
        if reason is not None:
            return f"{reason} {here!r}"
        if target is None:
            place = here.rstrip("/")
            continue
        links += 1
        if links > MOST_LINKS:
            return f"too many links lead to {path!r}"
        place = "" if target.startswith("/") else place
        ahead += target.split("/")[::-1]
    return None


def program(name: str, path: str | None) -> str | None:
    """Return the place of a program that gputui itself starts, None where there is none.

    It is the first one in the folders of `path` (PATH) that no other user could have put there. A relative
    folder is skipped: what is in it depends on where gputui was started. A `name` with a slash is a place
    that the user has named.
    """
    import shutil

    if "/" in name:
        return shutil.which(name)
    found = (shutil.which(name, path=folder) for folder in absolute_folders(path))
    return next((place for place in found if place and who_can_change(place) is None), None)


def absolute_folders(path: str | None) -> list[str]:
    """Return the folders of `path` (PATH) whose place does not depend on where gputui was started."""
    folders = (os.defpath if path is None else path).split(os.pathsep)
    return [folder for folder in folders if folder.startswith("/")]


def how_changed(
    facts: os.stat_result, place: str | int, above: bool = False, groups: bool = True
) -> str | None:
    """Return the same for a single file or folder, by its path or descriptor, which the caller adds to the
    sentence.

    above  whether it is a folder on the way to the file
    """
    if not is_trusted(facts.st_uid):
        return "another user owns"
    mode = facts.st_mode
    if stat.S_ISLNK(mode) or (above and mode & stat.S_ISVTX):
        return None
    if mode & stat.S_IWOTH:
        return "other users can write to"
    if groups and mode & stat.S_IWGRP and not _is_alone_in_group(facts, place):
        return "a group can write to"
    return None


def is_trusted(uid: int) -> bool:
    """Return whether it is root or our own user.

    In a container of an ordinary user, the root outside has no uid.
    """
    return uid in (0, os.geteuid()) or is_unmapped(uid)


def is_unmapped(uid: int) -> bool:
    """Return whether this uid stands for all users without a uid in this user namespace."""
    return uid == _UNMAPPED and not _sees_all_users()


def _sees_all_users() -> bool:
    """Return whether each user of the machine has a uid here (user_namespaces(7))."""
    try:
        with open("/proc/self/uid_map", "rb") as stream:  # noqa: PTH123
            return stream.read().split() == [b"0", b"0", b"4294967295"]
    except OSError:
        return True


def _is_alone_in_group(facts: os.stat_result, place: str | int) -> bool:
    """Return whether no user but the owner is in the group, and no access list names other users.

    The group has the owner's name and no other member, as where the umask is 002 (useradd(8)). The mode shows
    the mask of an access list as the group's rights (acl(5)).

    Only the local file of users is searched for users with this primary group: listing those of a directory
    service (LDAP) may take minutes, and there, too, a group with a user's name belongs to that user.
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
        return not os.getxattr(place, ACCESS_LIST)
    except AttributeError:
        return True
    except OSError as error:
        return error.errno in (errno.ENODATA, errno.ENOTSUP)


def _first_of(group: int) -> set[str]:
    """Return the users of the local file whose primary group it is (passwd(5))."""
    try:
        with open(_USERS, encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123
            users = [line.split(":") for line in stream]
    except OSError:
        return set()
    return {user[0] for user in users if user[3:4] == [str(group)]}
