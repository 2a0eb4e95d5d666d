"""Verb. The rows that callers give, and the files that are written from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa

from lakehouse_source.arguments import column_names, flag, mapping
from lakehouse_source.catalog import Catalog
from lakehouse_source.errors import InvalidOptionError, PlakeError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.duckdb_writer import write_files_by_duckdb, write_relation
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.progress import counted
from lakehouse_source.read.address import Address
from lakehouse_source.read.scan import Predicates
from lakehouse_source.schema.merge import (
    comes_from_dataframe,
    comes_from_values,
    dataframe_schema,
    schema_of_values,
    without_own_metadata,
)
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort
from lakehouse_source.write.commit.options import (
    LAYOUT_KEYWORDS,
    StagedWrite,
    WriteOptions,
    layout_of,
)

# --- Turns any source of rows into a stream of Arrow batches.
#
# A source that can be streamed is never read into memory as a whole.


TABULAR = (
    "a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas DataFrame, a Polars "
    "DataFrame or LazyFrame, a DuckDB relation, a DataFusion DataFrame, an object with "
    "__arrow_c_stream__, an iterable of record batches, a list of dicts or a dict of lists"
)


# Units of NumPy's moments that PyArrow takes.
_UNITS = ("s", "ms", "us", "ns")


def to_reader(data: Any, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Any tabular data as a stream of Arrow batches.

    Args:
        data: one of the kinds that `TABULAR` names.
        schema: the columns and types of the rows. Python values are built with it. Batches of an
            iterable must have this schema; by default it is that of the first batch. Data with its
            own schema must have this schema.
    """
    reader = _of_stranger(_reader(data, schema), data)
    if schema is not None and not reader.schema.equals(schema):
        raise InvalidOptionError(
            option="schema",
            reason=f"differs from the schema of the data. Given: {_line(schema)}. "
            f"The data has: {_line(reader.schema)}. Leave the option out, or cast the data.",
        )
    return reader


def opened_input(
    data: Any, schema: pa.Schema | None, writer: str
) -> tuple[pa.RecordBatchReader, Any]:
    """Tabular data as a stream, as `to_reader` gives it, and a relation for DuckDB or None.

    With a relation the stream is empty and has the relation's schema: DuckDB itself runs the query,
    only once.
    """
    library = type(data).__module__.partition(".")[0].lstrip("_")
    if writer == "duckdb" and library == "duckdb" and hasattr(data, "limit"):
        empty = to_reader(data.limit(0), schema)
        # `limit` renames one of two columns with the same name, which are refused below.
        if empty.schema.names == list(data.columns):
            return empty, data
    return to_reader(data, schema), None


def _reader(data: Any, schema: pa.Schema | None) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    library = type(data).__module__.partition(".")[0]
    if library in ("pandas", "polars") and type(data).__name__ == "Series":
        raise InvalidOptionError(
            option="data", reason="is a Series, one column. Give a frame: data.to_frame('name')."
        )
    if library == "pyarrow" and hasattr(data, "scanner"):
        return data.scanner().to_reader()
    if library == "pandas":
        frame = _with_index(data)
        built = _built("pandas data", pa.Table.from_pandas, frame, schema, preserve_index=False)
        return built if schema is not None else _of_dataframe(built)
    if library == "polars" and hasattr(data, "collect_schema") and hasattr(data, "lazy"):
        return _from_polars(data)
    if hasattr(data, "__arrow_c_stream__"):
        if library.lstrip("_") == "duckdb":
            _check_exported(data)
        return _of_dataframe(_stream(data))
    if isinstance(data, Mapping):
        return _of_values(_built("a dict of lists", pa.Table.from_pydict, data, schema), schema)
    if isinstance(data, (list, tuple)) and (not data or isinstance(data[0], Mapping)):
        return _from_rows(list(data), schema)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        return _from_batches(iter(data), schema)
    raise InvalidOptionError(
        option="data", reason=f"of type {type(data).__name__} is not tabular. Give {TABULAR}."
    )


def _with_index(data: Any) -> Any:
    """A pandas frame with its named index levels as its last columns, as in `to_parquet`.

    An unnamed integer index is only the row numbers that every frame has, unless it is one of
    several levels.
    """
    index = getattr(data, "index", None)
    if index is None or not hasattr(data, "columns"):
        return data
    kept: dict[str, Any] = {}
    for number, name in enumerate(index.names):
        values = index.get_level_values(number)
        if name is None:
            is_number = getattr(values.dtype, "kind", "O") in "iu" and len(index.names) == 1
            if not is_number and len(values):
                first = values.tolist()[0]
                raise InvalidOptionError(
                    option="data",
                    reason=f"is a pandas frame whose index has values ({first!r} first) and no "
                    "name. Name it, df.rename_axis('name'), or drop it, "
                    "df.reset_index(drop=True).",
                )
        elif str(name) in map(str, data.columns) or str(name) in kept:
            raise InvalidOptionError(
                option="data",
                reason=f"is a pandas frame with an index and a column that are both named "
                f"{str(name)!r}. Rename one, or drop the index: df.reset_index(drop=True).",
            )
        else:
            kept[str(name)] = values.array
    if not kept:
        return data
    return data.reset_index(drop=True).assign(**kept)


def _from_polars(data: Any) -> pa.RecordBatchReader:
    """A Polars frame. A lazy frame is computed in portions if this Polars can do that."""
    columns = data.collect_schema()
    for name, type_ in columns.items():
        # Of objects Polars would give addresses in its memory, and Arrow has no 128-bit integers.
        if any(word in str(type_) for word in ("Object", "Int128")):
            raise _no_arrow_type(name, type_)
    if not hasattr(data, "collect"):
        return _of_dataframe(_stream(data))
    if not hasattr(data, "collect_batches"):
        return _of_dataframe(_stream(data.collect()))
    schema = _stream(columns.to_frame()).schema

    def batches() -> Iterator[pa.RecordBatch]:
        for part in data.collect_batches(lazy=True):
            yield from _stream(part)

    return _of_dataframe(pa.RecordBatchReader.from_batches(schema, batches()))


def _check_exported(relation: Any) -> None:
    """Check that DuckDB gives Arrow the values that a relation has.

    DuckDB wraps large unsigned numbers around, drops the zone of a time, and gives its internal
    bytes for bits, large numbers and variants.
    """
    refused = ("uhugeint", "time with time zone", "bit", "bignum", "variant")
    for name, type_ in zip(relation.columns, relation.types):
        if not _ids_in(type_).isdisjoint(refused):
            raise _no_arrow_type(name, type_)


def _ids_in(type_: Any) -> set[str]:
    """The names of a DuckDB type and of all types in it."""
    nested = type_.id in ("list", "array", "struct", "map", "union")
    below = [child for _, child in type_.children if hasattr(child, "id")] if nested else []
    return {type_.id}.union(*map(_ids_in, below))


def _stream(data: Any) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowException as error:
        raise _cannot_take(f"of type {type(data).__name__}", error) from error


def _of_stranger(reader: pa.RecordBatchReader, data: Any) -> pa.RecordBatchReader:
    """The rows, without metadata that only plake's own catalog may set."""
    cleaned = without_own_metadata(reader.schema)
    is_arrow = type(data).__module__.partition(".")[0] == "pyarrow"
    if not is_arrow and comes_from_dataframe(reader.schema):
        cleaned = dataframe_schema(cleaned)  # `_of_dataframe` said so
    if not is_arrow and comes_from_values(reader.schema):
        cleaned = schema_of_values(cleaned)
    if cleaned.equals(reader.schema, check_metadata=True):
        return reader
    return pa.RecordBatchReader.from_batches(
        cleaned, (pa.RecordBatch.from_arrays(one.columns, schema=cleaned) for one in reader)
    )


def _of_dataframe(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Only PyArrow's own objects have a schema that declares NOT NULL on purpose."""
    return pa.RecordBatchReader.from_batches(dataframe_schema(reader.schema), reader)


def _of_values(reader: pa.RecordBatchReader, schema: pa.Schema | None) -> pa.RecordBatchReader:
    """Values of Python; Arrow chose their types if no schema is given."""
    if schema is not None:
        return reader
    return pa.RecordBatchReader.from_batches(schema_of_values(reader.schema), reader)


def _from_rows(rows: list[Any], schema: pa.Schema | None) -> pa.RecordBatchReader:
    """A list of dicts. A key that a row lacks is NULL there."""
    if not rows and schema is None:
        raise InvalidOptionError(
            option="data", reason="is an empty list, which has no columns. Give a schema too."
        )
    if schema is None:
        # Arrow takes the columns from the first row and drops what only later rows have.
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        return _of_values(_built("a list of dicts", pa.Table.from_pydict, columns, None), None)
    known = set(schema.names)
    unknown = dict.fromkeys(name for row in rows for name in row if name not in known)
    if unknown:
        raise InvalidOptionError(
            option="data",
            reason=f"has keys that the schema lacks: {', '.join(map(str, unknown))}.",
        )
    return _built("a list of dicts", pa.Table.from_pylist, rows, schema)


def _from_batches(items: Iterator[Any], schema: pa.Schema | None) -> pa.RecordBatchReader:
    """Batches or tables one by one; the first is taken at once where no schema is given."""
    if schema is None:
        first = next(items, None)
        if first is None:
            raise InvalidOptionError(
                option="data", reason="is empty and has no schema. Give a schema too."
            )
        if not isinstance(first, (pa.RecordBatch, pa.Table)):
            raise _no_batch(first)
        schema, items = first.schema, chain([first], items)

    def batches() -> Iterator[pa.RecordBatch]:
        for item in items:
            if not isinstance(item, (pa.RecordBatch, pa.Table)):
                raise _no_batch(item)
            if not item.schema.equals(schema):
                raise InvalidOptionError(
                    option="data",
                    reason=f"has batches of different schemas: {_line(schema)} and "
                    f"{_line(item.schema)}.",
                )
            yield from [item] if isinstance(item, pa.RecordBatch) else item.to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _built(what: str, build: Any, data: Any, schema: pa.Schema | None, **options: Any) -> Any:
    try:
        return build(data, schema=schema, **options).to_reader()
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
        named = _refused_value(data, schema) if isinstance(data, Mapping) else None
        raise _cannot_take(what, error) if named is None else named from error


def _refused_value(columns: Mapping[Any, Any], schema: pa.Schema | None) -> Exception | None:
    """An error that names a value of NumPy's that PyArrow misreads; None: there is none."""
    for name, values in columns.items():
        for value in values if isinstance(values, (list, tuple)) else ():
            if type(value).__name__ == "datetime64" and value.dtype.str[4:-1] not in _UNITS:
                return InvalidOptionError(
                    option="data",
                    reason=f"has {value!r} in the column {name!r}, whose unit Arrow does not take "
                    "from a single value. Give a date, or value.astype('datetime64[us]').",
                )
    return None


def _cannot_take(what: str, error: Exception) -> InvalidOptionError:
    return InvalidOptionError(option="data", reason=f"{what} that Arrow cannot take: {error}")


def _no_arrow_type(column: str, type_: object) -> InvalidOptionError:
    return InvalidOptionError(
        option="data",
        reason=f"has the column {column!r} of type {type_}, for which Arrow has no type. Cast or "
        "drop it.",
    )


def _no_batch(item: object) -> InvalidOptionError:
    return InvalidOptionError(
        option="data",
        reason=f"is an iterable that gives type {type(item).__name__}, which is not tabular. "
        f"Give {TABULAR}.",
    )


def _line(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


# --- Rows that a Python caller gives become the files of a write that has begun.


WRITERS = ("pyarrow", "duckdb")
HEARTBEAT_SECONDS = 600.0

T = TypeVar("T")

_FURTHER = (
    *(name for name in LAYOUT_KEYWORDS if name != "promote_to_string"),
    "index_columns",
    "overwrite_schema",
    "partition_overwrite_mode",
    "txn_app_id",
    "txn_version",
)
# Options that only plake's own code uses.
_INTERNAL = ("constraints", "managed", "register_as", "statement", "table_properties")


def write_options(
    *,
    mode: str = "append",
    partition_by: str | Sequence[str] | None = None,
    schema_merge: bool = False,
    promote_to_string: bool | None = None,
    overwrite_where: Predicates = None,
    writer: str = "pyarrow",
    commit_metadata: Mapping[str, Any] | None = None,
    expected_version: int | None = None,
    **further: Any,
) -> WriteOptions:
    """The keywords of `write_dataset`, checked, as options of a write."""
    if writer not in WRITERS:
        raise InvalidOptionError(
            option="writer", value=writer, reason="is not a writer.", known=WRITERS
        )
    options = _options(
        {**further, "promote_to_string": promote_to_string},
        mode=mode,
        partition_by=column_names("partition_by", partition_by),
        schema_merge=flag("schema_merge", schema_merge),
        overwrite_where=(
            None if overwrite_where is None else PredicateSet.of_change(overwrite_where)
        ),
        writer=writer,
        commit_metadata=dict(mapping("commit_metadata", commit_metadata or {})),
        expected_version=expected_version,
    )
    options.check()
    return options


def stage(
    catalog: Catalog,
    address: Address,
    rows: pa.RecordBatchReader,
    options: WriteOptions,
    *,
    relation: Any = None,
    progress: bool | None = False,
) -> tuple[StagedWrite, list[FileMetadata]]:
    """Begin a write and write its files. The caller has to commit or abort it.

    `rows` and `relation` are those of `opened_input`.

    Raises:
        PlakeError: the write was aborted.
    """
    staged = begin(catalog, address, rows.schema, options)

    def stream(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        counting = counted(
            rows, progress, label="writing", unit="rows", size=lambda batch: batch.num_rows
        )
        return with_heartbeat(counting, heartbeat_of(catalog, staged))

    try:
        if options.writer == "pyarrow":
            return staged, write_files(staged.spec, stream(rows))
        storage = Storage(staged.spec.uri)
        if relation is not None:
            files = write_relation(staged.spec, relation, storage)
            if files is not None:
                return staged, files
            rows = to_reader(relation)
        return staged, write_files_by_duckdb(staged.spec, stream(rows), storage)
    except BaseException as failure:
        # `write_files` has deleted the files that it had written.
        abort(catalog, staged, (), failure=failure)
        raise


def heartbeat_of(catalog: Catalog, staged: StagedWrite) -> Callable[[], None]:
    """A function that tells the catalog that a write goes on, for `with_heartbeat`."""

    def beat() -> None:
        with catalog.database.write() as tx:
            tx.heartbeat(staged.write_id)

    return beat


def with_heartbeat(
    items: Iterable[T], beat: Callable[[], None], check: Callable[[], object] = int
) -> Iterator[T]:
    """The same items; calls `beat` between two of them every `HEARTBEAT_SECONDS`.

    `check` is called for each, and may raise to end the write. No background thread does this: a
    write that gets no rows for a day must count as abandoned.
    """
    last = time.monotonic()
    for item in items:
        check()
        if time.monotonic() - last >= HEARTBEAT_SECONDS:
            # A failed heartbeat does not stop the write: the next one may succeed, and the commit
            # reports a catalog that stays unavailable.
            with suppress(PlakeError):
                beat()
            last = time.monotonic()
        yield item


def _options(further: dict[str, Any], **known: Any) -> WriteOptions:
    allowed = (*_FURTHER, *_INTERNAL, "promote_to_string")
    for name in further:
        if name not in allowed:
            raise InvalidOptionError(option=name, reason="is unknown.", known=_FURTHER)
    layout = layout_of({name: further.pop(name, None) for name in LAYOUT_KEYWORDS})
    given = {name: value for name, value in further.items() if value is not None}
    overwrite_mode = given.pop("partition_overwrite_mode", "static")
    if overwrite_mode not in ("static", "dynamic"):
        raise InvalidOptionError(
            option="partition_overwrite_mode",
            value=overwrite_mode,
            reason="is not a mode.",
            known=("static", "dynamic"),
        )
    dynamic = overwrite_mode == "dynamic" and known.get("mode") == "overwrite"
    return WriteOptions(
        **known,
        layout=layout,
        index_columns=column_names("index_columns", given.pop("index_columns", None)),
        **given,
        dynamic_partitions=dynamic,
    )
