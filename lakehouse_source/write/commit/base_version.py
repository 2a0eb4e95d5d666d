"""Verb. The version that a write is based on."""

from __future__ import annotations

import pyarrow as pa

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import SchemaMismatchError, VersionNotFoundError
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot, open_snapshot
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.conflicts import PUT_BACK, conflict, schema_changed
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions


def begin_after(
    catalog: Catalog,
    address: Address,
    snapshot: Snapshot,
    incoming: pa.Schema,
    options: WriteOptions,
) -> StagedWrite:
    """Begin a write whose caller has read a version.

    Its base is the version that is the newest now.
    """
    try:
        return begin(catalog, address, incoming, options)
    except SchemaMismatchError as error:
        with catalog.read() as reader:
            newest = address.snapshot(catalog, reader)
        if newest.version == snapshot.version:
            raise
        changed = schema_changed(error, error.column)
        raise conflict(address.uri, snapshot.version, newest.version, changed) from error


def base_snapshot(reader: CatalogReader, staged: StagedWrite) -> Snapshot:
    """The dataset at the version that a write is based on."""
    try:
        return open_snapshot(reader, staged.key, staged.uri, "", version=staged.base)
    except VersionNotFoundError as error:
        why = PUT_BACK if error.replaced else "the version it is based on was expired"
        raise staged.conflict(error.last, why) from error
