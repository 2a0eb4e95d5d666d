"""Verb. After a commit: files are kept few, and sorted, where the dataset asks for it."""

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
    """Compact the dataset of a write that was just committed, if it asks for that and it is time.

    A clustered dataset is clustered first.

    All writers take turns: the files of `compact_min_files` are made by about as many commits,
    and the one whose version is a multiple of this number looks for them, in all partitions. To
    look is then cheap, and no partition is forgotten because several writers share it.

    The commit stands whatever happens here: a conflict is left to the next time, and another
    error is logged.
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
