"""Verb. The properties and the constraints of a dataset change, in one commit without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakehouse_source.arguments import column_names, flag, mapping
from lakehouse_source.catalog.base import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.constraints import Constraint, is_primary
from lakehouse_source.errors import InvalidOptionError, constraint_sql
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import DatasetRecord, WriteResult
from lakehouse_source.properties import Check, DatasetProperties, Layout
from lakehouse_source.pruning.keys import check_index_columns
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import find_name, leaves
from lakehouse_source.schema.partitions import check_partition_columns
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.chosen_paths import rebuild_index
from lakehouse_source.write.commit.conflicts import SCHEMA_CHANGED
from lakehouse_source.write.commit.evolution import evolve_properties, with_paths_of
from lakehouse_source.write.commit.metadata_commit import NewMetadata, commit_metadata, conflict
from lakehouse_source.write.commit.options import LAYOUT_KEYWORDS, PROPERTIES, fitted, layout_of
from lakehouse_source.write.commit.stored_rows import Suspects
from lakehouse_source.write.statements.delete_and_update import expired_rows

# How often rows are checked while other commits may add some. After that they are checked under the
# lock, so that other commits cannot starve this one.
_TRIES_WITHOUT_LOCK = 4


class _RowsChanged(Exception):
    """Other commits came after the version whose rows were checked."""


def add_constraint(
    catalog: Catalog, address: Address, base: Snapshot, name: str, expression: str
) -> WriteResult:
    """Commit a constraint that every row of the newest version satisfies.

    Raises:
        ConstraintViolationError: a row breaks it.
        InvalidOptionError: the name is taken, or the condition is not always the same.
        InvalidPredicateError: the condition cannot be read, or does not fit the schema.
        CommitConflictError: the schema or the properties were changed since `base`.
    """
    new = Constraint.of(name, expression, base.schema)
    _check_is_free(base.dataset, new)
    tries = 0

    def change(tx: CatalogTransaction, record: DatasetRecord, schema: pa.Schema) -> NewMetadata:
        if not schema.equals(base.schema, check_metadata=True):
            raise conflict(address.uri, record, base, SCHEMA_CHANGED)
        _check_is_free(record, new)
        if record.current_version != checked.version:
            if tries < _TRIES_WITHOUT_LOCK:
                raise _RowsChanged
            for one in suspects(address.snapshot(catalog, tx), tx):
                one.check(Storage(address.location))
        added = {name: Check(new.expression, record.current_version + 1)}
        all_of_them = {**record.properties.constraints, **added}
        properties = replace(record.properties, constraints=all_of_them)
        return NewMetadata({"constraints": {name: new.expression}}, properties)

    def suspects(snapshot: Snapshot, reader: CatalogReader) -> list[Suspects]:
        known = snapshot.schema.equals(base.schema, check_metadata=True)
        return Suspects.of(reader, snapshot, [new] if known else (), address.location)

    while True:
        with catalog.read() as reader:
            checked = address.snapshot(catalog, reader)
            found = suspects(checked, reader)
        for one in found:
            one.check(Storage(address.location))
        try:
            return commit_metadata(catalog, address, base, "set properties", change)
        except _RowsChanged:
            tries += 1


def drop_constraint(catalog: Catalog, address: Address, base: Snapshot, name: str) -> WriteResult:
    """Commit that a constraint holds no longer.

    Raises:
        InvalidOptionError: there is none of this name.
        CommitConflictError: the schema or the properties were changed since `base`.
    """

    def change(tx: CatalogTransaction, record: DatasetRecord, schema: pa.Schema) -> NewMetadata:
        left = dict(record.properties.constraints)
        found = find_name(name, left)
        if found is None:
            reason = "is no constraint of the dataset."
            raise InvalidOptionError(option="constraint", value=name, reason=reason, known=left)
        del left[found]
        properties = replace(record.properties, constraints=left)
        return NewMetadata({"constraints": {found: None}}, properties)

    return commit_metadata(catalog, address, base, "set properties", change)


def _check_is_free(record: DatasetRecord, new: Constraint) -> None:
    checks = record.properties.constraints
    taken = find_name(new.name, checks)
    reason = "is taken"
    if taken is None and is_primary(new.expression):
        taken = next((one for one in checks if is_primary(checks[one].expression)), None)
        reason = f"is a second primary key beside {taken!r}"
    if taken is not None:
        reason += f": {constraint_sql(checks[taken].expression)}. Drop it first."
        raise InvalidOptionError(option="constraint", value=new.name, reason=reason)


def set_properties(
    catalog: Catalog,
    address: Address,
    base: Snapshot,
    given: Mapping[str, Any],
    texts: Mapping[str, str | None] | None = None,
) -> WriteResult:
    """Commit new properties; None sets a property back to its default, absent properties stay.

    `texts` are those of the user (`set_table_properties`), in the same commit. Where nothing
    changes, no version is committed.

    Raises:
        SchemaMismatchError: a column of `partition_by` cannot partition the dataset.
        CommitConflictError: the schema or the properties were changed since `base`.
        CommitUnknownError: the catalog was lost during the commit.
    """
    for name in given:
        if name not in PROPERTIES:
            raise InvalidOptionError(option=name, reason="is not a property.", known=PROPERTIES)
    layout = layout_of({name: given[name] for name in LAYOUT_KEYWORDS if name in given})
    named = {
        name: column_names(name, given.get(name)) for name in ("partition_by", "index_columns")
    }

    def change(
        tx: CatalogTransaction, record: DatasetRecord, schema: pa.Schema
    ) -> NewMetadata | None:
        # A concurrent write may have changed the columns that these names mean.
        if not schema.equals(base.schema, check_metadata=True):
            raise conflict(address.uri, record, base, SCHEMA_CHANGED)
        properties = record.properties
        if "partition_by" in given:
            names = check_partition_columns(schema, named["partition_by"] or ())
            if names != properties.partition_by:
                _check_no_files(tx, record, names, address.uri)
            properties = replace(properties, partition_by=names)
        properties = replace(properties, layout=_changed(properties.layout, layout, given, schema))
        new_schema = schema
        if "variant_paths" in given:
            new_schema = with_paths_of(schema, properties)
            fitted(properties.layout, new_schema)  # paths with bloom filters stay
        properties = evolve_properties(properties, new_schema, schema, properties.partition_by)[0]
        if "index_columns" in given:
            properties = replace(properties, index_columns=named["index_columns"])
        if "index_columns" in given or properties.partition_by != record.properties.partition_by:
            properties = _indexing(new_schema, properties, address.uri)
        if "expire_rows" in given:
            text = given["expire_rows"]
            if text is not None:
                expired_rows(text, schema, tx.now())
            properties = replace(properties, expire_rows=text)
        details: dict[str, Any] = {"properties": {name: _shown(given[name]) for name in given}}
        if texts:
            details["table_properties"] = dict(texts)
            properties = replace(properties, table_properties=_merged(record, texts))
        if properties == record.properties:
            return None
        rebuild_index(tx, record, new_schema, properties)
        return NewMetadata(details, properties, None if new_schema is schema else new_schema)

    return commit_metadata(catalog, address, base, "set properties", change)


def set_table_properties(
    catalog: Catalog, address: Address, base: Snapshot, given: Mapping[str, str | None]
) -> WriteResult:
    """Commit texts that users note about a dataset; None removes one.

    Where nothing changes, no version is committed.
    """
    for key, text in mapping("table_properties", given).items():
        if not isinstance(key, str) or not isinstance(text, str | None) or "\0" in f"{key}{text}":
            raise InvalidOptionError(
                option="table_properties", value=key, reason="must be texts without NUL."
            )

    def change(
        tx: CatalogTransaction, record: DatasetRecord, schema: pa.Schema
    ) -> NewMetadata | None:
        texts = _merged(record, given)
        if texts == record.properties.table_properties:
            return None
        details = {"table_properties": dict(given)}
        return NewMetadata(details, replace(record.properties, table_properties=texts))

    return commit_metadata(catalog, address, base, "set properties", change)


def _merged(record: DatasetRecord, texts: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**record.properties.table_properties, **texts}
    return {key: text for key, text in merged.items() if text is not None}


def _check_no_files(
    tx: CatalogTransaction, record: DatasetRecord, names: Sequence[str], uri: str
) -> None:
    """Check that no version of the dataset has a file: a file would be in the wrong folder."""
    if tx.files_added_since(record.id, 0):
        has = ", ".join(record.properties.partition_by) or "none"
        raise InvalidOptionError(
            option="partitionBy",
            value=", ".join(names),
            reason=f"cannot be changed, because {uri} holds files (its partition columns: {has}). "
            "Write the rows to a new dataset.",
        )


def _changed(before: Layout, chosen: Layout, given: Mapping[str, Any], schema: pa.Schema) -> Layout:
    """The layout with the properties that are given, in the spelling of the schema."""
    if chosen.variant_paths is None and "variant_paths" not in given:
        chosen = replace(chosen, variant_paths=before.variant_paths)
    named = fitted(chosen, schema)
    changed = {name: getattr(named, name) for name in LAYOUT_KEYWORDS if name in given}
    return replace(before, **changed)


def _shown(value: Any) -> Any:
    """A property as the history shows it."""
    return value if value is None or isinstance(value, (str, int, float)) else list(value)


# --- the search index ----------------------------------------------------------------


def _indexing(schema: pa.Schema, properties: DatasetProperties, uri: str) -> DatasetProperties:
    """The properties with the ids of the columns that the names in them put into the index.

    Ids of dropped columns stay: older versions are searched by them.
    """
    names, partition_by = properties.index_columns, properties.partition_by
    check_index_columns(schema, names, None, partition_by, uri)
    present = {leaf.id for leaf in leaves(schema)}
    dropped = tuple(one for one in properties.indexed_columns if one not in present)
    bare = replace(properties, indexed_columns=dropped)
    return evolve_properties(bare, schema, None, partition_by, names)[0]


def clustering(
    catalog: Catalog, address: Address, where: Any, *, full: bool, zorder_by: Sequence[str] | None
) -> bool | None:
    """The argument `full` of a clustering; None: the dataset has no columns, and is compacted.

    A dataset without clustering columns gets `zorder_by`. All files are sorted where these are
    named, as in Delta: the answer is the same before and after the dataset has them.

    Raises:
        InvalidOptionError: the dataset has other clustering columns, or an argument does not fit.
        CommitConflictError: another commit changed the properties first.
    """
    with catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader)
    own = snapshot.dataset.properties.layout.cluster_by
    wanted = column_names("zorder_by", zorder_by)
    partitions = snapshot.partition_by
    for name in wanted or ():
        if name.casefold() in map(str.casefold, partitions):
            raise InvalidOptionError(
                option="zorder_by",
                reason=f"{name} is a partition column. Z-Ordering can only be performed on data "
                "columns: the files of a partition have one value of it.",
            )
    for name in PredicateSet.of(where).bind(snapshot.schema).columns:
        if name not in partitions:
            raise InvalidOptionError(
                option="where",
                reason=f"Predicate references non-partition column '{name}'. Only the partition "
                f"columns may be referenced: [{', '.join(partitions)}]. compact(where) takes "
                "other conditions too.",
            )
    if own and wanted and [one.casefold() for one in wanted] != [one.casefold() for one in own]:
        raise InvalidOptionError(
            option="zorder_by",
            value=", ".join(wanted),
            reason=f"are not the clustering columns of {snapshot.uri}, which are {', '.join(own)}. "
            "Change those first: ALTER TABLE … CLUSTER BY (…), or "
            "dataset.set_properties(cluster_by=[…]).",
        )
    if flag("full", full) and not (own or wanted):
        raise InvalidOptionError(
            option="full",
            reason=f"sorts by clustering columns, which {snapshot.uri} does not have: name them by "
            "ZORDER BY (…), or leave it out.",
        )
    if wanted and not own:
        set_properties(catalog, address, snapshot, {"cluster_by": list(wanted)})
    return full or bool(wanted) if own or wanted else None
