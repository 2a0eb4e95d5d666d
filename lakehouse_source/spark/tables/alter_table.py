"""Door. ALTER TABLE: the changes that Spark names, of columns and of properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakehouse_source.dataset import Dataset
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.schema.fields import find_name
from lakehouse_source.spark.protocol.vocabulary import Change, RequestKey
from lakehouse_source.spark.session.catalog_request import Request, place_of
from lakehouse_source.spark.tables.table_properties import (
    PROVIDER,
    RESERVED,
    check_provider,
    divided,
)
from lakehouse_source.spark.writing.column_changes import change_column
from lakehouse_source.write.metadata.set_properties import set_properties, set_table_properties


def alter(request: Request) -> dict[str, Any]:
    """Change columns or properties, as one commit; both as two."""
    address = place_of(request).address()
    changes: list[Mapping[str, Any]] = request.body[RequestKey.CHANGES]
    given = {c[RequestKey.FIELD]: c for c in changes if c[RequestKey.CHANGE] == Change.PROPERTY}
    texts = {name: change[RequestKey.VALUE] for name, change in given.items()}
    check_provider(texts, request.body[RequestKey.CATALOG])
    if given and len(given) < len(changes):  # a pipeline sends both: columns first
        columns = [c for c in changes if c[RequestKey.CHANGE] != Change.PROPERTY]
        for part in (columns, list(given.values())):
            alter(replace(request, body={**request.body, RequestKey.CHANGES: part}))
        return {}
    kinds = {change[RequestKey.CHANGE] for change in changes}
    dataset = Dataset(address)
    if kinds == {Change.PROPERTY}:
        texts.pop(PROVIDER, None)  # a pipeline with a format sets it in each run
        for key in texts.keys() & RESERVED:
            raise InvalidOptionError(option=key, reason="of a table of plake cannot be changed.")
        own, others = divided(texts)
        with address.open() as catalog:
            with catalog.read() as reader:
                base = address.snapshot(catalog, reader)
            # Earlier releases noted plake's own names as texts that did nothing.
            noted = base.dataset.properties.table_properties
            others |= {name: None for name in texts if name.lower() in own and name in noted}
            if own:
                set_properties(catalog, address, base, own, others)
            else:
                set_table_properties(catalog, address, base, others)
    elif kinds == {Change.CLUSTER} and len(changes) == 1:
        dataset.set_properties(cluster_by=changes[0][RequestKey.VALUE] or None)
    elif kinds & {Change.ADD_CONSTRAINT, Change.DROP_CONSTRAINT} and len(changes) == 1:
        _change_constraint(dataset, changes[0])
    elif kinds & {Change.PROPERTY, Change.CLUSTER, Change.ADD_CONSTRAINT, Change.DROP_CONSTRAINT}:
        raise InvalidOptionError(
            option="ALTER TABLE", reason="changes columns and properties: use two statements."
        )
    else:
        _check_columns_stay(dataset, changes)
        with dataset.update_schema() as schema:
            for change in changes:
                change_column(schema, dataset.schema, change)
    return {}


def _change_constraint(dataset: Dataset, change: Mapping[str, Any]) -> None:
    name: str = change[RequestKey.FIELD]
    if change[RequestKey.CHANGE] == Change.ADD_CONSTRAINT:
        dataset.add_constraint(name, change[RequestKey.VALUE])
    elif not change[RequestKey.IF_EXISTS] or find_name(name, dataset.constraints) is not None:
        dataset.drop_constraint(name)


def _check_columns_stay(dataset: Dataset, changes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse REPLACE COLUMNS, which Spark spells as dropping all columns and adding others."""
    dropped = {
        change[RequestKey.FIELD][0].lower()
        for change in changes
        if change[RequestKey.CHANGE] == Change.DELETE and len(change[RequestKey.FIELD]) == 1
    }
    added = any(change[RequestKey.CHANGE] == Change.ADD for change in changes)
    if added and dropped == {name.lower() for name in dataset.schema.names}:
        raise InvalidOptionError(
            option="ALTER TABLE ... REPLACE COLUMNS",
            reason="would drop all columns with their values, those of the same name too. Use ADD "
            "COLUMN, RENAME COLUMN, ALTER COLUMN and DROP COLUMN, or CREATE OR REPLACE TABLE.",
        )
