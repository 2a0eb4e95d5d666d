"""Verb. How a write changes the schema of its dataset, and the properties that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.catalog.sql.writer import CatalogTransaction
from lakehouse_source.errors import CommitConflictError, SchemaMismatchError
from lakehouse_source.model import DatasetRecord
from lakehouse_source.properties import Check, DatasetProperties
from lakehouse_source.pruning import keys
from lakehouse_source.pruning.bounds import decode_row_group
from lakehouse_source.pruning.keys import is_wanted
from lakehouse_source.schema.changes import renamed
from lakehouse_source.schema.defaults import initial_default
from lakehouse_source.schema.fields import children, field_id, is_nested, leaves, max_id
from lakehouse_source.schema.merge import StoredValuesFit, merge
from lakehouse_source.schema.ordinal import domain
from lakehouse_source.schema.partitions import (
    PartitionTexts,
    partition_ordinal,
    partitioned_anew,
    same_columns,
)
from lakehouse_source.schema.paths import walk
from lakehouse_source.schema.variant_paths import with_paths
from lakehouse_source.write.commit.conflicts import schema_changed
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions, fitted, in_schema

# --- Checks by the catalog's statistics that a column's stored values fit another type.
#
# A finer unit has a shorter range, so a promotion from dates to timestamps, or to a finer unit, is
# exact for some values only. Files are not rewritten, so one value outside the range would make
# every later read fail.


def stored_values_fit(reader: CatalogReader, record: DatasetRecord) -> StoredValuesFit:
    """The check for `merge`, over the files that are live in the newest version.

    A file without statistics of the column counts as one whose values do not fit.
    """

    def fits(field: pa.Field, type_: pa.DataType) -> bool:
        if field.name in record.properties.partition_by:
            return all(_partition_fits(reader, record, field, type_))
        return all(_row_groups_fit(reader, record, field, type_))

    return fits


def has_no_file(reader: CatalogReader, record: DatasetRecord) -> bool:
    """Whether the newest version has no file, so that no stored value hinders a change."""
    return not next(reader.iter_files(record.id, record.current_version, None, 1))


def _partition_fits(
    reader: CatalogReader, record: DatasetRecord, field: pa.Field, type_: pa.DataType
) -> Iterator[bool]:
    old, new = domain(field.type), domain(type_)
    texts = PartitionTexts((field.name,), pa.schema([field]), reader.schemas(record.id))
    for file in reader.files(record.id, record.current_version):
        count = partition_ordinal(texts(file)[0], field.type)
        if isinstance(count, int):
            yield new.low <= count * old.unit_ns // new.unit_ns <= new.high


def _row_groups_fit(
    reader: CatalogReader, record: DatasetRecord, field: pa.Field, type_: pa.DataType
) -> Iterator[bool]:
    wanted = field_id(field)
    assert wanted is not None  # every field of a dataset has an id
    schemas = reader.schemas(record.id)
    files = reader.files(record.id, record.current_version)
    groups = reader.row_groups([file.id for file in files])
    for file in files:
        written = {leaf.id: leaf for leaf in leaves(schemas[file.schema_version])}.get(wanted)
        if written is None:
            continue  # the file does not have the column
        for group in groups[file.id]:
            # Bounds that do not fit the new type become unknown.
            bounds = decode_row_group(group, wanted, written.type, type_)
            known = bounds.lower is not None and bounds.upper is not None
            yield known or bounds.null_count == bounds.row_count


def merge_schema(
    reader: CatalogReader,
    record: DatasetRecord,
    current: pa.Schema,
    incoming: pa.Schema,
    options: WriteOptions,
    uri: str,
) -> pa.Schema:
    """The dataset's schema after a write with the schema `incoming`; `current` if unchanged."""
    properties = record.properties
    result = merge(
        current,
        incoming,
        add_columns=options.schema_merge,
        promote_to_string=bool(options.layout.over(properties.layout).promote_to_string),
        next_id=max(properties.last_field_id, max_id(current)) + 1,
        dataset=uri,
        stored_values_fit=stored_values_fit(reader, record),
    )
    for name in properties.partition_by:
        before, after = current.field(name).type, result.field(name).type
        if keys.encoding(before) != keys.encoding(after):
            raise SchemaMismatchError(
                column=name,
                expected=before,
                got=after,
                dataset=uri,
                reason=f"is a partition column of type {before} and cannot become {after}",
                hint="Cast the data.",
            )
    return result


def schema_to_commit(
    reader: CatalogReader, record: DatasetRecord, current: pa.Schema | None, staged: StagedWrite
) -> pa.Schema:
    """The schema of the version that a write commits, given the one that is in force.

    The files are written already. If other commits came first, their schema is merged with the
    incoming one again, and every column must match the files.

    Returns:
        `current` itself where the schema does not change.

    Raises:
        CommitConflictError: the schema in force does not fit the files any more.
    """
    if current is None:
        return staged.spec.schema
    if staged.options.overwrite_schema:
        _check_new_ids(record, current, staged)
        return staged.spec.schema
    if record.current_version == staged.base_version:
        unchanged = current.equals(staged.spec.schema, check_metadata=True)
        return current if unchanged else staged.spec.schema

    def conflict(why: object, *columns: str) -> CommitConflictError:
        return staged.conflict(record.current_version, schema_changed(why, *columns))

    try:
        schema = merge_schema(reader, record, current, staged.incoming, staged.options, staged.uri)
    except SchemaMismatchError as error:
        # The data fitted the schema that was in force when the write began.
        raise conflict(error, error.column) from error
    for field in _lacking(schema, staged.spec.schema):
        # A default applies only to files that are recorded with a schema that lacks the field.
        if initial_default(field) is not None:
            fits = schema_version_of(reader, record, staged) is not None
        else:
            fits = field.nullable
        if not fits:
            raise conflict(f"the files of this write lack column {field.name!r}", field.name)
    merged = {field_id(field): field for field in schema}
    for field in staged.spec.schema:
        now = merged.get(field_id(field))
        if now is None or not _holds(now, field):
            why = f"column {field.name!r} is not what it was when this write began"
            raise conflict(why, field.name)
    return schema


def _check_new_ids(record: DatasetRecord, current: pa.Schema, staged: StagedWrite) -> None:
    """Check that the replacing schema uses no id that a column of the dataset has had."""
    given = max(record.properties.last_field_id, max_id(current))
    if any((field_id(field) or 0) <= given for field in staged.spec.schema):
        replaced = "the schema changed, and this write replaces it"
        raise staged.conflict(record.current_version, replaced)


def schema_version_of(
    reader: CatalogReader, record: DatasetRecord, staged: StagedWrite
) -> int | None:
    """The version whose schema the files of a write have.

    This is the schema version of the write's base, or None if the write changes the schema.
    """
    if staged.base_version == 0:
        return None
    number, schema = reader.schema_at(record.id, staged.base_version)
    return number if schema.equals(staged.spec.schema, check_metadata=True) else None


def _lacking(schema: pa.Schema, written: pa.Schema) -> list[pa.Field]:
    """The fields of a schema, nested ones included, that files with another schema lack."""
    ids = {field_id(field) for _path, field in walk(written)}
    return [field for _path, field in walk(schema) if field_id(field) not in ids]


def _holds(now: pa.Field, written: pa.Field) -> bool:
    """Tell whether a file that was written with one field can be read with another field.

    Readers match nested fields by their ids in the schema that the file is recorded with, and by
    their places in the file. So ids and places must be the same in the two schemas.
    """
    if field_id(now) != field_id(written) or now.name != written.name:
        return False
    if written.nullable and not now.nullable:
        return False
    if not is_nested(written.type):
        return bool(now.type.equals(written.type))
    mine, theirs = children(now.type), children(written.type)
    same = len(mine) == len(theirs) and now.type.id == written.type.id
    return same and all(_holds(a, b) for a, b in zip(mine, theirs))


def with_names_of(
    properties: DatasetProperties, before: pa.Schema, after: pa.Schema
) -> DatasetProperties:
    """The properties with the names that their columns have in another schema."""
    names = properties.index_columns
    return replace(
        properties,
        partition_by=same_columns(properties.partition_by, before, after),
        index_columns=None if names is None else renamed(names, before, after),
        layout=in_schema(properties.layout, before, after),
    )


def with_paths_of(schema: pa.Schema, properties: DatasetProperties) -> pa.Schema:
    """The schema with the paths of VARIANT that the layout names; the same one if it has them."""
    first = max(properties.last_field_id, max_id(schema)) + 1
    found = with_paths(schema, properties.layout.variant_paths or (), first)
    return schema if found.equals(schema, check_metadata=True) else found


def first_properties(
    properties: DatasetProperties,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    options: WriteOptions,
) -> DatasetProperties:
    """The properties that the first write gives to a dataset: its partitions, index and layout."""
    evolved = evolve_properties(properties, schema, None, partition_by, options.index_columns)[0]
    texts = options.table_properties or {}
    return replace(evolved, layout=fitted(options.layout, schema), table_properties=texts)


def replaced_properties(
    properties: DatasetProperties,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    options: WriteOptions,
) -> DatasetProperties:
    """The properties of a dataset whose schema is replaced by one of new columns.

    Properties that name columns are chosen again; others stay, unless the write chooses them.
    """
    names = ("sort_by", "cluster_by", "bloom_filter_columns", "variant_paths")
    kept = replace(properties.layout, **dict.fromkeys(names))
    bare = replace(properties, index_columns=None)
    evolved = evolve_properties(bare, schema, None, partition_by, options.index_columns)[0]
    texts = options.table_properties
    return replace(
        evolved,
        layout=fitted(options.layout.over(kept), schema),
        table_properties=properties.table_properties if texts is None else texts,
    )


def record_schema(
    tx: CatalogTransaction,
    record: DatasetRecord,
    version: int,
    schema: pa.Schema,
    before: pa.Schema | None,
    staged: StagedWrite,
) -> DatasetRecord:
    """Record the schema that holds from a version on; returns the dataset's new properties."""
    tx.insert_schema(record.id, version, schema)
    unsearchable: list[int] = []
    partition_by = staged.spec.partition_by
    if before is None:
        properties = first_properties(record.properties, schema, partition_by, staged.options)
    elif staged.options.overwrite_schema:
        past = partitioned_anew(record.properties, version, before, partition_by, schema)
        properties = replaced_properties(past, schema, partition_by, staged.options)
    else:
        properties, unsearchable = evolve_properties(
            record.properties, schema, before, partition_by
        )
    for column_id in unsearchable:
        tx.invalidate_bounds(record.id, column_id)
    if staged.options.constraints is not None:
        checks = {one.name: Check(one.expression, version) for one in staged.spec.constraints}
        properties = replace(properties, constraints=checks)
    tx.set_properties(record.id, properties)
    return replace(record, properties=properties)


def evolve_properties(
    properties: DatasetProperties,
    schema: pa.Schema,
    before: pa.Schema | None,
    partition_by: tuple[str, ...],
    index_columns: tuple[str, ...] | None = None,
) -> tuple[DatasetProperties, list[int]]:
    """A dataset's properties under a new schema.

    `before` is the schema so far, None for a new dataset; only then `index_columns` counts.

    Returns:
        The properties, and the ids of the indexed columns whose keys have another encoding
        now: a search must treat every file that was written so far as a match.
    """
    names = properties.index_columns
    if before is None and index_columns is not None:
        names = index_columns
    old = {} if before is None else {leaf.id: leaf for leaf in leaves(before)}
    indexed = list(properties.indexed_columns)
    unsearchable: list[int] = []
    # Ids of dropped columns stay in the index: older versions are searched by them.
    present = {leaf.id for leaf in leaves(schema)}
    for leaf in leaves(schema):
        was = old.get(leaf.id)
        changed = was is not None and keys.encoding(was.type) != keys.encoding(leaf.type)
        if changed and leaf.id in indexed:
            unsearchable.append(leaf.id)
            if keys.encoding(leaf.type) is None:
                indexed.remove(leaf.id)
        elif was is None and is_wanted(
            leaf, names, len(present.intersection(indexed)), partition_by
        ):
            indexed.append(leaf.id)
    evolved = replace(
        properties,
        partition_by=partition_by,
        index_columns=names,
        indexed_columns=tuple(indexed),
        last_field_id=max(properties.last_field_id, max_id(schema)),
    )
    return evolved, unsearchable


def encoded_anew(schemas: Iterable[pa.Schema]) -> list[int]:
    """The ids of columns whose keys do not have the same encoding in all of the schemas."""
    found: dict[int, set[object]] = {}
    for schema in schemas:
        for leaf in leaves(schema):
            found.setdefault(leaf.id, set()).add(keys.encoding(leaf.type))
    return sorted(one for one, encodings in found.items() if len(encodings) > 1)
