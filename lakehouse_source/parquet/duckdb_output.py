"""Edge. The files of DuckDB's `COPY`: moved to plake's folders, checked, and recorded like plake's.

Measured on DuckDB 1.5 and 2.0: statistics are left out if a float column holds NaN.
"""

from __future__ import annotations

import decimal
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse_source.errors import SchemaMismatchError, StorageError
from lakehouse_source.model import ColumnBounds, FileMetadata, RowGroupMetadata
from lakehouse_source.parquet.footer import file_metadata
from lakehouse_source.parquet.new_file import column_at, verify_stored
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.parquet.writer import partition_values
from lakehouse_source.pruning.bounds import encode_row_group
from lakehouse_source.schema.fields import Leaf, field_id, is_nested, leaves
from lakehouse_source.schema.partitions import partition_folder
from lakehouse_source.schema.paths import walk
from lakehouse_source.storage import Storage


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
