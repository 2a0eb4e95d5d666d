"""Verb. The functions that a Python user begins with: write, read, open, convert, transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakehouse_source.arguments import flag, whole_number
from lakehouse_source.catalog import Catalog, open_catalog
from lakehouse_source.dataset import Dataset
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import FileMetadata, WriteResult
from lakehouse_source.read.address import Address, CatalogLike, PathLike
from lakehouse_source.read.scan import Predicates, Scan
from lakehouse_source.storage import Storage
from lakehouse_source.write import delta
from lakehouse_source.write.add_files import ReadFooters, add_files
from lakehouse_source.write.commit.apply import check_read
from lakehouse_source.write.commit.commit import abort, commit, commit_all
from lakehouse_source.write.commit.conflicts import Isolation, isolation_of
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.commit.transaction import TransactionCatalog
from lakehouse_source.write.layout import compact_after
from lakehouse_source.write.rows import opened_input, stage, write_options

if TYPE_CHECKING:
    import pyarrow.dataset as ds


# --- Statements over datasets of one catalog that become visible together, or not at all.


def transaction(catalog: CatalogLike, *, isolation: str | None = None) -> Transaction:
    """Any statements over datasets of one catalog, as one commit.

    Statements write their files at once, and reads of the transaction see what it has done. All
    becomes visible when the block ends, in one database transaction. If the block or the commit
    raises, nothing becomes visible and the files are deleted.

    Args:
        catalog: as in `write_dataset`.
        isolation: that of all UPDATE, DELETE and MERGE in the block; by default each has its own.
            With "serializable" the commit also refuses where other commits changed or added rows
            that scans of the block may have read. What dataset or version was read otherwise, as by
            `history`, is not checked.

    Others may commit meanwhile, and the rules for two writers hold for each statement. A dataset
    that the block uses again after it wrote to it must stay as it is until the end.

    >>> with lake.transaction("sqlite:////data/catalog.db") as tx:
    ...     tx.write({"id": [1, 2], "paid": [False, False]}, "/data/orders")
    ...     orders = tx.open_dataset("/data/orders")
    ...     changed = orders.update({"paid": "true"}, "id = 2")
    ...     tx.write(orders.scan("paid").to_table(), "/data/paid", mode="overwrite")
    >>> [result.version for result in tx.results]
    [1, 2, 1]
    """
    if isolation is not None:
        isolation_of(isolation)
    return Transaction(catalog, isolation=isolation)


class Transaction:
    """Use it in a `with` block. Afterwards `results` has one entry per commit, in order.

    >>> with lake.transaction("sqlite:////data/catalog.db") as tx:
    ...     tx.write({"id": [1]}, "/data/orders")
    >>> [result.version for result in tx.results]
    [1]
    """

    def __init__(self, catalog: CatalogLike, *, isolation: str | None = None) -> None:
        self.results: list[WriteResult] = []
        self._given = catalog
        self._isolation = None if isolation is None else isolation_of(isolation)
        self._writes: list[tuple[StagedWrite, list[FileMetadata]]] = []
        self._opened: Catalog | None = None
        self._catalog: TransactionCatalog | None = None

    def __enter__(self) -> Transaction:
        self._opened = open_catalog(self._given)
        check = check_read if self._isolation is Isolation.SERIALIZABLE else None
        self._catalog = TransactionCatalog(self._opened, self._isolation, check)
        return self

    def write(self, data: Any, dataset_uri: PathLike, **keywords: Any) -> None:
        """Write rows to a dataset, as `write_dataset` does, with its keywords except `catalog`.

        Raises:
            InvalidOptionError: the transaction has not begun or has ended; and what `write_dataset`
                raises.

        >>> with lake.transaction("sqlite:////data/catalog.db") as tx:
        ...     tx.write(flights, "/data/all", partition_by="month")
        ...     tx.write(flights, "/data/all")
        >>> [result.version for result in tx.results]
        [1, 2]
        """
        address = self._address(dataset_uri, keywords)
        schema, progress = keywords.pop("schema", None), keywords.pop("progress", False)
        options = write_options(**keywords)
        catalog = self._catalog
        assert catalog is not None
        rows, relation = opened_input(data, schema, options.writer)
        staged, files = stage(catalog, address, rows, options, relation=relation, progress=progress)
        self._writes.append((staged, files))

        def act() -> None:
            result = commit(catalog, staged, files)
            compact_after(catalog, staged, result)

        def undo(failure: BaseException | None) -> None:
            abort(catalog, staged, files, failure=failure)

        catalog.defer(staged.uri, act, undo)

    def open_dataset(self, dataset_uri: PathLike, **keywords: Any) -> Dataset:
        """Open a dataset as this transaction sees it, to read it and to change it.

        Its UPDATE, DELETE and MERGE, and changes of its schema, properties and constraints, wait
        for the end of the block. Others are refused. The numbers of versions that others have not
        seen yet may change until then. Afterwards the handle is of no use.

        Args:
            dataset_uri, keywords: as in `write_dataset`; `storage_options`.

        Raises:
            DatasetNotFoundError, InvalidOptionError

        >>> with lake.transaction("sqlite:////data/catalog.db") as tx:
        ...     tx.write({"id": [1, 2]}, "/data/orders")
        ...     orders = tx.open_dataset("/data/orders")
        ...     deleted = orders.delete("id = 1")
        ...     orders.scan().count_rows()
        1
        """
        return Dataset(self._address(dataset_uri, keywords))

    def _address(self, dataset_uri: PathLike, keywords: dict[str, Any]) -> Address:
        if self._catalog is None:
            raise InvalidOptionError(
                option="transaction", reason="has not begun or has ended: use it in a with block."
            )
        if "catalog" in keywords:
            raise InvalidOptionError(option="catalog", reason="is that of the transaction.")
        address = Address.named(dataset_uri, self._opened, keywords.pop("storage_options", None))
        address.catalog = self._catalog
        return address

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        opened, self._opened = self._opened, None
        catalog, self._catalog = self._catalog, None
        assert catalog is not None
        assert opened is not None
        try:
            try:
                if error is None and catalog.only_writes():
                    self.results = commit_all(catalog.database, self._writes)
                    for (staged, _), result in zip(self._writes, self.results):
                        compact_after(catalog.database, staged, result)
                elif error is None:
                    self.results = catalog.commit_all()
            except BaseException as failure:
                catalog.end(failure, committed=False)
                raise
            catalog.end(error, committed=error is None)
        finally:
            if opened is not self._given:
                opened.close()


def write_dataset(
    data: Any,
    dataset_uri: PathLike,
    *,
    catalog: CatalogLike = None,
    mode: str = "append",
    partition_by: str | Sequence[str] | None = None,
    schema_merge: bool = False,
    promote_to_string: bool | None = None,
    overwrite_where: Predicates = None,
    writer: str = "pyarrow",
    commit_metadata: Mapping[str, Any] | None = None,
    expected_version: int | None = None,
    schema: pa.Schema | None = None,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **layout: Any,
) -> WriteResult:
    """Write rows to a dataset as one new version; the first write creates the dataset.

    Args:
        data: a `pa.Table`, `pa.RecordBatch`, `pa.RecordBatchReader` or Arrow dataset, a
            pandas DataFrame, a Polars DataFrame or LazyFrame, a DuckDB relation, a
            DataFusion DataFrame, any object with `__arrow_c_stream__`, an iterable of
            record batches, a list of dicts or a dict of lists. Streams are consumed batch
            by batch. Named levels of a pandas index are columns, as in `to_parquet`.
        dataset_uri: the dataset's folder or URI, or its name in the catalog.
        catalog: `sqlite:///abs/path.db`, `postgresql://…`, `duckdb:///abs/path.db`,
            `env:NAME` or an open catalog. Default: the environment variable
            `PLAKE_CATALOG`; else, for a local dataset, SQLite in
            `<dataset>/_plake/catalog.db`.
        mode: `"append"`, `"overwrite"`, or `"error"` if the dataset must be new.
        partition_by: columns that become Hive-style folders; fixed by the first write.
        schema_merge: add new columns and promote types instead of refusing them.
        promote_to_string: turn a column into strings where no other promotion fits.
        overwrite_where: with mode `"overwrite"`, replace only the rows that satisfy
            this condition; all incoming rows must satisfy it.
        writer: `"pyarrow"`, or `"duckdb"` (1.4 or later, for local datasets) to write the
            files with DuckDB's `COPY`. With DuckDB 2 the rows of a DuckDB relation then stay
            inside DuckDB, where no column has to be converted or checked. Types that DuckDB
            does not write exactly, and bloom filters, are refused. DuckDB's files have no page
            checksums, and their row groups only about the chosen size.
        commit_metadata: a mapping that JSON can hold, stored in the history.
        expected_version: commit only if the dataset is still at this version.
        schema: columns and types of Python values, or of an iterable of batches. Other data
            must have this schema.
        progress: show how many rows are written. By default only on a terminal (standard
            error), and only if it takes more than a second.
        storage_options: how to reach an object store, by name: the keyword arguments of
            PyArrow's filesystem (`region`, `secret_key`, `account_key`, …), the names of fsspec and
            delta-rs for these, or the arguments of an fsspec driver. `env:NAME` takes a value from
            an environment variable. They are stored nowhere. Default: what the store's client finds
            by itself.
        layout: further keywords.

            - `target_file_size_bytes`, `row_group_rows`, `compression`: the size of files
              in bytes, of row groups in rows, and the codec.
            - `sort_by`: columns by which the rows of each file are sorted.
            - `cluster_by`: one to four columns (nested ones as `"a.b"`) that conditions are often
              about. A write places rows with similar values of these columns together, among the
              rows that it has in memory; `dataset.cluster()` does the rest.
            - `bloom_filter_columns`: columns that get bloom filters.
            - `variant_paths`: paths of VARIANT, as `"payload:user.id"`, that files have as columns:
              conditions on them prune, and the three lists above may name them. Default: frequent
              paths of the first large file, chosen within `variant_paths_most`,
              `variant_paths_share`, `variant_paths_depth`.
            - `auto_compact`, `auto_compact_min_files`: see `Dataset.compact`.
            - `index_columns`: columns of the catalog's search index, see below.

              Where a keyword above or `promote_to_string` is not given, the dataset's property
              applies (`Dataset.set_properties`). The keywords of the first write become properties.
            - `partition_overwrite_mode`: `"static"`, or `"dynamic"` to overwrite only the
              partitions that the incoming rows belong to.
            - `txn_app_id`, `txn_version`: an idempotency pair, a text and an integer. If the
              application has committed this number or a higher one, nothing is committed: the
              result is `skipped`, with the version of the earlier commit, and a warning is logged.
              A `restore` that takes rows back leaves their pairs: load again with a higher number.

    The catalog finds files by the values of the first 32 leaf columns, or of the columns
    that the first write names in `index_columns` (dotted if nested; a struct stands for all
    its fields; `Dataset.set_properties` changes them), and always by partition columns.
    Conditions on other columns give the same rows, but the statistics of every remaining file
    are read to check them.

    Returns:
        The new version and the files written.

    Raises:
        DatasetExistsError: the mode is `"error"` and the dataset exists.
        SchemaMismatchError: the data does not fit the dataset's schema or `overwrite_where`.
        InvalidOptionError, InvalidPredicateError: an argument is wrong.
        CommitConflictError: another commit conflicts with this one.
        CatalogUnavailableError, StorageError: the catalog or a file cannot be used.
        CommitUnknownError: the catalog was lost during the commit; the data may be
            committed or not. After every other error nothing was committed.

    >>> more = pa.table({"month": [4], "carrier": ["WN"], "miles": [337]})
    >>> lake.write_dataset(more, "/data/flights")
    WriteResult(version=2, files=1, row_count=1, schema_version=1)
    >>> april = {"mode": "overwrite", "overwrite_where": "month = 4"}
    >>> lake.write_dataset(more, "/data/flights", **april).version
    3
    >>> lake.write_dataset({"month": [5.5]}, "/data/flights")
    Traceback (most recent call last):
    lakehouse_source.errors.SchemaMismatchError: column 'month' of file:///data/flights ...
    """
    options = write_options(
        mode=mode,
        partition_by=partition_by,
        schema_merge=schema_merge,
        promote_to_string=promote_to_string,
        overwrite_where=overwrite_where,
        writer=writer,
        commit_metadata=commit_metadata,
        expected_version=expected_version,
        **layout,
    )
    address = Address.named(dataset_uri, catalog, storage_options)
    return write_at(address, data, options, schema=schema, progress=progress)


def write_at(
    address: Address,
    data: Any,
    options: WriteOptions,
    *,
    schema: pa.Schema | None = None,
    progress: bool | None = None,
) -> WriteResult:
    """Do what `write_dataset` does."""
    rows, relation = opened_input(data, schema, options.writer)
    with address.open(create=True) as opened:
        staged, files = stage(opened, address, rows, options, relation=relation, progress=progress)
        result = commit(opened, staged, files)
        compact_after(opened, staged, result)
        return result


def read_dataset(
    dataset_uri: PathLike,
    *,
    catalog: CatalogLike = None,
    version: int | str | None = None,
    timestamp: datetime | str | None = None,
    predicates: Predicates = None,
    columns: Sequence[str] | None = None,
    as_dataset: bool = False,
    verify_checksums: bool | Literal["file"] = False,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table | ds.FileSystemDataset:
    """Read exactly the rows that match `predicates`.

    Conditions follow Spark SQL's three-valued logic, and Arrow expressions Arrow's rules.

    Args:
        dataset_uri: the dataset's folder or URI, or its name in the catalog.
        catalog: as in `write_dataset`.
        predicates: an SQL condition, a `(column, op, value)` triple, a predicate node, a
            `pyarrow.dataset.Expression`, or a list of them, all of which must hold. A
            list of lists is an OR of ANDs, as in `pyarrow.parquet.read_table(filters=)`.
            Arrow decides which rows an expression keeps; plake prunes by what it implies.
        version, timestamp: read an older version, by its number or by a tag (`Dataset.tag`). A
            timestamp means the last version committed at or before that time; a text is ISO 8601,
            in UTC if it has no zone.
        columns: top-level columns to read, all by default.
        as_dataset: return a dataset of the fragments that may contain matching rows; they
            may contain other rows too.
        verify_checksums: compare each page that is read with its checksum; this costs a little time
            and finds accidental damage. "file": compare the SHA-256 of each file with the catalog's
            before its rows are returned; this finds any change. Not with `as_dataset`. Files that
            plake did not write may have no checksums.
        storage_options: as in `write_dataset`.

    Returns:
        A `pa.Table`, or with `as_dataset` a `pyarrow.dataset.FileSystemDataset`.

    Raises:
        DatasetNotFoundError: there is no dataset at this URI in the catalog.
        VersionNotFoundError: there is no such version, or it was expired.
        SchemaMismatchError: there is no such column.
        InvalidPredicateError, InvalidOptionError: an argument is wrong.
        CatalogUnavailableError, StorageError: the catalog or a file cannot be read.
        CorruptDatasetError: a file is not what the catalog says.

    >>> table = lake.read_dataset("/data/flights", predicates="carrier = 'UA'", columns=["miles"])
    >>> table.to_pydict()
    {'miles': [1400, 1089]}
    >>> long = [("month", "<", 3), ("miles", ">", 1400)]
    >>> lake.read_dataset("/data/flights", predicates=long).num_rows
    1
    """
    # One catalog transaction chooses the version and plans the scan. Between two transactions
    # another process could commit, and expire the chosen version.
    address = Address.named(dataset_uri, catalog, storage_options).kept_open()
    scan = Scan(address, predicates, columns, version, timestamp, verify_checksums)
    return scan.to_dataset() if flag("as_dataset", as_dataset) else scan.to_table()


def open_dataset(
    dataset_uri: PathLike,
    *,
    catalog: CatalogLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Open an existing dataset at its newest version.

    Args:
        dataset_uri: the dataset's folder or URI, or its name in the catalog.
        catalog, storage_options: as in `write_dataset`. All methods of the dataset use them.

    Raises:
        DatasetNotFoundError: there is no dataset at this URI in the catalog.
        InvalidOptionError, CatalogUnavailableError

    >>> lake.open_dataset("/data/flights")
    Dataset('file:///data/flights', version=1)
    """
    return Dataset(Address.named(dataset_uri, catalog, storage_options).kept_open())


def convert(
    folder: PathLike,
    *,
    catalog: CatalogLike = None,
    format: str | None = None,
    version: int | None = None,
    partitioning: str | None = "hive",
    partition_types: Mapping[str, pa.DataType] | None = None,
    index_columns: str | Sequence[str] | None = None,
    commit_metadata: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Turn a folder of Parquet files, or a Delta table, into a dataset, in place.

    `Dataset.add_files` adds the files: plake neither rewrites nor deletes them. Their
    schemas are merged by column name: a column that a file lacks is NULL there, and types
    are promoted where each value stays exact. Columns become nullable.

    Of a Delta table, its log tells the files, the rows that are deleted in them, the columns and
    the partition columns of one version. The log stays as it is. Needs `deltalake`.

    Args:
        folder: the folder, which becomes the dataset's.
        catalog: as in `write_dataset`.
        format: `"parquet"` or `"delta"`; by default what the folder is.
        version: the version of the Delta table; by default the newest.
        partitioning: `"hive"` makes partition columns of folders named `key=value`; None
            gives folders no meaning.
        partition_types: types of partition columns by name. Another partition column has the type
            of the files' column of that name; if the files have none, the first of int32, int64,
            date32 and string that fits each value (`01` is the integer 1).
        index_columns: as in `write_dataset`.
        commit_metadata: a mapping that JSON can hold, stored in the history.
        progress: show progress, as in `write_dataset`.
        storage_options: as in `write_dataset`.

    Returns:
        The dataset, at version 1.

    Raises:
        DatasetExistsError: there is a dataset already.
        InvalidOptionError: also if the Delta table has what plake does not read.
        CorruptDatasetError, StorageError, SchemaMismatchError, CommitUnknownError: as
            `Dataset.add_files` raises them.

    >>> import pyarrow.parquet as pq
    >>> pq.write_to_dataset(flights, "/data/exports", partition_cols=["month"])
    >>> lake.convert("/data/exports").partition_by
    ('month',)
    """
    return convert_at(
        Address(folder, catalog, storage_options),
        format=format,
        version=version,
        partitioning=partitioning,
        partition_types=partition_types,
        index_columns=index_columns,
        commit_metadata=commit_metadata,
        progress=progress,
    )


def convert_at(address: Address, **options: Any) -> Dataset:
    """Do what `convert_files` does, and open the dataset."""
    convert_files(address, **options)
    return Dataset(address.kept_open(), committed=True)


def convert_files(
    address: Address,
    *,
    format: str | None = None,
    version: int | None = None,
    partitioning: str | None = "hive",
    partition_types: Mapping[str, pa.DataType] | None = None,
    index_columns: str | Sequence[str] | None = None,
    commit_metadata: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    read_footers: ReadFooters | None = None,
) -> WriteResult:
    """Do what `convert` does, and read nothing after the commit.

    `read_footers` reads the files' footers (see `add_files`).
    """
    options = write_options(
        mode="error", commit_metadata=commit_metadata, index_columns=index_columns
    )
    if version is not None:
        whole_number("version", version)
    with address.open(create=True) as opened:
        if delta.is_meant(Storage(address.location), format, version):
            return delta.take_over(
                opened,
                address,
                options,
                version=version,
                partition_types=partition_types,
                progress=progress,
                read_footers=read_footers,
            )
        return add_files(
            opened,
            address,
            address.location.given,
            options,
            partitioning=partitioning,
            partition_types=partition_types,
            copy=False,
            progress=progress,
            is_new=True,
            read_footers=read_footers,
        )
