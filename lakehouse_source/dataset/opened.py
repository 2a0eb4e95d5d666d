"""Verb. A dataset at a version: what it is, its scans and its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from lakehouse_source.arguments import column_names, whole_number
from lakehouse_source.history import History
from lakehouse_source.model import FileRecord
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.inspect import Inspection
from lakehouse_source.read.read_changes import read_changes
from lakehouse_source.read.scan import Predicates, Scan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.spark_metadata import comments
from lakehouse_source.streaming import Rules

Opened = TypeVar("Opened", bound="OpenDataset")


class OpenDataset:
    """A dataset at the version that was the newest when it was opened; see `refresh()`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._snapshot = self._load()

    def _load(self) -> Snapshot:
        with self._address.open() as catalog, catalog.read() as reader:
            return self._address.snapshot(catalog, reader)

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"Dataset({self.uri!r}, version={self.version})"

    @property
    def uri(self) -> str:
        """The canonical URI: `file:///…` for local datasets, without credentials otherwise."""
        return self._address.uri

    @property
    def name(self) -> str:
        """The last part of the URI, as it was when the dataset was created."""
        return self._snapshot.dataset.name

    @property
    def version(self) -> int:
        """The number of this version; the first commit makes version 1."""
        return self._snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema at this version, partition columns included."""
        return without_metadata(self._snapshot.schema)

    @property
    def comments(self) -> Mapping[str, str]:
        """The comments of columns at this version, by name; nested fields by dotted path."""
        return comments(self._snapshot.schema)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The names of the partition columns, in the order of the folders."""
        return self._snapshot.partition_by

    @property
    def properties(self) -> Mapping[str, Any]:
        """The dataset's properties as the catalog stores them; see `set_properties`.

        Always there: `partition_by`, `indexed_columns` (field ids of the columns in the
        search index) and `last_field_id` (the highest field id given to a column so far).
        Where they were chosen: `index_columns`, `sort_by`, `bloom_filter_columns`,
        `target_file_size_bytes`, `row_group_rows`, `compression`, `promote_to_string`,
        `rewrite_threshold`, `auto_compact`, `auto_compact_min_files`.
        """
        return self._snapshot.dataset.properties.to_json()

    @property
    def table_properties(self) -> Mapping[str, str]:
        """Texts that users noted about the dataset; no rule of plake reads them.

        In Spark these are its `TBLPROPERTIES`, and `comment` is its comment.
        """
        return self._snapshot.dataset.properties.table_properties

    def refresh(self: Opened) -> Opened:
        """Move to the newest version; returns this dataset.

        Raises:
            DatasetNotFoundError: the dataset was removed from the catalog.

        >>> lake.write_dataset(flights, "/data/flights").version
        2
        >>> dataset.version, dataset.refresh().version
        (1, 2)
        """
        self._snapshot = self._load()
        return self

    def history(self, limit: int | None = None) -> History:
        """The committed versions, newest first, at most `limit`; prints as a table.

        Expired versions are included and marked, until a vacuum removes them. Each entry has
        `version`, `timestamp` (UTC), `operation`, `metadata`, `summary` (counts of files and rows)
        and `write_id`.

        >>> [(entry.version, entry.operation) for entry in dataset.history()]
        [(1, 'append')]
        >>> dataset.history()[0].summary["rows_added"]
        4
        """
        with self._address.open() as catalog, catalog.read() as reader:
            record = reader.dataset(self._address.key) or self._snapshot.dataset
            return History(reader.transactions(record.id, limit), record.oldest_version)

    def files(self, version: int | None = None) -> list[FileRecord]:
        """The data files that are live in a version (default: this one).

        Paths are relative to the dataset's URI; sizes are in bytes. Partition columns have
        the names that they have in that version.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.

        >>> file = dataset.files()[0]
        >>> file.path.split("/")[0], file.row_count, file.partitions
        ('month=1', 2, {'month': '1'})
        """
        with self._address.open() as catalog, catalog.read() as reader:
            wanted = self.version if version is None else version
            snapshot = self._address.snapshot(catalog, reader, wanted)
            files = reader.files(snapshot.dataset.id, snapshot.version)
        texts = snapshot.partition_texts()
        return [
            replace(file, partitions=dict(zip(snapshot.partition_by, texts(file))))
            for file in files
        ]

    @property
    def inspect(self) -> Inspection:
        """The dataset's metadata tables: its history, files, row groups, partitions and so on.

        >>> dataset.inspect.versions()["live_rows"].to_pylist()
        [4]
        """
        return Inspection(self._address, self.version)

    def scan(
        self,
        predicates: Predicates = None,
        columns: Sequence[str] | None = None,
        version: int | str | None = None,
        timestamp: datetime | str | None = None,
        *,
        verify_checksums: bool = False,
    ) -> Scan:
        """A scan of this version, or of the version or timestamp given; it reads nothing yet.

        The arguments are those of `read_dataset`. Columns, versions and the types in the
        condition are checked when the scan is used.

        Raises:
            InvalidPredicateError: the condition cannot be parsed.

        >>> dataset.scan("carrier = 'UA' AND (month = 1 OR miles < 1100)").count_rows()
        2
        >>> dataset.scan("carrier = ")
        Traceback (most recent call last):
        lakehouse_source.errors.InvalidPredicateError: invalid predicate: ...
        """
        if version is None and timestamp is None:
            version = self.version
        return Scan(self._address, predicates, columns, version, timestamp, verify_checksums)

    def read_changes(
        self,
        since_version: int,
        predicates: Predicates = None,
        columns: Sequence[str] | None = None,
        *,
        skip_change_commits: bool = False,
        ignore_deletes: bool = False,
        fail_on_data_loss: bool = True,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that commits after a version appended, each batch with its version.

        Keep the last version and pass it the next time. It ends with the version that is the
        newest when it begins, and gives all rows the schema of that version. Nothing is read
        before the first batch is asked for.

        Args:
            since_version: the last version whose rows are known; 0: none.
            predicates, columns: as in `scan`.
            skip_change_commits: skip commits that did anything else than add rows.
            ignore_deletes: skip commits that only took rows out.
            fail_on_data_loss: False: leave out what was expired and deleted.

        Raises:
            StreamChangeError: a commit did not only add rows, and no option skips it.
            StreamSchemaError: a commit added rows, and the schema was replaced since then.
            StreamDataLossError: a version was expired before it was read.
            VersionNotFoundError: there is no such version.
            InvalidPredicateError, SchemaMismatchError

        >>> more = lake.write_dataset([{"month": 3, "carrier": "DL", "miles": 762}], dataset.uri)
        >>> for version, rows in dataset.read_changes(1):
        ...     print(version, rows.to_pylist())
        2 [{'month': 3, 'carrier': 'DL', 'miles': 762}]
        """
        rules = Rules(skip_change_commits, ignore_deletes, fail_on_data_loss)
        where = PredicateSet.of(predicates)
        names = column_names("columns", columns)
        since = whole_number("since_version", since_version)
        return read_changes(self._address, since, where, names, rules)
