"""Verb. Constraints of a dataset are added and dropped: one commit, no file is written."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lakehouse_source.catalog.base import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.constraints import Constraint, is_primary
from lakehouse_source.errors import InvalidOptionError, constraint_sql
from lakehouse_source.model import DatasetRecord, WriteResult
from lakehouse_source.properties import Check
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import find_name
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.conflicts import SCHEMA_CHANGED
from lakehouse_source.write.commit.metadata_commit import NewMetadata, commit_metadata, conflict
from lakehouse_source.write.commit.stored_rows import Suspects

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
