"""Edge. The common part of catalogs in one local file: its path, its owner, whose tables it has."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import ClassVar, TypeAlias
from urllib.parse import quote

from lakehouse_source.catalog.backends.pool import Connection
from lakehouse_source.catalog.backends.pooled import PooledCatalog
from lakehouse_source.catalog.sql import migrations
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.storage import RESERVED_FOLDER

# --- Whether only this user and root can put files beside a catalog that is one file.
#
# A database plays back the journal that it finds beside its file, and SQLite deletes the file that
# a journal names. A check of the journal loses a race against who can write to the folder. So a
# catalog is opened for writing only where nobody else can, as ssh and git do with their files.
# Anywhere else it is opened for reading: then the database changes and deletes nothing.


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


BUSY_SECONDS = 30.0
# The value 1 lets the folder's group use the catalogs that this process makes there.
SHARED = "PLAKE_CATALOG_SHARED"
# Device, inode, time of the last change of any kind (nanoseconds), size (bytes); and who may write
# to the folder: its user, its group, its mode.
Stamp: TypeAlias = tuple[int, int, int, int, int, int, int]
# The kind of an object of a database, its name, and its definition.
DatabaseObject: TypeAlias = tuple[str, str, str]


@lru_cache(maxsize=64)  # every read opens its catalog
def _url_of(scheme: str, path: str) -> str:
    return f"{scheme}://{quote(path, safe='/')}"


class FileCatalog(PooledCatalog[Connection]):
    """A catalog in a database file at an absolute path.

    `dataset` names the dataset for which the catalog is opened, for messages.
    `make_folder` lets the file's folder be made with it. `shown` is the URL as it was typed.
    """

    scheme: ClassVar[str]
    # The suffixes of the other files that the database makes.
    beside: ClassVar[tuple[str, ...]]
    absent = "there is no such file"

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        dataset: str | None = None,
        make_folder: bool = False,
        busy_seconds: float = BUSY_SECONDS,
        shown: str | None = None,
    ) -> None:
        if not os.path.isabs(path):
            raise InvalidOptionError(
                option="catalog",
                value=path,
                reason=f"needs an absolute path: {self.scheme}:///folder/catalog.db.",
            )
        url = _url_of(self.scheme, path)
        super().__init__(url, shown or url, create=create, dataset=dataset)
        self.path = path
        self._make_folder = make_folder
        self._busy_seconds = busy_seconds
        # Why nothing may be written; None: it may.
        self._distrust: str | None = None
        if not create and self._lstat(path) is None:
            raise self._missing(self.absent)

    def _look(self) -> Stamp | None:
        """Look at the file, its folder and the files beside it; None: there is no file.

        Raises:
            CatalogUnavailableError: the file, or a file beside it, is a link.
        """
        for suffix in self.beside:
            self._look_beside(suffix)
        return self._stamp()

    def _look_beside(self, suffix: str) -> None:
        # Links are not followed. A database would write to the target of a link, and delete
        # journals at the end.
        path = self.path + suffix
        status = self._lstat(path)
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise self._unavailable(f"{path} is no plain file. Remove it first")

    def _stamp(self) -> Stamp | None:
        folder = os.path.dirname(self.path)
        above, status = self._lstat(folder), self._lstat(self.path)
        is_link = above is not None and stat.S_ISLNK(above.st_mode)
        if is_link and os.path.basename(folder) == RESERVED_FOLDER:
            raise self._unavailable(
                f"its folder {folder} is a symbolic link. Name the folder that it leads to"
            )
        if above is None or status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise self._unavailable(
                "it cannot be opened: it is no plain file. Name the file itself, not a link to it"
            )
        if is_link:
            above = os.stat(folder)
        file = status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size
        return *file, above.st_uid, above.st_gid, above.st_mode

    def _check_may_be_made(self) -> None:
        """Refuse to make the file, or make its folder.

        Raises:
            CatalogUnavailableError, DatasetNotFoundError: none may be made.
        """
        folder = os.path.dirname(self.path)
        if not self._create:
            raise self._missing(self.absent)
        self._trusted_path(is_new=True)
        if self._make_folder:
            try:
                os.makedirs(folder, exist_ok=True)
            except OSError as exc:
                raise self._unavailable(f"it cannot be created: {exc.strerror}") from exc
        elif not os.path.isdir(folder):
            raise self._unavailable(f"its folder {folder} does not exist. Create it first")

    def is_own(self) -> bool:
        """Tell whether the file and its folder belong to this user, or to root."""
        path = real_path(self.path)
        return all(is_of_user(os.lstat(one)) for one in (path, os.path.dirname(path)))

    def _trusted_path(self, *, is_new: bool = False) -> str:
        """The path to open. It is opened for reading if others can put files there (`_distrust`).

        Raises:
            CatalogUnavailableError: others can, and the file is to be made.
        """
        path = real_path(self.path)
        shared = is_new and os.environ.get(SHARED) == "1" and os.path.isdir(os.path.dirname(path))
        self._distrust = why_untrusted(path, self.beside, will_be_shared=shared)
        if is_new:
            self._check_trust()
        return path

    def _check_trust(self) -> None:
        if self._distrust is not None:
            raise self._unavailable(self._distrust)

    @contextmanager
    def _new_file(self) -> Iterator[str]:
        """The path at which the file is made; it gets its name when it is complete and durable.

        It is made in a folder that nobody else can look into: a database makes files beside it.
        """
        folder = os.path.dirname(self.path)
        beside = [self.path + suffix for suffix in ("", *self.beside)]
        if any(os.path.lexists(path) for path in beside):
            raise self._taken()
        self._trusted_path(is_new=True)
        private = f"{self.path}.{secrets.token_hex(8)}.part"
        part = os.path.join(private, os.path.basename(self.path))
        try:
            os.mkdir(private, 0o700)
            yield part
            os.chmod(part, 0o600)
            for path in (part, folder):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                    if path == part:
                        os.link(part, self.path)  # unlike a rename, it replaces nothing
                finally:
                    os.close(descriptor)
            self._share(folder)
        except FileExistsError as exc:
            raise self._taken() from exc
        except OSError as exc:
            raise self._unavailable(f"it cannot be created: {exc.strerror}") from exc
        finally:
            shutil.rmtree(private, ignore_errors=True)

    def _share(self, folder: str) -> None:
        """Give a new file the group of its folder, with read and write access, if asked to."""
        if os.environ.get(SHARED) == "1":
            group = os.stat(folder).st_gid
            if hasattr(os, "chown") and os.stat(self.path).st_gid != group:
                os.chown(self.path, -1, group)
            os.chmod(self.path, 0o660)

    def _lstat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(path)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise self._unavailable(f"it cannot be read: {exc.strerror}") from exc

    def _checked_format(
        self, found: frozenset[DatabaseObject], number: int, expected: frozenset[DatabaseObject]
    ) -> int:
        """The format of a database with these objects, which must be exactly those of a catalog.

        A file from a stranger may have triggers, views or columns that run code when rows are read
        or written, and the file of another program must not be changed.

        Raises:
            CatalogUnavailableError: the database has other objects than a catalog of its format.
        """
        if number > migrations.LATEST:
            return number  # refused by its number
        surplus = sorted(found - expected, key=str)
        missing = sorted(expected - found, key=str)
        if surplus or missing:
            kind, name, _ = (surplus or missing)[0]
            has = f"has a {kind} {name!r} that is not plake's" if surplus else ""
            raise self._unavailable(
                f"the database {has or f'lacks the {kind} {name!r} of a catalog'}. It was not "
                "changed. Use another file"
            )
        return number
