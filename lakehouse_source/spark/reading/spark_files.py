"""Door. Decides whether Spark's own Parquet reader can read a scan, and is faster.

The planner extension asks when Spark makes a physical plan (`planner/src/io/plake/spark/reader/
ChooseReader.java`). Spark's reader has less precise values for some types, and reads the files as
stored. If rows of a file are deleted, or columns were renamed, added or promoted after the file was
written, the answer says so, and the extension turns the rows of Spark's reader into the version's
rows (`PlakeParquet.java`). Spark's reader is chosen only if this gives exactly plake's rows for
every file of the scan. Python reads all other scans. `spark_files.py` decides whether Spark's
reader is also faster.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import PlakeError
from lakehouse_source.language import PredicateSet
from lakehouse_source.language.bounds.bound import (
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundIn,
    BoundJoined,
    BoundNode,
    BoundOr,
    BoundPredicate,
)
from lakehouse_source.model import ColumnBounds, Ordinal, ScanTask
from lakehouse_source.parquet.names import is_foreign, own_name
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.plan import ScanPlan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.align import by_id
from lakehouse_source.schema.defaults import initial_default, initial_ordinal
from lakehouse_source.schema.fields import (
    children,
    field_id,
    hidden_columns,
    is_nested,
    is_same_with_ids,
    leaves,
    may_be_hidden,
)
from lakehouse_source.schema.partitions import partition_ordinal
from lakehouse_source.schema.types import card
from lakehouse_source.spark.protocol.vocabulary import Files, MetadataColumn, ScanResponse
from lakehouse_source.spark.reading.pushdown import Pushdown
from lakehouse_source.spark.reading.task_read import ResponsePartition, counts
from lakehouse_source.spark.types import as_text, narrowed_structs, spark_schema
from lakehouse_source.storage import (
    Storage,
    canonical_uri,
    check_relative,
    local_path,
    shared_folder,
    split_shared,
)

# The most footers that are read to learn the codecs of writes, one for each write.
MOST_WRITES = 256
# Spark's Parquet library has no other codecs.
CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4", "LZ4_RAW"})


# How files store columns that have changed since: the column's name in the files, or its value as
# text if the files lack the column. Pickled for the planner extension.
Layout: TypeAlias = dict[str, list[str | None]]
# Each layout has a reader of its own in every task.
MOST_LAYOUTS = 32


class Unsuited(Exception):
    """Spark's reader must not read the scan. The text gives the reason, for `explain()`."""


class SparkFiles(ResponsePartition):
    """The answer: files for Spark's reader."""


def spark_files(
    pushdown: Pushdown, snapshot: Snapshot, plan: ScanPlan, where: str | None
) -> SparkFiles:
    """The files of a planned scan, for Spark's reader.

    Args:
        where: a condition that only plake's reader applies.

    Raises:
        Unsuited: Spark's reader would not give the same rows.
    """
    _check_request(pushdown, where)
    tasks = plan.tasks
    columns = _Columns(pushdown, snapshot)
    layouts = _Layouts(columns, tasks)
    if not pushdown.changed_files:
        layouts.check_plain(tasks)
    roots = _roots(plan)
    _check_files(roots, tasks)
    _check_codecs(Storage(plan.spec.uri), tasks)
    values: dict[tuple[str | None, ...], int] = {}
    values_of = [values.setdefault(columns.values(task), len(values)) for task in tasks]
    total = plan.pruning.files_total
    note = f"{len(tasks):,} of {total:,} file{'' if total == 1 else 's'}"
    cut = sum(task.deleted is not None for task in tasks)
    if cut:
        note += f", {cut:,} with deleted rows"
    changed = sum(layouts.is_changed(number) for number in layouts.of_tasks)
    if changed:
        note += f", {changed:,} with other columns"
    return SparkFiles(
        {
            ScanResponse.ROW_COUNT: plan.pruning.rows_read,
            ScanResponse.BYTE_COUNT: plan.pruning.bytes_read,
            ScanResponse.COUNTS: counts(plan.pruning),
            ScanResponse.NOTE: note,
            Files.ROOT: "file:" + roots.pop(None),
            Files.PATHS: [task.path for task in tasks],
            Files.ORIGINS: {shared_folder(one or 0): roots[one] for one in roots},
            Files.SIZES: [task.size_bytes for task in tasks],
            Files.PARTITIONED: [field.name for field in columns.partitioned],
            Files.VALUES: [list(row) for row in values],
            Files.VALUES_OF: values_of,
            Files.LAYOUTS: layouts.all,
            Files.LAYOUT_OF: layouts.of_tasks,
            Files.DELETED: [_vector(task) for task in tasks],
            Files.UNPUSHED: sorted(columns.unpushed),
            Files.PLACES: dict(columns.places),
            Files.IDENTITIES: _identities(tasks, columns, plan) if columns.places else [],
        }
    )


def _check_request(pushdown: Pushdown, where: str | None) -> None:
    if pushdown.rows_only:
        raise Unsuited("rows are only counted")
    if pushdown.metadata and not pushdown.changed_files:
        raise Unsuited("the places of rows are read, and executors lack plake-planner.jar")
    if where is not None:
        raise Unsuited("the frame has a condition of its own")


# --- columns ---------------------------------------------------------------------


class _Columns:
    """The columns that a scan reads, and how files must hold them."""

    def __init__(self, pushdown: Pushdown, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.partition_by = snapshot.partition_by
        self.texts = snapshot.partition_texts()
        narrowed = narrowed_structs(pushdown.schema, snapshot.schema)
        fields = {field.name: field for field in snapshot.schema}
        self.places = pushdown.metadata
        self.wanted: list[pa.Field] = []
        columns = [one for one in pushdown.schema.fields if one.name not in self.places]
        for column in columns:
            if column.name not in fields:
                raise Unsuited(f"column {column.name} is not stored under this name")
            self.wanted.append(fields[column.name])
        parts = pa.schema([narrowed.get(field.name, field) for field in self.wanted])
        for column, own, field in zip(columns, spark_schema(parts), self.wanted):
            if not _is_plain(column.dataType) or own.dataType != column.dataType:
                raise Unsuited(f"column {column.name} is read as {column.dataType.simpleString()}")
            if not _is_readable(field.type):
                raise Unsuited(f"column {column.name} is stored as {field.type}")
        names = [field.name.lower() for field in self.wanted]
        if len(set(names)) < len(names):
            raise Unsuited("names of columns differ by case only")
        if self.places and any(may_be_hidden(name) for name in snapshot.schema.names):
            raise Unsuited("a column is named like those that tell the identity of a row")
        self.partitioned = [field for field in self.wanted if field.name in self.partition_by]
        for field in self.partitioned:
            if not card(field.type).text:
                raise Unsuited(f"column {field.name} is a partition column of type {field.type}")
        self.stored = [field for field in self.wanted if field.name not in self.partition_by]
        self.unpushed: set[str] = set()
        self._places = [self.partition_by.index(field.name) for field in self.partitioned]
        self._values: dict[tuple[Any, ...], tuple[str | None, ...]] = {}

    def layout(self, version: int) -> Layout:
        """How the files of a schema version store the columns."""
        schema = self.snapshot.file_schemas[version]
        fields = list(schema)
        lowered = [field.name.lower() for field in fields]
        dotted = any("." in name for one in fields for name in (one.name, *_names(one.type)))
        paths = [".".join(leaf.path) for leaf in leaves(schema)] if dotted else []
        ambiguous = {path for path in paths if paths.count(path) > 1}
        changed: Layout = {}
        for wanted in self.stored:
            stored = by_id(wanted, fields)
            name = wanted.name
            same_name = lowered.count(name.lower())
            if stored is None:
                value = self._initial(wanted)
                # Spark's reader gives NULL where the files have no column of this name.
                if value is not None or same_name or may_be_hidden(name):
                    changed[name] = [None, value]
                continue
            if lowered.count(stored.name.lower()) != 1:
                raise Unsuited(f"files have columns like {stored.name}")
            is_same = is_same_with_ids(stored.type, wanted.type)
            if not is_same and not (
                _is_readable(stored.type) and _widens(stored.type, wanted.type)
            ):
                raise Unsuited(f"files have column {name} as {stored.type}")
            if not is_same or stored.name != name:
                changed[name] = [stored.name, None]
            mine = {".".join(leaf.path) for leaf in leaves(pa.schema([stored]))} if dotted else ()
            if "." in name or ambiguous & {*mine} or any("." in p for p in _names(stored.type)):
                self.unpushed.add(name)
        return {**changed, **self._hidden(schema)}

    def _hidden(self, schema: pa.Schema) -> Layout:
        """The names of the hidden columns about moved rows in files of a schema."""
        row, version = hidden_columns(schema)
        names = {MetadataColumn.ROW: row.name, MetadataColumn.COMMIT: version.name}
        return {name: [names.get(kind), None] for name, kind in self.places.items()}

    def _initial(self, field: pa.Field) -> str | None:
        """The value of a column in files that lack it, as a text; None: NULL."""
        if initial_default(field) is None:
            return None
        if not card(field.type).text:
            raise Unsuited(f"files lack column {field.name}, which has a default")
        return as_text(initial_ordinal(field), field.type)

    def values(self, task: ScanTask) -> tuple[str | None, ...]:
        """The partition values of a file, as texts from which the extension makes Spark's."""
        if task.partitions not in self._values:
            self._values[task.partitions] = tuple(
                as_text(partition_ordinal(task.partitions[place], field.type), field.type)
                for place, field in zip(self._places, self.partitioned)
            )
        return self._values[task.partitions]


class _Layouts:
    """The layouts of the files of some tasks."""

    def __init__(self, columns: _Columns, tasks: Sequence[ScanTask]) -> None:
        self.all: list[Layout] = []
        numbers: dict[int, int] = {}
        for version in sorted({task.schema_version for task in tasks}):
            layout = columns.layout(version)
            if layout not in self.all:
                self.all.append(layout)
            numbers[version] = self.all.index(layout)
        if len(self.all) > MOST_LAYOUTS:
            raise Unsuited(f"files store the columns in more than {MOST_LAYOUTS} ways")
        self.of_tasks = [numbers[task.schema_version] for task in tasks]
        self._places = columns.places

    def is_changed(self, number: int) -> bool:
        """Tell whether files store a column in another way than the version has it."""
        return bool(self.all[number].keys() - self._places.keys())

    def check_plain(self, tasks: Sequence[ScanTask]) -> None:
        """Check that Spark's reader can read the files without the extension's classes."""
        for task, number in zip(tasks, self.of_tasks):
            if task.deleted is not None:
                raise Unsuited("files have deleted rows, and executors lack plake-planner.jar")
            for name in self.all[number]:
                raise Unsuited(
                    f"files store {name} otherwise, and executors lack plake-planner.jar"
                )


def _is_plain(type_: DataType) -> bool:
    """Tell whether a Parquet file without plake's metadata can have Spark's type."""
    if isinstance(type_, StructType):
        return all(not f.metadata and _is_plain(f.dataType) for f in type_.fields)
    if isinstance(type_, ArrayType):
        return _is_plain(type_.elementType)
    if isinstance(type_, MapType):
        return _is_plain(type_.keyType) and _is_plain(type_.valueType)
    if isinstance(type_, StringType):
        return type_.simpleString() == "string"
    return type(type_).__name__ in _PLAIN


_PLAIN = frozenset(
    f"{name}Type"
    for name in (
        *("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "Decimal"),
        *("Binary", "Date", "Timestamp", "TimestampNTZ", "Variant"),
    )
)


def _is_readable(type_: pa.DataType) -> bool:
    """Tell whether Spark's reader gives the values of a stored type as plake does."""
    t = pa.types
    if t.is_struct(type_) or t.is_list(type_) or t.is_large_list(type_) or t.is_map(type_):
        parts = children(type_)
        lowered = [part.name.lower() for part in parts]
        return len(set(lowered)) == len(lowered) and all(_is_readable(one.type) for one in parts)
    if is_nested(type_):
        return False
    return card(type_).spark


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Tell whether Spark's reader gives the values of an old type exactly in a new one.

    Source: `ParquetVectorUpdaterFactory` of Spark 4.1 to 4.3.
    """
    t = pa.types
    if t.is_signed_integer(old):
        return bool(
            (t.is_signed_integer(new) and new.bit_width >= old.bit_width)
            or (t.is_float64(new) and old.bit_width <= 32)
            or (t.is_decimal(new) and new.precision - new.scale >= (10, 20)[old.bit_width > 32])
        )
    if t.is_decimal(old) and t.is_decimal(new):
        more = new.scale - old.scale
        return bool(more >= 0 and new.precision - old.precision >= more)
    if t.is_date32(old):
        return bool(t.is_timestamp(new) and new.tz is None)
    return bool(t.is_float32(old) and t.is_float64(new))


def _names(type_: pa.DataType) -> list[str]:
    """The names of all fields in a type."""
    if not is_nested(type_):
        return []
    return [name for one in children(type_) for name in (one.name, *_names(one.type))]


# --- files -----------------------------------------------------------------------


def _roots(plan: ScanPlan) -> dict[int | None, str]:
    """The dataset's folder on this machine, and those of the datasets that it was cloned from."""
    where = plan.spec.uri
    uris: dict[int | None, str] = {None: where if isinstance(where, str) else where.given}
    if not isinstance(where, str):
        uris |= {origin: one.uri for origin, one in where.origins.items()}
    found = {}
    for origin, uri in uris.items():
        path = local_path(canonical_uri(uri))
        if path is None:
            raise Unsuited("the files are in an object store")
        found[origin] = path
    return found


def _check_files(roots: Mapping[int | None, str], tasks: Sequence[ScanTask]) -> None:
    """Check each file as plake's own reader does before it reads a file.

    If something is wrong, Python reads the scan, and fails with plake's error.
    """
    real_roots = {one: os.path.realpath(root).rstrip("/") + "/" for one, root in roots.items()}
    inside: dict[str, bool] = {}

    def check(path: str, size_bytes: int) -> None:
        folder = path.rpartition("/")[0]
        origin, path = split_shared(path)
        try:
            check_relative(path)
            root = roots[origin]
            found = os.lstat(f"{root}/{path}")
        except (PlakeError, OSError, KeyError):
            raise Unsuited("a file is missing") from None
        if folder not in inside:
            real = os.path.realpath(f"{root}/{path.rpartition('/')[0]}") + "/"
            inside[folder] = real.startswith(real_roots[origin])
        if not stat.S_ISREG(found.st_mode) or not inside[folder]:
            raise Unsuited("a file is a link")
        if found.st_size != size_bytes:
            raise Unsuited("a file has not the size in the catalog")

    for task in tasks:
        check(task.path, task.size_bytes)
        if is_foreign(task.path):
            raise Unsuited("plake did not write some files")
    puffins = {
        (task.deleted.path, task.deleted.size_bytes)
        for task in tasks
        if task.deleted is not None and task.deleted.blob is None
    }
    for path, size_bytes in sorted(puffins):
        check(path, size_bytes)


def _vector(task: ScanTask) -> list[Any] | None:
    """The place of a file's deletion vector."""
    found = task.deleted
    if found is None:
        return None
    copy = None if found.blob is None else found.blob.hex()
    place = [found.path, found.offset, found.length, copy]
    return [found.cardinality, task.file_row_count, *place]


def _identities(tasks: Sequence[ScanTask], columns: _Columns, plan: ScanPlan) -> list[list[Any]]:
    """The identity of each file's first row, the version that added it, its URI if that is read."""
    of_uri = MetadataColumn.FILE_URI in columns.places.values()
    storage = Storage(plan.spec.uri)
    found: list[list[Any]] = []
    for task in tasks:
        place = task.place
        assert place is not None  # a plan with metadata columns has it
        uri = storage.file_uri(task.path) if of_uri else None
        found.append([place.first_row_id, place.version, uri])
    return found


_known_writes: set[UUID] = set()


def _check_codecs(storage: Storage, tasks: Sequence[ScanTask]) -> None:
    """Read a footer of each write: all files of a write have the same codecs."""
    unknown: dict[UUID, str] = {}
    for task in tasks:
        name = own_name(task.path)
        if name is not None and name[0] not in _known_writes:
            unknown[name[0]] = task.path
    if len(unknown) > MOST_WRITES:
        raise Unsuited(f"more than {MOST_WRITES} writes made the files")
    for write, path in unknown.items():
        try:
            with storage.open_input(path) as source:
                footer = pq.read_metadata(source)
        except (PlakeError, pa.ArrowException, OSError):
            raise Unsuited("a footer cannot be read") from None
        for group in range(min(1, footer.num_row_groups)):
            for column in range(footer.num_columns):
                codec = footer.row_group(group).column(column).compression
                if codec not in CODECS:
                    raise Unsuited(f"a file is compressed by {codec}")
        _known_writes.add(write)


# --- Decides which reader is faster for a scan that Spark's and Python's readers read alike.
#
# Spark's reader decodes whole row groups faster, and starts faster. Python's reader reads the
# columns of a condition first and then only matching rows, and prunes by the keys of joins: this
# pays if much would be decoded otherwise. The catalog knows how many rows are left and how they are
# clustered. A wrong estimate costs only time.


# Rows times columns. Spark decodes this many values in the extra time that Python's reader needs to
# start. Measured on TPC-H at scale 1: queries over tables with fewer values took 1.1 to 1.6 x the
# time of native Parquet with Python's reader and 0.8 to 1.2 x with Spark's.
FEW_VALUES = 8_000_000
# If at most this share of the rows matches, Python's reader does not decode most rows.
FEW_MATCHES = 0.01
# Keys of a join are worth planning for if a value is in at most this part of the rows.
CLUSTERED = 0.5
# Reading this many takes less time than planning the scan again with keys of a join.
FEW_ROW_GROUPS = 3
# The statistics of row groups are used if there are at most this many.
MOST_ROW_GROUPS = 10_000
_SAMPLED_GROUPS = 16

LookUp = Callable[[int], ColumnBounds]


def is_small(pushdown: Pushdown, plan: ScanPlan) -> bool:
    """Tell whether Spark's reader is faster for every condition and every join.

    With a limit Spark stops within the first rows.
    """
    values = plan.pruning.rows_read * len(plan.spec.columns)
    return pushdown.limit is not None or values <= FEW_VALUES


def check_matches(reader: CatalogReader, snapshot: Snapshot, plan: ScanPlan) -> None:
    """Check that many rows match.

    Raises:
        Unsuited: Python's reader is likely to be faster.
    """
    bound = plan.spec.predicate
    if bound is None or plan.pruning.row_groups_read > MOST_ROW_GROUPS:
        return
    if share_of_matches(bound.root, _row_groups(reader, snapshot, bound)) < FEW_MATCHES:
        raise Unsuited("few rows match")


def needs_statistics(plan: ScanPlan) -> bool:
    """Tell whether `check_matches` may refuse, so that it has to read the catalog."""
    return plan.spec.predicate is not None and has_points(plan.spec.predicate.root)


def key_columns(
    reader: CatalogReader, snapshot: Snapshot, plan: ScanPlan, names: Sequence[str]
) -> tuple[str, ...] | None:
    """The columns of `names` by which rows are clustered; None: this is not known.

    Keys of a join that Spark finds while a query runs can prune much of the scan by these columns.
    Spark spends time on every column that may have such keys.
    """
    if plan.pruning.row_groups_read < FEW_ROW_GROUPS:
        return ()
    if plan.pruning.row_groups_read > MOST_ROW_GROUPS:
        return None
    bound = plan.spec.predicate or PredicateSet.of(None).bind(snapshot.schema)
    groups = _row_groups(reader, snapshot, bound)

    def share(name: str) -> float:
        id = field_id(snapshot.schema.field(name))
        return 0 if id is None else share_of_a_value([(n, of(id)) for n, of in groups])

    known = [name for name in names if name in snapshot.schema.names]
    return tuple(
        name for name in known if name in snapshot.partition_by or share(name) <= CLUSTERED
    )


def _row_groups(
    reader: CatalogReader, snapshot: Snapshot, bound: BoundPredicate
) -> list[tuple[int, LookUp]]:
    """The row groups that may hold matches: their rows, and the bounds of columns by id."""
    statistics = snapshot.statistics()
    return [
        (group.row_count, statistics.of(one.file, group))
        for one in candidates(reader, snapshot, bound, statistics=True)
        for group in one.row_groups
    ]


def has_points(node: BoundNode) -> bool:
    """Tell whether a condition names single values of a column whose values can be counted."""
    if isinstance(node, BoundJoined):
        return any(map(has_points, node.terms))
    if isinstance(node, BoundCompare):
        return node.op in ("=", "<=>") and isinstance(node.value, int)
    return isinstance(node, BoundIn) and all(isinstance(value, int) for value in node.values)


def share_of_matches(node: BoundNode, groups: Sequence[tuple[int, LookUp]]) -> float:
    """The largest expected share of matching rows; 1 if nothing is known."""
    total = sum(rows for rows, _ in groups)
    matches = sum(rows * _share(node, look_up) for rows, look_up in groups)
    return matches / total if total else 1.0


def _share(node: BoundNode, look_up: LookUp) -> float:
    """The matching share of a row group, if all values between the bounds are equally frequent."""
    if isinstance(node, BoundAnd):
        return min(_share(term, look_up) for term in node.terms)
    if isinstance(node, BoundOr):
        return min(1.0, sum(_share(term, look_up) for term in node.terms))
    if isinstance(node, BoundIn) and not node.has_nan:
        return _points(node.column, node.values, look_up)
    if isinstance(node, BoundCompare) and node.op in ("=", "<=>"):
        return _points(node.column, (node.value,), look_up)
    return 1.0


def _points(column: BoundColumn, values: Sequence[Ordinal], look_up: LookUp) -> float:
    bounds = look_up(column.id)
    lower, upper = bounds.lower, bounds.upper
    if not isinstance(lower, int) or not isinstance(upper, int):
        return 1.0
    inside = sum(isinstance(value, int) and lower <= value <= upper for value in values)
    return min(1.0, inside / (upper - lower + 1))


def share_of_a_value(groups: Sequence[tuple[int, ColumnBounds]]) -> float:
    """The average share of rows that are in row groups which may hold a value.

    It is small if rows are clustered by the column. The values are lower bounds of a sample of the
    row groups.

    Args:
        groups: the rows of each row group, and the bounds of the column over them.
    """
    total = sum(rows for rows, _ in groups)
    shares = [
        sum(rows for rows, bounds in groups if _may_hold(bounds, sampled.lower)) / total
        for _, sampled in groups[:: max(1, len(groups) // _SAMPLED_GROUPS)]
    ]
    return sum(shares) / len(shares) if shares else 1.0


def _may_hold(bounds: ColumnBounds, value: Ordinal | None) -> bool:
    if value is None or bounds.lower is None or bounds.upper is None:
        return True
    return bounds.lower <= value <= bounds.upper  # type: ignore[operator]
