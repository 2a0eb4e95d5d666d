"""Edge. Whether only this user and root can put files beside a catalog that is one file.

A database plays back the journal that it finds beside its file, and SQLite deletes the file that a
journal names. A check of the journal loses a race against who can write to the folder. So a catalog
is opened for writing only where nobody else can, as ssh and git do with their files. Anywhere else
it is opened for reading: then the database changes and deletes nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

# Folders that are trusted with all below, separated by colons, as in PATH. `*`: all of them.
TRUSTED = "PLAKE_TRUSTED_FOLDERS"
_ROOT = 0


def real_path(path: str) -> str:
    """The path of a file, with no link on the way to it."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def why_untrusted(path: str, suffixes: Iterable[str], *, will_be_shared: bool) -> str | None:
    """Why a catalog is not written at a `real_path`; None: others cannot put files there.

    `suffixes` are those of the files beside it. `will_be_shared`: it is new, and gets the group of
    its folder.
    """
    folder = os.path.dirname(path)
    if _is_listed(folder):
        return None
    reason = None
    for suffix in ("", *suffixes):
        reason = reason or _of(path + suffix, keeps_names=False)
    if will_be_shared and not _is_own_group(os.stat(folder).st_gid, os.geteuid()):
        reason = "it would be shared with a group"
    at = folder
    while reason is None:
        # In a sticky folder nobody can take away a folder of others. They can add files.
        reason = _of(at, keeps_names=at != folder)
        if at == (at := os.path.dirname(at)):
            break
    if reason is None:
        return None
    return (
        f"it is only read, because {reason}: a journal that others put there would be played back. "
        "Take these rights away; or, if you trust all who have them, set the environment "
        f"variable {TRUSTED}={folder}"
    )


def is_of_user(status: os.stat_result) -> bool:
    """Tell whether a file or a folder belongs to this user, or to root."""
    return status.st_uid in (_ROOT, os.geteuid())


def _of(path: str, *, keeps_names: bool) -> str | None:
    """What others may do to a file or a folder."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path} cannot be looked up ({error.strerror})"
    if not is_of_user(status):
        return f"{path} belongs to the user {_name_of(status.st_uid)}"
    if keeps_names and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH:
        return f"every user may write to {path}"
    if status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid, os.geteuid()):
        return f"a group ({status.st_gid}) may write to {path}"
    return None


def _is_listed(folder: str) -> bool:
    for one in os.environ.get(TRUSTED, "").split(os.pathsep):
        if one == "*" or (one and f"{folder}/".startswith(f"{os.path.realpath(one).rstrip('/')}/")):
            return True
    return False


@lru_cache(maxsize=64)
def _is_own_group(group: int, user: int) -> bool:
    """Tell whether a group is the one that a system made for this user alone, or root's."""
    import grp
    import pwd

    for one in {user, _ROOT}:
        with suppress(KeyError):
            account, found = pwd.getpwuid(one), grp.getgrgid(group)
            is_named_so = (account.pw_gid, account.pw_name) == (group, found.gr_name)
            if is_named_so and set(found.gr_mem) <= {account.pw_name}:
                return True
    return False


def _name_of(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
