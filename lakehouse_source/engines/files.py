"""Verb. Decides which files of a scan an engine reads by itself, and which rows it is given.

An engine's own Parquet reader is faster than one in Python, and prunes by the filters that
a query adds. It must give the rows that plake gives. So a file goes to the engine only if

    - it is on a local disk, where engines need no credentials;
    - none of its rows is deleted by a vector, or the engine can tell rows by their positions;
    - the types of its columns mean the same to every engine (`is_plain`);
    - every promotion of a column since then is an exact cast in every engine;
    - no float column that is read can hold NaN: DuckDB and DataFusion skip row groups by
      footer statistics, which leave NaN out;
    - all its rows match, or the condition means the same in every engine (`is_portable`);
    - where there are very many files with deleted rows, it is one of the largest.

The rows of all other files are read by plake and handed over as an Arrow table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa

from lakehouse_source.errors import (
    CorruptDatasetError,
    InvalidOptionError,
    SchemaMismatchError,
    StorageError,
)
from lakehouse_source.language.bounds.bound import (
    BoundConstant,
    BoundIn,
    BoundIsNull,
    BoundLeaf,
    BoundLike,
    BoundNode,
    BoundPredicate,
    BoundText,
    IfPresent,
    parts,
)
from lakehouse_source.model import ColumnBounds, ScanTask
from lakehouse_source.parquet.checked_footer import open_footer
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.parquet.open_file import deleted_rows
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.schema.align import by_id
from lakehouse_source.schema.arrow_arrays import concatenated, rows_alone
from lakehouse_source.schema.defaults import initial_ordinal
from lakehouse_source.schema.fields import (
    children,
    is_metadata,
    is_nested,
    is_same_with_ids,
    leaves,
)
from lakehouse_source.schema.ordinal import PythonValue, domain, from_ordinal
from lakehouse_source.schema.partitions import partition_ordinal
from lakehouse_source.schema.types import card
from lakehouse_source.schema.variant import is_variant
from lakehouse_source.schema.variant_storage import as_arrows, as_json
from lakehouse_source.storage import Storage

# --- Which types, and which casts, mean the same to plake and to every engine.


def is_plain(type_: pa.DataType, has_variant: bool = False) -> bool:
    """Tell whether every engine, or one that has VARIANT, reads the type as the same values."""
    t = pa.types
    if t.is_struct(type_) or t.is_list(type_):
        return all(is_plain(child.type, has_variant) for child in children(type_))
    return card(type_).engines or (has_variant and is_variant(type_))


def is_exact_cast(stored: pa.Field, now: pa.Field) -> bool:
    """Tell whether an engine's cast from one type to the other gives plake's values."""
    if is_nested(now.type):
        return is_same_with_ids(stored.type, now.type)
    t, old, new = pa.types, stored.type, now.type
    return bool(
        old.equals(new)
        or (t.is_integer(old) and t.is_integer(new) and old.bit_width < new.bit_width)
        or (t.is_float32(old) and t.is_float64(new))
    )


# --- Which conditions and literals mean the same in every engine.


# Kinds of `ordinal.Domain` that every engine orders as plake does.
_PORTABLE = ("bool", "int", "string", "date", "timestamp", "decimal")


# Engines walk a condition recursively: a condition with thousands of terms could crash the process.
LARGEST_CONDITION = 200


def is_portable(node: BoundNode) -> bool:
    """Tell whether a condition is short and means the same in every engine.

    These do not: floats, because NaN and zeros differ; LIKE, because patterns differ; binaries;
    nested columns; and expressions. Temporal values have to be in the years that Python knows,
    because literals are made from Python's values.
    """
    found = list(parts(node))
    return len(found) <= LARGEST_CONDITION and all(map(_is_portable, found))


def _is_portable(part: BoundNode) -> bool:
    if isinstance(part, BoundConstant):
        return True
    if not isinstance(part, BoundLeaf) or isinstance(part, BoundLike):
        return False
    column = part.column
    if len(column.path) > 1:
        return False
    if isinstance(part, (BoundIsNull, IfPresent)):
        return column.kind in (*_PORTABLE, "float", "binary")
    if column.kind not in _PORTABLE:
        return False
    if isinstance(part, BoundText):
        return column.kind == "string" and _is_text(part.text)
    values = part.values if isinstance(part, BoundIn) else (part.value,)
    return all(is_literal(from_ordinal(value, column.type), column.type) for value in values)


def _is_text(value: bytes) -> bool:
    """Tell whether bytes are text that SQL can hold."""
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def is_literal(value: PythonValue, type_: pa.DataType) -> bool:
    """Tell whether every engine can be given a value: `from_ordinal` leaves far years as int."""
    if domain(type_).kind in ("date", "timestamp"):
        return isinstance(value, date)  # a datetime is one
    return not isinstance(value, bytes) and not (isinstance(value, str) and "\0" in value)


# Engines plan each scan of a query separately. 1,000 scans of a file with one row took DuckDB
# 2.9 s, DataFusion 5.1 s and Polars 7.3 s. The partitions of further groups are found by the paths
# of the files.
_MOST_GROUPS = 256
# Names that no column of a file may have where partitions are found by paths.
PATH = "plake path"
_OWN = "plake "


@dataclass(frozen=True, slots=True)
class Source:
    """Where a column of the version comes from in some files.

    `stored` is the field of the files that holds it. Without one, each row has `constant`:
    a partition value, the default of a column that the files lack, or None for NULL. With
    `by_file`, a column of the table `FileGroup.partitions` has the value instead.
    """

    field: pa.Field
    stored: pa.Field | None
    constant: PythonValue | None = None
    by_file: str | None = None

    @property
    def is_cast(self) -> bool:
        """Tell whether the files hold the column in another type."""
        return self.stored is not None and not self.stored.type.equals(self.field.type)


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that an engine reads alike: absolute paths, and the source of each column.

    `filtered`: the condition must be applied. Then the sources of the columns to return are
    followed by those of further columns, which only the condition names. `deleted` are the
    positions of rows to leave out; then there is one file. `partitions` has a row for each file:
    its path in the column `PATH`, and the partition values that differ from file to file.
    """

    paths: tuple[str, ...]
    sources: tuple[Source, ...]
    filtered: bool
    deleted: pa.Array | None = None
    partitions: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine can be given.

    `is_path` tells whether it reads a text as the path of one file. Its queries have one
    scan for each group of files. `position` is the name under which the engine gives the
    position of a row in its file, which no column may have; None: it gives none. `lacks` tells
    whether it has no type for the values of a type that is not nested. Without `has_variant` it
    gets JSON texts.
    """

    is_path: Callable[[str], bool]
    position: str | None = None
    name: str = "the engine"
    lacks: Callable[[pa.DataType], bool] = lambda _type: False
    has_tables_without_columns: bool = True
    has_variant: bool = False

    def rows(self, table: pa.Table) -> pa.Table:
        """Rows that plake read, with types that the engine has."""
        return as_arrows(table) if self.has_variant else as_json(table)


@dataclass(frozen=True, slots=True)
class HandOver:
    """What an engine gets for a scan: groups of files, and the rows of all other files."""

    schema: pa.Schema
    groups: tuple[FileGroup, ...]
    condition: BoundPredicate | None
    rows: pa.Table


Known = Mapping[int, ColumnBounds]


def without_columns(engine: Engine, row_count: int) -> HandOver:
    """What an engine gets for a scan that returns no columns: only the number of rows."""
    if not engine.has_tables_without_columns:
        raise InvalidOptionError(
            option="columns",
            value=[],
            reason=f"is no column, and {engine.name} has no tables without columns. Name one, or "
            "use count_rows().",
        )
    return HandOver(pa.schema([]), (), None, rows_alone(row_count))


def hand_over(
    spec: ReadSpec,
    tasks: Sequence[ScanTask],
    known: Sequence[Known],
    storage: Storage,
    *,
    oldest_schema: int,
    engine: Engine,
) -> HandOver:
    """Divide the tasks of a scan between an engine and plake, and read plake's part.

    `known` holds the `needed_bounds` of each task, `oldest_schema` is the number of
    the dataset's first schema.

    Raises:
        SchemaMismatchError: the engine has no type for a column.
        StorageError: a file is missing.
        CorruptDatasetError: a file is not the one that was committed.
    """
    for field in spec.output_schema:
        _check_has_type(engine, field, field.type)
    division = _Division(spec, storage, oldest_schema, engine)
    groups: dict[tuple[Any, ...], list[ScanTask]] = {}
    rest = []
    for task, bounds in zip(tasks, known or [{}] * len(tasks)):
        if division.is_for_engine(task, bounds):
            groups.setdefault(division.group_of(task), []).append(task)
        else:
            rest.append(task)
    smallest_first = sorted(groups, key=lambda key: sum(task.byte_count for task in groups[key]))
    joined: dict[tuple[Any, ...], list[ScanTask]] = {}
    for key in smallest_first[: max(0, len(groups) - _MOST_GROUPS)]:
        some = groups.pop(key)
        if division.may_join(some[0]):
            joined.setdefault(division.joined_group_of(some[0]), []).extend(some)
        else:
            rest += some
    rows = concatenated(list(read_all(spec, tuple(rest), storage)), spec.output_schema)
    rows = engine.rows(rows)
    return HandOver(
        rows.schema,
        (
            *(division.file_group(some) for some in groups.values()),
            *(division.joined_group(some) for some in joined.values()),
        ),
        spec.predicate,
        rows,
    )


def needed_bounds(schema: pa.Schema, names: Iterable[str]) -> frozenset[int]:
    """The ids of the floats in columns of a scan: their bounds tell whether they may be NaN."""
    wanted = set(names)
    return frozenset(
        leaf.id
        for leaf in leaves(schema)
        if leaf.path[0] in wanted and pa.types.is_floating(leaf.type) and not leaf.in_list
    )


def missing_file(path: str) -> StorageError:
    reason = "the file is missing: deleted by hand, or vacuumed while an old version was read"
    return StorageError(path=path, reason=reason)


def missing_engine(engine: str) -> InvalidOptionError:
    """The error of a method whose engine is not installed."""
    return InvalidOptionError(
        option="engine", value=engine, reason=f"is not installed: pip install 'plake[{engine}]'."
    )


def _check_has_type(engine: Engine, field: pa.Field, type_: pa.DataType) -> None:
    for child in children(type_):
        _check_has_type(engine, field, child.type)
    if engine.lacks(type_):
        raise SchemaMismatchError(
            column=field.name,
            got=field.type,
            reason=f"is {field.type}, for which {engine.name} has no type",
            hint="Name the other columns of the scan, or use to_table() or to_batches().",
        )


class _Division:
    """Decides about single files. What depends on their schema alone is decided once."""

    def __init__(self, spec: ReadSpec, storage: Storage, oldest: int, engine: Engine) -> None:
        self._spec = spec
        self._storage = storage
        self._oldest = oldest
        self._engine = engine
        names = dict.fromkeys([*spec.columns, *(spec.predicate.columns if spec.predicate else ())])
        self._fields = [spec.schema.field(name) for name in names]
        # The columns read of files whose rows all match (False), and of other files (True).
        self._names = {
            filtered: {field.name for field in self._read(filtered)} for filtered in (False, True)
        }
        self._floats = needed_bounds(spec.schema, names)
        condition = None if spec.predicate is None else spec.predicate.root
        self._portable = condition is None or is_portable(condition)
        self._reads_places = any(map(is_metadata, self._fields))
        self._stored: dict[int, dict[str, pa.Field | None] | None] = {}
        self._literal_partitions: dict[tuple[str | None, ...], bool] = {}
        self._paths: dict[str, str] = {}
        self._some_column_is_stored: dict[tuple[int, bool], bool] = {}
        self._defaults = {
            field.name: from_ordinal(ordinal, field.type)
            for field in self._fields
            if (ordinal := initial_ordinal(field)) is not None
        }

    def is_for_engine(self, task: ScanTask, bounds: Known) -> bool:
        """Tell whether the engine reads a file by itself.

        Raises:
            StorageError, CorruptDatasetError: it would, and the file is not the one committed.
        """
        filtered = _is_filtered(task)
        storage = self._storage
        if not storage.is_local or (filtered and not self._portable):
            return False
        if self._reads_places:
            return False
        if task.deleted is not None and not self._gives_positions(task.schema_version):
            return False
        if is_foreign(task.path):
            return False  # its columns are found by name and may have any types
        stored = self._columns(task.schema_version)
        if stored is None or any(bounds[id].may_contain_nan for id in self._floats):
            return False
        path, size_bytes = storage.path_and_size(task.path)
        if not self._engine.is_path(path):
            return False
        if not self._has_literals(task.partitions):
            return False
        kind = task.schema_version, filtered
        if kind not in self._some_column_is_stored:
            read = self._read(filtered)
            self._some_column_is_stored[kind] = any(stored[field.name] for field in read)
        if not self._some_column_is_stored[kind]:
            return False  # without a column of a file, an engine cannot count its rows
        if size_bytes is None:
            raise missing_file(storage.display(task.path))
        if size_bytes != task.size_bytes:
            raise CorruptDatasetError(
                path=storage.display(task.path),
                reason=f"it has {size_bytes} bytes, not {task.size_bytes}",
            )
        self._paths[task.path] = path  # kept: resolving a path looks at each of its folders
        if task.schema_version == self._oldest:
            return True
        # The file lacks a column that another commit added while the file was written.
        with storage.open_input(task.path) as file:
            footer = open_footer(file, storage.display(task.path))
        there = set(footer.metadata.schema.to_arrow_schema().names)
        return {field.name for field in stored.values() if field is not None} <= there

    def _gives_positions(self, schema_version: int) -> bool:
        """Tell whether the engine gives positions of rows in files of a schema."""
        position = self._engine.position
        names = self._spec.file_schemas[schema_version].names
        return position is not None and position not in {name.lower() for name in names}

    def group_of(self, task: ScanTask) -> tuple[Any, ...]:
        """What files that an engine reads alike have in common."""
        filtered = _is_filtered(task)
        named = zip(self._spec.partition_by, task.partitions)
        alone = task.path if task.deleted is not None else ""
        partitions = tuple(text for name, text in named if name in self._names[filtered])
        return task.schema_version, filtered, partitions, alone

    def file_group(self, tasks: Sequence[ScanTask]) -> FileGroup:
        """The files of tasks with the same `group_of`."""
        first = tasks[0]
        filtered = _is_filtered(first)
        values = self._values(first.partitions)
        sources = [
            Source(field, stored, values.get(field.name, self._defaults.get(field.name)))
            for field, stored in self._sources(first, filtered)
        ]
        paths = [self._paths[task.path] for task in tasks]
        deleted = None
        if first.deleted is not None:
            rows = deleted_rows(first.deleted, first.path, first.file_row_count, self._storage)
            deleted = pa.array(rows.to_array(), pa.int64())
        return FileGroup(tuple(paths), tuple(sources), filtered, deleted)

    def may_join(self, task: ScanTask) -> bool:
        """Tell whether the partitions of a file may be found by its path."""
        names = self._spec.file_schemas[task.schema_version].names
        own = any(name.lower().startswith(_OWN) for name in names)
        return task.deleted is None and not own

    def joined_group_of(self, task: ScanTask) -> tuple[Any, ...]:
        """What a group of files shares: all but the values of their partition columns."""
        return task.schema_version, _is_filtered(task)

    def joined_group(self, tasks: Sequence[ScanTask]) -> FileGroup:
        """The files of tasks with the same `joined_group_of`."""
        filtered = _is_filtered(tasks[0])
        names = {name: f"{_OWN}{n}" for n, name in enumerate(self._spec.partition_by)}
        sources = [
            Source(field, stored, self._defaults.get(field.name), names.get(field.name))
            for field, stored in self._sources(tasks[0], filtered)
        ]
        paths = [self._paths[task.path] for task in tasks]
        values = [self._values(task.partitions) for task in tasks]
        partitions = {
            source.by_file: pa.array([row[source.field.name] for row in values], source.field.type)
            for source in sources
            if source.by_file is not None
        }
        table = pa.table({PATH: pa.array(paths, pa.string()), **partitions})
        return FileGroup(tuple(paths), tuple(sources), filtered, partitions=table)

    def _sources(self, task: ScanTask, filtered: bool) -> list[tuple[pa.Field, pa.Field | None]]:
        """The columns to read, each with the field of the task's file that holds it."""
        stored = self._columns(task.schema_version)
        assert stored is not None
        return [(field, stored[field.name]) for field in self._read(filtered)]

    def _read(self, filtered: bool) -> list[pa.Field]:
        """The columns to return, and those of the condition if it must be applied."""
        return self._fields if filtered else self._fields[: len(self._spec.columns)]

    def _values(self, partitions: tuple[str | None, ...]) -> dict[str, PythonValue | None]:
        """The values of the partition columns that are read."""
        wanted = {field.name: field.type for field in self._fields}
        found: dict[str, PythonValue | None] = {}
        for name, text in zip(self._spec.partition_by, partitions):
            if name in wanted:
                ordinal = partition_ordinal(text, wanted[name])
                found[name] = None if ordinal is None else from_ordinal(ordinal, wanted[name])
        return found

    def _has_literals(self, partitions: tuple[str | None, ...]) -> bool:
        found = self._literal_partitions.get(partitions)
        if found is None:
            types = {field.name: field.type for field in self._fields}
            values = self._values(partitions).items()
            found = all(value is None or is_literal(value, types[name]) for name, value in values)
            self._literal_partitions[partitions] = found
        return found

    def _columns(self, version: int) -> dict[str, pa.Field | None] | None:
        """By column, the field of files of a schema that holds it; None: not for engines."""
        if version not in self._stored:
            self._stored[version] = self._find_columns(list(self._spec.file_schemas[version]))
        return self._stored[version]

    def _find_columns(self, stored: list[pa.Field]) -> dict[str, pa.Field | None] | None:
        found: dict[str, pa.Field | None] = {}
        for field in self._fields:
            source = None if field.name in self._spec.partition_by else by_id(field, stored)
            plain = is_plain(field.type, self._engine.has_variant)
            if not plain or (source and not is_exact_cast(source, field)):
                return None
            default = self._defaults.get(field.name)
            if source is None and default is not None and not is_literal(default, field.type):
                return None
            found[field.name] = source
        return found


def _is_filtered(task: ScanTask) -> bool:
    """Tell whether some rows of a task's file may not match."""
    return task.filtered or task.row_count != task.file_row_count
