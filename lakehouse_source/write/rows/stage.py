"""Verb. Rows that a Python caller gives become the files of a write that has begun."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa

from lakehouse_source.arguments import column_names, flag, mapping
from lakehouse_source.catalog import Catalog
from lakehouse_source.errors import InvalidOptionError, PlakeError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.duckdb_writer import write_files_by_duckdb, write_relation
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.progress import counted
from lakehouse_source.read.address import Address
from lakehouse_source.read.scan import Predicates
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort
from lakehouse_source.write.commit.file_layout import LAYOUT_KEYWORDS, layout_of
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.rows.inputs import to_reader

WRITERS = ("pyarrow", "duckdb")
HEARTBEAT_SECONDS = 600.0

T = TypeVar("T")

_FURTHER = (
    *(name for name in LAYOUT_KEYWORDS if name != "promote_to_string"),
    "index_columns",
    "overwrite_schema",
    "partition_overwrite_mode",
    "txn_app_id",
    "txn_version",
)
# Options that only plake's own code uses.
_INTERNAL = ("managed", "register_as", "statement", "table_properties")


def write_options(
    *,
    mode: str = "append",
    partition_by: str | Sequence[str] | None = None,
    schema_merge: bool = False,
    promote_to_string: bool | None = None,
    overwrite_where: Predicates = None,
    writer: str = "pyarrow",
    commit_metadata: Mapping[str, Any] | None = None,
    expected_version: int | None = None,
    **further: Any,
) -> WriteOptions:
    """The keywords of `write_dataset`, checked, as options of a write."""
    if writer not in WRITERS:
        raise InvalidOptionError(
            option="writer", value=writer, reason="is not a writer.", known=WRITERS
        )
    options = _options(
        {**further, "promote_to_string": promote_to_string},
        mode=mode,
        partition_by=column_names("partition_by", partition_by),
        schema_merge=flag("schema_merge", schema_merge),
        overwrite_where=None if overwrite_where is None else PredicateSet.of(overwrite_where),
        writer=writer,
        commit_metadata=dict(mapping("commit_metadata", commit_metadata or {})),
        expected_version=expected_version,
    )
    options.check()
    return options


def stage(
    catalog: Catalog,
    address: Address,
    rows: pa.RecordBatchReader,
    options: WriteOptions,
    *,
    relation: Any = None,
    progress: bool | None = False,
) -> tuple[StagedWrite, list[FileMetadata]]:
    """Begin a write and write its files. The caller has to commit or abort it.

    `rows` and `relation` are those of `opened_input`.

    Raises:
        PlakeError: the write was aborted.
    """
    staged = begin(catalog, address, rows.schema, options)

    def stream(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        counting = counted(
            rows, progress, label="writing", unit="rows", size=lambda batch: batch.num_rows
        )
        return with_heartbeat(counting, heartbeat_of(catalog, staged))

    try:
        if options.writer == "pyarrow":
            return staged, write_files(staged.spec, stream(rows))
        storage = Storage(staged.spec.uri)
        if relation is not None:
            files = write_relation(staged.spec, relation, storage)
            if files is not None:
                return staged, files
            rows = to_reader(relation)
        return staged, write_files_by_duckdb(staged.spec, stream(rows), storage)
    except BaseException as failure:
        # `write_files` has deleted the files that it had written.
        abort(catalog, staged, (), failure=failure)
        raise


def heartbeat_of(catalog: Catalog, staged: StagedWrite) -> Callable[[], None]:
    """A function that tells the catalog that a write goes on, for `with_heartbeat`."""

    def beat() -> None:
        with catalog.write() as tx:
            tx.heartbeat(staged.write_id)

    return beat


def with_heartbeat(items: Iterable[T], beat: Callable[[], None]) -> Iterator[T]:
    """The same items; calls `beat` between two of them every `HEARTBEAT_SECONDS`.

    No background thread does this: a write that gets no rows for a day must count as abandoned.
    """
    last = time.monotonic()
    for item in items:
        if time.monotonic() - last >= HEARTBEAT_SECONDS:
            # A failed heartbeat does not stop the write: the next one may succeed, and the commit
            # reports a catalog that stays unavailable.
            with suppress(PlakeError):
                beat()
            last = time.monotonic()
        yield item


def _options(further: dict[str, Any], **known: Any) -> WriteOptions:
    allowed = (*_FURTHER, *_INTERNAL, "promote_to_string")
    for name in further:
        if name not in allowed:
            raise InvalidOptionError(option=name, reason="is unknown.", known=_FURTHER)
    layout = layout_of({name: further.pop(name, None) for name in LAYOUT_KEYWORDS})
    given = {name: value for name, value in further.items() if value is not None}
    overwrite_mode = given.pop("partition_overwrite_mode", "static")
    if overwrite_mode not in ("static", "dynamic"):
        raise InvalidOptionError(
            option="partition_overwrite_mode",
            value=overwrite_mode,
            reason="is not a mode.",
            known=("static", "dynamic"),
        )
    dynamic = overwrite_mode == "dynamic" and known.get("mode") == "overwrite"
    return WriteOptions(
        **known,
        layout=layout,
        index_columns=column_names("index_columns", given.pop("index_columns", None)),
        **given,
        dynamic_partitions=dynamic,
    )
