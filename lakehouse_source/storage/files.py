"""Edge. The files below one URI: read, write, list, delete, sync.

All files of a dataset are below one base URI, and the catalog stores paths relative to
it. Each path is checked here before every use, so no row of a database can cause a read or a delete
outside the dataset.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from lakehouse_source.errors import CorruptDatasetError, StorageError
from lakehouse_source.storage.filesystems import open_filesystem, storage_errors
from lakehouse_source.storage.location import StorageLocation
from lakehouse_source.storage.uris import RESERVED_FOLDER, check_relative, redact_uri


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a listing: its path relative to the base URI and its size in bytes."""

    path: str
    size_bytes: int


class Storage:
    """The files below one base URI. Picklable: the filesystem is opened again when unpickled."""

    def __init__(self, uri: str | StorageLocation) -> None:
        self.location = StorageLocation.of(uri) if isinstance(uri, str) else uri
        self.uri = self.location.uri
        self.filesystem, self.root = open_filesystem(self.location)
        # Folders whose symbolic links stay in the dataset; each folder is checked once.
        self._inside = {self.root}

    def __reduce__(self) -> tuple[Any, ...]:
        return (Storage, (self.location,))

    def __repr__(self) -> str:
        return f"Storage({redact_uri(self.location.given)!r})"

    @property
    def is_local(self) -> bool:
        return self.uri.startswith("file://")

    def path(self, relative: str) -> str:
        """The path of a data file in the filesystem.

        Raises:
            CorruptDatasetError: the path leads out of the dataset.
        """
        full = f"{self.root}/{check_relative(relative)}"
        # Symbolic links defeat a check of the prefix, so the resolved path is compared.
        if self.is_local:
            folder = full.rpartition("/")[0]
            if folder not in self._inside:
                self._check_resolved(folder, relative)
                self._inside.add(folder)
            self._check_kind(full, relative)
        return full

    def _check_kind(self, full: str, relative: str) -> None:
        # Opening a pipe would wait for another program, maybe for ever.
        try:
            mode = os.lstat(full).st_mode
            if stat.S_ISLNK(mode):
                self._check_resolved(full, relative)
                mode = os.stat(full).st_mode
        except OSError:
            return  # there is none, or opening it gives the reason
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise CorruptDatasetError(path=relative, reason="it is no plain file")

    def _check_resolved(self, path: str, relative: str) -> None:
        root = os.path.realpath(self.root).rstrip("/")
        if not f"{os.path.realpath(path)}/".startswith(f"{root}/"):
            raise CorruptDatasetError(
                path=relative, reason="a symbolic link leads out of the dataset"
            )

    def display(self, relative: str) -> str:
        """The file's URI for messages."""
        return f"{redact_uri(self.uri)}/{relative}"

    def size(self, relative: str) -> int | None:
        """The file's size in bytes; None: there is no such file."""
        with self.errors(relative):
            info = self.filesystem.get_file_info(self.path(relative))
        return None if info.type != pafs.FileType.File else int(info.size)

    def sizes_at(self, paths: Sequence[str]) -> list[int | None]:
        """The sizes in bytes of files at paths that `path` returned; None: there is no file."""
        with self.errors(""):
            found = self.filesystem.get_file_info(list(paths))
        return [None if one.type != pafs.FileType.File else int(one.size) for one in found]

    def open_output(self, relative: str) -> pa.NativeFile:
        """A stream to a new file; missing folders are created."""
        full = self.path(relative)
        with self.errors(relative):
            for _ in range(10 if self.is_local else 0):
                os.makedirs(os.path.dirname(full), exist_ok=True)
                # A vacuum may remove the folder again while it is empty.
                with suppress(FileNotFoundError):
                    return self.filesystem.open_output_stream(full, compression=None)
            return self.filesystem.open_output_stream(full, compression=None)

    def open_input(self, relative: str) -> pa.NativeFile:
        """The file, for random access.

        Raises:
            StorageError: the file is missing, or cannot be opened.
        """
        try:
            with self.errors(relative):
                file = self.filesystem.open_input_file(self.path(relative))
                if not self.location.is_shown_in_errors:
                    return file
                return pa.PythonFile(_MaskedInput(self, relative, file), mode="r")
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise StorageError(
                path=error.path,
                reason="the file is missing: deleted by hand, or vacuumed while an old version "
                "was read",
            ) from error.__cause__

    def sync_file(self, relative: str) -> None:
        """Make a local file's bytes survive a power cut. Object stores need no sync."""
        if self.is_local:
            with self.errors(relative):
                _fsync(self.path(relative), os.O_RDONLY)

    def sync_folders(self, relatives: Iterable[str]) -> None:
        """Make the names of local files survive a power cut: sync the folders above them."""
        if not self.is_local:
            return
        folders = {self.root}
        for relative in relatives:
            folder = os.path.dirname(self.path(relative))
            while len(folder) > len(self.root):
                folders.add(folder)
                folder = os.path.dirname(folder)
        with self.errors(""):
            for folder in sorted(folders, reverse=True):
                _fsync(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))

    def delete(self, relative: str) -> bool:
        """Delete a data file; False: there is no such file."""
        full = self.path(relative)
        try:
            with self.errors(relative):
                if self.filesystem.get_file_info(full).type == pafs.FileType.NotFound:
                    return False
                self.filesystem.delete_file(full)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise
        return True

    def files(self) -> Iterator[FoundFile]:
        """Every file below the base URI, except those in reserved folders `_plake`."""
        selector = pafs.FileSelector(self.root, recursive=True, allow_not_found=True)
        with self.errors(""):
            found = self.filesystem.get_file_info(selector)
        for info in found:
            if info.type == pafs.FileType.File:
                if not info.path.startswith(self.root):
                    raise StorageError(
                        path=redact_uri(self.uri), reason=f"the listing has {info.path}, outside"
                    )
                relative = info.path[len(self.root) :].lstrip("/")
                if RESERVED_FOLDER not in relative.split("/")[:-1]:
                    yield FoundFile(relative, int(info.size))

    @contextmanager
    def errors(self, relative: str) -> Iterator[None]:
        """Raise a filesystem's errors as `StorageError` that names the file."""
        with storage_errors(self.location, self.display(relative) if relative else self.uri):
            yield


class _MaskedInput:
    """A file whose errors do not hold the location's secrets.

    `pa.PythonFile` reads it one request at a time: slower than the client's own file.
    """

    def __init__(self, storage: Storage, relative: str, file: pa.NativeFile) -> None:
        self._storage = storage
        self._relative = relative
        self._file = file

    def read(self, count: int | None = None) -> bytes:
        with self._errors():
            return bytes(self._file.read(count))

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        return int(self._file.seek(position, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self._storage.errors(self._relative):
                yield
        except StorageError as error:
            # Arrow passes on Python errors of known classes, and their causes.
            raise OSError(error.reason) from error.__cause__


def _fsync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
