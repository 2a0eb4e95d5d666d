"""Door. The procedures of Spark's catalog: `CALL plake.system.vacuum(table => 'sales.orders')`.

They are the operations of `operations/` that CALL offers. This module only has their Spark types,
and the procedures whose work is done by tasks of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import DataType, StructField, StructType

from lakehouse_source.catalog.qualified_names import QualifiedName
from lakehouse_source.datasets import DatasetCatalog
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import CompactionResult
from lakehouse_source.operations import OPERATIONS
from lakehouse_source.operations.entry import Call, Operation, Parameter, Subject
from lakehouse_source.read.address import Address
from lakehouse_source.read.inspect import ARROW_TYPES
from lakehouse_source.result_tables import Column, Type
from lakehouse_source.spark.protocol.vocabulary import Parameter as ParameterKey
from lakehouse_source.spark.protocol.vocabulary import RequestKey, ResponseKey
from lakehouse_source.spark.session.catalog_request import Place, Request, names_of, place_of
from lakehouse_source.spark.session.workers import freeze_gc
from lakehouse_source.spark.tables.layout_tasks import (
    MESSAGES,
    ClusterReader,
    CompactionReader,
    commit_messages,
    commit_pieces,
)
from lakehouse_source.spark.types import spark_schema
from lakehouse_source.write.metadata.set_properties import clustering


def _transaction(call: Call) -> Iterator[tuple[str]]:
    from lakehouse_source.spark.session.transaction import begin, end

    arguments = {**call.arguments}
    step = arguments.pop("step")
    if step == "begin":
        begin(arguments["id"])
    elif step in ("commit", "drop"):
        for path in end(**arguments, commit=step == "commit"):
            yield (path,)
    else:
        raise InvalidOptionError(
            option="step", value=step, reason="is none of 'begin', 'commit', 'drop'."
        )


_TRANSACTION = Operation(
    "transaction",
    "Begins, commits or drops a transaction of a session: lake.spark.transaction(spark) calls it.",
    (
        Parameter("id", Type.TEXT, "the transaction, a UUIDv7", required=True),
        Parameter("step", Type.TEXT, "'begin', 'commit' or 'drop'", required=True),
        Parameter("serializable", Type.FLAG, "what it only read must not have changed", False),
    ),
    (Column("path", Type.TEXT, "a table of the transaction"),),
    _transaction,
    Subject.NONE,
)
PROCEDURES: Mapping[str, Operation] = {
    name: one for name, one in OPERATIONS.items() if one.is_called
} | {_TRANSACTION.name: _TRANSACTION}


@dataclass(frozen=True, slots=True)
class ByTasks:
    """How tasks of Spark do the work of a procedure.

    `reader` reads the frame whose tasks do the work; `commit` gets their messages and the
    arguments.
    """

    reader: Callable[[Place, Mapping[str, Any]], DataSourceReader]
    commit: Callable[[Place, Sequence[str], Mapping[str, Any]], CompactionResult]


def _optimized(
    place: Place, arguments: Mapping[str, Any]
) -> tuple[type[CompactionReader], dict[str, Any]]:
    """Whether tasks cluster or compact, and the arguments for it."""
    where, full = arguments.get("where"), arguments.get("full", False)
    address = place.address()
    with address.open() as catalog:
        columns = arguments.get("zorder_by")
        sort = clustering(catalog, address, where, full=full, zorder_by=columns)
    if sort is None:
        return CompactionReader, {"where": where}
    return ClusterReader, {"full": sort, "where": where}


def _optimize(place: Place, arguments: Mapping[str, Any]) -> DataSourceReader:
    kind, given = _optimized(place, arguments)
    return kind(place, given)


def _commit_optimized(
    place: Place, messages: Sequence[str], arguments: Mapping[str, Any]
) -> CompactionResult:
    kind, given = _optimized(place, arguments)
    commit = commit_pieces if kind is ClusterReader else commit_messages
    return commit(place, messages, given)


BY_TASKS: Mapping[str, ByTasks] = {
    "cluster": ByTasks(ClusterReader, commit_pieces),
    "compact": ByTasks(CompactionReader, commit_messages),
    "optimize": ByTasks(_optimize, _commit_optimized),
}


@dataclass(frozen=True, slots=True)
class CalledTable:
    """The table that a procedure is called for."""

    about: Request

    @property
    def is_path(self) -> bool:
        return self.about.is_path

    def address(self) -> Address:
        return place_of(self.about).address()

    def name(self) -> QualifiedName:
        if self.is_path or self.about.branch is not None:
            raise InvalidOptionError(
                option="table", value=self.about.shown, reason="is not the name that a table had."
            )
        return self.about.name

    def other(self, given: str) -> CalledTable:
        return CalledTable(self.about.about(given))

    @contextmanager
    def names(self) -> Iterator[DatasetCatalog]:
        with names_of(self.about) as catalog:
            yield catalog

    def storage_options(self) -> Mapping[str, Any] | None:
        return self.about.storage or None


def default_in_sql(parameter: Parameter) -> str | None:
    """The default of a parameter as SQL; None: an argument must be given."""
    if parameter.required:
        return None
    value = parameter.default
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else f"{value:.1f}D"


# --- Answers Spark's catalog about procedures; `PlakeProcedure.java` asks.


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def list_procedures(_: Request) -> dict[str, Any]:
    """The names of the procedures."""
    return {ResponseKey.NAMES: list(PROCEDURES)}


def load_procedure(request: Request) -> dict[str, Any]:
    """The parameters of a procedure and the columns of its rows."""
    procedure = PROCEDURES.get(request.body[RequestKey.PROCEDURE])
    if procedure is None:
        return {ResponseKey.EXISTS: False, ResponseKey.NAMES: list(PROCEDURES)}
    return {
        ResponseKey.EXISTS: True,
        ResponseKey.DESCRIPTION: _description(procedure),
        ResponseKey.PARAMETERS: _schema(procedure.parameters),
        ResponseKey.COLUMNS: _schema(procedure.columns),
    }


def call(request: Request) -> dict[str, Any]:
    """Run a procedure; returns its rows. If tasks do the work, a second call has their messages.

    Raises:
        PlakeError: an argument is wrong, or the work failed.
    """
    procedure, about, arguments = _prepared(request)
    by_tasks = BY_TASKS.get(procedure.name)
    messages = request.body.get(RequestKey.MESSAGES)
    if by_tasks is None:
        rows = procedure.run(Call(CalledTable(about), arguments))
    elif messages is None:
        place_of(about)  # refuses a missing table before tasks begin
        return {ResponseKey.TASKS: True}
    else:
        rows = [astuple(by_tasks.commit(place_of(about), messages, arguments))]
    response: dict[str, Any] = {ResponseKey.ROWS: [list(row) for row in rows]}
    return response | {ResponseKey.CHANGED: about.shown} if procedure.changes_rows else response


class TasksFrame:
    """The frame whose tasks do the work of a procedure."""

    version = None

    def __init__(self, call: Mapping[str, Any], options: Mapping[str, str]) -> None:
        self.request = Request.of(call, options)

    def pinned(self) -> TasksFrame:
        return self

    def schema(self) -> StructType:
        return MESSAGES

    def reader(self, _: StructType) -> DataSourceReader:
        """The reader, planned on the driver.

        Raises:
            PlakeError: an argument is wrong.
        """
        freeze_gc()
        procedure, about, arguments = _prepared(self.request)
        return BY_TASKS[procedure.name].reader(place_of(about), arguments)

    def stream_reader(self, _: StructType) -> DataSourceStreamReader:
        raise AssertionError("the work of a procedure is no stream")


def _prepared(request: Request) -> tuple[Operation, Request, dict[str, Any]]:
    """The procedure that a request names, its table, and the other arguments."""
    procedure = PROCEDURES[request.body[RequestKey.PROCEDURE]]
    arguments = {
        name: value
        for name, value in request.body[RequestKey.ARGUMENTS].items()
        if value is not None
    }
    for parameter in procedure.parameters:
        if parameter.required and parameter.name not in arguments:
            raise InvalidOptionError(option=parameter.name, reason="must not be NULL.")
        if parameter.type is Type.DOUBLE and parameter.name in arguments:
            # JSON has no infinities and no NaN, which are sent as text.
            arguments[parameter.name] = float(arguments[parameter.name])
        if parameter.type is Type.TIMESTAMP and parameter.name in arguments:
            since = timedelta(microseconds=arguments[parameter.name])
            arguments[parameter.name] = _EPOCH + since
    if procedure.subject is Subject.NONE:
        return procedure, request, arguments
    subject = procedure.parameters[0].name
    about = request.about(arguments.pop(subject))
    about.require_table()
    if procedure.subject is Subject.FOLDER and not about.is_path:
        raise InvalidOptionError(
            option=subject, value=about.shown, reason="is not the path of a folder."
        )
    return procedure, about, arguments


def _description(procedure: Operation) -> str:
    """The text of DESCRIBE PROCEDURE: what a procedure does, takes and returns."""
    lines = [procedure.description, *(["Parameters:"] if procedure.parameters else [])]
    for parameter in procedure.parameters:
        default = default_in_sql(parameter)
        chosen = "" if default is None else f" DEFAULT {default}"
        lines.append(f"  {_declared(parameter)}{chosen}: {parameter.comment}")
    lines.append("Columns of the rows:")
    lines += [f"  {_declared(column)}: {column.comment}" for column in procedure.columns]
    return "\n".join(lines)


def _declared(member: Parameter | Column) -> str:
    return f"{member.name} {_spark_type(member).simpleString().upper()}"


def _spark_type(member: Parameter | Column) -> DataType:
    return spark_schema(pa.schema([(member.name, ARROW_TYPES[member.type])])).fields[0].dataType


def _schema(members: Iterable[Parameter | Column]) -> str:
    """Parameters or columns as a schema in Spark's JSON."""
    fields = []
    for one in members:
        response = {"comment": one.comment}
        default = default_in_sql(one) if isinstance(one, Parameter) else None
        if default is not None:
            response[ParameterKey.DEFAULT] = default
        fields.append(StructField(one.name, _spark_type(one), True, response))
    return StructType(fields).json()
