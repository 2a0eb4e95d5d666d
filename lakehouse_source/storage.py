"""Edge. The only room that touches files and object stores: URIs, paths, listing, deleting.

All files of a dataset are below one base URI, and the catalog stores paths relative to
it. Each path is checked here before every use, so that no row of a database can make a
read or a delete touch a file outside of the dataset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.fs as pafs

from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError, StorageError

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]+:")
_ARROW_SCHEMES = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"})
RESERVED_FOLDER = "_plake"


def canonical_uri(uri: str | os.PathLike[str]) -> str:
    """The one spelling of a dataset's URI: `file:///abs/path` for local paths, no final slash.

    Local paths become absolute; symbolic links in them are kept. Credentials and query
    parameters of remote URIs are dropped: they tell how to reach a dataset, not which
    dataset it is.

    Raises:
        InvalidOptionError: the URI is empty or has no path.
    """
    text = os.fspath(uri).strip()
    if not text:
        raise InvalidOptionError(
            option="path",
            reason="is missing. Give the dataset's folder or URI: load('/data/flights').",
        )
    if "\x00" in text:
        raise InvalidOptionError(option="path", value=text, reason="holds a NUL character.")
    if not _SCHEME.match(text):
        return _local_uri(text)
    parts = urlsplit(text)
    scheme = parts.scheme.lower()
    if scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidOptionError(
                option="path", value=text, reason="names a host; write file:///absolute/path."
            )
        return _local_uri(unquote(text[len("file:") :].removeprefix("//" + parts.netloc)))
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/")
    if not host and not path:
        raise InvalidOptionError(option="path", value=text, reason="names no bucket or path.")
    if ".." in PurePosixPath(path).parts:
        raise InvalidOptionError(option="path", value=text, reason="must not hold '..'.")
    return urlunsplit((scheme, host, path, "", ""))


def _local_uri(path: str) -> str:
    absolute = os.path.abspath(os.path.expanduser(path))
    return "file://" + quote(absolute, safe="/")


def local_path(uri: str) -> str | None:
    """The path of a canonical `file:` URI, None for a remote one."""
    return unquote(uri[len("file://") :]) if uri.startswith("file://") else None


def redact_uri(uri: str) -> str:
    """The URI without user, password and query values, for messages and plans."""
    if not _SCHEME.match(uri) or uri.startswith("file:"):
        return uri
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    secret = "***@" if "@" in parts.netloc else ""
    return urlunsplit((parts.scheme, secret + host, parts.path, "***" if parts.query else "", ""))


def check_relative(path: str) -> str:
    """A file path from the catalog or a commit message, checked to stay in its dataset.

    Raises:
        CorruptDatasetError: the path is absolute, has a scheme, `..`, an empty
            part, a backslash or a control character.
    """
    parts = path.split("/")
    if (
        not path
        or any(part in ("", ".", "..") for part in parts)
        or "\\" in path
        or ":" in parts[0]
        or any(ord(char) < 32 for char in path)
    ):
        raise CorruptDatasetError(
            path=repr(path), reason="a data file's path must be relative and stay in its dataset"
        )
    return path


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a listing: its path relative to the base URI and its size in bytes."""

    path: str
    size_bytes: int


class Storage:
    """The files below one base URI. Picklable: the filesystem is opened again when unpickled."""

    def __init__(self, uri: str) -> None:
        self.given = uri
        self.uri = canonical_uri(uri)
        self.filesystem, self.root = _open(uri if local_path(self.uri) is None else self.uri)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Storage, (self.given,))

    def __repr__(self) -> str:
        return f"Storage({redact_uri(self.given)!r})"

    @property
    def is_local(self) -> bool:
        return self.uri.startswith("file://")

    def path(self, relative: str) -> str:
        """The path of a data file in the filesystem.

        Raises:
            CorruptDatasetError: the path leads out of the dataset.
        """
        full = f"{self.root}/{check_relative(relative)}"
        if self.is_local:
            # Symbolic links defeat a check of the prefix: compare the resolved path.
            real_root = _real_root(self.root)
            if not os.path.realpath(full).startswith(real_root.rstrip("/") + "/"):
                raise CorruptDatasetError(
                    path=relative, reason="a symbolic link leads out of the dataset"
                )
        return full

    def display(self, relative: str) -> str:
        """The file's URI for messages."""
        return f"{redact_uri(self.uri)}/{relative}"

    def size(self, relative: str) -> int | None:
        """The file's size in bytes; None where there is no such file."""
        with self.errors(relative):
            info = self.filesystem.get_file_info(self.path(relative))
        return None if info.type != pafs.FileType.File else int(info.size)

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
        with self.errors(relative):
            try:
                return self.filesystem.open_input_file(self.path(relative))
            except FileNotFoundError as error:
                raise StorageError(
                    path=self.display(relative),
                    reason="the file is missing: deleted by hand, or vacuumed while an old "
                    "version was read",
                ) from error

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
        """Delete a data file; False where there is no such file."""
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
        """Every file below the base URI, except those in the reserved folder `_plake`."""
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
                if not relative.startswith(RESERVED_FOLDER + "/"):
                    yield FoundFile(relative, int(info.size))

    @contextmanager
    def errors(self, relative: str) -> Iterator[None]:
        """Raise a filesystem's errors as `StorageError` that names the file."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            shown = self.display(relative) if relative else redact_uri(self.uri)
            reason = getattr(error, "strerror", None) or str(error)
            raise StorageError(path=shown, reason=reason) from error


@lru_cache(maxsize=64)
def _real_root(root: str) -> str:
    return os.path.realpath(root)


def _fsync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(uri: str) -> tuple[pafs.FileSystem, str]:
    path = local_path(uri)
    if path is not None:
        return pafs.LocalFileSystem(), path
    scheme = urlsplit(uri).scheme.lower()
    try:
        if scheme in _ARROW_SCHEMES:
            filesystem, root = pafs.FileSystem.from_uri(uri)
        else:
            # Any other store that fsspec has a driver for.
            import fsspec

            driver, root = fsspec.core.url_to_fs(uri)
            filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(driver))
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        raise StorageError(path=redact_uri(uri), reason=str(error)) from error
    return filesystem, root.rstrip("/")
