"""Verb. A scan in Python: plan, read, count, explain, and convert for other engines."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from lakehouse_source.arguments import column_names, flag, whole_number
from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.engines import files as engine_files
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import SeenVersion
from lakehouse_source.parquet.reader import READ_BUFFER_BYTES, read_all
from lakehouse_source.read.address import Address
from lakehouse_source.read.aggregates import count_certain
from lakehouse_source.read.plan import Pruning, ScanPlan, plan
from lakehouse_source.read.snapshot import Snapshot, resolve_columns
from lakehouse_source.schema.arrow_arrays import batches, concatenated, first
from lakehouse_source.schema.fields import with_metadata_columns
from lakehouse_source.schema.variant_storage import has_variant
from lakehouse_source.storage import Storage

if TYPE_CHECKING:  # imports pandas: loaded only where it is needed
    import pyarrow.dataset as ds

    from lakehouse_source.pictures.markup import Markup

# What `predicates=` takes: see `PredicateSet.of`.
Predicates: TypeAlias = Any


class Scan:
    """A condition and columns over one version. Each method plans and reads on its own.

    >>> scan = dataset.scan("month = 1", columns=["carrier"])
    >>> scan
    Scan('file:///data/flights', where=month = 1)
    >>> scan.to_table().to_pylist()
    [{'carrier': 'UA'}, {'carrier': 'AA'}]
    """

    def __init__(
        self,
        address: Address,
        predicates: Predicates,
        columns: Sequence[str] | None,
        version: int | str | SeenVersion | None,
        timestamp: datetime | str | None,
        verify_checksums: bool | Literal["file"] = False,
        limit: int | None = None,
    ) -> None:
        self._address = address
        self._predicates = PredicateSet.of(predicates)
        self._columns = column_names("columns", columns)
        self._version = version
        self._timestamp = timestamp
        if limit is not None and whole_number("limit", limit) < 0:
            raise InvalidOptionError(option="limit", value=limit, reason="must not be negative.")
        self._limit = limit
        self._verify_files = verify_checksums == "file"
        self._verify_checksums = self._verify_files or flag("verify_checksums", verify_checksums)

    def __repr__(self) -> str:
        return f"Scan({self._address.uri!r}, where={self._predicates})"

    @contextmanager
    def _snapshot(self) -> Iterator[tuple[CatalogReader, Snapshot]]:
        with self._address.open() as catalog, catalog.read() as reader:
            found = self._address.snapshot(catalog, reader, self._version, self._timestamp)
            if not isinstance(self._version, (int, str)) and self._timestamp is None:
                key = found.dataset.base_uri
                catalog.note_read(key, found.uri, found.seen, self._predicates)
            yield reader, found

    def plan(self, *, account: bool = False, statistics: bool = False) -> ScanPlan:
        """The tasks of this scan; opens no data file.

        >>> plan = dataset.scan("month = 1 AND miles > 0").plan()
        >>> [(task.row_count, task.filtered) for task in plan.tasks]
        [(2, False)]
        """
        return self._plan(account=account, statistics=statistics)

    def _plan(self, **options: Any) -> ScanPlan:
        with self._snapshot() as (reader, snapshot):
            return self._plan_of(reader, snapshot, **options)

    def _plan_of(self, reader: CatalogReader, snapshot: Snapshot, **options: Any) -> ScanPlan:
        return plan(
            reader,
            snapshot,
            read_uri=self._address.location,
            predicates=self._predicates,
            columns=self._columns,
            **options,
        )

    def _plan_to_read(self) -> ScanPlan:
        found = self._verified(self._plan(checksums=self._verify_files))
        if self._limit is None:
            return found
        # The files that surely hold as many rows.
        sure, tasks = 0, []
        for task in found.tasks:
            if sure >= self._limit:
                break
            tasks.append(task)
            sure += task.certain_row_count or 0
        return replace(found, tasks=tuple(tasks))

    def _verified(self, found: ScanPlan) -> ScanPlan:
        pages, files = self._verify_checksums, self._verify_files
        if not pages:
            return found
        spec = replace(found.spec, verify_checksums=pages, verify_files=files)
        return replace(found, spec=spec)

    def _check_hands_over(self) -> None:
        """Check that other engines may read the files themselves.

        Raises:
            InvalidOptionError: the scan has a limit or verifies checksums, which plake does while
                it reads.
        """
        if self._limit is not None:
            raise InvalidOptionError(
                option="limit",
                value=self._limit,
                reason="applies where plake reads the files: use to_table(), to_batches() or "
                "to_pandas(), or let the engine limit its rows.",
            )
        if self._verify_checksums:
            raise InvalidOptionError(
                option="verify_checksums",
                value="file" if self._verify_files else True,
                reason="applies where plake reads the files: use to_table() or to_batches().",
            )

    def explain(self, details: bool = False) -> Pruning:
        """How many files, row groups and bytes there are, and how many have to be read.

        The figures come from the catalog alone. Bloom filters and page indexes are in the files:
        readers use them to skip further row groups, which are not counted here. `to_html` writes
        pictures of the files that are read and left out.

        Args:
            details: also tell which part of the condition decided about each row group, and its
                bounds. This opens the footers of the files that are left. `details.table` of the
                answer has a row for each row group, and the text shows the most frequent reasons.

        Raises:
            StorageError, CorruptDatasetError: a file that is left cannot be opened.

        >>> pruning = dataset.scan("month = 1").explain()
        >>> pruning.files_read, pruning.files_total, pruning.rows_read
        (1, 3, 2)
        >>> print(dataset.scan("miles > 1400").explain(details=True).details)
        kept miles > 1400: 1 row group of 1 file, 2 rows; ... has miles from 1400 to 1416
        pruned by statistics miles > 1400: 2 row groups of 2 files, 2 rows; ...
        """
        flag("details", details)
        with self._snapshot() as (reader, snapshot):
            found = self._plan_of(reader, snapshot, account=True)
            why = None
            if details:
                from lakehouse_source.read.why_kept import details as details_of

                why = details_of(reader, snapshot, found, self._address.location)
        pinned = copy.copy(self)
        pinned._version, pinned._timestamp = snapshot.seen, None
        known = replace(found.pruning, details=why) if details else found.pruning
        return replace(known, draw=lambda: pinned._draw(known))

    def _draw(self, pruning: Pruning) -> Markup:
        from lakehouse_source.read.draw_pages import scan_page

        with self._snapshot() as (reader, snapshot):
            bound = self._predicates.bind(snapshot.schema)
            return scan_page(reader, snapshot, bound, pruning)

    def to_batches(self, *, buffer_bytes: int = READ_BUFFER_BYTES) -> Iterator[pa.RecordBatch]:
        """The matching rows as batches, in file order.

        Files are decoded side by side, ahead of the caller by `buffer_bytes` of decoded rows
        and one row group for each core.

        >>> sum(batch.num_rows for batch in dataset.scan("carrier = 'UA'").to_batches())
        2
        """
        if whole_number("buffer_bytes", buffer_bytes) < 0:
            raise InvalidOptionError(
                option="buffer_bytes", value=buffer_bytes, reason="must not be negative."
            )
        return self._batches(buffer_bytes)

    def _batches(self, buffer_bytes: int) -> Iterator[pa.RecordBatch]:
        found = self._plan_to_read()
        storage = Storage(found.spec.uri)
        for table in self._limited(
            read_all(found.spec, found.tasks, storage, buffer_bytes=buffer_bytes)
        ):
            yield from batches(table)

    def _limited(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        left = self._limit
        for table in tables if left != 0 else ():
            if left is None:
                yield table
                continue
            yield first(table, left)
            left -= min(left, table.num_rows)
            if not left:
                return

    def to_table(self) -> pa.Table:
        """The matching rows.

        >>> dataset.scan("carrier = 'UA'", columns=["miles"]).to_table().to_pydict()
        {'miles': [1400, 1089]}
        """
        found = self._plan_to_read()
        ahead = {} if self._limit is None else {"buffer_bytes": 0}
        read = read_all(found.spec, found.tasks, Storage(found.spec.uri), **ahead)
        tables = list(self._limited(read))
        return concatenated(tables, found.spec.output_schema)

    def to_pandas(self, **options: Any) -> Any:
        """The matching rows as a pandas DataFrame; `options` are those of `Table.to_pandas`.

        Values of VARIANT are Python objects.

        >>> dataset.scan("carrier = 'UA'", columns=["miles"]).to_pandas()["miles"].tolist()
        [1400, 1089]
        """
        import pandas

        table = self.to_table()
        frame = table.to_pandas(**options)
        for field in table.schema:
            if has_variant([field]):
                # Not `map`: pandas would take NaN for NULL.
                frame[field.name] = pandas.Series(
                    table.column(field.name).to_pylist(), frame.index, dtype=object
                )
        return frame

    def head(self, rows: int = 10) -> pa.Table:
        """The first matching rows, in the order of the files; reads no more than it needs.

        >>> dataset.scan(columns=["month"]).head(2)["month"].to_pylist()
        [1, 1]
        """
        limited = copy.copy(self)
        limited._limit = rows if self._limit is None else min(rows, self._limit)
        if whole_number("rows", rows) < 0:
            raise InvalidOptionError(option="rows", value=rows, reason="must not be negative.")
        return limited.to_table()

    def count_rows(self) -> int:
        """How many rows match. Files in which every row matches are not opened.

        Without a condition the catalog knows the number. With a condition, the catalog sums the
        rows of files whose bounds show that every row matches; of other files only the condition's
        columns are read.

        >>> dataset.scan().count_rows(), dataset.scan("month = 1").count_rows()
        (4, 2)
        """
        if self._limit is not None:
            return min(self._limit, self._all_rows())
        return self._all_rows()

    def _all_rows(self) -> int:
        with self._snapshot() as (reader, snapshot):
            bound = self._predicates.bind(snapshot.schema)
            # Refuses unknown columns.
            resolve_columns(with_metadata_columns(snapshot.schema, self._columns), self._columns)
            if bound.always_true and "live_rows" in snapshot.summary:
                return snapshot.summary["live_rows"]
            sure, counted = count_certain(reader, snapshot, bound)
            found = plan(
                reader,
                snapshot,
                read_uri=self._address.location,
                predicates=self._predicates,
                columns=bound.columns,
                without=counted,
                checksums=self._verify_files,
            )
        found = self._verified(found)
        unsure = []
        for task in found.tasks:
            certain = task.certain_row_count
            if certain is None:
                unsure.append(task)
            else:
                sure += certain
        tables = read_all(found.spec, tuple(unsure), Storage(found.spec.uri))
        return sure + sum(int(table.num_rows) for table in tables)

    def fragments(self) -> list[ds.ParquetFileFragment]:
        """The Parquet fragments, limited to the row groups, that can hold matches.

        The `partition_expression` of a fragment holds on each of its rows. Arrow's own
        filters lose rows with NaN; the dataset that `to_dataset()` returns does not.

        >>> fragments = dataset.scan("month = 1").fragments()
        >>> [fragment.count_rows() for fragment in fragments]
        [2]
        >>> print(fragments[0].partition_expression)
        (((month == 1) and ((carrier >= "AA") and (carrier <= "UA"))) and ...
        """
        from lakehouse_source.parquet import fragments

        self._check_hands_over()
        found = self._plan(statistics=True, metadata=())
        storage = Storage(found.spec.uri)
        return fragments.fragments(found.spec, found.tasks, found.known, storage)

    def to_dataset(self) -> ds.FileSystemDataset:
        """The fragments that can hold matches, as an Arrow dataset of the version's schema.

        DuckDB, Polars, DataFusion and Arrow may filter it further: filters mean what SQL
        means by them (NaN is equal to itself and greater than every number, NULL is not
        in a list). A filter on a column that may hold NaN is refused if plake cannot read
        it. Files in which a column has another name or type than in this version are
        converted into memory here.

        >>> files = dataset.scan("month = 1").to_dataset()
        >>> files.schema.names, len(files.files)
        (['month', 'carrier', 'miles'], 1)
        """
        from lakehouse_source.parquet import fragments

        self._check_hands_over()
        found = self._plan(statistics=True, metadata=())
        return fragments.dataset(found.spec, found.tasks, found.known, Storage(found.spec.uri))

    def to_polars(self) -> Any:
        """The matching rows as a Polars LazyFrame, whose files Polars reads (see `to_duckdb`).

        >>> dataset.scan("month = 1").to_polars().select("miles").sum().collect().item()
        2816
        """
        from lakehouse_source.engines import polars as polars_files

        return polars_files.to_polars(self._hand_over(polars_files.ENGINE))

    def to_duckdb(self, connection: Any, name: str = "plake") -> Any:
        """The matching rows as a temporary view of a DuckDB connection; returns the relation.

        DuckDB reads the files by itself, and prunes and projects them by what a query adds. plake
        reads some files when this method is called: files in a remote store; files with a float
        column that may hold NaN, a timestamp in nanoseconds or another special type; files of which
        a condition on floats, or with LIKE, selects a part; and all files if the connection may not
        open any.

        Raises:
            StorageError: a file is missing.

        >>> import duckdb
        >>> connection = duckdb.connect()
        >>> view = dataset.scan("month <= 2").to_duckdb(connection, "spring")
        >>> connection.sql("SELECT count(*), sum(miles) FROM spring").fetchall()
        [(3, 3905)]
        """
        from lakehouse_source.engines import duckdb as duckdb_files

        handed = self._hand_over(duckdb_files.ENGINE)
        try:
            return duckdb_files.to_duckdb(handed, connection, name)
        except duckdb_files.FilesRefused:
            handed = self._hand_over(duckdb_files.ROWS_ONLY)
            return duckdb_files.to_duckdb(handed, connection, name)

    def to_datafusion(self, context: Any, name: str = "plake") -> Any:
        """The matching rows as a view of a DataFusion session; returns its data frame.

        DataFusion reads the files by itself, and plake the others (see `to_duckdb`).

        >>> from datafusion import SessionContext
        >>> context = SessionContext()
        >>> frame = dataset.scan("month = 1").to_datafusion(context, "january")
        >>> context.sql("SELECT count(*) AS n FROM january").to_pydict()
        {'n': [2]}
        """
        from lakehouse_source.engines import datafusion as datafusion_files

        handed = self._hand_over(datafusion_files.ENGINE)
        return datafusion_files.to_datafusion(handed, context, name)

    def _hand_over(self, engine: engine_files.Engine) -> engine_files.HandOver:
        self._check_hands_over()
        if self._columns is not None and not self._columns:
            return engine_files.without_columns(engine, self.count_rows())
        with self._snapshot() as (reader, snapshot):
            schema = snapshot.schema
            named = resolve_columns(with_metadata_columns(schema, self._columns), self._columns)
            named += self._predicates.bind(schema).columns
            found = plan(
                reader,
                snapshot,
                read_uri=self._address.location,
                predicates=self._predicates,
                columns=self._columns,
                statistics=engine_files.needed_bounds(schema, named),
            )
        return engine_files.hand_over(
            found.spec,
            found.tasks,
            found.known,
            Storage(found.spec.uri),
            oldest_schema=min(snapshot.file_schemas),
            engine=engine,
        )
