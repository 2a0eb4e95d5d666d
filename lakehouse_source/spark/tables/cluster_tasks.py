"""Door. `CALL cluster` by tasks of Spark: each sorts a piece, and the driver commits them.

This works like `compact_tasks.py`, but each piece is a write and a commit of its own. The driver
sorts pieces that the first look did not find, and pieces that others changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pyspark.sql.datasource import InputPartition

from lakehouse_source.errors import CommitConflictError
from lakehouse_source.model import CompactionResult
from lakehouse_source.spark.session.catalog_request import Place
from lakehouse_source.spark.tables.compact_tasks import (
    CompactionPartition,
    CompactionReader,
    commit_parts,
    told_by,
)
from lakehouse_source.write.layout.cluster import (
    begin_piece,
    check_max_bytes,
    cluster,
    look,
    together,
)


class ClusterReader(CompactionReader):
    """A frame whose tasks sort pieces, as the tasks of a compaction write files."""

    def partitions(self) -> list[InputPartition]:
        """A task for each piece that the first look finds.

        Raises:
            DatasetNotFoundError, InvalidOptionError
        """
        if self.arguments.get("dry_run", False):
            return []
        most, address = self.arguments.get("max_bytes"), self.place.address()
        check_max_bytes(most)
        tasks: list[InputPartition] = []
        with address.open() as catalog:
            full = self.arguments.get("full", False)
            found = look(catalog, address, full=full, max_bytes=most)
            for piece in found.pieces:
                with suppress(CommitConflictError):
                    begun = begin_piece(catalog, address, found.columns, piece)
                    copies = ((begun.copy, begun.files),)
                    tasks.append(CompactionPartition(begun.staged, copies, begun.row_groups))
        return tasks


def commit_pieces(
    place: Place, messages: Sequence[str], arguments: Mapping[str, Any]
) -> CompactionResult:
    """Commit what the tasks wrote, one version for each piece, and sort the rest.

    Raises:
        CommitConflictError: other commits changed rows of a piece at every attempt.
        InvalidOptionError: a message is not from a task, or an argument is wrong.
    """
    given, address, parts = dict(arguments), place.address(), told_by(messages)
    done, conflicts = CompactionResult(0), 0
    with address.open() as catalog:
        for part in parts:
            try:
                done = together(done, commit_parts(catalog, address, [part]))
            except CommitConflictError:
                conflicts += 1
        if parts and given.pop("full", False) and not conflicts:
            return done
        if given.get("max_bytes") is not None:
            given["max_bytes"] -= done.bytes_removed
            if given["max_bytes"] < 1:
                return done
        return together(done, cluster(catalog, address, **given))
