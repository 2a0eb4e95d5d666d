"""Edge. Writes rows to files with DuckDB's `COPY`, named and recorded like plake's own files.

Only types that DuckDB writes exactly are accepted; each file's schema is then compared with the
dataset's. DuckDB gets partition values as a text that this module makes and reads back, because the
names of DuckDB's folders do not tell NULL from a text. Measured on DuckDB 1.5 and 2.0: a zoned
timestamp becomes microseconds, TIME and fixed-size types become others.
"""

from __future__ import annotations

import decimal
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse_source.errors import (
    InvalidOptionError,
    SchemaMismatchError,
    StorageError,
    needs_package,
)
from lakehouse_source.failpoints import reach
from lakehouse_source.generated import Counter
from lakehouse_source.model import ColumnBounds, FileMetadata, RowGroupMetadata
from lakehouse_source.parquet.footer import file_metadata
from lakehouse_source.parquet.names import is_of_write
from lakehouse_source.parquet.new_file import column_at, verify_stored
from lakehouse_source.parquet.read_write_specs import COMPRESSION, TARGET_FILE_SIZE_BYTES, WriteSpec
from lakehouse_source.parquet.writer import checked_rows, partition_values
from lakehouse_source.pruning.bounds import encode_row_group
from lakehouse_source.schema.defaults import has_write_default
from lakehouse_source.schema.fields import Leaf, children, field_id, find_field, is_nested, leaves
from lakehouse_source.schema.partitions import partition_folder
from lakehouse_source.schema.paths import walk
from lakehouse_source.schema.spark_metadata import has_lengths
from lakehouse_source.schema.texts import quoted, quoted_text
from lakehouse_source.schema.types import card
from lakehouse_source.storage import Storage

# --- The files of DuckDB's `COPY`: moved to plake's folders, checked, and recorded like plake's.
#
# Measured on DuckDB 1.5 and 2.0: statistics are left out if a float column holds NaN.


def relative(storage: Storage, path: str) -> str:
    return os.path.relpath(path, storage.root)


def described(spec: WriteSpec, storage: Storage, answer: Mapping[str, Any]) -> FileMetadata:
    """One file of COPY: moved to its partition's folder, verified, and read for its footer."""
    path = relative(storage, answer["filename"])
    partitions: dict[str, Any] = {}
    if spec.partition_by:
        texts = answer["partition_keys"]
        for name in spec.partition_by:
            partitions[name] = _partition_value(texts[name], spec.schema.field(name))
        path = _moved(storage, path, partition_folder(partitions))
    size = int(answer["file_size_bytes"])
    verify_stored(storage, path, size)
    with storage.open_input(path) as stored, storage.errors(path):
        file = pq.ParquetFile(stored)
        _check_schema(spec, storage.display(path), file.schema_arrow)
        nans = _nan_columns(spec.file_schema, file)
        recorded = file_metadata(
            file.metadata,
            path=path,
            file_size_bytes=size,
            schema=spec.file_schema,
            partitions=partitions,
            nan_columns=[frozenset(leaf.id for leaf in group) for group in nans],
        )
        groups = tuple(
            _with_bounds(group, file, leaves_with_nan, spec.file_schema)
            for group, leaves_with_nan in zip(recorded.row_groups, nans)
        )
    return replace(recorded, row_groups=groups)


def _moved(storage: Storage, path: str, folder: str) -> str:
    """Move a file to the folder that plake gives to its partition values."""
    before, _, name = path.rpartition("/")
    wanted = f"{folder}/{name}"
    if wanted != path:
        storage.rename_local(path, wanted)
        while before:
            storage.remove_local_folder(before)  # unless it is not empty, yet or again
            before = before.rpartition("/")[0]
    return wanted


def _check_schema(spec: WriteSpec, shown: str, stored: pa.Schema) -> None:
    """Check that a file has the types and field ids that the catalog will say it has."""
    wanted = list(walk(spec.file_schema))
    found = list(walk(stored))
    for (path, field), (_, other) in zip(wanted, found):
        same = is_nested(field.type) or field.type.equals(other.type)
        if not same or field_id(field) != field_id(other):
            raise SchemaMismatchError(
                column=".".join(path),
                expected=field.type,
                got=other.type,
                reason=f"is {other.type} (field id {field_id(other)}) in {shown}, as DuckDB wrote "
                f"it, and has to be {field.type} (field id {field_id(field)})",
                hint="Use writer='pyarrow'.",
            )
    if len(wanted) != len(found):
        raise StorageError(path=shown, reason=f"DuckDB wrote {len(found)} of {len(wanted)} fields")


def _nan_columns(schema: pa.Schema, file: pq.ParquetFile) -> list[list[Leaf]]:
    """Per row group the float columns that hold a NaN, found by reading them.

    The result of COPY cannot be trusted: DuckDB 1.5 misses a NaN that is not in the last row group
    of a file.
    """
    floats = [
        leaf for leaf in leaves(schema) if pa.types.is_floating(leaf.type) and not leaf.in_list
    ]
    return [
        [leaf for leaf in floats if pc.any(pc.is_nan(_column(file, number, leaf))).as_py()]
        for number in range(file.num_row_groups)
    ]


def _column(file: pq.ParquetFile, number: int, leaf: Leaf) -> pa.ChunkedArray:
    # Read whole: a dotted name could mean another column too.
    return column_at(file.read_row_group(number, columns=[leaf.path[0]]), leaf)


def _with_bounds(
    group: RowGroupMetadata, file: pq.ParquetFile, with_nan: Sequence[Leaf], schema: pa.Schema
) -> RowGroupMetadata:
    """The record of a row group, completed with bounds of columns for which DuckDB wrote none."""
    if not with_nan:
        return group
    lows, highs = json.loads(group.stats_min_json), json.loads(group.stats_max_json)
    for leaf in with_nan:
        column = _column(file, group.index, leaf)
        column = column.filter(pc.invert(pc.is_nan(column)))
        least = pc.min_max(column).as_py()
        if least["min"] is None or str(leaf.id) in lows:
            continue
        bounds = ColumnBounds(least["min"] or -0.0, least["max"] or 0.0, None, 0, True)
        low, high, _, _ = encode_row_group([(leaf, bounds)])
        lows.update(json.loads(low))
        highs.update(json.loads(high))
    order = [str(leaf.id) for leaf in leaves(schema)]

    def text(document: Mapping[str, Any]) -> str:
        ordered = {key: document[key] for key in order if key in document}
        return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    return replace(group, stats_min_json=text(lows), stats_max_json=text(highs))


def _partition_value(text: str, field: pa.Field) -> Any:
    """The value that a text of `_partition_sql` means, as Arrow gives it to Python.

    Raises:
        SchemaMismatchError: a date or a timestamp is outside of the years 1 to 9999.
    """
    if text == "n":
        return None
    value, t = text.removeprefix("v"), pa.types
    if t.is_string(field.type):
        return bytes.fromhex(value).decode()
    if t.is_decimal(field.type):
        return decimal.Decimal(value)
    if t.is_boolean(field.type):
        return value == "1"
    if t.is_date(field.type):
        column = pa.array([int(value)], pa.int32()).cast(field.type)
    elif t.is_timestamp(field.type):
        column = pa.array([int(value)]).cast(pa.timestamp("us", field.type.tz))
    else:
        return int(value)
    return partition_values(field.name, column)[0]


OLDEST = (1, 4)
# Before this version a partitioned COPY takes no file size, and a relation's COPY has no result.
COMPLETE = (2, 0)
_INPUT = "plake_rows"
# Longer texts cannot be names of folders: each byte takes two of at most 255 letters.
_LONGEST_TEXT_BYTES = 100
_CODECS = {"none": "uncompressed", "lz4": "lz4_raw"}


def check_duckdb_writes(spec: WriteSpec, storage: Storage) -> None:
    """Check that DuckDB can write the files of a write exactly as requested.

    Raises:
        InvalidOptionError: DuckDB is not installed or too old, the store is remote, or DuckDB
            cannot follow the layout.
    """
    version = _version()

    def refused(reason: str) -> InvalidOptionError:
        return InvalidOptionError(
            option="writer", value="duckdb", reason=f"{reason} Use writer='pyarrow'."
        )

    if version < OLDEST:
        raise refused(f"needs DuckDB {OLDEST[0]}.{OLDEST[1]} or later.")
    if not storage.is_local:
        raise refused("writes local datasets only.")
    if spec.bloom_filter_columns:
        raise refused("cannot choose the columns with bloom filters (bloom_filter_columns).")
    other_size = spec.target_file_size_bytes != TARGET_FILE_SIZE_BYTES
    if other_size and spec.partition_by and version < COMPLETE:
        raise refused("needs DuckDB 2.0 for a file size in a partitioned dataset.")
    for field in spec.schema:
        if not _is_exact(field.type):
            raise SchemaMismatchError(
                column=field.name,
                got=field.type,
                reason=f"has type {field.type}, which DuckDB does not write exactly",
                hint="Use writer='pyarrow'.",
            )


def write_files_by_duckdb(
    spec: WriteSpec, batches: Iterable[pa.RecordBatch], storage: Storage
) -> list[FileMetadata]:
    """Write a stream of rows as `write_files` does; the rows are checked in the same way.

    Raises:
        SchemaMismatchError, StorageError: as `write_files` does.
    """
    check_duckdb_writes(spec, storage)
    import duckdb

    given, counter = 0, Counter(spec.numbers)
    failure: list[BaseException] = []

    def checked() -> Iterator[pa.RecordBatch]:
        nonlocal given
        try:
            for batch in batches:
                given += batch.num_rows
                yield from checked_rows(spec, batch, counter).to_batches()
        except BaseException as error:
            # If a stream raises inside DuckDB 2.0, DuckDB sometimes waits for ever. So the stream
            # just ends here, and the files are deleted.
            failure.append(error)

    reader = pa.RecordBatchReader.from_batches(_bare(spec.schema), checked())
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        if spec.sort_by and spec.partition_by:
            # Several threads would mix the sorted rows of a partition value.
            connection.execute("SET threads = 1")
        connection.register(_INPUT, reader)

        def check_complete(rows: int) -> None:
            if failure:
                # Removed from this list, because its traceback refers to the list and to the
                # stream.
                raise failure.pop()
            if rows != given:
                raise StorageError(
                    path=storage.display(""), reason=f"DuckDB wrote {rows} rows of {given} given"
                )

        sql = _copy(spec, storage, spec.schema.names)
        return _written(spec, storage, lambda: connection.execute(sql), check_complete)


def write_relation(spec: WriteSpec, relation: Any, storage: Storage) -> list[FileMetadata] | None:
    """Write the rows of a DuckDB relation, which stay inside DuckDB.

    None: the rows must be streamed as Arrow batches, because they need checks or conversions, or
    because DuckDB before 2.0 does not tell which files it wrote.

    Raises:
        StorageError: a file could not be written.
    """
    check_duckdb_writes(spec, storage)
    if _version() < COMPLETE or not _needs_no_check(spec, relation):
        return None
    sql = _copy(spec, storage, relation.columns)
    return _written(spec, storage, lambda: relation.query(_INPUT, sql), lambda _rows: None)


def _needs_no_check(spec: WriteSpec, relation: Any) -> bool:
    checks = spec.constraints or spec.generated or spec.numbers
    if spec.must_match is not None or checks or (spec.sort_by and spec.partition_by):
        return False
    types = dict(zip(relation.columns, map(str, relation.types)))
    for field in spec.schema:
        found = next((n for n in types if n.lower() == field.name.lower()), None)
        if not field.nullable or is_nested(field.type) or has_lengths(field):
            return False
        if found is None and has_write_default(field):
            return False
        if found is not None and types[found] != card(field.type).duckdb:
            return False
    return True


def _version() -> tuple[int, ...]:
    try:
        import duckdb
    except ImportError as error:
        raise needs_package("writer", "duckdb", "duckdb", "duckdb") from error
    parts = duckdb.__version__.split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


# --- types -----------------------------------------------------------------------


def _is_exact(type_: pa.DataType) -> bool:
    if is_nested(type_):
        exact = pa.types.is_list(type_) or pa.types.is_struct(type_) or pa.types.is_map(type_)
        return exact and all(_is_exact(child.type) for child in children(type_))
    return card(type_).duckdb is not None


def _bare(schema: pa.Schema) -> pa.Schema:
    return schema.remove_metadata()


# --- the statement ---------------------------------------------------------------


def _copy(spec: WriteSpec, storage: Storage, columns: Sequence[str]) -> str:
    """The COPY statement over the view `_INPUT`, which has `columns`."""
    given = [pa.field(name, pa.null()) for name in columns]
    selected = []
    for field in spec.schema:
        found = find_field(field.name, given)
        value = f"NULL::{card(field.type).duckdb}" if found is None else quoted(found.name)
        if field.name in spec.partition_by:
            value = _partition_sql(value, field)
        selected.append(f"{value} AS {quoted(field.name)}")
    order = ", ".join(
        f"{quoted(name)} ASC NULLS LAST" for name in spec.sort_by if name not in spec.partition_by
    )
    codec = (spec.compression or COMPRESSION).lower()
    options = [
        "FORMAT parquet",
        "RETURN_STATS",
        "APPEND",
        f"FILENAME_PATTERN {quoted_text(spec.write_id + '-{uuidv7}')}",
        f"COMPRESSION {quoted_text(_CODECS.get(codec, codec))}",
        f"ROW_GROUP_SIZE {spec.row_group_rows}",
        f"FIELD_IDS {{{', '.join(_field_ids(list(spec.file_schema)))}}}",
    ]
    if spec.partition_by:
        options.append(f"PARTITION_BY ({', '.join(map(quoted, spec.partition_by))})")
    if not spec.partition_by or _version() >= COMPLETE:
        options.append(f"FILE_SIZE_BYTES {spec.target_file_size_bytes}")
    return (
        f"COPY (SELECT {', '.join(selected)} FROM {_INPUT}"
        f"{' ORDER BY ' + order if order else ''}) "
        f"TO {quoted_text(storage.root)} ({', '.join(options)})"
    )


def _field_ids(fields: Sequence[pa.Field], names: Sequence[str] = ()) -> Iterator[str]:
    for position, field in enumerate(fields):
        name = quoted_text(names[position] if names else field.name)
        if not is_nested(field.type):
            yield f"{name}: {field_id(field)}"
            continue
        inner: Sequence[str] = ()
        if pa.types.is_map(field.type):
            inner = ("key", "value")
        elif pa.types.is_list(field.type):
            inner = ("element",)
        below = ", ".join(_field_ids(children(field.type), inner))
        yield f"{name}: {{__duckdb_field_id: {field_id(field)}, {below}}}"


# --- partition values --------------------------------------------------------------


def _partition_sql(column: str, field: pa.Field) -> str:
    """A text of letters, digits, `-` and `.`: `n` for NULL, else `v` and the value."""
    t, type_ = pa.types, field.type
    if t.is_string(type_):
        bytes_ = f"encode({column})"
        refusal = quoted_text(
            f"a value of partition column {field.name} is longer than {_LONGEST_TEXT_BYTES} "
            "bytes. Use writer='pyarrow'"
        )
        value = (
            f"CASE WHEN octet_length({bytes_}) > {_LONGEST_TEXT_BYTES} THEN error({refusal}) "
            f"ELSE hex({bytes_}) END"
        )
    elif t.is_boolean(type_):
        value = f"CAST(CAST({column} AS INTEGER) AS VARCHAR)"
    elif t.is_date(type_):
        value = f"CAST({column} - DATE '1970-01-01' AS VARCHAR)"
    elif t.is_timestamp(type_):
        # Microseconds for each unit: epoch_ms(TIMESTAMP_MS) fails in DuckDB 2.0.1. NULL is a moment
        # that DuckDB calls infinite, or one outside of the range of microseconds.
        wide = card(pa.timestamp("us", type_.tz)).duckdb
        micros = f"epoch_us(TRY_CAST({column} AS {wide}))"
        value = f"CAST(coalesce({micros}, {2**63 - 1}) AS VARCHAR)"
    else:
        value = f"CAST({column} AS VARCHAR)"
    return f"CASE WHEN {column} IS NULL THEN 'n' ELSE 'v' || {value} END"


# --- what was written -----------------------------------------------------------


def _written(
    spec: WriteSpec,
    storage: Storage,
    copy: Callable[[], Any],
    check_complete: Callable[[int], None],
) -> list[FileMetadata]:
    """Run COPY and describe its files, which are then complete and durable.

    `check_complete` gets the number of rows written. If it raises, the files are deleted.
    """
    import duckdb

    storage.make_local()
    try:
        try:
            result = copy()
            names = [column[0] for column in result.description]
            answers = [dict(zip(names, row)) for row in result.fetchall()]
        except duckdb.Error as error:
            raise StorageError(path=storage.display(""), reason=str(error)) from error
        check_complete(sum(answer["count"] for answer in answers))
        reach("files closed")
        files = [described(spec, storage, answer) for answer in answers if answer["count"]]
        for answer in answers:
            if not answer["count"]:
                storage.delete(relative(storage, answer["filename"]))
        if files:
            storage.sync_folders(file.path for file in files)
        reach("folders synced")
        return files
    except BaseException:
        _discard(spec, storage)
        raise


def _discard(spec: WriteSpec, storage: Storage) -> None:
    """Delete the files of a write that failed. Vacuum deletes those that cannot be deleted now."""
    with suppress(StorageError):
        for file in list(storage.files()):
            if is_of_write(file.path, spec.write_id):
                with suppress(StorageError):
                    storage.delete(file.path)
