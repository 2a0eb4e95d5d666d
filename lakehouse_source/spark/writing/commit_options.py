"""Door. Options of a write, a statement or a session, as the commit takes them."""

from __future__ import annotations

from lakehouse_source.model import Layout
from lakehouse_source.spark.session.options import Options
from lakehouse_source.write.commit.options import WriteOptions


def commit_options(given: Options) -> WriteOptions:
    """What every commit can be told: on which version it is based, how it is known, what is noted.

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
    """How the files are written, as far as options of this kind may choose it.

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
