"""Door. The data source that Spark knows as `plake`.

Each frame has one instance. The instance resolves its version when Spark makes it (`load()`), so
every scan of the frame reads the same version, even both sides of a self join.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
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

from lakehouse_source.catalog.committer import tell
from lakehouse_source.errors import InvalidOptionError, PlakeError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import SeenVersion
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.metadata_columns import METADATA_COLUMNS, unused_names
from lakehouse_source.spark.protocol.envelope import answer, asked, in_pickle
from lakehouse_source.spark.protocol.vocabulary import (
    Answer,
    Ask,
    Envelope,
    Mode,
    Option,
    Planned,
    Question,
    Told,
)
from lakehouse_source.spark.reading.aggregate_pushdown import AggregateReader
from lakehouse_source.spark.reading.batch_read import PlakeReader, ReadRequest
from lakehouse_source.spark.reading.changes_read import ChangesReader, ChangesRequest
from lakehouse_source.spark.reading.decode_conditions import decode
from lakehouse_source.spark.reading.frame_options import opened, resolve
from lakehouse_source.spark.reading.metadata_table import MetadataTableReader, metadata_schema
from lakehouse_source.spark.reading.pushdown import read_pushdown
from lakehouse_source.spark.reading.stream_read import (
    PlakeStreamReader,
    StreamedChanges,
    stream_request,
)
from lakehouse_source.spark.session.catalog_request import Request, place_of
from lakehouse_source.spark.session.freeze_gc import freeze_gc
from lakehouse_source.spark.session.options import (
    CHANGES_STREAM_OPTIONS,
    READ_OPTIONS,
    ROW_CHANGES,
    STREAM_READING,
    STREAM_WRITE_OPTIONS,
    STREAM_WRITING,
    WRITE_OPTIONS,
    MetadataKey,
    Options,
    is_stream,
    reads_changes,
    with_settings,
)
from lakehouse_source.spark.session.secrets import conceal
from lakehouse_source.spark.session.static_configuration import catalog_of_query
from lakehouse_source.spark.session.storage_options import check_no_secrets, split_storage_options
from lakehouse_source.spark.tables import catalog_tables, commands, procedure_calls
from lakehouse_source.spark.tables.compact_tasks import MESSAGES
from lakehouse_source.spark.types.spark_types import arrow_schema, spark_schema
from lakehouse_source.spark.writing.batch_write import PlakeWriter
from lakehouse_source.spark.writing.commit_options import write_options
from lakehouse_source.spark.writing.row_change_write import begin_statement
from lakehouse_source.spark.writing.session_settings import Followed
from lakehouse_source.spark.writing.stream_write import PlakeStreamWriter
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.options import WriteOptions
from lakehouse_source.write.statements.row_statement import isolation_of


class PlakeDataSource(DataSource):
    """`spark.read.format("plake")` and `df.write.format("plake")`."""

    def __init__(self, options: dict[str, str], own: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        _refuse_own(self.options)
        # Options of the planner extension, which only `FromExtension` gives.
        self._own = dict(own or {})
        # Executors get this object too, so from here on it holds no password.
        if "catalog" in self.options:
            self.options["catalog"] = conceal(self.options["catalog"]) or ""
        self._request: ReadRequest | None = None
        self._changes: ChangesRequest | None = None
        self._streamed: StreamedChanges | None = None
        self._stream_error: PlakeError | None = None
        self._snapshot: Snapshot | None = None
        self._schema_version = 0
        self._error: PlakeError | None = None
        self._answer: str | None = None
        if Told.APPLICATION in self._own:
            tell(application=self._own[Told.APPLICATION])
        freeze_gc()
        self._tasks: Request | None = None
        if Told.TASKS in self._own:
            self._tasks = Request.of(self._own[Told.TASKS], self.options)
            return
        for option in (Told.QUESTION, Told.COMMAND):
            if option in self._own:
                self._answer = self._answer_to(self._own[option], option == Told.COMMAND)
                return
        try:
            others, storage = split_storage_options(self.options)
            if reads_changes(others):
                self._begin_changes(others, storage)
                return
            self._request, self._snapshot = resolve(self.options)
            self._schema_version = self._snapshot.schema_version
        except PlakeError as error:
            # A frame that is written has other options and needs no dataset yet.
            self._error = error

    def _begin_changes(self, options: Mapping[str, str], storage: dict[str, str]) -> None:
        """Find the columns of a feed for a batch and a stream: Spark tells later which it is."""
        try:
            given = Options(options, CHANGES_STREAM_OPTIONS, STREAM_READING)
            self._streamed = StreamedChanges.of(given, opened(given, storage, None))
        except PlakeError as error:
            self._error = self._stream_error = error
        try:
            self._changes = ChangesRequest.of(dict(options), storage)
        except PlakeError as error:
            if self._stream_error is None or not is_stream(options):
                self._error = error

    def _answer_to(self, question: Mapping[str, Any], may_change: bool) -> str:
        """The envelope for Spark's catalog. If it opens a table, this instance reads the table."""
        try:
            return answer(self._told(Request.of(question, self.options), may_change))
        except PlakeError as error:
            return commands.failed(error)

    def _told(self, request: Request, may_change: bool) -> dict[str, Any]:
        told = commands.answer(request, may_change=may_change)
        if request.question[Question.COMMAND] == Ask.LOAD_CHANGES:
            self.options = {**request.frame, **place_of(request).options()}
            self._changes = ChangesRequest.of(*split_storage_options(self.options))
            return {**told, Answer.AT: self._changes.end}
        if not commands.opens_table(request):
            return told
        try:
            place = place_of(request)
            self.options = commands.frame_options(request, place)
            self._request, self._snapshot = resolve(self.options)
        except PlakeError:
            if not may_change:
                raise
            # The change was committed, and Spark's CREATE and ALTER TABLE do not use the table.
            return commands.unread_table(request)
        self._schema_version = self._snapshot.schema_version
        # The request has the version. A stream of the table has the same options, but begins where
        # its own options say.
        self.options.pop("versionasof", None)
        return commands.table(request, place, self._snapshot)

    def __getstate__(self) -> dict[str, Any]:
        # The planner extension takes the version from the envelope (`RowStatements.java`).
        version = None if self._request is None else self._request.version
        packed = pickle.dumps({**self.__dict__, "_snapshot": None, "_answer": None, "_own": {}})
        return {"envelope": in_pickle(answer({Planned.VERSION: version})), "packed": packed}

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
        if self._changes is not None:
            return self._changes.schema()
        if self._streamed is not None:
            return self._streamed.schema
        request = self._read_request()
        if request.metadata_table is not None:
            return metadata_schema(request.metadata_table)
        # Spark calls this in the process that made this instance, which still has the snapshot.
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
                # Statements of `spark.open` find the columns and the version here.
                told = {MetadataKey.COLUMN: column.name, MetadataKey.VERSION: request.version}
                fields.append(StructField(one.name, one.dataType, one.nullable, told))
        return StructType(fields)

    def _columns(self) -> StructType | None:
        """The columns of the table that Spark's catalog asked for."""
        if self._changes is not None:
            return self._changes.schema()
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
        if self._changes is not None:
            reader = ChangesReader(self._changes, read_pushdown(schema))
            reader.feed()
            return reader
        request = self._read_request()
        # `resolve` accepted options of a stream, because the use of the frame was not known.
        Options(split_storage_options(self.options)[0], READ_OPTIONS, "reading")
        pushdown = read_pushdown(schema)
        if request.metadata_table is not None:
            return MetadataTableReader(request, pushdown)
        if pushdown.aggregate is not None:
            return AggregateReader(request, pushdown)
        made = PlakeReader(request, pushdown)
        # Spark pickles the reader next, which needs the plan and would hide the plan's error.
        made.plan()
        return made

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        freeze_gc()
        settings = self._own.get(Told.SETTINGS)
        every = with_settings(self.options, settings or {})
        known = None if settings is not None else frozenset(name.lower() for name in every)
        if Told.STATEMENT in self._own or ROW_CHANGES.lower() in self.options:
            return begin_statement(every, self._own.get(Told.STATEMENT), schema, Followed(known))
        options, storage = split_storage_options(every)
        if settings and (isolation := options.pop("isolation", None)):
            isolation_of(isolation)  # adding and replacing rows is the same under both
        replaced = self._own.get(Told.OVERWRITE)
        kind = self._own.get(Told.MODE)
        table = self._own.get(Told.STAGED)
        reads = self._own.get(Told.READS, ())
        given = Options(options, WRITE_OPTIONS, "writing")
        path = given.path()
        check_no_secrets(path, storage)
        incoming = arrow_schema(schema)
        address = Address(path, catalog_of_query(given.text("catalog")), storage)
        with address.open(create=True) as catalog:
            replaces = overwrite or table is not None
            mode = "overwrite" if replaces else "error" if kind == Mode.CREATE else "append"
            chosen = replace(write_options(given, mode), must_exist=kind == Mode.EXISTING)
            if table is not None:
                chosen = catalog_tables.with_table(chosen, table)
            if replaced is not None:
                chosen = replace(chosen, overwrite_where=_condition(replaced, incoming))
            own = _own_version(reads, address) if chosen.mode == "overwrite" else None
            chosen = replace(chosen, reads_own_rows=own is not None)
            staged = begin(catalog, address, incoming, chosen, base=own)
        # Spark itself follows the session in writes to tables of its catalog.
        decides = staged.spec.partition_by and kind != Mode.EXISTING and table is None
        by_session = decides and _replaces_all(chosen) and not given.text("partitionOverwriteMode")
        if known is not None:
            known |= {"isolation"}  # adding and replacing rows is the same under both
        session = Followed(known, bool(by_session), self._own.get(Told.PARTITION_MODE))
        return PlakeWriter(staged, address.uri, given.text("catalog"), session)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        freeze_gc()
        options, storage = split_storage_options(self.options)
        if self._stream_error is not None:
            raise self._stream_error
        shown = self._streamed
        if shown is not None:
            found = stream_request(options, storage, shown.schema_version, shown.columns)
            return PlakeStreamReader(found, schema)
        request = self._read_request()
        found = stream_request(options, storage, self._schema_version, request.columns)
        return PlakeStreamReader(found, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        freeze_gc()
        options, storage = split_storage_options(self.options)
        kind = self._own.get(Told.MODE)
        given = Options(options, STREAM_WRITE_OPTIONS, STREAM_WRITING)
        path = given.path()
        check_no_secrets(path, storage)
        chosen = write_options(given, "overwrite" if overwrite else "append")
        # A table that is dropped while a query runs must not be made again without a name.
        chosen = replace(chosen, must_exist=kind == Mode.EXISTING)
        chosen.check()
        return PlakeStreamWriter(path, given.text("catalog"), storage, arrow_schema(schema), chosen)


class FromExtension(DataSource):
    """The entry of the planner extension: makes the data source with the extension's own options.

    Spark finds the data source `plake` by its name, and users choose its options. This class has no
    name that Spark knows: only the extension's Java uses it (`PlakeSource.java`), after it has
    checked with its seal that it set these options itself. A user who can name a Python class to
    Spark can run code anyway.
    """

    def __new__(cls, options: dict[str, str]) -> PlakeDataSource:  # type: ignore[misc]
        own = [options.pop(name) for name in list(options) if name.lower() == Envelope.NAME]
        return PlakeDataSource(options, asked(own[0]) if own else None)

    @classmethod
    def name(cls) -> str:
        return PlakeDataSource.name()


def _refuse_own(options: MutableMapping[str, str]) -> None:
    """Refuse options of the planner extension, except its mark of a view, which Python ignores.

    Raises:
        InvalidOptionError
    """
    for name in [name for name in options if name.lower().startswith(Option.OWN)]:
        if name.lower() not in (Option.VIEW, Option.SEAL):
            raise InvalidOptionError(
                option=name, reason="is set by plake's planner extension only. Leave it out."
            )
        del options[name]


def _own_version(reads: Sequence[tuple[str, int]], address: Address) -> SeenVersion | None:
    """The oldest version of the dataset that a write's rows come from.

    None: they come from elsewhere.
    """
    own = [at for path, at in reads if Address(path, None).uri == address.uri]
    return SeenVersion(min(own)) if own else None


def _replaces_all(options: WriteOptions) -> bool:
    """Tell whether no option of a write says which rows it replaces."""
    whole = options.overwrite_where is None and not options.overwrite_schema
    return options.mode == "overwrite" and whole


def _condition(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> PredicateSet:
    """The exact condition of an overwrite from Spark's catalog.

    Raises:
        InvalidPredicateError: a column of the rows has another type than the condition.
    """
    return PredicateSet.of([decode(term, schema) for term in terms])
