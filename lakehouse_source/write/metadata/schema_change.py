"""Verb. Changes of a dataset's schema alone: one commit, no file is written or rewritten."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.arguments import flag
from lakehouse_source.catalog.base import Catalog, CatalogTransaction
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.constraints import retyped
from lakehouse_source.errors import InvalidOptionError, SchemaMismatchError
from lakehouse_source.generated import check_sources, defaults_of
from lakehouse_source.model import DatasetRecord, FileRecord, RowGroupMetadata, WriteResult
from lakehouse_source.pruning import keys
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.changes import (
    AddColumn,
    DropColumn,
    Facts,
    PromoteColumn,
    RenameColumn,
    ReorderColumns,
    SchemaChange,
    SetComment,
    SetDefault,
    SetNullable,
    SetSparkType,
    apply_all,
)
from lakehouse_source.schema.defaults import checked_default, initial_default
from lakehouse_source.schema.fields import (
    Leaf,
    field_id,
    find_field,
    leaves,
    max_id,
    storage_type,
)
from lakehouse_source.schema.json_values import parsed_object
from lakehouse_source.schema.partitions import PartitionTexts
from lakehouse_source.schema.paths import checked_path, shown
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.conflicts import Collision, schema_changed
from lakehouse_source.write.commit.evolution import (
    evolve_properties,
    has_no_file,
    stored_values_fit,
    with_names_of,
)
from lakehouse_source.write.commit.metadata_commit import NewMetadata, commit_metadata, conflict
from lakehouse_source.write.commit.options import check_sort_columns_stay
from lakehouse_source.write.commit.stored_rows import Suspects

Name: TypeAlias = str | Sequence[str]


class SchemaUpdate:
    """Several changes of a schema, committed as one version when the `with` block ends.

    No data file is read or written, and older versions are read with their own schema. Each change
    sees the ones before it. A change that cannot be made raises at once, or at the end of the block
    where it depends on stored values; nothing is committed then.

    Columns are matched without regard to case. A nested field is named by a path:
    `"address.street"`, `"tags.element"`, `"m.key"`, `"m.value"`, or a tuple of names.

    >>> with dataset.update_schema() as schema:
    ...     schema.rename_column("miles", "distance")
    ...     schema.promote_column("distance", pa.decimal128(19, 0))
    >>> schema.committed.version
    2
    """

    def __init__(self, address: Address, base: Snapshot, moved: Callable[[], object]) -> None:
        # `moved` is called after the commit.
        self._is_empty: bool | None = None
        self._result: WriteResult | None = None
        self._moved = moved
        self._address = address
        self._base = base
        self._changes: list[SchemaChange] = []
        self._schema = base.schema
        self._ids = _new_ids(base.dataset, base.schema)

    def add_column(
        self,
        name: Name,
        type: pa.DataType,
        *,
        default: Any = None,
        nullable: bool = True,
        comment: str | None = None,
    ) -> None:
        """Add a column, or a field of a struct, as the last one.

        These rows have `default` in the column (NULL without a default): rows that were written
        before, rows that are written later from data that lacks the column, and rows of files that
        `add_files` adds without the column. `default` is a Python value or Arrow scalar that the
        type holds exactly. A column that is not nullable needs a default. Nested columns cannot
        have one.

        Raises:
            SchemaMismatchError: the name is taken, the type cannot be stored, the type does not
                hold the default exactly, or a column that is not nullable has no default.

        >>> with dataset.update_schema() as schema:
        ...     schema.add_column("address", pa.struct({"city": pa.string()}))
        ...     schema.add_column("address.street", pa.string(), comment="with the number")
        >>> dataset.add_column("seats", pa.int32(), default=180).version
        3
        >>> dataset.scan().to_table()["seats"].unique().to_pylist()
        [180]
        """
        path, type = checked_path(name, "name"), _checked_type(type)
        value = None
        if default is not None:
            value = checked_default(default, storage_type(type, shown(path)), shown(path))
        self._add(AddColumn(path, type, comment, value, flag("nullable", nullable)))

    def set_default(self, name: Name, value: Any = None, *, sql: str | None = None) -> None:
        """Set the value of a column in rows written later from data that lacks the column.

        None: such rows have NULL. Rows that were written before do not change. Nested columns and
        partition columns cannot have a default. `sql` is an expression over no column: all rows of
        one write have one `current_timestamp()`.

        >>> dataset.set_default("carrier", "UA").version
        2
        >>> lake.write_dataset({"month": [4], "miles": [90]}, dataset.uri).version
        3
        >>> dataset.refresh().scan("month = 4").to_table()["carrier"].to_pylist()
        ['UA']
        """
        if sql is not None and value is not None:
            raise InvalidOptionError(
                option="sql", value=sql, reason="cannot be given together with a value."
            )
        self._add(SetDefault(checked_path(name, "name"), value, sql))

    def rename_column(self, name: Name, new_name: str) -> None:
        """Rename a column or a field of a struct; `new_name` is its own name, not a path.

        Partitioning and the search index stay.

        >>> dataset.rename_column("miles", "distance").version
        2
        >>> dataset.schema.names, dataset.scan(version=1).to_table().column_names
        (['month', 'carrier', 'distance'], ['month', 'carrier', 'miles'])
        """
        if not isinstance(new_name, str):
            raise InvalidOptionError(option="new_name", value=new_name, reason="is not a text.")
        self._add(RenameColumn(checked_path(name, "name"), new_name))

    def drop_column(self, name: Name) -> None:
        """Drop a column or a field of a struct; partition columns cannot be dropped.

        Its data stays in the files for older versions. A later column of the same name starts
        empty.

        >>> with dataset.update_schema() as schema:
        ...     schema.drop_column("miles")
        ...     schema.add_column("miles", pa.float64())
        >>> dataset.scan().to_table()["miles"].null_count
        4
        """
        self._add(DropColumn(checked_path(name, "name")))

    def promote_column(self, name: Name, type: pa.DataType) -> None:
        """Change a column's type to one that holds every stored value exactly.

        These are wider integers, floats and decimals, finer units of time where the statistics
        show that the stored values fit, and text for a top-level column. A top-level column of a
        version without files gets any type, as a new column of that name.

        >>> dataset.promote_column("miles", pa.decimal128(19, 0)).version
        2
        >>> dataset.promote_column("miles", pa.int32())
        Traceback (most recent call last):
        lakehouse_source.errors.SchemaMismatchError: column 'miles' ...
        """
        self._add(PromoteColumn(checked_path(name, "name"), _checked_type(type)))

    def set_spark_type(self, name: Name, type: str, metadata: Mapping[bytes, bytes]) -> None:
        """Note the Spark type of a column: a collation, a length, the fields of an interval.

        `metadata` is that of the Arrow field that `spark.types` made for the Spark type; `{}`: the
        Arrow type decides.

        >>> with dataset.update_schema() as schema:
        ...     schema.set_spark_type("carrier", "string", {})
        """
        self._add(SetSparkType(checked_path(name, "name"), type, dict(metadata)))

    def reorder_columns(self, names: Sequence[Name], *, after: Name | None = None) -> None:
        """Move columns to the front in this order, or behind the column `after`.

        >>> dataset.reorder_columns(["miles"], after="month").version
        2
        >>> dataset.schema.names
        ['month', 'miles', 'carrier']
        """
        if isinstance(names, str) or not names:
            raise InvalidOptionError(option="names", value=names, reason="is not a list of names.")
        paths = tuple(checked_path(name, "names") for name in names)
        behind = None if after is None else checked_path(after, "after")
        self._add(ReorderColumns(paths, behind))

    def set_nullable(self, name: Name, nullable: bool) -> None:
        """Allow NULL in a column, or refuse it where the statistics show that there is none.

        >>> dataset.set_nullable("carrier", False).version
        2
        >>> dataset.schema.field("carrier").nullable
        False
        """
        self._add(SetNullable(checked_path(name, "name"), flag("nullable", nullable)))

    def set_comment(self, name: Name, text: str | None) -> None:
        """Set the comment of a column, which Spark shows too; None removes it.

        >>> dataset.set_comment("miles", "great circle distance").version
        2
        >>> dataset.comments
        {'miles': 'great circle distance'}
        """
        if text is not None and not isinstance(text, str):
            raise InvalidOptionError(option="text", value=text, reason="is not a text.")
        self._add(SetComment(checked_path(name, "name"), text))

    def _add(self, change: SchemaChange) -> None:
        if self._result is not None:
            raise InvalidOptionError(
                option="update_schema", reason="has ended: begin another with block."
            )
        # What depends on stored values is checked at the commit.
        facts = Facts(
            self._ids,
            _partition_ids(self._base.partition_by, self._base.schema),
            _same_keys,
            lambda _field, _type: True,
            lambda _field: True,
            self._holds_no_file,
        )
        self._schema, _ids = change.apply(self._schema, facts)
        self._changes.append(change)

    def _holds_no_file(self) -> bool:
        if self._is_empty is None:
            with self._address.open() as catalog, catalog.read() as reader:
                self._is_empty = has_no_file(reader, self._base.dataset)
        return self._is_empty

    @property
    def schema(self) -> pa.Schema:
        """The schema with the changes so far, which nothing stored may refuse yet."""
        return self._schema

    def __enter__(self) -> SchemaUpdate:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            with self._address.open() as catalog:
                self._result = change_schema(catalog, self._address, self._base, self._changes)
            self._moved()

    @property
    def committed(self) -> WriteResult:
        """What the block committed: the version, and the version whose schema is in force.

        Raises:
            InvalidOptionError: the block has not ended yet, or it raised.
        """
        if self._result is None:
            raise InvalidOptionError(
                option="update_schema", reason="has committed nothing: use it in a with block."
            )
        return self._result


def change_schema(
    catalog: Catalog, address: Address, base: Snapshot, changes: Sequence[SchemaChange]
) -> WriteResult:
    """Commit changes that were made for the schema of `base`.

    If nothing changes, no version is committed. Appends and overwrites since `base` do not matter,
    unless a name now means another column.

    Raises:
        SchemaMismatchError: a change cannot be made.
        CommitConflictError: the schema was changed since then.
        CommitUnknownError: the catalog was lost during the commit.
    """

    checked = _check_rows(catalog, address, base, changes)

    def change(
        tx: CatalogTransaction, record: DatasetRecord, before: pa.Schema
    ) -> NewMetadata | None:
        after = _changed(tx, record, before, base, changes, address.uri)
        if after.equals(before, check_metadata=True):
            return None
        check_sources(before, after)
        defaults_of(after)  # the type of a column may have changed
        affected = retyped(record.properties.constraints, before, after)
        if affected and record.current_version != checked:
            rows = "rows may have come, and a constraint reads a column whose type changes"
            raise conflict(address.uri, record, base, Collision(rows))
        were = _with_replaced(before, after, changes)
        check_sort_columns_stay(record.properties.layout, were, after)
        properties = with_names_of(record.properties, were, after)
        properties, unsearchable = evolve_properties(
            properties, after, before, properties.partition_by
        )
        for column_id in unsearchable:
            tx.invalidate_bounds(record.id, column_id)
        return NewMetadata({"changes": [str(one) for one in changes]}, properties, after)

    return commit_metadata(catalog, address, base, "schema change", change)


def _check_rows(
    catalog: Catalog, address: Address, base: Snapshot, changes: Sequence[SchemaChange]
) -> int | None:
    """Check the rows against the constraints that read columns whose types change.

    Returns the version whose rows were checked; None: no constraint reads such a column.
    """
    if not base.dataset.properties.constraints:
        return None
    with catalog.read() as reader:
        newest = address.snapshot(catalog, reader)
        after = _changed(reader, newest.dataset, newest.schema, base, changes, address.uri)
        constraints = retyped(newest.dataset.properties.constraints, newest.schema, after)
        if not constraints:
            return None
        suspects = Suspects.of(reader, newest, constraints, address.location, after)
    for one in suspects:
        one.check(Storage(address.location))
    return newest.version


def _with_replaced(
    before: pa.Schema, after: pa.Schema, changes: Sequence[SchemaChange]
) -> pa.Schema:
    """The schema before, with columns that got another type as new ones: properties keep them."""
    ids = {field_id(field) for field in after}
    for one in changes:
        if isinstance(one, PromoteColumn) and len(one.path) == 1:
            old = find_field(one.path[0], before)
            new = find_field(one.path[0], after)
            if old is not None and new is not None and field_id(old) not in ids:
                before = before.set(before.names.index(old.name), new)
    return before


def _changed(
    tx: CatalogReader,
    record: DatasetRecord,
    before: pa.Schema,
    base: Snapshot,
    changes: Sequence[SchemaChange],
    uri: str,
) -> pa.Schema:
    """The schema in force after the changes; names must mean the same columns as in `base`."""
    first = next(_new_ids(record, before))
    facts = Facts(
        itertools.count(first),
        _partition_ids(record.properties.partition_by, before),
        _same_keys,
        stored_values_fit(tx, record),
        partial(_has_no_null, tx, record),
        partial(has_no_file, tx, record),
    )
    if before.equals(base.schema, check_metadata=True):
        return apply_all(before, changes, facts)[0]
    first_then = next(_new_ids(base.dataset, base.schema))
    trusting = Facts(
        itertools.count(first_then),
        facts.partition_ids,
        _same_keys,
        lambda _field, _type: True,
        lambda _field: True,
        facts.holds_no_file,
    )
    _schema, meant = apply_all(base.schema, changes, trusting)
    try:
        after, named = apply_all(before, changes, facts)
    except SchemaMismatchError as error:
        raise conflict(uri, record, base, schema_changed(error, error.column)) from error
    if _without_new(named, first) != _without_new(meant, first_then):
        raise conflict(uri, record, base, Collision("a name means another column by now"))
    return after


def _without_new(
    named: Sequence[Sequence[int | None]], first: int
) -> list[list[tuple[bool, int | None]]]:
    """Ids of fields; ids that the changes themselves gave are counted from the first of them."""
    return [
        [(True, one - first) if one is not None and one >= first else (False, one) for one in ids]
        for ids in named
    ]


def _new_ids(record: DatasetRecord, schema: pa.Schema) -> Iterator[int]:
    return itertools.count(max(record.properties.last_field_id, max_id(schema)) + 1)


def _partition_ids(names: Sequence[str], schema: pa.Schema) -> frozenset[int | None]:
    return frozenset(field_id(schema.field(name)) for name in names)


def _same_keys(old: pa.DataType, new: pa.DataType) -> bool:
    """Tell whether the index compares values of the two types by the same keys."""
    return keys.encoding(old) is not None and keys.encoding(old) == keys.encoding(new)


def _checked_type(type_: Any) -> pa.DataType:
    if not isinstance(type_, pa.DataType):
        raise InvalidOptionError(
            option="type", value=type_, reason="is not an Arrow type such as pa.int64()."
        )
    return type_


def _has_no_null(reader: CatalogReader, record: DatasetRecord, field: pa.Field) -> bool:
    """Tell whether the catalog's statistics show that no live file has a NULL in a field.

    A file without a null count may have one.
    """
    schemas = reader.schemas(record.id)
    newest = schemas[max(schemas)]
    files = [f for f in reader.files(record.id, record.current_version) if f.row_count]
    for name in record.properties.partition_by:
        if field_id(newest.field(name)) == field_id(field):
            texts = PartitionTexts((name,), newest, schemas)
            return all(texts(file)[0] is not None for file in files)
    groups = reader.row_groups([file.id for file in files])
    # A struct is not NULL where a field of it is not.
    below = [leaf for leaf in leaves(pa.schema([field])) if not leaf.in_list]
    then = {n: {leaf.id for leaf in leaves(one)} for n, one in schemas.items()}
    has_default = initial_default(field) is not None
    return all(
        any(_counts_none(group, leaf, then[file.schema_version]) for leaf in below)
        for file in files
        # A file without the field has its default in each row.
        if not (has_default and field_id(field) not in then[file.schema_version])
        for group in _complete(file, groups[file.id])
    )


def _complete(
    file: FileRecord, groups: Sequence[RowGroupMetadata]
) -> Sequence[RowGroupMetadata | None]:
    """The row groups of a file, and None where some of its rows are in no recorded one."""
    counted = sum(group.row_count for group in groups) == file.row_count
    return groups if counted else [None]


def _counts_none(group: RowGroupMetadata | None, leaf: Leaf, written: AbstractSet[int]) -> bool:
    """Tell whether a row group surely has no NULL in a leaf; its file has the leaves `written`."""
    if group is None or leaf.id not in written:
        return False
    count = parsed_object(group.null_counts_json).get(str(leaf.id))
    return type(count) is int and count == 0
