"""Verb. Existing files that are to be added: which ones, their common schema, their records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.fs as pafs

from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError, SchemaMismatchError
from lakehouse_source.iceberg.metadata import HINT
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.foreign import ForeignFile, ForeignSchema, Recorder
from lakehouse_source.parquet.names import copy_name, own_name
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import find_field, find_name, storage_type, without_metadata
from lakehouse_source.schema.merge import dataframe_schema, initial, merge
from lakehouse_source.schema.ordinal import to_ordinal
from lakehouse_source.schema.partitions import inferred_type, partition_folder, typed_value
from lakehouse_source.schema.paths import ToShow, check_reads_exactly, known_fields
from lakehouse_source.storage import (
    Storage,
    StorageLocation,
    check_relative,
    local_path,
    redact_uri,
    split_branch,
)
from lakehouse_source.write.commit.options import WriteOptions

# --- Which files a caller means by the paths given to `add_files` and `convert`.


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
    inside = below(location.uri, root)
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


def below(uri: str, root: Storage) -> str | None:
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


# --- The schema of existing files that are to be added to a dataset, all together.


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to add: where it is, its footer, and its partition values as folders name them."""

    given: GivenFile
    file: ForeignFile
    texts: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class AddedSchema:
    """The schema of all files together (without ids), partition columns included."""

    schema: pa.Schema
    partition_by: tuple[str, ...]


@contextmanager
def named_in_errors(given: GivenFile) -> Iterator[None]:
    """A block whose errors about columns name the file."""
    try:
        yield
    except SchemaMismatchError as error:
        if given.shown in str(error):
            raise
        facts = error.facts | {"dataset": f"file {given.shown}"}
        raise SchemaMismatchError(**facts) from error


def schema_of_new(found: Sequence[FoundFile], types: Mapping[str, pa.DataType]) -> AddedSchema:
    """The schema of a new dataset that has these files, with `types` for partition columns.

    Raises:
        SchemaMismatchError: the schemas of the files cannot be merged.
    """
    keys = tuple(found[0].texts)
    for name in types:
        if find_name(name, keys) is None:
            raise InvalidOptionError(
                option="partition_types", value=name, reason="is no partition key.", known=keys
            )
    partitions = []
    for key in keys:
        given = find_name(key, types)
        in_file = find_field(key, found[0].file.schema)
        if given is not None:
            type_ = types[given]
        elif in_file is not None:
            type_ = storage_type(in_file.type, key)
        else:
            type_ = inferred_type([one.texts[key] for one in found])
        partitions.append(pa.field(key, type_))
    schema: pa.Schema | None = None
    for one in _one_per_schema(found):
        data = _nullable([f for f in one.file.schema if find_name(f.name, keys) is None])
        with named_in_errors(one.given):
            schema = initial(data) if schema is None else _merged(schema, data, True)
    assert schema is not None  # `find_files` finds at least one file
    return AddedSchema(_bare([*schema, *partitions]), keys)


def schema_in(
    snapshot: Snapshot,
    found: Sequence[FoundFile],
    options: WriteOptions,
    types: Mapping[str, pa.DataType] | None,
) -> AddedSchema:
    """The schema of a dataset after these files were added to it.

    Raises:
        SchemaMismatchError: a file's schema cannot be merged with the dataset's.
    """
    if types:
        raise InvalidOptionError(
            option="partition_types", reason="is for new datasets: this one has its types."
        )
    names = snapshot.partition_by
    keys = tuple(found[0].texts)
    if {key.lower() for key in keys} != {name.lower() for name in names}:
        have, need = (", ".join(some) or "none" for some in (keys, names))
        raise InvalidOptionError(
            option="partitioning",
            value=found[0].given.shown,
            reason=f"the folders have the keys ({have}) and the dataset has the partition "
            f"columns ({need})."
            + ("" if names else " With partitioning=None the folders' names do not count."),
        )
    schema = snapshot.schema
    partitions = [schema.field(name) for name in names]
    for one in _one_per_schema(found):
        fields = [f for f in one.file.schema if find_name(f.name, names) is None]
        data = _nullable([zoned_as(f, schema, one.file) for f in fields] + partitions)
        with named_in_errors(one.given):
            schema = _merged(schema, data, options.schema_merge, snapshot.uri)
    # Others may drop or rename a column meanwhile, so only the files' own columns are used.
    given = [field.name for one in _one_per_schema(found) for field in one.file.schema]
    fields = [f for f in schema if f.name in names or find_name(f.name, given) is not None]
    return AddedSchema(_bare(fields), names)


def _merged(
    schema: pa.Schema, data: pa.Schema, add_columns: bool, dataset: str | None = None
) -> pa.Schema:
    # Whether values fit is checked later: `begin` checks the dataset's files, and `CheckedRecorder`
    # checks the added files.
    return merge(
        schema,
        data,
        add_columns=add_columns,
        dataset=dataset,
        stored_values_fit=lambda _field, _type: True,
    )


def zoned_as(field: pa.Field, schema: pa.Schema, file: ForeignFile) -> pa.Field:
    """The field; an INT96 timestamp, which has no zone, gets the type of the dataset's column."""
    now = find_field(field.name, schema)
    if field.name in file.described.int96 and now is not None and pa.types.is_timestamp(now.type):
        return file.described.physical.field(field.name) if now.type.tz is None else field
    return field


def _nullable(fields: Sequence[pa.Field]) -> pa.Schema:
    """The fields as a schema whose new columns are nullable; NOT NULL is checked per file."""
    return dataframe_schema(pa.schema(fields))


def _bare(fields: Sequence[pa.Field]) -> pa.Schema:
    return without_metadata(pa.schema(fields))


def _one_per_schema(found: Sequence[FoundFile]) -> Iterator[FoundFile]:
    """The first file of each schema, because many files have few schemas."""
    seen: set[ForeignSchema] = set()
    for one in found:
        if one.file.described not in seen:
            seen.add(one.file.described)
            yield one


# --- Existing files that are added: checks that they fit the dataset, and describes them.


class CheckedRecorder:
    """Checks files against the dataset's schema, and describes them as the catalog records them."""

    def __init__(
        self,
        write_id: str,
        schema: pa.Schema,
        partition_by: tuple[str, ...],
        *,
        is_listed: bool = False,
    ) -> None:
        """`is_listed`: a log, and no folder, tells the files and their partition values. Columns
        of a file that the schema lacks are not read, nor is a partition column that a file has.
        """
        self.write_id = write_id
        self.schema = schema
        self.partition_by = partition_by
        self._is_listed = is_listed
        # Per schema of files: how to describe the files, and what their statistics must show.
        self._known: dict[ForeignSchema, tuple[Recorder, list[ToShow]]] = {}

    def describe(self, one: FoundFile) -> FileMetadata:
        """What the catalog records of a file.

        Raises:
            SchemaMismatchError: it does not fit the dataset.
            InvalidOptionError: a folder's name is not a value of the partition column.
        """
        if one.file.described not in self._known:
            self._known[one.file.described] = self._check(one.file)
        recorder, to_show = self._known[one.file.described]
        for wanted in to_show:
            if not one.file.shows(wanted):
                raise _not_shown(one.file.schema.field(wanted.column), wanted)
        values = self._partition_values(one)
        path = one.given.path
        if one.given.is_copied:
            folder, name = partition_folder(values), copy_name(self.write_id)
            path = f"{folder}/{name}" if folder else name
        return recorder.record(one.file, path, values)

    def _check(self, file: ForeignFile) -> tuple[Recorder, list[ToShow]]:
        stored = [
            zoned_as(field, self.schema, file)
            for field in file.schema
            if find_name(field.name, self.partition_by) is None
        ]
        wanted = [field for field in self.schema if field.name not in self.partition_by]
        if self._is_listed:
            stored = known_fields(stored, wanted)
        to_show = check_reads_exactly(stored, wanted)
        return Recorder(file.described, self.schema, self.partition_by), to_show

    def _partition_values(self, one: FoundFile) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in self.partition_by:
            field = self.schema.field(name)
            key = find_name(name, one.texts)
            assert key is not None  # the keys were compared with the partition columns
            value = typed_value(one.texts[key], field.type, key, one.given.shown)
            if value is None and not field.nullable:
                raise SchemaMismatchError(
                    column=name,
                    expected=field.type,
                    reason="is not nullable and the folder's name says NULL",
                    hint="Move the file to a folder with a value.",
                )
            if not self._is_listed:
                _check_in_file(one.file, field, value)
            values[name] = value
        return values


def _not_shown(field: pa.Field, wanted: ToShow) -> SchemaMismatchError:
    if wanted.type is None:
        return SchemaMismatchError(
            column=field.name,
            expected=field.type,
            reason="is not nullable and the file may have NULL values",
            hint="Add it with schema_merge=True, which makes the column nullable.",
        )
    return SchemaMismatchError(
        column=field.name,
        expected=wanted.type,
        got=field.type,
        reason=f"is {wanted.type} and the file has {field.type}: its statistics do not show that "
        "each value fits",
        hint="Write the file's rows with write_dataset, which checks each value.",
    )


def _check_in_file(file: ForeignFile, field: pa.Field, value: Any) -> None:
    """Check a partition column that the file stores too: each row must have the folder's value."""
    stored = find_field(field.name, file.schema)
    if stored is None:
        return
    ordinal = None if value is None else to_ordinal(value, field.type)
    if not file.holds_only(stored.name, ordinal, field.type):
        raise SchemaMismatchError(
            column=field.name,
            expected=field.type,
            got=stored.type,
            reason=f"is in the file too, whose statistics do not show that each row has {value!r}",
            hint="With partitioning=None the folders' names do not count.",
        )
