"""Door. What the driver does of a write after its tasks, and of a stream's batch before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.model import FileMetadata
from lakehouse_source.read.address import Address
from lakehouse_source.spark.session.secrets import catalog_of_query
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.commit.row_changes import RowChanges

__all__ = ["abort", "address_of", "begin", "commit_in"]


def address_of(path: str, catalog: str | None, storage: Mapping[str, str] | None = None) -> Address:
    """The dataset of a write. `catalog` is concealed."""
    return Address(path, catalog_of_query(catalog), storage)


def commit_in(
    catalog: Catalog,
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    changes: RowChanges | None = None,
) -> None:
    """Commit a write, and compact its dataset if that is due."""
    result = commit(catalog, staged, files, changes)
    if staged.compact_min_files is not None:
        # Imported here: a worker that commits starts anew each time, and seldom compacts.
        from lakehouse_source.write.layout import compact_after

        compact_after(catalog, staged, result)
