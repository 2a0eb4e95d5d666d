"""Edge. The files below one URI: read, list, delete, sync; byte ranges; who owns the folder.

All files that a dataset writes are below one base URI, and the catalog stores paths relative to
it. Each path is checked here before every use, so no row of a database can cause a read or a delete
outside the dataset. The files of a clone may be in the folders of the datasets from which it was
cloned: these are read, never written or deleted, and only where the location names the folders.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.fs as pafs

from lakehouse_source.errors import CorruptDatasetError, PlakeError, StorageError
from lakehouse_source.storage.local_folder import LocalFolder
from lakehouse_source.storage.location import StorageLocation, open_filesystem, storage_errors
from lakehouse_source.storage.uris import (
    RESERVED_FOLDER,
    check_own,
    check_relative,
    local_path,
    redact_uri,
    split_shared,
)


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
        self._local = LocalFolder(self.root) if self.is_local else None
        self._origins: dict[int, Storage] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (Storage, (self.location,))

    def __repr__(self) -> str:
        return f"Storage({redact_uri(self.location.given)!r})"

    @property
    def is_local(self) -> bool:
        return self.uri.startswith("file://")

    def of(self, relative: str) -> tuple[Storage, str]:
        """The store that has a file to read, and the file's path in it.

        Raises:
            CorruptDatasetError: the path leads out of the dataset, or into the folder of a dataset
                from which this one was not cloned.
        """
        origin, path = split_shared(relative)
        if origin is None:
            return self, check_relative(path)
        store = self._origins.get(origin)
        if store is None:
            location = self.location.origins.get(origin)
            if location is None:
                raise CorruptDatasetError(
                    path=repr(relative), reason="its dataset was not cloned from that one"
                )
            store = self._origins[origin] = Storage(location)
        return store, check_relative(path)

    def path(self, relative: str) -> str:
        """The path of a data file in the filesystem, for programs that open files by name.

        Raises:
            CorruptDatasetError: as `of` does; or the path leads to a pipe or a device.
        """
        store, path = self.of(relative)
        return store._path(path)

    def _path(self, relative: str) -> str:
        full = f"{self.root}/{relative}"
        if self._local is not None:
            with suppress(OSError):  # opening it gives the reason
                self._local.status(relative)
        return full

    def display(self, relative: str) -> str:
        """The file's URI for messages."""
        location, path = self._place(relative)
        return f"{redact_uri(location.uri)}/{path}"

    def file_uri(self, relative: str) -> str:
        """The file's URI as Spark shows that of a file, percent-encoded as Java does it."""
        location, path = self._place(relative)
        root = local_path(location.uri)
        uri = f"{redact_uri(location.uri)}/" if root is None else f"file://{_encoded(root)}/"
        return uri + _encoded(path)

    def _place(self, relative: str) -> tuple[StorageLocation, str]:
        origin, path = split_shared(relative)
        location = None if origin is None else self.location.origins.get(origin)
        return (self.location, relative) if location is None else (location, path)

    def size(self, relative: str) -> int | None:
        """The file's size in bytes; None: there is no such file."""
        return self.path_and_size(relative)[1]

    def path_and_size(self, relative: str) -> tuple[str, int | None]:
        """What `path` and `size` say, in one look-up of the path."""
        store, path = self.of(relative)
        full = f"{store.root}/{path}"
        try:
            if store._local is not None:
                status = store._local.status(path)
                is_file = status is not None and stat.S_ISREG(status.st_mode)
                return full, status.st_size if status is not None and is_file else None
            info = store.filesystem.get_file_info(full)
        except Exception:
            with self.errors(relative):  # to enter it for each of many files takes as long
                raise
        return full, None if info.type != pafs.FileType.File else int(info.size)

    def open_output(self, relative: str) -> pa.NativeFile:
        """A stream to a new file; missing folders are created."""
        with self.errors(relative):
            if self._local is not None:
                return self._local.open_output(check_own(relative))
            path = self._path(check_own(relative))
            return self.filesystem.open_output_stream(path, compression=None)

    def open_input(self, relative: str) -> pa.NativeFile:
        """The file, for random access.

        Raises:
            StorageError: the file is missing, or cannot be opened.
        """
        try:
            with self.errors(relative):
                store, path = self.of(relative)
                if store is not self:
                    return store.open_input(path)
                if self._local is not None:
                    return self._local.open_input(path)
                file = self.filesystem.open_input_file(self._path(path))
                if not (self.location.is_shown_in_errors or self.location.is_of_driver):
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
        if self._local is not None:
            with self.errors(relative):
                self._local.sync(check_own(relative))

    def sync_folders(self, relatives: Iterable[str]) -> None:
        """Make the names of local files survive a power cut: sync the folders above them."""
        if self._local is None:
            return
        folders = {""}
        for relative in map(check_own, relatives):
            folder = os.path.dirname(relative)
            while folder:
                folders.add(folder)
                folder = os.path.dirname(folder)
        with self.errors(""):
            for folder in sorted(folders, reverse=True):
                self._local.sync(folder)

    def delete(self, relative: str) -> bool:
        """Delete a data file; False: there is no such file."""
        try:
            with self.errors(relative):
                if self._local is not None:
                    return self._local.delete(check_own(relative))
                full = self._path(check_own(relative))
                if self.filesystem.get_file_info(full).type == pafs.FileType.NotFound:
                    return False
                self.filesystem.delete_file(full)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise
        return True

    def rename_local(self, old: str, new: str) -> None:
        """Rename a file of a local dataset, and replace a file that has the new name."""
        assert self._local is not None
        with self.errors(new):
            self._local.rename(check_own(old), check_own(new))

    def make_local(self) -> None:
        """Make the folder of a local dataset, for a program that writes to it by name."""
        assert self._local is not None
        with self.errors(""):
            self._local.make()

    def local_folders(self) -> Iterator[str]:
        """All folders below a local base URI, each after those in it. None of a remote one."""
        if self._local is not None:
            with self.errors(""):
                found = self._local.walk()
            yield from (path for path, mode, _size in found if stat.S_ISDIR(mode))

    def remove_local_folder(self, relative: str) -> bool:
        """Remove a folder of a local dataset if it is empty; tell whether it was."""
        return self._local is not None and self._local.remove_folder(check_relative(relative))

    def names_in(self, folder: str) -> list[tuple[str, pafs.FileType, int]]:
        """What is in one folder: its name, what it is, and its size in bytes."""
        with self.errors(folder):
            if self._local is not None:
                listed = self._local.listed(folder and check_relative(folder))
                return [(name, _type_of(mode), size_bytes) for name, mode, size_bytes in listed]
            selector = pafs.FileSelector(f"{self.root}/{folder}".rstrip("/"), allow_not_found=True)
            try:
                found = self.filesystem.get_file_info(selector)
            except FileNotFoundError:  # it was missing and now exists: somebody made it
                found = self.filesystem.get_file_info(selector)
        return [(info.base_name, info.type, int(info.size or 0)) for info in found]

    def files(self) -> Iterator[FoundFile]:
        """Every file below the base URI, except those in reserved folders `_plake`."""
        for relative, size_bytes in self._all_files():
            if RESERVED_FOLDER not in relative.split("/")[:-1]:
                yield FoundFile(relative, size_bytes)

    def _all_files(self) -> list[tuple[str, int]]:
        with self.errors(""):
            if self._local is not None:
                walked = self._local.walk()
                return [(path, size) for path, mode, size in walked if stat.S_ISREG(mode)]
            selector = pafs.FileSelector(self.root, recursive=True, allow_not_found=True)
            found = self.filesystem.get_file_info(selector)
        for info in found:
            if not info.path.startswith(self.root):
                raise StorageError(
                    path=redact_uri(self.uri), reason=f"the listing has {info.path}, outside"
                )
        return [
            (info.path[len(self.root) :].lstrip("/"), int(info.size))
            for info in found
            if info.type == pafs.FileType.File
        ]

    @contextmanager
    def errors(self, relative: str) -> Iterator[None]:
        """Raise a filesystem's errors as `StorageError` that names the file."""
        try:
            yield
        except PlakeError:
            raise
        except Exception:
            # What to call the file is asked for only now: thousands of files may be looked up.
            location, _ = self._place(relative)
            with storage_errors(location, self.display(relative) if relative else self.uri):
                raise


class _MaskedInput:
    """A file whose errors are OSErrors, and do not hold the location's secrets.

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


def _encoded(path: str) -> str:
    """A path as `java.net.URI` encodes it."""
    return re.sub(r"[\x00-\x20\x7f\"#%<>?\[\\\]^`{|}]", lambda one: f"%{ord(one[0]):02X}", path)


def _type_of(mode: int) -> pafs.FileType:
    if stat.S_ISREG(mode):
        return pafs.FileType.File
    return pafs.FileType.Directory if stat.S_ISDIR(mode) else pafs.FileType.Unknown


# --- The owner of a folder: a file in the folder names the catalog that may delete files there.
#
# This needs no conditional write. A claimant lists the owner files, writes an empty file with a
# name of its own, and lists again. If two claim at once, the one that lists last sees the other's
# file, and deletes its own file. A claimant that sees no other file writes a text into its own. An
# empty file of the same catalog may still be deleted, so it claims nothing for others. The store
# must show a file to everybody once it is written (local disks, S3, Google's and Azure's stores
# do).


_NAME = re.compile(r"owner-([0-9a-f]{32})-[0-9a-f]{8}")


def owner_files(storage: Storage) -> dict[str, str]:
    """The files that name the owner of a folder: the catalog's id by the path of each file.

    Raises:
        CorruptDatasetError: a link leads out of the folder.
        StorageError: the folder cannot be listed.
    """
    return {path: owner for path, (owner, _) in _listed(storage).items()}


def _listed(storage: Storage) -> dict[str, tuple[str, bool]]:
    """The same files, each with whether its claim has succeeded."""
    return {
        f"{RESERVED_FOLDER}/{name}": (match[1], bool(size_bytes))
        for name, type_, size_bytes in storage.names_in(RESERVED_FOLDER)
        if type_ == pafs.FileType.File and (match := _NAME.fullmatch(name))
    }


def claim_folder(storage: Storage, catalog_id: str) -> str | None:
    """Claim a folder for a catalog, durably; returns the file of another catalog that owns it."""
    before = _listed(storage)
    other = _of_another(before, catalog_id)
    if other is not None or any(is_sure for _, is_sure in before.values()):
        return other
    mine = f"{RESERVED_FOLDER}/owner-{catalog_id}-{secrets.token_hex(4)}"
    _put(storage, mine, "")
    other = _of_another(_listed(storage), catalog_id)
    if other is not None:
        storage.delete(mine)
        return other
    text = (
        f"The files of plake here belong to the catalog {catalog_id}. No other catalog writes to "
        "this folder or deletes from it.\n"
    )
    _put(storage, mine, text)
    return None


def _put(storage: Storage, path: str, text: str) -> None:
    with storage.open_output(path) as sink, storage.errors(path):
        sink.write(text.encode())
    storage.sync_file(path)
    storage.sync_folders([path])


def release_folder(storage: Storage, catalog_id: str) -> None:
    """Release a folder."""
    for path, owner in owner_files(storage).items():
        if owner == catalog_id:
            storage.delete(path)
    storage.remove_local_folder(RESERVED_FOLDER)  # unless a catalog is in it


def _of_another(files: dict[str, tuple[str, bool]], catalog_id: str) -> str | None:
    return next((path for path, (owner, _) in sorted(files.items()) if owner != catalog_id), None)


# --- Reads many byte ranges of one file. A remote store gets few requests.
#
# A request to an object store takes about as long as the transfer of 64 KiB within a region: ranges
# closer than this become one request, and the requests run in parallel. A local file is read range
# by range.


# Offset and length.
ByteRange: TypeAlias = tuple[int, int]

SMALL_GAP_BYTES = 64 * 1024
_REQUESTS_AT_ONCE = 8


class OutsideFile(ValueError):
    """A byte range that is not in the file."""


class ByteRanges:
    """The bytes of one open file."""

    def __init__(self, file: pa.NativeFile, *, is_local: bool) -> None:
        self._file = file
        self._size: int = file.size()
        self._is_local = is_local

    def read(self, ranges: Iterable[ByteRange]) -> dict[ByteRange, bytes]:
        """The bytes of each range.

        Raises:
            OSError, ArrowException: the file cannot be read.
        """
        wanted = sorted(set(ranges))
        for offset, length in wanted:
            if offset < 0 or length < 0 or offset + length > self._size:
                raise OutsideFile(f"bytes {offset} to {offset + length} of {self._size}")
        if self._is_local:
            return {one: self._read_at(one) for one in wanted}
        requests = merged(wanted, SMALL_GAP_BYTES)
        if len(requests) <= 1:
            answers = [self._read_at(request) for request in requests]
        else:
            with ThreadPoolExecutor(min(len(requests), _REQUESTS_AT_ONCE)) as pool:
                answers = list(pool.map(self._read_at, requests))
        found: dict[ByteRange, bytes] = {}
        at = 0
        for offset, length in wanted:
            while offset + length > sum(requests[at]):
                at += 1
            start = offset - requests[at][0]
            found[offset, length] = answers[at][start : start + length]
        return found

    def _read_at(self, one: ByteRange) -> bytes:
        offset, length = one
        data: bytes = self._file.read_at(length, offset)
        if len(data) != length:
            raise OSError(f"{len(data)} bytes came, not {length}, from offset {offset}")
        return data


def merged(ranges: Iterable[ByteRange], gap_bytes: int) -> list[ByteRange]:
    """Ordered ranges; ranges that overlap or are at most `gap_bytes` apart are joined."""
    result: list[ByteRange] = []
    for offset, length in ranges:
        if result and offset - sum(result[-1]) <= gap_bytes:
            start = result[-1][0]
            result[-1] = (start, max(sum(result[-1]), offset + length) - start)
        else:
            result.append((offset, length))
    return result
