"""Verb. The version that a write is based on."""

from __future__ import annotations

from lakehouse_source.catalog.reader import CatalogReader
from lakehouse_source.errors import CommitConflictError, VersionNotFoundError
from lakehouse_source.read.snapshot import Snapshot, open_snapshot
from lakehouse_source.write.options import StagedWrite


def base_snapshot(reader: CatalogReader, staged: StagedWrite) -> Snapshot:
    """The dataset at the version that a write is based on.

    Raises:
        CommitConflictError: the version was expired.
    """
    try:
        return open_snapshot(reader, staged.key, staged.uri, "", version=staged.base_version)
    except VersionNotFoundError as error:
        raise CommitConflictError(
            dataset=staged.uri,
            base_version=staged.base_version,
            current_version=error.last,
            reason="the version it is based on was expired",
        ) from error
