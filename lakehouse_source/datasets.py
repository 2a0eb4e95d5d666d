"""Verb. A catalog as its users see it: datasets by name, in namespaces.

Questions about names need little. What makes, opens and drops datasets is imported when asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lakehouse_source.arguments import flag, mapping, path_text, text
from lakehouse_source.catalog import Catalog, CatalogReader, CatalogTransaction
from lakehouse_source.catalog import open_catalog as open_database
from lakehouse_source.catalog.base import WAREHOUSE, in_transaction
from lakehouse_source.catalog.locate import uri_of
from lakehouse_source.catalog.qualified_names import (
    NameLike,
    QualifiedName,
    check_name,
    parse_name,
    quoted,
)
from lakehouse_source.catalog.sql.names import TAKEN, NamedDataset, Namespace
from lakehouse_source.catalog.sql.statements import Session
from lakehouse_source.errors import (
    CatalogUnavailableError,
    DatasetExistsError,
    InvalidOptionError,
    NamespaceExistsError,
)
from lakehouse_source.read.address import Address, PathLike, new_location
from lakehouse_source.read.snapshot import existing
from lakehouse_source.schema.defaults import Identity, declared
from lakehouse_source.storage import StorageLocation, split_branch

if TYPE_CHECKING:
    from lakehouse_source.dataset import Dataset

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """A dataset in the list of a catalog: its namespace, name, URI and newest version.

    >>> [(entry.namespace, entry.name, entry.version) for entry in catalog.datasets()]
    [('default', 'orders', 1)]
    """

    namespace: str
    name: str
    uri: str
    version: int


class DatasetCatalog(Catalog):
    """An open catalog and the names in it.

    A name is a namespace and a name in it, `sales.orders`; `orders` is `default.orders`. Case
    does not matter, and is kept. Parts that hold a dot are given as a tuple or in backticks.
    Every method may raise CatalogUnavailableError.

    >>> catalog.create_namespace("sales")
    >>> catalog.create_dataset("sales.orders", schema, partition_by="day")
    Dataset('file:///data/warehouse/sales/orders', version=1)
    >>> catalog.dataset("SALES.Orders").schema.names
    ['id', 'day']
    >>> catalog.warehouse
    'file:///data/warehouse'
    """

    def __init__(self, database: Catalog, warehouse: PathLike | None = None) -> None:
        self._database = database
        if warehouse is not None:
            given = path_text("warehouse", warehouse)
            if split_branch(given)[1] is not None:
                reason = "reads like a branch."
                raise InvalidOptionError(option="warehouse", value=given, reason=reason)
        self._warehouse = None if warehouse is None else StorageLocation.of(warehouse).uri
        self.url = database.url
        self.redacted_url = database.redacted_url
        self.is_server = database.is_server

    # --- what a catalog is for all rooms

    @property
    def database(self) -> Catalog:
        return self._database

    def read(self) -> AbstractContextManager[CatalogReader]:
        return self._database.read()

    def read_autocommit(self) -> AbstractContextManager[CatalogReader]:
        return self._database.read_autocommit()

    def write(self) -> AbstractContextManager[CatalogTransaction]:
        return self._database.write()

    def still(self) -> AbstractContextManager[CatalogReader]:
        return self._database.still()

    def fill(self, ids: Mapping[str, int], work: Callable[[Session], None]) -> None:
        self._database.fill(ids, work)

    def is_own(self) -> bool:
        return self._database.is_own()

    def close(self) -> None:
        self._database.close()

    def release(self) -> None:
        self._database.release()

    # --- the warehouse

    @property
    def warehouse(self) -> str | None:
        """The folder in which datasets without a location are made.

        It is the one that this catalog was opened with, or else the one that `set_warehouse`
        stored in the catalog for everybody.

        >>> catalog.warehouse
        'file:///data/warehouse'
        """
        return super().warehouse if self._warehouse is None else self._warehouse

    def set_warehouse(self, uri: PathLike) -> None:
        """Store a warehouse in the catalog, for all who open it without one.

        Raises:
            InvalidOptionError: it is no folder.

        >>> catalog.set_warehouse("/data/warehouse")
        """
        canonical = StorageLocation.of(uri).uri
        self._change(lambda tx: tx.names.set_setting(WAREHOUSE, canonical))

    # --- datasets

    def create_dataset(
        self,
        name: NameLike,
        schema: pa.Schema,
        *,
        partition_by: str | Sequence[str] | None = None,
        location: PathLike | None = None,
        properties: Mapping[str, Any] | None = None,
        table_properties: Mapping[str, str] | None = None,
        constraints: Mapping[str, str] | None = None,
        generated: Mapping[str, str | Identity] | None = None,
        comment: str | None = None,
        exist_ok: bool = False,
        replace: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Create an empty dataset under a name, as its version 1.

        Args:
            name: its namespace has to exist.
            schema: NOT NULL holds where a field says so.
            partition_by: columns that become Hive-style folders.
            location: its folder or URI, in which there is no dataset yet. By default
                `<warehouse>/<namespace>/<name>`.
            properties: the layout of its files, as in `Dataset.set_properties`.
            table_properties: texts that users note about it.
            constraints: conditions by name, as in `Dataset.add_constraint`.
            generated: columns of the schema that are computed from others, by name, such as
                `{"day": "CAST(ts AS DATE)"}`: where data lacks a value it is computed, and
                another value is refused. `lake.Identity()` makes unique numbers.
            comment: the table property `comment`.
            exist_ok: answer the dataset that has the name, where one does.
            replace: where a dataset has the name, replace its rows, schema and partition
                columns by one commit; its history stays.
            storage_options: as in `write_dataset`.

        Raises:
            DatasetExistsError: the name or the location is taken.
            NamespaceNotFoundError
            InvalidOptionError: there is no location, or an argument is wrong.
            SchemaMismatchError: a column cannot be stored, or cannot partition.

        >>> catalog.create_dataset("trips", schema, location="/data/trips", comment="by bus")
        Dataset('file:///data/trips', version=1)
        >>> catalog.create_dataset("orders", schema, exist_ok=True).version
        1
        >>> catalog.create_dataset("orders", schema, replace=True).version
        2
        """
        from lakehouse_source.dataset import Dataset
        from lakehouse_source.write.commit.begin import begin
        from lakehouse_source.write.commit.commit import commit
        from lakehouse_source.write.rows import write_options

        key = parse_name(name)
        check_name(key)
        if not isinstance(schema, pa.Schema):
            raise InvalidOptionError(
                option="schema", value=schema, reason="must be an Arrow schema (pa.schema)."
            )
        while True:
            with self.read() as reader:
                found = reader.names.find(key)
                reader.names.namespace(key[0])
            if found is not None and flag("exist_ok", exist_ok):
                return self._open(found, storage_options)
            if found is not None and not flag("replace", replace):
                raise DatasetExistsError(dataset=quoted(key), hint=TAKEN)
            texts = dict(table_properties or {})
            if comment is not None:
                texts["comment"] = text("comment", comment)
            options = write_options(
                mode="error" if found is None else "overwrite",
                partition_by=partition_by,
                overwrite_schema=found is not None,
                register_as=key,
                managed=found is None and location is None,
                table_properties=texts,
                constraints=dict(mapping("constraints", constraints or {})),
                statement="create" if found is None else "replace",
                **(properties or {}),
            )
            computed = declared(schema, mapping("generated", generated or {}))
            uri = self._uri(found) if found is not None else self.new_location(key, location)
            address = Address(uri, self, storage_options)
            try:
                commit(self, begin(self, address, computed, options), [])
                return Dataset(address, committed=True)
            except DatasetExistsError:  # somebody may have made it at the same time
                with self.read() as reader:
                    meanwhile = reader.names.find(key)
                if found is not None or meanwhile is None or not (exist_ok or replace):
                    raise

    def dataset(
        self, name: NameLike, *, storage_options: Mapping[str, Any] | None = None
    ) -> Dataset:
        """Open the dataset with a name, at its newest version.

        Raises:
            DatasetNotFoundError, NamespaceNotFoundError

        >>> catalog.dataset("default.orders").uri
        'file:///data/warehouse/default/orders'
        """
        with self.read() as reader:
            found = reader.names.get(parse_name(name))
        return self._open(found, storage_options)

    def locate(self, name: NameLike) -> str:
        """The URI of the dataset with a name.

        Raises:
            DatasetNotFoundError, NamespaceNotFoundError

        >>> catalog.locate("orders")
        'file:///data/warehouse/default/orders'
        """
        with self.read() as reader:
            return self._uri(reader.names.get(parse_name(name)))

    def datasets(self, namespace: str | None = None) -> list[DatasetEntry]:
        """The datasets that have a name, of one namespace or of all.

        Raises:
            NamespaceNotFoundError

        >>> [entry.name for entry in catalog.datasets("default")]
        ['orders']
        """
        with self.read() as reader:
            found = reader.names.datasets(namespace)
        return [DatasetEntry(one.namespace, one.name, self._uri(one), one.version) for one in found]

    def views(self, namespace: str | None = None) -> list[tuple[str, str]]:
        """The namespaces and names of the views, which Spark SQL makes and reads.

        Raises:
            NamespaceNotFoundError

        >>> catalog.views()
        []
        """
        with self.read() as reader:
            names = reader.names
            spaces = [namespace] if namespace is not None else [n.name for n in names.namespaces()]
            return [(one, name) for one in spaces for name in names.view_names(one)]

    def register(self, name: NameLike, location: PathLike) -> None:
        """Give a name to a dataset that this catalog has at a location.

        Raises:
            DatasetNotFoundError: there is none.
            DatasetExistsError: another dataset has the name.
            NamespaceNotFoundError, InvalidOptionError

        >>> lake.write_dataset(flights, "/data/all", catalog=catalog).version
        1
        >>> catalog.register("flights", "/data/all")
        >>> catalog.dataset("flights").scan().count_rows()
        4
        """
        key, address = parse_name(name), Address(location, self)

        def give(tx: CatalogTransaction) -> None:
            # Under the lock: a vacuum may be deleting it.
            record = existing(tx.lock_dataset(address.key), address.uri, self.redacted_url)
            tx.names.give(key, record.id)

        self._change(give)

    def rename(self, old: NameLike, new: NameLike) -> None:
        """Give another name to a dataset; its files stay where they are.

        Raises:
            DatasetNotFoundError, DatasetExistsError, NamespaceNotFoundError,
            InvalidOptionError

        >>> catalog.rename("orders", "purchases")
        >>> catalog.dataset("purchases").uri
        'file:///data/warehouse/default/orders'
        """
        before, after = parse_name(old), parse_name(new)

        def change(tx: CatalogTransaction) -> NamedDataset:
            tx.names.rename(before, after)
            return tx.names.get(after)

        def is_renamed(tx: CatalogTransaction, renamed: NamedDataset) -> bool:
            found = tx.names.find(after)
            # With the name as it is written: the old one may differ in case only.
            return found is not None and (found.dataset_id, found.name) == (
                renamed.dataset_id,
                renamed.name,
            )

        self._change(change, is_renamed)

    def drop(
        self,
        name: NameLike,
        *,
        purge: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the name away from a dataset, or delete the dataset.

        Without `purge` the dataset stays in the catalog and in its folder: it can be opened by
        its URI, and `undrop` gives it back its name. Where plake chose the folder, a vacuum of the
        catalog (`lake.vacuum`) deletes it after its retention, unless somebody has written to it
        since or given it a name. With `purge` nobody can read it any more,
        in any version, and the files that plake wrote are deleted.

        Raises:
            DatasetNotFoundError, NamespaceNotFoundError
            StorageError: a file cannot be deleted, of this dataset or of one that was dropped
                before. The dataset is dropped; `finish_drops` deletes the rest.

        >>> catalog.drop("orders", purge=True)
        >>> catalog.datasets()
        []
        """
        from lakehouse_source.maintenance.vacuum_catalog import drop_dataset

        key, purge = parse_name(name), flag("purge", purge)

        def remove(tx: CatalogTransaction) -> NamedDataset:
            found = tx.names.get(key)
            if purge:
                drop_dataset(tx, found.base_uri)
            return tx.names.remove(key)

        def is_removed(tx: CatalogTransaction, removed: NamedDataset) -> bool:
            found = tx.names.find(key)
            return found is None or found.dataset_id != removed.dataset_id

        self._change(remove, is_removed)
        if purge:
            try:
                self.finish_drops(storage_options=storage_options)
            except CatalogUnavailableError as error:
                # It is dropped: an error would say that it is not.
                _LOG.warning("files of %s are left for finish_drops(): %s", quoted(key), error)

    def dropped(self) -> list[DatasetEntry]:
        """The datasets whose names were dropped and that are there still, the last one first.

        Each has the name that it had. `undrop` gives it back, and `drop` with `purge` after that
        deletes the dataset. `lake.vacuum(dry_run=True)` tells which ones a vacuum would delete.

        >>> catalog.drop("orders")
        >>> [(entry.name, entry.uri) for entry in catalog.dropped()]
        [('orders', 'file:///data/warehouse/default/orders')]
        """
        with self.read() as reader:
            found = reader.names.dropped()
        return [DatasetEntry(one.namespace, one.name, self._uri(one), one.version) for one in found]

    def undrop(self, name: NameLike) -> None:
        """Give the dataset back its name that had it last and was dropped without `purge`.

        Raises:
            DatasetNotFoundError: no dataset lost this name, or it was deleted.
            DatasetExistsError: another dataset has the name now. Rename that one first.
            NamespaceNotFoundError: the namespace was dropped too. Create it first.

        >>> catalog.drop("orders")
        >>> catalog.undrop("orders")
        >>> catalog.dataset("orders").version
        1
        """
        key = parse_name(name)
        self._change(
            lambda tx: tx.names.undrop(key),
            lambda tx, one: tx.names.of_dataset(one.dataset_id) is not None,
        )

    def finish_drops(self, *, storage_options: Mapping[str, Any] | None = None) -> int:
        """Delete what a `drop` with `purge` left that was interrupted; answers how many datasets.

        A dataset whose files cannot be deleted stays for the next call. The others are finished,
        and then the error names each dataset that is left.

        Raises:
            StorageError: a file cannot be deleted.
            InvalidOptionError: the store of a dataset does not know a storage option.

        >>> catalog.finish_drops()
        0
        """
        from lakehouse_source.maintenance.vacuum_catalog import finish_drops

        return finish_drops(self, storage_options)

    # --- namespaces

    def namespaces(self) -> list[str]:
        """The names of all namespaces.

        >>> catalog.namespaces()
        ['default']
        """
        with self.read() as reader:
            return [namespace.name for namespace in reader.names.namespaces()]

    def namespace(self, name: str) -> Namespace:
        """A namespace and its properties.

        Raises:
            NamespaceNotFoundError

        >>> catalog.namespace("DEFAULT").name
        'default'
        """
        with self.read() as reader:
            return reader.names.namespace(name)

    def create_namespace(
        self, name: str, *, properties: Mapping[str, str] | None = None, exist_ok: bool = False
    ) -> None:
        """Make a namespace; `properties` are texts that users note about it.

        Raises:
            NamespaceExistsError, InvalidOptionError

        >>> catalog.create_namespace("summer", properties={"owner": "ann"})
        >>> catalog.create_namespace("summer", exist_ok=True)
        """
        try:
            self._change(
                lambda tx: tx.names.create_namespace(name, properties),
                lambda tx, _: tx.names.find_namespace(name) is not None,
            )
        except NamespaceExistsError:
            if not exist_ok:
                raise

    def set_namespace_properties(self, name: str, properties: Mapping[str, str | None]) -> None:
        """Set texts that users note about a namespace; None removes one.

        Raises:
            NamespaceNotFoundError

        >>> catalog.set_namespace_properties("default", {"owner": None, "comment": "2026"})
        >>> catalog.namespace("default").properties
        {'comment': '2026'}
        """

        def change(tx: CatalogTransaction) -> None:
            merged = {**tx.names.namespace(name).properties, **properties}
            texts = {key: value for key, value in merged.items() if value is not None}
            tx.names.set_namespace_properties(name, texts)

        self._change(change)

    def drop_namespace(self, name: str, *, cascade: bool = False) -> None:
        """Remove a namespace; with `cascade` the names in it too, as `drop` does.

        Raises:
            NamespaceNotFoundError, NamespaceNotEmptyError
            InvalidOptionError: it is the default one.

        >>> catalog.create_namespace("summer")
        >>> catalog.drop_namespace("summer")
        """

        cascade = flag("cascade", cascade)

        def remove(tx: CatalogTransaction) -> None:
            for one in tx.names.datasets(name) if cascade else ():
                tx.names.remove((one.namespace, one.name))
            for view in tx.names.view_names(name) if cascade else ():
                tx.names.remove_view((name, view))
            tx.names.drop_namespace(name)

        self._change(remove, lambda tx, _: tx.names.find_namespace(name) is None)

    # --- inside

    def _change(
        self,
        work: Callable[[CatalogTransaction], T],
        carried_out: Callable[[CatalogTransaction, T], bool] | None = None,
    ) -> None:
        """Run `work` in a transaction; see `in_transaction`."""
        in_transaction(self, self.redacted_url, "", work, carried_out=carried_out, resolve=False)

    def _open(
        self, found: NamedDataset, storage_options: Mapping[str, Any] | None = None
    ) -> Dataset:
        from lakehouse_source.dataset import Dataset

        return Dataset(Address(self._uri(found), self, storage_options))

    def _uri(self, found: NamedDataset) -> str:
        return uri_of(self, found.base_uri) or found.base_uri

    def new_location(self, key: QualifiedName, location: PathLike | None = None) -> str:
        """Where a new dataset is made: as asked for, or in a folder that no dataset has.

        Raises:
            InvalidOptionError: there is no location and no warehouse.

        >>> catalog.new_location(("default", "visits"))
        'file:///data/warehouse/default/visits'
        """
        return new_location(self, key, location)


def open_catalog(
    url: str | Catalog | None = None, *, warehouse: PathLike | None = None, create: bool = True
) -> DatasetCatalog:
    """Open a catalog by its URL; it connects when it is first used.

    Args:
        url: `sqlite:///abs/path.db`, `postgresql://…`, `duckdb:///abs/path.db`, `env:NAME`, or
            an open catalog. Default: the environment variable `PLAKE_CATALOG`.
        warehouse: the folder or URI in which datasets without a location are made. Default:
            the one that is stored in the catalog.
        create: make the catalog's tables (and the file of SQLite or DuckDB) when missing.

    Raises:
        InvalidOptionError: the URL is none that plake knows.

    >>> with lake.open_catalog("sqlite:////data/catalog.db") as catalog:
    ...     lake.write_dataset(flights, "/data/all", catalog=catalog).version
    1
    >>> lake.open_catalog("mysql://host/database")
    Traceback (most recent call last):
    lakehouse_source.errors.InvalidOptionError: option 'catalog' (given: 'mysql:...'): ...
    """
    if isinstance(url, DatasetCatalog) and warehouse is None:
        return url
    return DatasetCatalog(open_database(url, create=create).database, warehouse)
