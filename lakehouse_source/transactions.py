"""Verb. Writes to several datasets of one catalog that become visible together, or not at all."""

from __future__ import annotations

from typing import Any

from lakehouse_source.catalog import Catalog, open_catalog
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import FileMetadata, WriteResult
from lakehouse_source.read.address import Address, CatalogLike, PathLike
from lakehouse_source.write.commit.commit import abort, commit_all
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.layout.after_commit import compact_after
from lakehouse_source.write.rows.inputs import opened_input
from lakehouse_source.write.rows.stage import stage, write_options


def transaction(catalog: CatalogLike) -> Transaction:
    """Several writes, to different datasets of one catalog, as one commit.

    Each `write` writes its files at once. All writes become visible when the block ends, in
    one database transaction. If the block or the commit raises, none becomes visible and
    the files are deleted.

    >>> with lake.transaction("sqlite:////data/catalog.db") as tx:
    ...     tx.write({"id": [1]}, "/data/orders")
    ...     tx.write({"order": [1, 1]}, "/data/lines", mode="overwrite")
    >>> [result.row_count for result in tx.results]
    [1, 2]
    """
    return Transaction(catalog)


class Transaction:
    """Use it in a `with` block. Afterwards `results` has one entry per write, in order.

    >>> with lake.transaction("sqlite:////data/catalog.db") as tx:
    ...     tx.write({"id": [1]}, "/data/orders")
    >>> [result.version for result in tx.results]
    [1]
    """

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

        >>> with lake.transaction("sqlite:////data/catalog.db") as tx:
        ...     tx.write(flights, "/data/all", partition_by="month")
        ...     tx.write(flights, "/data/all")
        Traceback (most recent call last):
        lakehouse_source.errors.InvalidOptionError: option 'path' (given: 'file:///data/all'): ...
        """
        if self._catalog is None:
            raise InvalidOptionError(
                option="transaction", reason="has not begun or has ended: use it in a with block."
            )
        if "catalog" in keywords:
            raise InvalidOptionError(option="catalog", reason="is that of the transaction.")
        address = Address.named(dataset_uri, self._catalog, keywords.pop("storage_options", None))
        if any(address.is_at(staged.uri) for staged, _files in self._writes):
            raise InvalidOptionError(
                option="path",
                value=address.uri,
                reason="is written by this transaction already. Write all of its rows at once, "
                "or use two transactions.",
            )
        schema, progress = keywords.pop("schema", None), keywords.pop("progress", False)
        options = write_options(**keywords)
        rows, relation = opened_input(data, schema, options.writer)
        self._writes.append(
            stage(self._catalog, address, rows, options, relation=relation, progress=progress)
        )

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        catalog, self._catalog = self._catalog, None
        assert catalog is not None
        try:
            if error is None:
                self.results = commit_all(catalog, self._writes)
                for (staged, _files), result in zip(self._writes, self.results):
                    compact_after(catalog, staged, result)
            else:
                for staged, files in self._writes:
                    abort(catalog, staged, files)
        finally:
            if catalog is not self._given:
                catalog.close()
