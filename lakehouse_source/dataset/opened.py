"""Verb. A dataset at a version: what it is, its scans and its history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

import pyarrow as pa

from lakehouse_source.arguments import column_names, text, whole_number
from lakehouse_source.catalog import Catalog
from lakehouse_source.errors import InvalidOptionError, PlakeError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import FileRecord
from lakehouse_source.read.address import Address
from lakehouse_source.read.changes import read_changes
from lakehouse_source.read.feed import After, Bound, Changes
from lakehouse_source.read.health import HealthReport, health
from lakehouse_source.read.inspect import Inspection
from lakehouse_source.read.scan import Predicates, Scan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.read.suggest_layout import LayoutAdvice, suggest_layout
from lakehouse_source.result_tables import History
from lakehouse_source.schema.defaults import clause, computed_columns
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.spark_metadata import comments
from lakehouse_source.schema.variant_paths import texts_of
from lakehouse_source.streaming import Rules
from lakehouse_source.write.commit.transaction import TransactionCatalog

if TYPE_CHECKING:
    from lakehouse_source.pictures.markup import Markup

Opened = TypeVar("Opened", bound="OpenDataset")
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class OpenDataset:
    """A dataset at the version that was the newest when it was opened; see `refresh()`."""

    def __init__(self, address: Address, *, committed: bool = False) -> None:
        self._address = address
        self._seen: Snapshot | None = None
        if committed:
            self._committed()
        else:
            self.refresh()

    @property
    def _snapshot(self) -> Snapshot:
        if self._seen is None:
            self.refresh()
            assert self._seen is not None
        return self._seen

    def _do(
        self,
        verb: Callable[Concatenate[Catalog, Address, Given], Answer],
        *arguments: Given.args,
        **keywords: Given.kwargs,
    ) -> Answer:
        """The result of a verb, whose first arguments are this dataset and its catalog."""
        with self._address.open() as catalog:
            return verb(catalog, self._address, *arguments, **keywords)

    def _commit(
        self,
        verb: Callable[Concatenate[Catalog, Address, Given], Answer],
        *arguments: Given.args,
        **keywords: Given.kwargs,
    ) -> Answer:
        """The result of a verb that commits; this handle then moves to the new version."""
        answer = self._do(verb, *arguments, **keywords)
        self._committed()
        return answer

    def _committed(self) -> None:
        """Move to the newest version after a commit; if that fails, the next use does.

        The verb has to return its result: an error would say that nothing was committed.
        """
        self._seen = None
        if isinstance(self._address.catalog, TransactionCatalog):
            return  # a dataset that is read there must stay as it is
        with suppress(PlakeError):
            self.refresh()

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __repr__(self) -> str:
        version = "unknown" if self._seen is None else self._seen.version
        return f"Dataset({self.uri!r}, version={version})"

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
        Where they were chosen: `index_columns`, `sort_by`, `cluster_by`, `bloom_filter_columns`,
        `target_file_size_bytes`, `row_group_rows`, `compression`, `promote_to_string`,
        `rewrite_threshold`, `auto_compact`, `auto_compact_min_files`, `iceberg_metadata`,
        `keep_versions`, `keep_versions_seconds`, `expire_rows`, and `variant_paths` with its
        limits. Files choose paths of VARIANT where nobody did: these are shown too.
        """
        found = self._snapshot.dataset.properties.to_json()
        paths = texts_of(self._snapshot.schema)
        return {**found, "variant_paths": paths} if paths else found

    @property
    def constraints(self) -> Mapping[str, str]:
        """The constraints of the dataset, by name; see `add_constraint`."""
        found = self._snapshot.dataset.properties.constraints
        return {name: one.expression for name, one in found.items()}

    @property
    def generated(self) -> Mapping[str, str]:
        """How columns that data may lack are computed, by name, as in CREATE TABLE."""
        found = computed_columns(self._snapshot.schema)
        return {name: clause(how) for name, how in found.items()}

    @property
    def table_properties(self) -> Mapping[str, str]:
        """Texts that users noted about the dataset; no rule of plake reads them.

        In Spark these are its `TBLPROPERTIES`, and `comment` is its comment.
        """
        return dict(self._snapshot.dataset.properties.table_properties)

    def refresh(self: Opened) -> Opened:
        """Move to the newest version; returns this dataset.

        Raises:
            DatasetNotFoundError: the dataset was removed from the catalog.

        >>> lake.write_dataset(flights, "/data/flights").version
        2
        >>> dataset.version, dataset.refresh().version
        (1, 2)
        """
        with self._address.open() as catalog, catalog.read() as reader:
            self._seen = self._address.snapshot(catalog, reader)
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
            tagged = reader.tags(record.id).values()
            return History(reader.transactions(record.id, limit), record.oldest_version, tagged)

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
            wanted = self._snapshot.seen if version is None else version
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
        return Inspection(self._address, self._snapshot.seen)

    def health(self, columns: str | Sequence[str] | None = None) -> HealthReport:
        """How the files of the newest version are laid out, and what upkeep would do about it.

        Everything is in the catalog: no file is opened. The report has the sizes of the files,
        the small ones and the share of deleted rows. For each of `columns` it has the overlap
        depth: how many files hold the same value of the column, on average and at most, measured at
        the ends of the files' ranges. Files of different partitions do not overlap. The suggestions
        say how many bytes `cluster`, `compact`, `vacuum` and `expire_versions` would rewrite or
        free, and whether that is worth doing. It prints as a table, and `to_html` writes pictures.

        Args:
            columns: columns of the search index, nested ones by dotted path. By default those of
                `cluster_by`, each and together, else of `sort_by`, else the index's first four.

        Raises:
            InvalidOptionError: a column is not in the search index.

        >>> report = dataset.health("miles")
        >>> report.files, report.small_files, report.depths["miles"].most
        (3, 3, 1)
        """
        with self._address.open() as catalog, catalog.read() as reader:
            snapshot = self._address.snapshot(catalog, reader)
            report = health(reader, snapshot, column_names("columns", columns))
        return replace(report, draw=lambda: self._draw_health(report))

    def _draw_health(self, report: HealthReport) -> Markup:
        from lakehouse_source.read.draw_pages import health_page

        with self._address.open() as catalog, catalog.read() as reader:
            snapshot = self._address.snapshot(catalog, reader, report.version)
            return health_page(reader, snapshot, report)

    def suggest_layout(self, conditions: str | Sequence[str]) -> LayoutAdvice:
        """Which `cluster_by`, `partition_by` and `bloom_filter_columns` let conditions read least.

        Give the conditions that you run; one that runs twice as often may be given twice. What they
        read of today's files is in the catalog. What they would read with another layout is
        estimated from a sample, about 30,000 rows of up to 128 row groups: the sample is laid out
        by each choice of the conditions' columns, as `cluster(full=True)` does, and pruned. Bytes
        are those of all columns of the row groups. Nothing is changed. The advice prints as a
        table.

        Other partition columns need a new dataset, or an overwrite of this whole dataset; they are
        tried only where each value would have half of a file's target size.

        Args:
            conditions: 1 to 100 SQL texts.

        Raises:
            InvalidOptionError: there is no condition, or there are too many.
            InvalidPredicateError: a condition cannot be parsed, or names an unknown column.
            StorageError, CorruptDatasetError: a file of the sample cannot be read.

        >>> advice = dataset.suggest_layout(["miles > 1000", "carrier = 'UA'"])
        >>> advice.best.is_now, advice.sampled_rows      # four rows are laid out well
        (True, 4)
        """
        with self._address.open() as catalog, catalog.read() as reader:
            snapshot = self._address.snapshot(catalog, reader)
            return suggest_layout(reader, snapshot, conditions, self._address.location)

    def scan(
        self,
        predicates: Predicates = None,
        columns: Sequence[str] | None = None,
        version: int | str | None = None,
        timestamp: datetime | str | None = None,
        *,
        verify_checksums: bool | Literal["file"] = False,
        limit: int | None = None,
    ) -> Scan:
        """A scan of this version, or of the version or timestamp given; it reads nothing yet.

        The arguments are those of `read_dataset`; `limit` is the largest number of rows.
        Columns, versions and the types in the condition are checked when the scan is used.

        Raises:
            InvalidPredicateError: the condition cannot be parsed.

        >>> dataset.scan("carrier = 'UA' AND (month = 1 OR miles < 1100)").count_rows()
        2
        >>> dataset.scan("carrier = ")
        Traceback (most recent call last):
        lakehouse_source.errors.InvalidPredicateError: invalid predicate: ...
        """
        pinned = self._snapshot.seen if version is None and timestamp is None else version
        return Scan(self._address, predicates, columns, pinned, timestamp, verify_checksums, limit)

    def changes(
        self,
        start: Bound | None = None,
        end: Bound | None = None,
        *,
        consumer: str | None = None,
        where: Predicates = None,
        columns: Sequence[str] | None = None,
        net: bool = False,
        updates: bool = True,
    ) -> Changes:
        """What the commits `start` to `end` changed, both included; it reads nothing yet.

        Each row has the columns of version `end` (for a row written under another schema, the
        columns with the same field ids), `_change_type` (`insert`, `delete`, `update_preimage`,
        `update_postimage`), `_commit_version` and `_commit_timestamp` (UTC). A row appears only if
        a commit changed its values: compactions and changes of the schema do not appear.

        Args:
            start, end: versions, tags, or times: the first commit at or after `start`, the last
                one at or before `end`. Default of `end`: this version.
            consumer: instead of `start`: begin after the version that this consumer has read when
                the changes are read, see `add_consumer`.
            where: a condition on the columns; each image of a row is tested separately.
            columns: of the dataset; `_row_id` may be among them.
            net: give only the differences between the version before `start` and version `end`.
                `_commit_version` is the last commit that changed the row.
            updates: False gives an update as a delete and an insert.

        Raises:
            InvalidPredicateError: the condition cannot be parsed.
            InvalidOptionError: neither `start` nor `consumer` is given, or both are.

        >>> result = dataset.update({"miles": "miles + 1"}, where="carrier = 'AA'")
        >>> rows = dataset.refresh().changes(2, columns=["miles"]).to_table()
        >>> rows.select(["miles", "_change_type"]).to_pylist()[:2]
        [{'miles': 1416, '_change_type': 'update_preimage'}, {'miles': 1417, '_change_type': ...}]
        """
        if (start is None) == (consumer is None):
            raise InvalidOptionError(
                option="start",
                value=start,
                reason="or consumer says where the changes begin: give one of them.",
            )
        begin = After(text("consumer", consumer)) if start is None else start
        last = self._snapshot.seen if end is None else end
        return Changes(self._address, begin, last, where, columns, net=net, updates=updates)

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

        Keep the last version and pass it the next time. The batches end with the version that is
        the newest when reading begins, and all have the schema of that version. Nothing is read
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
