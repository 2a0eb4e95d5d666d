"""Door. The data source that Spark knows as `plake`.

Each frame has one instance. The instance resolves its version when Spark makes it
(`load()`), so every scan of the frame reads the same version, both sides of a self
join too.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructField, StructType

from lakehouse_source.errors import DatasetNotFoundError, InvalidOptionError, PlakeError
from lakehouse_source.model import Layout
from lakehouse_source.predicate import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot, resolve_columns, version_number
from lakehouse_source.schema.metadata_columns import METADATA_COLUMNS, unused_names
from lakehouse_source.spark import catalog_tables, commands, procedure_calls
from lakehouse_source.spark.aggregate_pushdown import AggregateReader
from lakehouse_source.spark.batch_read import PlakeReader, ReadRequest
from lakehouse_source.spark.batch_write import PlakeWriter
from lakehouse_source.spark.catalog_request import Request, place_of
from lakehouse_source.spark.compact_tasks import MESSAGES
from lakehouse_source.spark.decode_conditions import to_node
from lakehouse_source.spark.metadata_table import MetadataTableReader, metadata_schema
from lakehouse_source.spark.options import (
    READ_OPTIONS,
    STREAM_ONLY_OPTIONS,
    STREAM_READ_OPTIONS,
    STREAM_READING,
    STREAM_WRITE_OPTIONS,
    STREAM_WRITING,
    WRITE_OPTIONS,
    MetadataKey,
    Options,
)
from lakehouse_source.spark.planner.vocabulary import Mode, Option, Pickle
from lakehouse_source.spark.pushdown import read_pushdown
from lakehouse_source.spark.row_change_write import begin_statement
from lakehouse_source.spark.secrets import conceal, reveal
from lakehouse_source.spark.storage_options import check_no_secrets, split_storage_options
from lakehouse_source.spark.stream_read import PlakeStreamReader, stream_request
from lakehouse_source.spark.stream_write import PlakeStreamWriter
from lakehouse_source.spark.types import arrow_schema, spark_schema
from lakehouse_source.spark.workers import freeze_gc
from lakehouse_source.write.begin import begin
from lakehouse_source.write.options import WriteOptions

# Between two looks for a dataset that a stream waits for.
_POLL_SECONDS = 0.5


class PlakeDataSource(DataSource):
    """`spark.read.format("plake")` and `df.write.format("plake")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.options.pop(Option.VIEW, None)  # the planner extension's own mark of a view
        # Executors get this object too. From here on it holds no password.
        if "catalog" in self.options:
            self.options["catalog"] = conceal(self.options["catalog"]) or ""
        self._request: ReadRequest | None = None
        self._snapshot: Snapshot | None = None
        self._schema_version = 0
        self._error: PlakeError | None = None
        self._answer: dict[str, Any] | None = None
        freeze_gc()
        self._tasks: Request | None = None
        work = self.options.pop(Option.TASKS, None)
        if work is not None:
            self._tasks = Request.of(work, self.options)
            return
        question = self.options.pop(Option.QUESTION, None)
        if question is not None:
            self._answer = self._answer_to(question)
            return
        try:
            self._request, self._snapshot = _resolve(self.options)
            self._schema_version = self._snapshot.schema_version
        except PlakeError as error:
            # A frame that is written has other options and needs no dataset yet.
            self._error = error

    def _answer_to(self, question: str) -> dict[str, Any]:
        """The answer for Spark's catalog. A table that it opens is what this instance reads."""
        try:
            request = Request.of(question, self.options)
            answer = commands.answer(request)
            if not commands.opens_table(request):
                return answer
            place = place_of(request)
            self.options = commands.frame_options(request, place)
            self._request, self._snapshot = _resolve(self.options)
            self._schema_version = self._snapshot.schema_version
            # The request has the version. A stream of the table, which has the same options, begins
            # where its own say.
            self.options.pop("versionasof", None)
            return commands.table(request, place, self._snapshot)
        except PlakeError as error:
            return commands.failed(error)

    def __getstate__(self) -> dict[str, Any]:
        # The planner extension reads the version (`RowStatements.java`), and plain values only.
        version = None if self._request is None else self._request.version
        packed = pickle.dumps({**self.__dict__, "_snapshot": None, "_answer": None})
        return {Pickle.VERSION: version, "packed": packed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(pickle.loads(state["packed"]))

    @classmethod
    def name(cls) -> str:
        return "plake"

    def schema(self) -> StructType:
        if self._tasks is not None:
            return MESSAGES
        if self._answer is not None:
            return commands.answered(self._answer, self._columns())
        request = self._read_request()
        if request.metadata_table is not None:
            return metadata_schema(request.metadata_table)
        # Spark asks in the process that made this instance, which still has the snapshot.
        snapshot = self._snapshot
        if snapshot is None:
            with request.opened() as (_, opened):
                snapshot = opened
        everything = spark_schema(snapshot.schema)
        names = everything.names if request.columns is None else request.columns
        fields = [everything[name] for name in names]
        if request.metadata_columns:
            unused = unused_names(METADATA_COLUMNS, snapshot.schema.names)
            for column, one in zip(METADATA_COLUMNS, spark_schema(pa.schema(unused)).fields):
                # Statements of `spark.open` find the columns and the version by this.
                told = {MetadataKey.COLUMN: column.name, MetadataKey.VERSION: request.version}
                fields.append(StructField(one.name, one.dataType, one.nullable, told))
        return StructType(fields)

    def _columns(self) -> StructType | None:
        """The columns of the table that Spark's catalog asked for."""
        if self._request is None or self._snapshot is None:
            return None
        if self._request.metadata_table is not None:
            return metadata_schema(self._request.metadata_table)
        return commands.columns(self._snapshot)

    def _read_request(self) -> ReadRequest:
        if self._error is not None:
            raise self._error
        assert self._request is not None
        return self._request

    def reader(self, schema: StructType) -> DataSourceReader:
        freeze_gc()
        if self._tasks is not None:
            return procedure_calls.tasks(self._tasks)
        request = self._read_request()
        # `_resolve` let the options of a stream through: nothing told what the frame is for.
        Options(split_storage_options(self.options)[0], READ_OPTIONS, "reading")
        pushdown = read_pushdown(schema)
        if request.metadata_table is not None:
            return MetadataTableReader(request, pushdown)
        if pushdown.aggregate is not None:
            return AggregateReader(request, pushdown)
        made = PlakeReader(request, pushdown)
        # Spark pickles the reader next, which needs the plan and would hide an error of it.
        made.plan()
        return made

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        freeze_gc()
        if Option.STATEMENT in self.options:
            return begin_statement(self.options, schema)
        options, storage = split_storage_options(self.options)
        replaced = options.pop(Option.OVERWRITE, None)
        kind = options.pop(Option.MODE, None)
        table = options.pop(catalog_tables.STAGED, None)
        reads = options.pop(Option.READS, None)
        given = Options(options, WRITE_OPTIONS, "writing")
        path = given.path()
        check_no_secrets(path, storage)
        incoming = arrow_schema(schema)
        address = Address(path, reveal(given.text("catalog")), storage)
        with address.open(create=True) as catalog:
            mode = "overwrite" if overwrite else "error" if kind == Mode.CREATE else "append"
            chosen = replace(_write_options(given, mode), must_exist=kind == Mode.EXISTING)
            if table is not None:
                chosen = catalog_tables.with_table(chosen, table)
            if replaced is not None:
                chosen = replace(chosen, overwrite_where=_condition(replaced, incoming))
            own = _own_version(reads, address) if chosen.mode == "overwrite" else None
            chosen = replace(chosen, reads_own_rows=own is not None)
            staged = begin(catalog, address, incoming, chosen, base_version=own)
        return PlakeWriter(staged, address.uri, given.text("catalog"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        freeze_gc()
        request = self._read_request()
        options, storage = split_storage_options(self.options)
        found = stream_request(options, storage, self._schema_version, request.columns)
        return PlakeStreamReader(found, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        freeze_gc()
        options, storage = split_storage_options(self.options)
        kind = options.pop(Option.MODE, None)
        given = Options(options, STREAM_WRITE_OPTIONS, STREAM_WRITING)
        path = given.path()
        check_no_secrets(path, storage)
        chosen = _write_options(given, "overwrite" if overwrite else "append")
        # A table that is dropped under a running query is not made anew, without a name.
        chosen = replace(chosen, must_exist=kind == Mode.EXISTING)
        chosen.check()
        return PlakeStreamWriter(path, given.text("catalog"), storage, arrow_schema(schema), chosen)


def _resolve(options: Mapping[str, str]) -> tuple[ReadRequest, Snapshot]:
    """The version that a frame reads, and what it reads of it."""
    others, storage = split_storage_options(options)
    streams = {name.lower() for name in STREAM_ONLY_OPTIONS}
    if any(name.lower() in streams for name in others):
        given = Options(others, STREAM_READ_OPTIONS, STREAM_READING)
    else:
        given = Options(others, READ_OPTIONS, "reading")
    path = given.path()
    check_no_secrets(path, storage)
    version = _version(given)
    address = Address(path, reveal(given.text("catalog")), storage)
    give_up = time.monotonic() + _wait_seconds(given)
    while True:
        try:
            with address.open() as catalog, catalog.read() as reader:
                snapshot = address.snapshot(catalog, reader, version, given.text("timestampAsOf"))
            break
        except DatasetNotFoundError:
            if time.monotonic() >= give_up:
                raise
            time.sleep(_POLL_SECONDS)
    columns = given.names("columns")
    if columns is not None:
        columns = resolve_columns(snapshot.schema, columns)
    where = given.text("where")
    # Refuses a wrong condition when the frame is made.
    PredicateSet.of(where).bind(snapshot.schema)
    request = ReadRequest(
        path=path,
        catalog=given.text("catalog"),
        version=snapshot.version,
        columns=columns,
        where=where,
        split_size_bytes=given.size("splitSize"),
        metadata_columns=bool(given.flag("metadataColumns")),
        storage_options=storage,
        metadata_table=_metadata_table(given),
    )
    return request, snapshot


def _wait_seconds(given: Options) -> int:
    """How long `load()` of a stream waits for a dataset that does not exist yet.

    It has to wait there: without the dataset there are no columns to answer with.
    """
    seconds = given.number("waitForDataset") or 0
    if seconds < 0:
        raise InvalidOptionError(
            option="waitForDataset", value=seconds, reason="is in seconds, and not below 0."
        )
    return seconds


def _own_version(reads: str | None, address: Address) -> int | None:
    """The oldest version of the dataset that the rows of a write come from; None: they do not."""
    found: list[list[Any]] = [] if reads is None else json.loads(reads)
    return min((at for path, at in found if Address(path, None).uri == address.uri), default=None)


def _condition(terms: str, schema: pa.Schema) -> PredicateSet:
    """The condition of an overwrite from Spark's catalog, exactly.

    Raises:
        InvalidPredicateError: a column of the rows has another type than the condition.
    """
    return PredicateSet.of([to_node(term, schema) for term in json.loads(terms)])


def _version(given: Options) -> int | str | None:
    """The version that the options name: a number, or a tag in `versionAsOf`."""
    number, named = given.number("version"), given.text("versionAsOf")
    if named is None:
        return number
    own = version_number(named)
    wanted = named if own is None else own
    if number is not None and number != wanted:
        raise InvalidOptionError(
            option="version", value=number, reason=f"differs from versionAsOf, {named!r}."
        )
    return wanted


def _metadata_table(given: Options) -> str | None:
    name = given.text("metadataTable")
    if name is None:
        return None
    metadata_schema(name)  # refuses a wrong name when the frame is made
    for option in ("columns", "where", "metadataColumns"):
        if given.text(option) is not None:
            raise InvalidOptionError(
                option=option, reason="is for the rows of a dataset, not for metadataTable."
            )
    return name


def _write_options(given: Options, mode: str) -> WriteOptions:
    where, delta_where = given.text("overwriteWhere"), given.text("replaceWhere")
    if where is not None and delta_where is not None:
        raise InvalidOptionError(
            option="replaceWhere", value=delta_where, reason="is overwriteWhere: give one of them."
        )
    where = where or delta_where
    overwrite_mode = (given.text("partitionOverwriteMode") or "static").lower()
    if overwrite_mode not in ("static", "dynamic"):
        raise InvalidOptionError(
            option="partitionOverwriteMode",
            value=overwrite_mode,
            reason="is not a mode.",
            known=("static", "dynamic"),
        )
    layout = Layout(
        target_file_size_bytes=given.size("targetFileSize"),
        row_group_rows=given.number("rowGroupRows"),
        compression=given.text("compression"),
        sort_by=given.chosen_names("sortBy"),
        bloom_filter_columns=given.chosen_names("bloomFilterColumns"),
        promote_to_string=given.flag("promoteToString"),
    )
    return WriteOptions(
        mode=mode,
        partition_by=given.names("partitionBy"),
        schema_merge=bool(given.flag("mergeSchema")),
        overwrite_where=None if where is None else PredicateSet.of(where),
        dynamic_partitions=overwrite_mode == "dynamic" and mode == "overwrite",
        expected_version=given.number("expectedVersion"),
        txn_app_id=given.text("txnAppId"),
        txn_version=given.number("txnVersion"),
        commit_metadata=given.document("commitMetadata"),
        layout=layout,
        index_columns=given.names("indexColumns"),
        overwrite_schema=bool(given.flag("overwriteSchema")),
    )
