"""Door. Options of a write, a statement or a session, in the form for the commit."""

from __future__ import annotations

from dataclasses import replace

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.properties import Layout
from lakehouse_source.spark.session.options import PARTITION_MODES, Options
from lakehouse_source.write.commit.options import WriteOptions


def commit_options(given: Options) -> WriteOptions:
    """The options of every commit: its expected version, its idempotency pair, its notes.

    Raises:
        InvalidOptionError
    """
    return WriteOptions(
        expected_version=given.number("expectedVersion"),
        txn_app_id=given.text("txnAppId"),
        txn_version=given.number("txnVersion"),
        commit_metadata=given.document("commitMetadata"),
    )


def file_options(given: Options) -> Layout:
    """The layout of files, as far as options of this kind may choose it.

    Raises:
        InvalidOptionError
    """
    return Layout(
        target_file_size_bytes=given.size("targetFileSize"),
        row_group_rows=given.number("rowGroupRows"),
        compression=given.text("compression"),
        sort_by=given.chosen_names("sortBy"),
        cluster_by=given.chosen_names("clusterBy"),
        bloom_filter_columns=given.chosen_names("bloomFilterColumns"),
        promote_to_string=given.flag("promoteToString"),
    )


def write_options(given: Options, mode: str) -> WriteOptions:
    """The options of `df.write` or `df.writeStream` in a mode.

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
    return replace(
        commit_options(given),
        mode=mode,
        partition_by=given.names("partitionBy"),
        schema_merge=bool(given.flag("mergeSchema")),
        overwrite_where=None if where is None else PredicateSet.of(where),
        dynamic_partitions=overwrite_mode == "dynamic" and mode == "overwrite",
        layout=file_options(given),
        index_columns=given.names("indexColumns"),
        overwrite_schema=bool(given.flag("overwriteSchema")),
    )
