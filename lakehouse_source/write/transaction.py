"""Verb. Writes to several datasets of one catalog that become visible together, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from lakehouse_source.catalog import Catalog, CatalogTransaction, open_catalog
from lakehouse_source.catalog.retry import PATIENCE_SECONDS, in_transaction
from lakehouse_source.errors import CommitUnknownError, InvalidOptionError
from lakehouse_source.model import FileMetadata, WriteResult
from lakehouse_source.read.address import Address, CatalogLike, PathLike
from lakehouse_source.write.apply import land
from lakehouse_source.write.commit import Ready, abort, make_ready
from lakehouse_source.write.inputs import to_reader
from lakehouse_source.write.options import StagedWrite
from lakehouse_source.write.prerecord import record_ahead
from lakehouse_source.write.stage import stage, write_options


def transaction(catalog: CatalogLike) -> Transaction:
    """Several writes, to datasets of one catalog, as one commit.

        with lake.transaction("postgresql://…") as tx:
            tx.write(orders, "/data/orders")
            tx.write(lines, "/data/lines", mode="overwrite")
        tx.results

    Files are written at each `write`; all become visible when the block ends, in one
    database transaction. When the block, or the commit of any of them, raises, none
    does, and the files are deleted.
    """
    return Transaction(catalog)


class Transaction:
    """Use it in a `with` block. `results` has one entry per write, in order, afterwards."""

    def __init__(self, catalog: CatalogLike) -> None:
        self.results: list[WriteResult] = []
        self._given = catalog
        self._catalog: Catalog | None = None
        self._writes: list[tuple[StagedWrite, list[FileMetadata]]] = []

    def __enter__(self) -> Transaction:
        self._catalog = open_catalog(self._given)
        return self

    def write(self, data: Any, dataset_uri: PathLike, **keywords: Any) -> None:
        """Write rows to a dataset, as `write_dataset` does, with its keywords except `catalog`.

        Raises:
            InvalidOptionError: this transaction writes to the dataset already, or has
                ended; and what `write_dataset` raises.
        """
        if self._catalog is None:
            raise InvalidOptionError(
                option="transaction", reason="has not begun or has ended: use it in a with block."
            )
        if "catalog" in keywords:
            raise InvalidOptionError(option="catalog", reason="is that of the transaction.")
        address = Address(dataset_uri, self._catalog)
        if any(staged.key == address.key for staged, _files in self._writes):
            raise InvalidOptionError(
                option="path",
                value=address.uri,
                reason="is written by this transaction already. Write all of its rows at once, "
                "or use two transactions.",
            )
        options = write_options(**keywords)
        self._writes.append(stage(self._catalog, address, to_reader(data), options))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        catalog, self._catalog = self._catalog, None
        assert catalog is not None
        try:
            if error is None:
                self.results = commit_all(catalog, self._writes)
            else:
                for staged, files in self._writes:
                    abort(catalog, staged, files)
        finally:
            if catalog is not self._given:
                catalog.close()


def commit_all(
    catalog: Catalog, writes: Sequence[tuple[StagedWrite, Sequence[FileMetadata]]]
) -> list[WriteResult]:
    """Commit writes to different datasets in one database transaction.

    Raises:
        CommitConflictError: one of them collides with a newer commit; none is visible.
        CommitUnknownError: the catalog was lost and cannot be asked.
    """
    if not writes:
        return []
    ready: list[Ready] = []

    def land_all(tx: CatalogTransaction) -> dict[str, WriteResult]:
        # All of them before the first lock is held.
        recorded = [(record_ahead(tx, write.staged, write.prepared), write) for write in ready]
        # In the order of their ids, everywhere: two transactions that lock the same
        # datasets in different orders would wait for each other.
        recorded.sort(key=lambda pair: pair[0].current.dataset.id)
        return {
            write.staged.key: land(
                tx, write.staged, write.files, write.removed, write.prepared, ahead
            )
            for ahead, write in recorded
        }

    first = writes[0][0]
    try:
        for staged, files in writes:
            ready.append(make_ready(catalog, staged, files))
        landed = in_transaction(
            catalog, first.uri, first.write_id, land_all, patience_seconds=PATIENCE_SECONDS
        )
    except CommitUnknownError:
        raise
    except BaseException:
        for write in ready:
            abort(catalog, write.staged, write.files)
        for staged, files in writes[len(ready) :]:
            abort(catalog, staged, files)
        raise
    for write in ready:
        if write.files and not landed[write.staged.key].metadata:
            # An earlier write with the same idempotency pair stands for this one.
            abort(catalog, write.staged, write.files)
    return [landed[staged.key] for staged, _files in writes]
