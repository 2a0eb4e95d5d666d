"""Door. A write begins: its options become those of its commit, and the catalog registers it.

The write of a DELETE, UPDATE or MERGE begins on the version that the statement read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructField, StructType

from lakehouse_source.errors import CommitConflictError, InvalidOptionError, SchemaMismatchError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import SeenVersion
from lakehouse_source.properties import KINDS, Layout
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import without_metadata
from lakehouse_source.schema.merge import dataframe_schema
from lakehouse_source.spark.protocol.vocabulary import Command, Message, Mode, Row, Statement
from lakehouse_source.spark.reading.pushdown import decode, decode_supported
from lakehouse_source.spark.session.options import (
    PARTITION_MODES,
    STATEMENT_OPTIONS,
    STREAM_STATEMENT_OPTIONS,
    STREAM_WRITE_OPTIONS,
    STREAM_WRITING,
    WRITE_OPTIONS,
    Options,
    refuse_stream,
    with_settings,
)
from lakehouse_source.spark.session.secrets import (
    address_in,
    check_no_secrets,
    split_storage_options,
)
from lakehouse_source.spark.types import arrow_schema, spark_schema
from lakehouse_source.spark.writing.column_changes import evolved
from lakehouse_source.spark.writing.frame_writers import Followed, PlakeStreamWriter, PlakeWriter
from lakehouse_source.spark.writing.row_change_write import RowChangeWriter, RowColumns
from lakehouse_source.storage import without_transaction
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.conflicts import Change, Isolation, isolation_of
from lakehouse_source.write.commit.options import WriteOptions, option_name
from lakehouse_source.write.commit.row_changes import RowChanges

CHANGES = {
    Command.DELETE: Change.DELETE,
    Command.UPDATE: Change.UPDATE,
    Command.MERGE: Change.MERGE,
}


def batch_writer(
    options: Mapping[str, str], own: Mapping[str, Any], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """Begin a write of a frame, or of the rows of a statement. `own`: by the names of `Message`.

    Raises:
        PlakeError: the options are wrong, or the dataset refuses the write.
    """
    settings = own.get(Message.SETTINGS)
    if own.get(Message.STATEMENT, {}).get(Statement.QUERY) is not None:
        settings = {}  # as of streams that append
    every = with_settings(options, settings or {})
    # Adding and replacing rows is the same under every isolation. Statements need the extension.
    known = None if settings is not None else {"isolation", *map(str.lower, every)}
    if Message.STATEMENT in own:
        changes = own.get(Message.EVOLUTION)
        return begin_statement(every, own[Message.STATEMENT], schema, Followed(known), changes)
    plain, storage = split_storage_options(every)
    if settings and (isolation := plain.pop("isolation", None)):
        isolation_of(isolation)
    given = Options(plain, WRITE_OPTIONS, "writing")
    incoming = arrow_schema(schema)
    address = address_in(given, storage)
    kind, table, replaced = (
        own.get(Message.MODE),
        own.get(Message.STAGED),
        own.get(Message.OVERWRITE),
    )
    if table is not None:
        overwrite = table["replaces"]
    creates = table is not None or kind == Mode.CREATE
    mode = "overwrite" if overwrite else "error" if creates else "append"
    base = _own_version(own.get(Message.READS, ()), address) if overwrite else None
    chosen = write_options(
        given,
        mode,
        must_exist=kind == Mode.EXISTING,
        replaced=None if replaced is None else _condition(replaced, incoming),
        reads_own_rows=base is not None,
    )
    if table is not None:
        chosen = with_table(chosen, table)
    with address.open(create=True) as catalog:
        if Message.EVOLUTION in own:
            with catalog.read() as reader:
                newest = address.snapshot(catalog, reader)
            incoming, chosen = _evolving(evolved(address, newest, own[Message.EVOLUTION]), chosen)
        staged = begin(catalog, address, incoming, chosen, base=base, ahead=True)
    # Spark itself follows the session in writes to tables of its catalog.
    decides = staged.spec.partition_by and kind != Mode.EXISTING and table is None
    replaces_all = chosen.change is Change.OVERWRITE and not chosen.overwrite_schema
    by_session = decides and replaces_all and not given.text("partitionOverwriteMode")
    session = Followed(known, bool(by_session), own.get(Message.PARTITION_MODE))
    return PlakeWriter(staged, address.uri, given.text("catalog"), session)


def stream_writer(
    options: Mapping[str, str], own: Mapping[str, Any], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of a query, of which each batch begins a write of its own.

    Raises:
        InvalidOptionError: the options are wrong.
    """
    plain, storage = split_storage_options(options)
    given = Options(plain, STREAM_WRITE_OPTIONS, STREAM_WRITING)
    path = given.path()
    refuse_stream(path)
    check_no_secrets(path, storage)
    # A table that is dropped while a query runs must not be made again without a name.
    must_exist = own.get(Message.MODE) == Mode.EXISTING
    chosen = write_options(given, "overwrite" if overwrite else "append", must_exist=must_exist)
    chosen.check()
    return PlakeStreamWriter(path, given.text("catalog"), storage, arrow_schema(schema), chosen)


def _own_version(reads: Sequence[tuple[str, int]], address: Address) -> SeenVersion | None:
    """The oldest version of the dataset that a write's rows come from.

    None: they come from elsewhere.
    """
    uri = without_transaction(address.uri)
    own = [at for path, at in reads if without_transaction(Address(path, None).uri) == uri]
    return SeenVersion(min(own)) if own else None


def _condition(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> PredicateSet:
    """The exact condition of an overwrite from Spark's catalog.

    Raises:
        InvalidPredicateError: a column of the rows has another type than the condition.
    """
    return PredicateSet.of([decode(term, schema) for term in terms])


def begin_statement(
    options: Mapping[str, str],
    statement: Mapping[str, Any],
    schema: StructType,
    session: Followed,
    changes: Sequence[Mapping[str, Any]] | None = None,
) -> RowChangeWriter:
    """Begin the write of a statement. `schema` has the columns of its rows.

    `statement`: the planner extension's message about it. `changes` of the dataset's columns are
    committed with the rows.

    Raises:
        InvalidOptionError: an option is not one of a statement's.
        SchemaMismatchError: rows that are written lack columns of the dataset.
        CommitConflictError: the dataset's schema has changed.
    """
    others, storage = split_storage_options(options)
    query = statement.get(Statement.QUERY)
    if query is None:
        given = Options(others, STATEMENT_OPTIONS, "changing rows of")
    else:
        given = Options(others, STREAM_STATEMENT_OPTIONS, STREAM_WRITING)
        refuse_stream(given.path())
    change = CHANGES[statement[Statement.COMMAND]]
    base_version = statement[Statement.VERSION]
    added = statement.get(Statement.ADDED, False)
    identity = statement.get(Statement.ID)
    told = {Statement.ID: identity, Statement.QUERY: query}
    chosen = commit_options(
        given,
        row_change=change,
        layout=file_options(given),
        committer={name: value for name, value in told.items() if value is not None},
    )
    if query is not None:
        chosen = replace(chosen, txn_app_id=query, txn_version=int(statement[Statement.BATCH]))
    isolation = isolation_of(given.text("isolation") or Isolation.WRITE_SERIALIZABLE.value)
    address = address_in(given, storage)
    with address.open() as catalog:
        with catalog.read() as reader:
            newest = address.snapshot(catalog, reader)
            base = address.snapshot(catalog, reader, base_version)
        if change is not Change.DELETE:
            if not base.schema.equals(newest.schema, check_metadata=True):
                raise CommitConflictError(
                    dataset=address.uri,
                    base_version=base.version,
                    current_version=newest.version,
                    reason="another commit changed the schema",
                )
            if changes is not None:
                base = evolved(address, base, changes)
            _check_columns(base, schema, added)
        incoming = dataframe_schema(without_metadata(newest.schema))
        if changes is not None:
            incoming, chosen = _evolving(base, chosen)
        staged = begin(catalog, address, incoming, chosen, base=base.seen, ahead=True)
    # A DELETE or UPDATE changes all rows that it reads; a MERGE may leave some alone.
    rescans = statement.get(Statement.RESCANS, True)
    condition = None
    everything = rescans and isolation is Isolation.SERIALIZABLE
    if statement.get(Statement.CONDITION) and not everything:
        condition = decode_supported(tuple(statement[Statement.CONDITION]), base.schema)
    reads_known = change is not Change.MERGE and not rescans
    return RowChangeWriter(
        staged,
        address.uri,
        given.text("catalog"),
        RowColumns.of(base.schema, added=added),
        RowChanges({}, condition=condition, isolation=isolation, read={} if reads_known else None),
        session,
        has_rows=change is not Change.DELETE,
        evolves=changes is not None,
    )


def _evolving(snapshot: Snapshot, options: WriteOptions) -> tuple[pa.Schema, WriteOptions]:
    """The rows and the options of a write that commits the columns of a snapshot."""
    layout = replace(options.layout, promote_to_string=True)  # Spark 4.1 asks for any change
    return dataframe_schema(snapshot.schema), replace(options, schema_merge=True, layout=layout)


def _check_columns(snapshot: Snapshot, rows: StructType, added: bool) -> None:
    """Check that the rows have all columns of the dataset, with its types.

    A view can have fewer columns, or other types. A rewritten row would lose the rest.
    """
    names = RowColumns.of(snapshot.schema)
    beside = () if added else (Row.OPERATION, names.file, names.position, names.row_id)
    found = {one.name: one for one in rows.fields if one.name not in beside}
    for wanted in spark_schema(snapshot.schema).fields:
        column = found.pop(wanted.name, None)
        if column is None or _shown(column) != _shown(wanted):
            raise SchemaMismatchError(
                column=wanted.name,
                expected=_shown(wanted),
                got=None if column is None else _shown(column),
                dataset=snapshot.uri,
                reason="is in the dataset with another type, or whole where the view shows a part",
                hint="Make the view or frame of all columns, without a schema and the option "
                "'columns': a rewritten row would lose the rest.",
            )
    if found:
        raise SchemaMismatchError(
            column=next(iter(found)), dataset=snapshot.uri, reason="is not in the dataset"
        )


def _shown(column: StructField) -> str:
    return str(column.dataType.simpleString())


# --- options ---------------------------------------------------------------------


def commit_options(given: Options, **further: Any) -> WriteOptions:
    """The options of a commit. Every kind has an expected version, an idempotency pair and notes.

    `further`: what this kind has besides, by the names of `WriteOptions`.

    Raises:
        InvalidOptionError
    """
    return WriteOptions(
        expected_version=given.number("expectedVersion"),
        txn_app_id=given.text("txnAppId"),
        txn_version=given.number("txnVersion"),
        commit_metadata=given.document("commitMetadata"),
        **further,
    )


def file_options(given: Options) -> Layout:
    """The layout of files, as far as options of this kind may choose it.

    Raises:
        InvalidOptionError
    """
    return Layout(**{name: given.property_of(name, option_name(name)) for name in KINDS})


def write_options(
    given: Options,
    mode: str,
    *,
    must_exist: bool,
    replaced: PredicateSet | None = None,
    reads_own_rows: bool = False,
) -> WriteOptions:
    """The options of `df.write` or `df.writeStream` in a mode.

    `replaced`: the condition of the rows that the statement replaces, over that of the options.

    Raises:
        InvalidOptionError
    """
    where, delta_where = given.text("overwriteWhere"), given.text("replaceWhere")
    if where is not None and delta_where is not None:
        raise InvalidOptionError(
            option="replaceWhere", value=delta_where, reason="is overwriteWhere: give one of them."
        )
    where = where or delta_where
    overwrite_mode = (given.text("partitionOverwriteMode") or "static").lower()
    if overwrite_mode not in PARTITION_MODES:
        raise InvalidOptionError(
            option="partitionOverwriteMode",
            value=overwrite_mode,
            reason="is not a mode.",
            known=PARTITION_MODES,
        )
    if replaced is None and where is not None:
        replaced = PredicateSet.of(where)
    return commit_options(
        given,
        mode=mode,
        partition_by=given.names("partitionBy"),
        schema_merge=bool(given.flag("mergeSchema")),
        overwrite_where=replaced,
        dynamic_partitions=overwrite_mode == "dynamic" and mode == "overwrite",
        layout=file_options(given),
        index_columns=given.names("indexColumns"),
        overwrite_schema=bool(given.flag("overwriteSchema")),
        must_exist=must_exist,
        reads_own_rows=reads_own_rows,
    )


def with_table(options: WriteOptions, staged: Mapping[str, Any]) -> WriteOptions:
    """The options of a write that also creates or replaces a table, from `stage`.

    Raises:
        InvalidOptionError: the user gave an option that the statement decides.
    """
    for option, given in (
        ("partitionBy", options.partition_by),
        ("overwriteWhere", options.overwrite_where),
        ("expectedVersion", options.expected_version),
    ):
        if given is not None:
            raise InvalidOptionError(
                option=option,
                reason="is not for a write that creates or replaces a table, as saveAsTable does: "
                "leave it out where the table is new. To write to one that exists: "
                "df.write.insertInto(table), or df.writeTo(table).",
            )
    if options.dynamic_partitions and staged["replaces"]:
        raise InvalidOptionError(
            option="partitionOverwriteMode",
            value="dynamic",
            reason="is not for a write that replaces a table with its partitioning, comment and "
            "properties, as saveAsTable does. To replace the partitions of the rows: "
            "df.writeTo(table).overwritePartitions().",
        )
    register = staged["register"]
    layout = options.layout.over(Layout.from_json(staged["layout"]))
    index = staged["index_columns"]
    return replace(
        options,
        mode="overwrite" if staged["replaces"] else "error",
        overwrite_schema=staged["replaces"],
        schema_merge=False,
        dynamic_partitions=False,
        partition_by=tuple(staged["partition_by"]) or None,
        register_as=None if register is None else (register[0], register[1]),
        managed=staged["managed"],
        table_properties=staged["properties"],
        constraints=staged["constraints"],
        statement="replace" if staged["replaces"] else "create",
        layout=replace(layout, cluster_by=tuple(staged["cluster_by"]) or layout.cluster_by),
        index_columns=tuple(index)
        if options.index_columns is None and index is not None
        else options.index_columns,
    )
