"""Edge. The files below one local folder, looked up from descriptors of folders.

Whoever may write to a folder can swap a part of a path for a link between two look-ups of the
path. So the folder is opened once, and each part of a path below it is opened relative to the part
before (`openat`), without following links. What was looked up is what is deleted, renamed, listed,
made and read. A link that leads to another place in the folder is resolved as text, and the
resolved path is then walked in the same way.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias, TypeVar

import pyarrow as pa

from lakehouse_source.errors import CorruptDatasetError

_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC
# A folder on the way need not be readable (on Linux).
_ON_THE_WAY = _FOLDER | getattr(os, "O_PATH", os.O_RDONLY)
# A vacuum may remove a new folder while it is empty.
_ATTEMPTS = 10
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
# A descriptor is held for each level of a listing.
_MOST_LEVELS = 200

T = TypeVar("T")
# A name or a path, the mode, and the size in bytes.
Entry: TypeAlias = tuple[str, int, int]


class LocalFolder:
    """The folder at an absolute path. Threads may use it at once."""

    def __init__(self, root: str) -> None:
        self.root = root
        # The folder's own. The last one counts; others may be in use in other threads.
        self._held: list[int] = []

    def __del__(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)

    def status(self, relative: str) -> os.stat_result | None:
        """The status of a plain file or a folder; None: there is none.

        Raises:
            CorruptDatasetError: a link leads out of the folder, or it is a pipe or a device.
        """
        try:
            if "/" not in relative:  # no folder is on the way, as in a dataset of many small files
                there = os.lstat(relative, dir_fd=self._opened())
                if not stat.S_ISLNK(there.st_mode):
                    return _checked(there, relative)
            with self._found(relative) as found:
                return _checked(found[2], relative)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_input(self, relative: str) -> pa.NativeFile:
        """A file to read.

        PyArrow opens files by name: it gets that of a descriptor, of what was looked up.
        """
        with self._found(relative) as (parent, name, there):
            _checked(there, relative)
            # What has taken the place of the file meanwhile, such as a pipe, must not block.
            descriptor = os.open(name, _TO_READ | os.O_NONBLOCK, dir_fd=parent)
        try:
            _checked(os.fstat(descriptor), relative)
            return _opened(descriptor, "r")
        finally:
            os.close(descriptor)

    def open_output(self, relative: str) -> pa.NativeFile:
        """A file to write, empty; missing folders are made."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = self._in_made_folder(
            relative, lambda parent, name: os.open(name, flags, 0o666, dir_fd=parent)
        )
        try:
            return _opened(descriptor, "w")
        finally:
            os.close(descriptor)

    def delete(self, relative: str) -> bool:
        """Delete a file, or a link to one in the folder; False: there is none."""
        with suppress(FileNotFoundError), self._folder_of(relative) as (parent, name):
            status = os.lstat(name, dir_fd=parent)
            if stat.S_ISLNK(status.st_mode):
                self._resolved(relative)
            else:
                _checked(status, relative)
            os.unlink(name, dir_fd=parent)
            return True
        return False

    def rename(self, old: str, new: str) -> None:
        """Rename a file; missing folders are made, and a file of the new name is replaced."""
        with self._folder_of(old) as (source, before):
            self._in_made_folder(
                new,
                lambda parent, name: os.rename(before, name, src_dir_fd=source, dst_dir_fd=parent),
            )

    def remove_folder(self, relative: str) -> bool:
        """Remove a folder if it is empty; tell whether it was."""
        with suppress(OSError, CorruptDatasetError), self._folder_of(relative) as (parent, name):
            os.rmdir(name, dir_fd=parent)
            return True
        return False

    def make(self) -> None:
        """Make the folder itself, with those above."""
        os.makedirs(self.root, exist_ok=True)

    def listed(self, relative: str) -> list[Entry]:
        """What is in a folder; nothing where there is no folder."""
        with suppress(FileNotFoundError), self._readable(relative) as descriptor:
            return list(_entries(descriptor))
        return []

    def walk(self) -> list[Entry]:
        """All files and folders, by their paths; what is in a folder comes before the folder.

        Links to files are files, and links to folders are left out.
        """
        found: list[Entry] = []
        with suppress(FileNotFoundError), self._readable("") as descriptor:
            _walk(descriptor, "", found)
        return found

    def sync(self, relative: str) -> None:
        """Make a file's bytes, or the names in a folder, survive a power cut."""
        if not relative:
            with self._readable("") as descriptor:
                os.fsync(descriptor)
            return
        with self._found(relative) as (parent, name, _status):
            descriptor = os.open(name, _TO_READ, dir_fd=parent)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    # --- inside

    @contextmanager
    def _found(self, relative: str) -> Iterator[tuple[int, str, os.stat_result]]:
        """The folder's descriptor, the name and the status of what is there; no link."""
        with self._folder_of(relative) as (parent, name):
            status = os.lstat(name, dir_fd=parent)
            if not stat.S_ISLNK(status.st_mode):
                yield parent, name, status
                return
        parent, name = self._walked(self._resolved(relative))
        try:
            status = os.lstat(name, dir_fd=parent)
            if stat.S_ISLNK(status.st_mode):
                raise _leads_out(relative)
            yield parent, name, status
        finally:
            self._leave(parent)

    @contextmanager
    def _folder_of(self, relative: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder that a name is in, and the name, which may be a link's."""
        try:
            parent, name = self._walked(relative)
        except OSError as error:
            # As systems say that there is a link in the place of a folder.
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            folder, _, last = relative.rpartition("/")
            parent, name = self._walked(f"{self._resolved(folder)}/{last}".lstrip("/"))
        try:
            yield parent, name
        finally:
            self._leave(parent)

    def _walked(self, relative: str) -> tuple[int, str]:
        """The same, for a path with no link in it."""
        *folders, name = relative.split("/")
        descriptor = self._opened()
        for folder in folders:
            above = descriptor
            try:
                descriptor = os.open(folder, _ON_THE_WAY | os.O_NOFOLLOW, dir_fd=above)
            finally:
                self._leave(above)
        return descriptor, name

    def _resolved(self, relative: str) -> str:
        """The path that a path with links leads to.

        Raises:
            CorruptDatasetError: it is not in this folder.
        """
        root = os.path.realpath(self.root).rstrip("/")
        found = os.path.realpath(f"{self.root}/{relative}")
        if not f"{found}/".startswith(f"{root}/"):
            raise _leads_out(relative)
        return found[len(root) + 1 :]

    def _in_made_folder(self, relative: str, act: Callable[[int, str], T]) -> T:
        """Act in the folder of a file, which is made if it is missing."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError), self._folder_of(relative) as (parent, name):
                return act(parent, name)
            with suppress(FileNotFoundError):
                self._make_folders(relative)
        with self._folder_of(relative) as (parent, name):
            return act(parent, name)

    def _make_folders(self, relative: str) -> None:
        self.make()
        if self._held and os.fstat(self._held[-1]).st_nlink == 0:
            self._open()  # the folder was deleted, and is there again
        at = relative.find("/")
        while at > 0:
            with self._folder_of(relative[:at]) as (parent, name), suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
            at = relative.find("/", at + 1)

    @contextmanager
    def _readable(self, relative: str) -> Iterator[int]:
        """The descriptor of a folder that can be listed and synced."""
        with self._folder_of(f"{relative}/.".lstrip("/")) as (parent, name):
            descriptor = os.open(name, _FOLDER | os.O_RDONLY, dir_fd=parent)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _opened(self) -> int:
        return self._held[-1] if self._held else self._open()

    def _open(self) -> int:
        self._held.append(os.open(self.root, _ON_THE_WAY))
        return self._held[-1]

    def _leave(self, descriptor: int) -> None:
        if descriptor not in self._held:
            os.close(descriptor)


def _walk(descriptor: int, above: str, found: list[Entry]) -> None:
    if above.count("/") > _MOST_LEVELS:
        raise OSError(errno.ENAMETOOLONG, f"folders are nested more than {_MOST_LEVELS} times")
    for name, mode, size_bytes in _entries(descriptor):
        path = above + name
        if stat.S_ISDIR(mode):
            with suppress(FileNotFoundError):  # it was empty, and removed
                below = os.open(name, _FOLDER | os.O_RDONLY | os.O_NOFOLLOW, dir_fd=descriptor)
                try:
                    _walk(below, f"{path}/", found)
                finally:
                    os.close(below)
        found.append((path, mode, size_bytes))


def _entries(descriptor: int) -> Iterator[Entry]:
    with os.scandir(descriptor) as entries:
        for entry in entries:
            with suppress(OSError) if entry.is_symlink() else suppress(FileNotFoundError):
                status = entry.stat()
                if not (entry.is_symlink() and stat.S_ISDIR(status.st_mode)):
                    yield entry.name, status.st_mode, status.st_size


def _opened(descriptor: int, mode: str) -> pa.NativeFile:
    """The file of a descriptor, which stays open."""
    try:
        return pa.OSFile(f"/dev/fd/{descriptor}", mode)
    except FileNotFoundError:  # a container without /proc
        return pa.PythonFile(os.fdopen(os.dup(descriptor), f"{mode}b"), mode=mode)


def _checked(status: os.stat_result, relative: str) -> os.stat_result:
    # Opening a pipe would wait for another program, maybe for ever.
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise CorruptDatasetError(path=relative, reason="it is no plain file")
    return status


def _leads_out(relative: str) -> CorruptDatasetError:
    return CorruptDatasetError(path=relative, reason="a symbolic link leads out of the dataset")
