"""Door. `CALL compact` and `CALL cluster` by tasks of Spark, whose files the driver commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from lakehouse_source.catalog import Catalog
from lakehouse_source.errors import CommitConflictError, InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import CompactionResult, FileMetadata, FileRecord
from lakehouse_source.read.address import Address
from lakehouse_source.spark.protocol.messages import from_json, to_json
from lakehouse_source.spark.session.catalog_request import Place
from lakehouse_source.spark.session.workers import freeze_gc
from lakehouse_source.spark.writing.frame_writers import restored, shortened
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.commit.rewrite import Copy
from lakehouse_source.write.layout import (
    begin_compaction,
    begin_piece,
    check_max_bytes,
    check_max_concurrent,
    cluster,
    commit_compaction,
    look,
    together,
)

# --- `CALL compact` by tasks of Spark: they write the large files, and the driver commits them.
#
# A procedure runs in a planning worker of the driver, which can start no job. So Java runs a job
# between two requests (`PlakeProcedure.java`): it reads a frame whose tasks write files, each task
# for some partitions of the dataset, and whose rows are messages about these files. Java sends the
# rows with the second request, and the files are committed as in `Dataset.compact`. Only rows of
# successful attempts of tasks reach the driver. Files of failed attempts and jobs belong to no
# version, and vacuum deletes them.


MESSAGES = StructType([StructField("message", StringType(), False)])


Groups = tuple[tuple[Copy, tuple[FileRecord, ...]], ...]


@dataclass(frozen=True)
class CompactionPartition(InputPartition):
    """The partitions of the dataset that one task compacts, each with its small files."""

    staged: StagedWrite
    groups: Groups
    row_groups: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a task did: the files that it wrote, with their schema, and the files that they replace.

    `staged` has no storage options, which may have keys: the driver has them.
    """

    staged: StagedWrite
    files: tuple[FileMetadata, ...]
    schema: pa.Schema
    replaced: tuple[FileRecord, ...]
    row_groups: Mapping[int, int]


class CompactionReader(DataSourceReader):
    """A frame whose tasks compact. Planned on the driver, where the catalog is."""

    def __init__(self, place: Place, arguments: Mapping[str, Any]) -> None:
        self.place = place
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return CompactionTasks, ()

    def partitions(self) -> list[InputPartition]:
        """A task for each partition with small files, or at most `max_concurrent` tasks.

        Raises:
            DatasetNotFoundError, InvalidOptionError, InvalidPredicateError
        """
        arguments = dict(self.arguments)
        where = PredicateSet.of(arguments.pop("where", None))
        at_once = arguments.pop("max_concurrent", None)
        if at_once is not None:
            check_max_concurrent(at_once)
        address = self.place.address()
        with address.open() as catalog:
            staged, work = begin_compaction(catalog, address, where, **arguments)
        if staged is None:
            return []
        groups = list(zip(work.copies(staged.spec), work.groups))
        count = len(groups) if at_once is None else min(at_once, len(groups))
        return [
            CompactionPartition(staged, mine, _counts_of(work.row_groups, mine))
            for mine in (tuple(groups[first::count]) for first in range(count))
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise AssertionError("tasks compact with CompactionTasks")


def _counts_of(row_groups: Mapping[int, int], groups: Groups) -> dict[int, int]:
    """The numbers of row groups of the replaced files: a task needs no others."""
    return {file.id: row_groups[file.id] for _, replaced in groups for file in replaced}


class CompactionTasks(DataSourceReader):
    """Runs on executors, with what the partitions hold."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there is nothing to do, Spark makes a partition of its own.
        if not isinstance(partition, CompactionPartition):
            return
        freeze_gc()
        staged = partition.staged
        storage = Storage(staged.spec.uri)
        message = replace(staged, spec=replace(staged.spec, uri=staged.uri))
        for copy, replaced in partition.groups:
            done = Compacted(
                message,
                shortened(copy.write(storage)),
                copy.spec.file_schema,
                replaced,
                {file.id: partition.row_groups[file.id] for file in replaced},
            )
            fields = pa.schema([pa.field("message", pa.string(), nullable=False)])
            yield pa.record_batch([[to_json(done)]], schema=fields)


def from_messages(messages: Sequence[str]) -> list[Compacted]:
    """What tasks did, by their messages.

    Raises:
        InvalidOptionError: a message is not what a task tells.
    """
    try:
        return [from_json(text, Compacted) for text in messages]
    except ValueError as error:
        raise InvalidOptionError(
            option="messages", reason=f"are not those of tasks that compact: {error}"
        ) from error


def commit_parts(
    catalog: Catalog, address: Address, parts: Sequence[Compacted]
) -> CompactionResult:
    """Commit what tasks wrote in one write, as one version.

    Raises:
        CommitConflictError: another commit removed one of the files, or rows of one.
    """
    staged = parts[0].staged
    with catalog.read() as reader:
        address.snapshot(catalog, reader)  # its location then finds the files of a clone
    return commit_compaction(
        catalog,
        replace(staged, spec=replace(staged.spec, uri=address.location)),
        restored((file for part in parts for file in part.files), parts[0].schema),
        [file for part in parts for file in part.replaced],
        {id: count for part in parts for id, count in part.row_groups.items()},
        len(parts),
    )


def commit_messages(
    place: Place, messages: Sequence[str], _: Mapping[str, Any]
) -> CompactionResult:
    """Commit what the tasks of a compaction wrote, as one version.

    Raises:
        CommitConflictError: another commit removed one of the files, or rows of one.
        InvalidOptionError: a message is not what a task tells.
    """
    parts, address = from_messages(messages), place.address()
    with address.open() as catalog:
        if parts:
            return commit_parts(catalog, address, parts)
        with catalog.read() as reader:
            return CompactionResult(address.snapshot(catalog, reader).version)


# --- `CALL cluster` by tasks of Spark: each sorts a piece, and the driver commits them.
#
# This works like `layout_tasks.py`, but each piece is a write and a commit of its own. The driver
# sorts pieces that the first look did not find, and pieces that others changed meanwhile.


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
            where = PredicateSet.of(self.arguments.get("where"))
            found = look(catalog, address, where, full=full, max_bytes=most)
            for piece in found.pieces:
                with suppress(CommitConflictError):
                    begun = begin_piece(catalog, address, found.columns, piece, where)
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
    given, address, parts = dict(arguments), place.address(), from_messages(messages)
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
        where = PredicateSet.of(given.pop("where", None))
        return together(done, cluster(catalog, address, where, **given))
