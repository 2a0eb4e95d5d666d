"""Door. What the last write of a session did: Spark's statements answer no counts."""

from __future__ import annotations

import pickle
from typing import Any

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import TransactionRecord
from lakehouse_source.read.address import Address
from lakehouse_source.spark.session.secrets import catalog_of_query


def last_commit(spark: Any) -> TransactionRecord | None:
    """The commit of the last INSERT, UPDATE, DELETE, MERGE or `df.write` of this session.

    None: it changed nothing, was skipped or was in a transaction that has ended, or the session has
    not written. Its `summary` has `rows_added` and `rows_removed`; after DELETE, UPDATE and MERGE
    also `rows_deleted`, `rows_updated` and `rows_inserted`. Streams, and statements of other
    sessions, do not count.

    Raises:
        InvalidOptionError: the session has no planner extension, or is one of Spark Connect, whose
            server does not tell; `SELECT * FROM t.history` has all commits.

    >>> lake.spark.open(spark, "/data/flights").delete("carrier = 'AA'")
    >>> commit = lake.spark.last_commit(spark)
    >>> commit.operation, commit.summary["rows_deleted"]
    ('delete', 1)
    """
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        raise InvalidOptionError(
            option="spark",
            reason="is a session of Spark Connect, whose server does not tell which commit was the "
            "last. SELECT * FROM t.history has all commits of a table.",
        )
    found = spark._jvm.io.plake.spark.core.LastCommit
    if not callable(getattr(found, "of", None)):
        raise InvalidOptionError(
            option="spark",
            reason="has no planner extension, which knows the commit. Call "
            "lakehouse_source.spark.enable(spark) first.",
        )
    packed = found.of(session)
    if packed is None:
        return None
    # The planning worker of this application made it, and the JVM kept it in memory.
    writer = pickle.loads(bytes(packed))
    with (
        Address(writer.path, catalog_of_query(writer.catalog)).open() as catalog,
        catalog.read() as reader,
    ):
        return reader.transaction_by_write_id(writer.staged.write_id)
