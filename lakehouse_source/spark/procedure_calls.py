"""Door. What Spark's catalog asks about procedures; `PlakeProcedure.java` asks it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import DataType, StructField, StructType

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.spark.catalog_request import Request, place_of
from lakehouse_source.spark.planner.vocabulary import Answer, Question
from lakehouse_source.spark.planner.vocabulary import Parameter as ParameterKey
from lakehouse_source.spark.procedure_work import Call
from lakehouse_source.spark.procedures import PROCEDURES, Column, Parameter, Procedure
from lakehouse_source.spark.types import spark_schema


def list_procedures(_: Request) -> dict[str, Any]:
    """The names of the procedures."""
    return {Answer.NAMES: list(PROCEDURES)}


def load_procedure(request: Request) -> dict[str, Any]:
    """What a procedure takes and which rows it gives."""
    procedure = PROCEDURES.get(request.question[Question.PROCEDURE])
    if procedure is None:
        return {Answer.EXISTS: False, Answer.NAMES: list(PROCEDURES)}
    return {
        Answer.EXISTS: True,
        Answer.DESCRIPTION: _description(procedure),
        Answer.PARAMETERS: _schema(procedure.parameters),
        Answer.COLUMNS: _schema(procedure.columns),
    }


def call(request: Request) -> dict[str, Any]:
    """Run a procedure; its rows. One for tasks is asked again, with the messages of its tasks.

    Raises:
        PlakeError: an argument is wrong, or the work failed.
    """
    procedure, about, made = _prepared(request)
    if procedure.tasks is not None and Question.MESSAGES not in request.question:
        return {Answer.TASKS: True}
    told: dict[str, Any] = {Answer.ROWS: [list(row) for row in procedure.run(made)]}
    return told | {Answer.CHANGED: about.shown} if procedure.changes_rows else told


def tasks(request: Request) -> DataSourceReader:
    """The reader of the frame whose tasks do the work of a procedure.

    Raises:
        PlakeError: an argument is wrong.
    """
    procedure, _, made = _prepared(request)
    assert procedure.tasks is not None
    return procedure.tasks(made.place, made.arguments)


def _prepared(request: Request) -> tuple[Procedure, Request, Call]:
    """The procedure that a question names, the table that it is about, and its arguments."""
    procedure = PROCEDURES[request.question[Question.PROCEDURE]]
    arguments = {
        name: value
        for name, value in request.question[Question.ARGUMENTS].items()
        if value is not None
    }
    subject = procedure.parameters[0].name
    for parameter in procedure.parameters:
        if parameter.default is None and parameter.name not in arguments:
            raise InvalidOptionError(option=parameter.name, reason="must not be NULL.")
        if pa.types.is_floating(parameter.type) and parameter.name in arguments:
            # JSON has no infinities and no NaN: they come as text.
            arguments[parameter.name] = float(arguments[parameter.name])
    about = request.about(arguments.pop(subject))
    about.require_table()
    if procedure.needs_path and not about.is_path:
        raise InvalidOptionError(
            option=subject, value=about.shown, reason="is not the path of a folder."
        )
    messages = request.question.get(Question.MESSAGES, ())
    return procedure, about, Call(place_of(about), arguments, messages)


def _description(procedure: Procedure) -> str:
    """What DESCRIBE PROCEDURE shows: what it does, takes and gives."""
    lines = [procedure.description, "Parameters:"]
    for parameter in procedure.parameters:
        default = "" if parameter.default is None else f" DEFAULT {parameter.default}"
        lines.append(f"  {_declared(parameter)}{default}: {parameter.comment}")
    lines.append("Columns of the rows:")
    lines += [f"  {_declared(column)}: {column.comment}" for column in procedure.columns]
    return "\n".join(lines)


def _declared(member: Parameter | Column) -> str:
    return f"{member.name} {_spark_type(member).simpleString().upper()}"


def _spark_type(member: Parameter | Column) -> DataType:
    return spark_schema(pa.schema([(member.name, member.type)])).fields[0].dataType


def _schema(members: Iterable[Parameter | Column]) -> str:
    """Parameters or columns as a schema in Spark's JSON."""
    fields = []
    for one in members:
        told = {"comment": one.comment}
        if isinstance(one, Parameter) and one.default is not None:
            told[ParameterKey.DEFAULT] = one.default
        fields.append(StructField(one.name, _spark_type(one), True, told))
    return StructType(fields).json()
