"""What plake needs otherwise than dbt-spark has it; the SQL is in `include/plake/macros`."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from dbt.adapters.base import PythonJobHelper, available
from dbt.adapters.base.impl import ConstraintSupport
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import Connection, ConnectionState
from dbt.adapters.spark import SparkAdapter
from dbt.adapters.spark.connections import (
    SparkConnectionManager,
    SparkConnectionMethod,
    SparkCredentials,
)
from dbt.adapters.spark.impl import SCHEMA_NOT_FOUND_MESSAGES, SparkConfig
from dbt.adapters.spark.session import Connection as SparkSessionConnection
from dbt.adapters.spark.session import Cursor, SessionConnectionWrapper
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.exceptions import DbtRuntimeError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakehouse_source as lake

_REMOTE = "sc://"
_ANSI = "spark.sql.ansi.enabled"
_session_made = threading.Lock()


@dataclass
class PlakeCredentials(SparkCredentials):
    """A target of `profiles.yml`: dbt-spark's, and where plake's catalog is.

    `catalog` and `warehouse` are those of `lake.spark.configure`. With the method `session`, `host`
    may be a Connect server, `sc://…`, which has both in its own settings, as a Thrift server has.
    """

    host: str | None = SparkConnectionMethod.SESSION
    method: SparkConnectionMethod = SparkConnectionMethod.SESSION
    catalog: str | None = None
    warehouse: str | None = None

    def __post_init__(self) -> None:
        # dbt-spark turns ANSI off, and a seed's text that is no number would become NULL.
        ansi = self.server_side_parameters.get(_ANSI, True)
        super().__post_init__()
        self.server_side_parameters[_ANSI] = str(ansi).lower()
        self.server_side_parameters.setdefault("spark.sql.defaultCatalog", "plake")

    @property
    def type(self) -> str:
        return "plake"

    def _connection_keys(self) -> tuple[str, ...]:
        # Not `catalog`: its URL may hold a password, and dbt shows these keys.
        return "host", "method", "schema", "warehouse"


def _session(given: PlakeCredentials) -> SparkSession:
    """The one session of this process; dbt's threads share it."""
    with _session_made:
        if str(given.host).startswith(_REMOTE):
            spark = SparkSession.builder.remote(given.host).getOrCreate()
            for key, value in given.server_side_parameters.items():
                spark.conf.set(key, value)
            return spark
        builder = SparkSession.builder
        for key, value in given.server_side_parameters.items():
            builder = builder.config(key, value)
        return lake.spark.configure(
            builder, catalog=given.catalog, warehouse=given.warehouse
        ).getOrCreate()


class _Cursor(Cursor):
    """dbt-spark's builds the session anew for each statement, with Hive and all settings."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark

    def execute(self, sql: str, *parameters: Any) -> None:
        try:
            self._df = self._spark.sql(sql % parameters if parameters else sql)
        except PySparkException as error:
            raise DbtRuntimeError(str(error)) from error


class _Connection(SparkSessionConnection):
    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark

    def cursor(self) -> Cursor:
        return _Cursor(self._spark)


class PlakeConnectionManager(SparkConnectionManager):
    TYPE = "plake"

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        given = connection.credentials
        if (
            connection.state == ConnectionState.OPEN
            or given.method != SparkConnectionMethod.SESSION
        ):
            return super().open(connection)
        connection.handle = SessionConnectionWrapper(_Connection(_session(given)))
        connection.state = ConnectionState.OPEN
        return connection


class _SessionJob(PythonJobHelper):
    """Runs the code of a Python model in dbt's own session."""

    def __init__(self, parsed_model: dict[str, Any], credentials: PlakeCredentials) -> None:
        if credentials.method != SparkConnectionMethod.SESSION:
            raise DbtRuntimeError(
                f"the method {credentials.method} runs no Python models: use the method session"
            )
        self._credentials = credentials

    def submit(self, compiled_code: str) -> None:
        exec(compiled_code, {"spark": _session(self._credentials), "__name__": "dbt_model"})


@dataclass
class PlakeConfig(SparkConfig):
    file_format: str = "plake"
    cluster_by: list[str] | str | None = None


class PlakeAdapter(SparkAdapter):
    ConnectionManager = PlakeConnectionManager
    AdapterSpecificConfigs = PlakeConfig
    CONSTRAINT_SUPPORT = {  # noqa: RUF012
        **dict.fromkeys(ConstraintType, ConstraintSupport.ENFORCED),
        ConstraintType.foreign_key: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.custom: ConstraintSupport.NOT_SUPPORTED,
    }

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        """By names only: Spark's SHOW TABLE EXTENDED opens each table, and names no view."""
        found: dict[str, str] = {}
        try:
            for kind in ("table", "view"):
                rows = self.execute_macro(
                    "plake_show", kwargs={"kind": kind, "schema": schema_relation.schema}
                )
                found.update((row[1], kind) for row in rows if not row[2])  # row[2]: temporary
        except DbtRuntimeError as error:
            text = str(error)
            if any(message in text for message in SCHEMA_NOT_FOUND_MESSAGES):
                return []
            if "MISSING_CATALOG_ABILITY.VIEWS" not in text:  # Spark 4.1
                raise
        return [
            self.Relation.create(schema=schema_relation.schema, identifier=name, type=kind)
            for name, kind in found.items()
        ]

    def _get_columns_for_catalog(self, relation: BaseRelation) -> Iterable[dict[str, Any]]:
        """For `docs generate`: with the comments, which dbt-spark leaves out."""
        rows = [
            dict(zip(row.keys(), row.values()))
            for row in self.execute_macro(
                "get_columns_in_relation_raw", kwargs={"relation": relation}
            )
        ]
        columns = rows[: self.find_table_information_separator(rows)]
        told = {row["col_name"]: row["data_type"] for row in rows[len(columns) :]}
        for index, row in enumerate(columns):
            yield {
                "table_database": None,
                "table_schema": relation.schema,
                "table_name": relation.name,
                "table_type": relation.type,
                "table_comment": told.get("Comment"),
                "table_owner": told.get("Owner"),
                "column_name": row["col_name"],
                "column_index": index,
                "column_type": row["data_type"],
                "column_comment": row["comment"],
            }

    @available
    def plake_values(self, rows: Iterable[Iterable[Any]]) -> str:
        """Rows of a seed as SQL, each value as its text, which a cast makes the column's type.

        dbt-spark makes 'None' of NULL, a DOUBLE of each number, and fails at a quote.
        """
        return ", ".join(f"({', '.join(map(self.plake_literal, row))})" for row in rows)

    @available
    @staticmethod
    def plake_literal(value: Any) -> str:
        """A value's text as a literal of SQL."""
        if value is None:
            return "null"
        if isinstance(value, Decimal):
            value = format(value, "f")
        elif isinstance(value, datetime):
            value = value.isoformat(" ")
        elif isinstance(value, date):
            value = value.isoformat()
        text = str(value).replace("\\", "\\\\").replace("'", "\\'")
        return f"'{text}'"

    @property
    def default_python_submission_method(self) -> str:
        return "session"

    @property
    def python_submission_helpers(self) -> dict[str, type[PythonJobHelper]]:
        return {"session": _SessionJob}

    def valid_incremental_strategies(self) -> list[str]:
        return ["append", "merge", "delete+insert", "insert_overwrite", "microbatch"]
