"""Door. `transaction`: statements of a Spark session that commit together, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uuid6

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.spark.protocol.vocabulary import Setting
from lakehouse_source.spark.session.options import TAKES
from lakehouse_source.spark.tables.table_names import catalog_for
from lakehouse_source.spark.types import quoted
from lakehouse_source.write.commit.conflicts import Isolation, isolation_of


@contextmanager
def transaction(spark: Any, *, isolation: str | None = None) -> Iterator[None]:
    """Statements of a session that become visible together at the end of the block, or not at all.

    They see what the block did, others see nothing of it. Each table is read as it was when the
    block first named it. A block that ends with an error changes nothing. Tables are of one catalog
    of plake. Through Connect too.

    Args:
        spark: the session. Its other threads take part; other sessions do not.
        isolation: `"serializable"`: tables that the block only read must not have changed either.

    Raises:
        InvalidOptionError: the session has an open transaction, or no planner extension; at the
            end: the block changed the setting `spark.plake.transaction`.
        AnalysisException: at the end: another writer committed to a table
            (`PLAKE_COMMIT_CONFLICT`). Nothing is committed.

    >>> with lake.spark.transaction(spark):
    ...     none = spark.sql("UPDATE plake.`/data/flights` SET miles = 0 WHERE month = 1")
    ...     inside = spark.sql("SELECT sum(miles) FROM plake.`/data/flights`").first()[0]
    ...     outside = lake.read_dataset("/data/flights")["miles"]
    """
    serializable = isolation is not None and isolation_of(isolation) is Isolation.SERIALIZABLE
    refuse(spark, "another transaction")
    catalog, id = catalog_for(spark, "", None, {}), str(uuid6.uuid7())

    def call(step: str) -> None:
        arguments = f"id => '{id}', step => '{step}', serializable => {serializable}"
        spark.sql(f"CALL {quoted(catalog)}.system.transaction({arguments})").collect()

    call("begin")  # fails on a server without the extension, which would commit each statement
    spark.conf.set(Setting.TRANSACTION, id)
    try:
        yield
        if spark.conf.get(Setting.TRANSACTION, None) != id:
            raise InvalidOptionError(
                option=Setting.TRANSACTION,
                reason="was changed in the block: what followed was committed by itself.",
            )
    except BaseException:
        with suppress(Exception):  # of a session that has ended: nobody sees the branches
            spark.conf.unset(Setting.TRANSACTION)
            call("drop")
        raise
    spark.conf.unset(Setting.TRANSACTION)
    call("commit")


def refuse(spark: Any, what: str) -> None:
    """Refuse what a transaction of a session does not take.

    Raises:
        InvalidOptionError: one is open.
    """
    if spark.conf.get(Setting.TRANSACTION, None) is not None:
        raise InvalidOptionError(
            option="transaction", value=what, reason=f"is not for a session that has one. {TAKES}."
        )
