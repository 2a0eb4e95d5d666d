"""Verb. After a commit: compacts and clusters files, if the dataset's properties say so."""

from __future__ import annotations

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.errors import CommitConflictError, PlakeError
from lakehouse_source.language import PredicateSet
from lakehouse_source.logs import COMPACT
from lakehouse_source.model import WriteResult
from lakehouse_source.read.address import Address
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.layout.cluster import cluster
from lakehouse_source.write.layout.compact import compact


def compact_after(catalog: Catalog, staged: StagedWrite, result: WriteResult) -> None:
    """Compact the dataset of a write that was just committed, if it is wanted and due.

    A clustered dataset is clustered first.

    All writers take turns: `compact_min_files` files are made by about as many commits. The commit
    whose version is a multiple of this number looks for small files, in all partitions. So looking
    is cheap, and no partition is forgotten because several writers share it. An error here does not
    undo the commit: a conflict waits for the next time, and another error is logged.
    """
    least, files = staged.compact_min_files, len(result.metadata)
    if least is None or not files or result.version % max(1, least // files):
        return
    try:
        address = Address.registered(staged.spec.uri, staged.key, catalog)
        if staged.spec.cluster_by:
            cluster(catalog, address)
        compact(catalog, address, PredicateSet.of(None), min_files=least, repeated=True)
    except CommitConflictError as error:
        COMPACT.debug("compaction of %s gave up: %s", staged.uri, error)
    except PlakeError as error:
        COMPACT.warning("compaction of %s failed: %s", staged.uri, error)
