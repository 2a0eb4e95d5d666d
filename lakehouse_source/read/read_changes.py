"""Verb. The rows that commits appended, as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakehouse_source.errors import VersionNotFoundError
from lakehouse_source.language import PredicateSet
from lakehouse_source.parquet.reader import read_all
from lakehouse_source.read.address import Address
from lakehouse_source.read.changes import AppendedFiles
from lakehouse_source.read.snapshot import resolve_columns
from lakehouse_source.schema.no_columns import batches
from lakehouse_source.storage import Storage
from lakehouse_source.streaming import Position, Rules


def read_changes(
    address: Address,
    since_version: int,
    where: PredicateSet,
    columns: Sequence[str] | None,
    rules: Rules,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows that each commit after a version appended, with the commit's version.

    Commits are read up to the version that is the newest at the first call, under its schema.

    Raises:
        StreamChangeError: a commit did not only add rows.
        StreamSchemaError: a commit added rows, and the schema was replaced since then.
        StreamDataLossError: a version was expired.
    """
    with address.open() as catalog, catalog.read() as reader:
        newest = address.snapshot(catalog, reader)
    through = newest.version
    if not 0 <= since_version <= through:
        raise VersionNotFoundError(
            dataset=address.uri,
            requested=f"version {since_version}",
            first=newest.dataset.oldest_version,
            last=through,
        )
    position = Position(since_version + 1)
    storage = Storage(address.location)
    wanted = resolve_columns(newest.schema, columns)
    while position.version <= through:
        with address.open() as catalog, catalog.read() as reader:
            appended = AppendedFiles(reader, newest, newest.schema_version, columns, where, rules)
            position, plans = appended.by_commit(position, through, wanted, address.location)
        for version, found in plans:
            for table in read_all(found.spec, found.tasks, storage):
                for batch in batches(table):
                    yield version, batch
