"""Verb. Existing Parquet files become part of a dataset; they are not rewritten.

First all footers are read, and a file that cannot be added is refused, before the catalog
is changed. Then one commit adds all files, as an append does. The files stay where they
are and are never deleted: not when the commit fails, and not by vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.catalog import Catalog
from lakehouse_source.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidOptionError,
    SchemaMismatchError,
)
from lakehouse_source.model import FileMetadata, WriteResult
from lakehouse_source.parquet.foreign import FooterReader, ForeignFile, ForeignSchema, Recorder
from lakehouse_source.parquet.names import copy_name
from lakehouse_source.progress import counted
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import (
    dataframe_schema,
    find_field,
    find_name,
    initial,
    storage_type,
    without_metadata,
)
from lakehouse_source.schema.hive_folders import (
    folder_values,
    inferred_type,
    same_keys,
    typed_value,
)
from lakehouse_source.schema.merge import merge
from lakehouse_source.schema.name_mapping import ToShow, check_reads_exactly
from lakehouse_source.schema.ordinal import to_ordinal
from lakehouse_source.schema.partitions import partition_folder
from lakehouse_source.storage import Storage
from lakehouse_source.write.begin import begin
from lakehouse_source.write.commit import abort, commit
from lakehouse_source.write.find_files import GivenFile, Paths, find_files
from lakehouse_source.write.options import StagedWrite, WriteOptions
from lakehouse_source.write.stage import with_heartbeat

# Footers that are read at the same time. From a local disk there is nothing to wait for, and
# threads only compete for Python's lock: 10,000 files of 9 columns took 16 s with one thread
# and 19 to 25 s with eight. Requests to an object store are waited for.
_AT_ONCE_LOCAL = 1
_AT_ONCE_REMOTE = 16
_COPIED_BYTES = 8 << 20


# Answers the footer of each file, in the order of the files.
ReadFooters: TypeAlias = Callable[[Sequence[GivenFile]], Iterable[ForeignFile]]


@dataclass(frozen=True, slots=True)
class _Found:
    """A file to add: where it is, its footer, and its partition values as folders name them."""

    given: GivenFile
    file: ForeignFile
    texts: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class _Layout:
    """The schema of all files together (without ids), partition columns included."""

    schema: pa.Schema
    partition_by: tuple[str, ...]


def add_files(
    catalog: Catalog,
    address: Address,
    paths: Paths,
    options: WriteOptions,
    *,
    partitioning: str | None,
    partition_types: Mapping[str, pa.DataType] | None,
    copy: bool,
    progress: bool | None,
    is_new: bool,
    storage_options: Mapping[str, Any] | None = None,
    read_footers: ReadFooters | None = None,
) -> WriteResult:
    """Add files to a dataset in one commit; with `is_new` the dataset is made by it.

    `storage_options` are for files outside of the dataset. `read_footers` reads the footers
    of the files, in their order; by default threads of this process do.

    Raises:
        DatasetExistsError: the dataset exists and `is_new`.
        DatasetNotFoundError: it does not exist, and not `is_new`.
        InvalidOptionError: a path or another argument is wrong, or a file is in the dataset.
        CorruptDatasetError, StorageError: a file is damaged or cannot be read.
        SchemaMismatchError: a file does not fit the dataset.
        CommitConflictError, CommitUnknownError: as `commit` raises them.
    """
    if partitioning not in ("hive", None):
        raise InvalidOptionError(
            option="partitioning",
            value=partitioning,
            reason="is not a way to name folders.",
            known=("'hive'", "None"),
        )
    snapshot = _snapshot(catalog, address, is_new)
    root = Storage(address.location)
    given = find_files(root, paths, copy=copy, storage_options=storage_options)
    if snapshot is not None and options.txn_app_id is None:
        _check_not_live(catalog, snapshot, given)
    found = _inspect(given, partitioning, progress, read_footers or _read_footers_here)
    layout = (
        _new_layout(found, partition_types or {})
        if snapshot is None
        else _layout_in(snapshot, found, options, partition_types)
    )
    if snapshot is None:
        options = replace(options, partition_by=layout.partition_by)
    staged = begin(catalog, address, dataframe_schema(layout.schema), options)
    return commit(catalog, staged, _stage(catalog, staged, root, found, progress))


def _snapshot(catalog: Catalog, address: Address, is_new: bool) -> Snapshot | None:
    with catalog.read() as reader:
        try:
            snapshot = address.snapshot(catalog, reader)
        except DatasetNotFoundError:
            if is_new:
                return None
            raise
    if is_new:
        raise DatasetExistsError(dataset=address.uri)
    return snapshot


def _check_not_live(catalog: Catalog, snapshot: Snapshot, given: Sequence[GivenFile]) -> None:
    """Refuse files that are in the dataset already. The commit checks it again, under the lock."""
    with catalog.read() as reader:
        live = {file.path for file in reader.files(snapshot.dataset.id, snapshot.version)}
    for file in given:
        if not file.is_copied and file.path in live:
            raise InvalidOptionError(
                option="paths", value=file.shown, reason="is in the dataset already."
            )


def read_footer(reader: FooterReader, given: GivenFile) -> ForeignFile:
    """The footer of one file; errors name the file.

    Raises:
        CorruptDatasetError, StorageError, SchemaMismatchError
    """
    with _naming(given):
        return reader.read(given.storage, given.path)


def _read_footers_here(given: Sequence[GivenFile]) -> Iterator[ForeignFile]:
    reader = FooterReader()
    local = all(one.storage.is_local for one in given)
    width = _AT_ONCE_LOCAL if local else _AT_ONCE_REMOTE
    with ThreadPoolExecutor(width, thread_name_prefix="plake-footers") as pool:
        yield from pool.map(partial(read_footer, reader), given)


def _inspect(
    given: Sequence[GivenFile],
    partitioning: str | None,
    progress: bool | None,
    read_footers: ReadFooters,
) -> list[_Found]:
    # Checked first: folders with wrong names are refused before a footer is read.
    texts = [folder_values(one.folders, one.shown) if partitioning else {} for one in given]
    if partitioning:
        same_keys({one.shown: found for one, found in zip(given, texts)})
    footers = counted(
        read_footers(given), progress, label="reading footers", unit="files", total=len(given)
    )
    return [_Found(*found) for found in zip(given, footers, texts)]


class _naming:
    """Names the file in an error about its columns."""

    def __init__(self, given: GivenFile) -> None:
        self.given = given

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, SchemaMismatchError) and self.given.shown not in str(error):
            raise SchemaMismatchError(
                column=error.column,
                expected=error.expected,
                got=error.got,
                dataset=f"file {self.given.shown}",
                reason=error.reason,
                hint=error.hint,
            ) from error


# --- the schema of all files ---------------------------------------------------------


def _new_layout(found: Sequence[_Found], types: Mapping[str, pa.DataType]) -> _Layout:
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
            type_ = inferred_type(_text_of(one, key) for one in found)
        partitions.append(pa.field(key, type_))
    schema: pa.Schema | None = None
    for one in _one_per_schema(found):
        data = _nullable([f for f in one.file.schema if find_name(f.name, keys) is None])
        with _naming(one.given):
            schema = initial(data) if schema is None else _merged(schema, data, True)
    assert schema is not None  # `find_files` finds at least one file
    return _Layout(_bare([*schema, *partitions]), keys)


def _layout_in(
    snapshot: Snapshot,
    found: Sequence[_Found],
    options: WriteOptions,
    types: Mapping[str, pa.DataType] | None,
) -> _Layout:
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
        data = _nullable([_zoned_as(f, schema, one.file) for f in fields] + partitions)
        with _naming(one.given):
            schema = _merged(schema, data, options.schema_merge, snapshot.uri)
    return _Layout(_bare(list(schema)), names)


def _merged(
    schema: pa.Schema, data: pa.Schema, add_columns: bool, dataset: str | None = None
) -> pa.Schema:
    # Whether values fit is asked later: of the dataset's files by `begin`, of those that are
    # added by `_Checked`.
    return merge(
        schema,
        data,
        add_columns=add_columns,
        dataset=dataset,
        stored_values_fit=lambda _field, _type: True,
    )


def _zoned_as(field: pa.Field, schema: pa.Schema, file: ForeignFile) -> pa.Field:
    """The field; INT96, which has no zone, as the dataset's column has it."""
    now = find_field(field.name, schema)
    if field.name in file.described.int96 and now is not None and pa.types.is_timestamp(now.type):
        return file.described.physical.field(field.name) if now.type.tz is None else field
    return field


def _nullable(fields: Sequence[pa.Field]) -> pa.Schema:
    """The fields as data whose new columns are nullable; NOT NULL is checked per file."""
    return dataframe_schema(pa.schema(fields))


def _bare(fields: Sequence[pa.Field]) -> pa.Schema:
    return without_metadata(pa.schema(fields))


def _text_of(one: _Found, key: str) -> str | None:
    return one.texts[key]


def _one_per_schema(found: Sequence[_Found]) -> Iterator[_Found]:
    """The first file of each schema: many files have few schemas."""
    seen: set[ForeignSchema] = set()
    for one in found:
        if one.file.described not in seen:
            seen.add(one.file.described)
            yield one


# --- the files of the commit -----------------------------------------------------------


def _stage(
    catalog: Catalog,
    staged: StagedWrite,
    root: Storage,
    found: Sequence[_Found],
    progress: bool | None,
) -> list[FileMetadata]:
    """The files as the catalog records them, copied where they have to be.

    Raises:
        PlakeError: the write was aborted.
    """
    files: list[FileMetadata] = []
    copies: list[FileMetadata] = []

    def beat() -> None:
        with catalog.write() as tx:
            tx.heartbeat(staged.write_id)

    checked = _Checked(staged)
    counting = counted(found, progress, label="adding", unit="files", total=len(found))
    try:
        for one in with_heartbeat(counting, beat):
            with _naming(one.given):
                described = checked.describe(one)
            if one.given.is_copied:
                copies.append(described)
                _copy(one, described.path, root)
            files.append(described)
        if copies:
            root.sync_folders(file.path for file in copies)
        return files
    except BaseException as failure:
        abort(catalog, staged, copies, failure=failure)
        raise


class _Checked:
    """Files, checked against the dataset's schema, as the catalog records them."""

    def __init__(self, staged: StagedWrite) -> None:
        self.write_id = staged.write_id
        self.schema = staged.spec.schema
        self.partition_by = staged.spec.partition_by
        # Per schema of files: what describes them, and what their statistics must show.
        self._known: dict[ForeignSchema, tuple[Recorder, list[ToShow]]] = {}

    def describe(self, one: _Found) -> FileMetadata:
        """What the catalog records of a file.

        Raises:
            SchemaMismatchError: it does not fit the dataset.
            InvalidOptionError: a folder's name is no value of the partition column.
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
            _zoned_as(field, self.schema, file)
            for field in file.schema
            if find_name(field.name, self.partition_by) is None
        ]
        wanted = [field for field in self.schema if field.name not in self.partition_by]
        to_show = check_reads_exactly(stored, wanted)
        return Recorder(file.described, self.schema, self.partition_by), to_show

    def _partition_values(self, one: _Found) -> dict[str, Any]:
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
    """Check a column that the file has besides its folder's value: both must be the same."""
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


def _copy(one: _Found, path: str, root: Storage) -> None:
    given = one.given
    with (
        given.storage.open_input(given.path) as source,
        root.open_output(path) as sink,
        root.errors(path),
    ):
        while chunk := source.read(_COPIED_BYTES):
            sink.write(chunk)
    root.sync_file(path)
