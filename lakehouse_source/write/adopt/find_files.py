"""Verb. Which files a caller means by the paths given to `add_files` and `convert`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import pyarrow.fs as pafs

from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError
from lakehouse_source.iceberg.export import HINT
from lakehouse_source.parquet.names import own_name
from lakehouse_source.storage import (
    Storage,
    StorageLocation,
    check_relative,
    local_path,
    redact_uri,
    split_branch,
)

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file to add: where it is, and the folders that partition values are read from.

    `path` is relative to `storage`, which is that of the dataset unless the file has to be
    copied.
    """

    storage: Storage
    path: str
    folders: tuple[str, ...]
    is_copied: bool

    @property
    def shown(self) -> str:
        return self.storage.display(self.path)


def find_files(
    root: Storage,
    paths: Paths,
    *,
    copy: bool,
    storage_options: Mapping[str, Any] | None = None,
) -> list[GivenFile]:
    """The files at paths and below folders, sorted by path in each folder.

    `storage_options` are those of paths outside of the dataset. Without them the dataset's
    own options are used in a store of the same kind.

    Hidden files and folders (named `_…` or `.…`, but not `_key=value`) are skipped, and so are
    files that plake itself wrote in the dataset. Any other folder with files of plake is refused.

    Raises:
        StorageError: a folder cannot be listed.
    """
    if isinstance(paths, str | os.PathLike):
        given = [paths]
    else:
        given = list(paths) if isinstance(paths, Iterable) else [paths]
        if not all(isinstance(path, str | os.PathLike) for path in given):
            raise InvalidOptionError(
                option="paths", value=paths, reason="must be a path or a list of paths."
            )
    found: list[GivenFile] = []
    seen: dict[str, str] = {}
    for path in given:
        for file in _files_at(root, os.fspath(path), copy, storage_options):
            key = _identity(file)
            if key in seen:
                raise _refused(file.shown, f"is given twice (as {seen[key]} too).")
            seen[key] = file.shown
            found.append(file)
    if not found:
        shown = ", ".join(redact_uri(os.fspath(path)) for path in given)
        raise InvalidOptionError(option="paths", value=shown, reason="has no data file.")
    return found


def _identity(file: GivenFile) -> str:
    """One text for one file: links to a file are the same file."""
    path = file.storage.path(_checked(file))
    return os.path.realpath(path) if file.storage.is_local else path


def _checked(file: GivenFile) -> str:
    try:
        return check_relative(file.path)
    except CorruptDatasetError as error:
        raise _refused(file.shown, "has a path that a dataset cannot record.") from error


def _files_at(
    root: Storage, given: str, copy: bool, options: Mapping[str, Any] | None
) -> Iterator[GivenFile]:
    if split_branch(given)[1] is not None:
        raise _refused(given, "reads like a branch of a dataset. Rename the file.")
    location = root.location.sibling(given)
    inside = _below(location.uri, root)
    if inside is None:
        if not copy:
            raise _refused(
                given,
                f"is not below {root.uri}. Move it there, or say copy=True to copy it.",
            )
        yield from _outside(location if options is None else StorageLocation.of(given, options))
        return
    kind = _kind(root, inside, given)
    if kind is pafs.FileType.File:
        if own_name(inside) is not None:
            raise _refused(
                given,
                "has a name that plake gives to its own files, which vacuum may delete. Rename it.",
            )
        yield GivenFile(root, inside, tuple(inside.split("/")[:-1]), False)
        return
    for path in _listed(root, inside):
        if own_name(path) is None:
            yield GivenFile(root, path, tuple(path.split("/")[:-1]), False)


def _outside(location: StorageLocation) -> Iterator[GivenFile]:
    given = local_path(location.uri) or location.given
    if local_path(location.uri) is None:
        # The URI as given, because it may have the credentials for the store.
        parts = urlsplit(given)
        above = parts.path.rstrip("/").rpartition("/")[0]
        storage = Storage(location.sibling(urlunsplit(parts._replace(path=above))))
    else:
        storage = Storage(os.path.dirname(given))
    folder = Storage(location)
    name = folder.root.rpartition("/")[2]
    if _kind(storage, name, given) is pafs.FileType.File:
        around = folder.root.split("/")[:-1]
        yield GivenFile(storage, name, tuple(around), True)
        return
    for path in _listed(folder, ""):
        if own_name(path) is not None:
            raise _refused(
                folder.display(path),
                "is part of another dataset of plake, whose folder also holds rows that it has "
                "removed. Read the dataset and write its rows.",
            )
        yield GivenFile(folder, path, tuple(path.split("/")[:-1]), True)


def _below(uri: str, root: Storage) -> str | None:
    """The path below the dataset's URI ("" for itself), None where it is elsewhere."""
    mine, theirs = local_path(uri), local_path(root.uri)
    if mine is None or theirs is None:
        inside = uri == root.uri or uri.startswith(root.uri + "/")
        return uri[len(root.uri) :].lstrip("/") if inside else None
    for path, base in ((mine, theirs), (os.path.realpath(mine), os.path.realpath(theirs))):
        if path == base or path.startswith(base.rstrip("/") + "/"):
            return path[len(base) :].lstrip("/")
    return None


def _kind(storage: Storage, path: str, given: str) -> pafs.FileType:
    with storage.errors(path):
        info = storage.filesystem.get_file_info(f"{storage.root}/{path}" if path else storage.root)
    if info.type not in (pafs.FileType.File, pafs.FileType.Directory):
        raise _refused(given, "is not there.")
    return info.type


def _listed(storage: Storage, folder: str) -> Iterator[str]:
    """The files below a folder that are not hidden, sorted."""
    base = f"{storage.root}/{folder}" if folder else storage.root
    with storage.errors(folder):
        infos = storage.filesystem.get_file_info(pafs.FileSelector(base, recursive=True))
    paths = sorted(info.path for info in infos if info.type == pafs.FileType.File)
    for path in paths:
        _check_no_table(path, storage)
    for path in paths:
        below = path[len(base) :].lstrip("/")
        relative = path[len(storage.root) :].lstrip("/")
        if relative != HINT and not any(_is_hidden(part) for part in below.split("/")):
            yield relative


def _check_no_table(path: str, storage: Storage) -> None:
    """Refuse the folder of a Delta or Iceberg table: it holds removed files too.

    Sources: Delta protocol, "Delta Log Entries"; Iceberg specification, "File System Tables".
    """
    parts = path.split("/")
    kind = ""
    if "_delta_log" in parts[:-1]:
        kind = "Delta"
    elif (
        parts[-2:-1] == ["metadata"]
        and path.endswith(".metadata.json")
        and own_name(path) is None  # plake writes them for readers of Iceberg
    ):
        kind = "Iceberg"
    if kind:
        raise _refused(
            storage.display(path[len(storage.root) :].lstrip("/")),
            f"is part of a {kind} table, whose folder also holds files that the table has "
            "removed. Add the table's present files instead, as a list: "
            "dataset.add_files([...], copy=True).",
        )


def _is_hidden(name: str) -> bool:
    # As Spark does: `_key=value` is a partition's folder.
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _refused(path: str, reason: str) -> InvalidOptionError:
    return InvalidOptionError(option="paths", value=redact_uri(path), reason=reason)
