"""Verb. Operations that tell what a query has to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse_source.operations.entry import TABLE, Call, Column, Operation, Parameter, Rows, Type

if TYPE_CHECKING:
    import pyarrow as pa

    from lakehouse_source.read.plan import Pruning

_PRUNING = (
    Column("version", Type.LONG, "the version that a scan reads"),
    Column("predicate", Type.TEXT, "the condition, as plake understood it"),
    Column("files_total", Type.LONG, "files of the version"),
    Column("files_read", Type.LONG, "files that may hold a matching row"),
    Column("files_pruned_by_partition", Type.LONG, "files that their partition values rule out"),
    Column("files_pruned_by_statistics", Type.LONG, "files that their statistics rule out"),
    Column("row_groups_total", Type.LONG, "row groups of the version"),
    Column("row_groups_read", Type.LONG, "row groups that may hold a matching row"),
    Column("rows_total", Type.LONG, "rows of the version"),
    Column("rows_read", Type.LONG, "rows of the row groups to read"),
    Column("rows_deleted", Type.LONG, "rows of the files to read that are deleted"),
    Column("bytes_total", Type.LONG, "bytes of the version's files"),
    Column("bytes_read", Type.LONG, "bytes of the columns and row groups to read"),
)


def _pruning(call: Call, *, details: bool = False) -> Pruning:
    arguments = dict(call.arguments)
    scan = call.dataset().scan(arguments.pop("where", None), **arguments)
    return scan.explain(details=details)


def _explain(call: Call) -> Rows:
    pruning = _pruning(call)
    yield [getattr(pruning, column.name) for column in _PRUNING]


def _explain_row_groups(call: Call) -> Rows:
    found = _pruning(call, details=True).details
    assert found is not None
    yield from found.rows()


def _write_page(call: Call, path: str) -> None:
    _pruning(call).to_html(path)


def _write_details(call: Call, path: str) -> None:
    _pruning(call, details=True).to_html(path)


def _suggest_layout(call: Call) -> Rows:
    yield from call.dataset().suggest_layout(**call.arguments).table()


def _count(call: Call) -> Rows:
    arguments = dict(call.arguments)
    scan = call.dataset().scan(arguments.pop("where", None), **arguments)
    yield (scan.count_rows(),)


def _diff(call: Call) -> Rows:
    dataset = call.dataset()
    before, after = call.arguments["version"], call.arguments["other_version"]
    yield from _schema_diff(
        dataset.scan(version=before).head(0).schema, dataset.scan(version=after).head(0).schema
    )
    old, new = ({file.path: file for file in dataset.files(v)} for v in (before, after))
    added = [file for path, file in new.items() if path not in old]
    removed = [file for path, file in old.items() if path not in new]
    yield "files", "all", str(len(old)), str(len(new))
    yield "files", "removed", str(len(removed)), None
    yield "files", "added", None, str(len(added))
    for name, files in (("bytes removed", removed), ("bytes added", added)):
        size = str(sum(file.size_bytes for file in files))
        yield ("files", name, size, None) if files is removed else ("files", name, None, size)
    counts = [str(dataset.scan(version=v).count_rows()) for v in (before, after)]
    yield "rows", "all", *counts
    if before != after:
        changed = dataset.changes(before + 1, after, net=True).count_rows()
        yield "rows", "deleted", str(changed.get("delete", 0)), None
        yield "rows", "updated", *[str(changed.get("update_postimage", 0))] * 2
        yield "rows", "inserted", None, str(changed.get("insert", 0))


def _schema_diff(old: pa.Schema, new: pa.Schema) -> Rows:
    before, after = (
        {field.name: f"{field.type}{'' if field.nullable else ' NOT NULL'}" for field in schema}
        for schema in (old, new)
    )
    for name in [*before, *(name for name in after if name not in before)]:
        if before.get(name) != after.get(name):
            yield "column", name, before.get(name), after.get(name)


COUNT = Operation(
    "count",
    "Counts rows. Files in which all or no rows match are not opened.",
    (
        TABLE,
        Parameter("where", Type.TEXT, "which rows, as SQL"),
        Parameter("version", Type.TEXT, "a version or a tag; by default the newest"),
    ),
    (Column("row_count", Type.LONG, "how many rows match"),),
    _count,
    is_called=False,
)
DIFF = Operation(
    "diff",
    "Compares two versions: columns, files and rows. The first has to be the older one.",
    (
        TABLE,
        Parameter("version", Type.LONG, "the older version", required=True),
        Parameter("other_version", Type.LONG, "the newer version", required=True),
    ),
    (
        Column("what", Type.TEXT, "column, files or rows"),
        Column("name", Type.TEXT, "which column, or what is counted"),
        Column("before", Type.TEXT, "in the older version; NULL: it is not there"),
        Column("after", Type.TEXT, "in the newer version; NULL: it is not there"),
    ),
    _diff,
    is_called=False,
)
_SCAN = (
    TABLE,
    Parameter("where", Type.TEXT, "the condition of the scan, as SQL"),
    Parameter("columns", Type.TEXTS, "the columns that it reads; by default all"),
    Parameter("version", Type.LONG, "the version; by default the newest"),
)
EXPLAIN = Operation(
    "explain",
    "Tells how much of a table a scan with a condition has to read. Reads no file.",
    _SCAN,
    _PRUNING,
    _explain,
    write_page=_write_page,
)
EXPLAIN_ROW_GROUPS = Operation(
    "explain_row_groups",
    "Tells for each row group whether a scan reads it, and which part of the condition decided. "
    "Opens the footers of the files that are left.",
    _SCAN,
    (
        Column("is_kept", Type.FLAG, "whether a row of it may match"),
        Column(
            "decided_by",
            Type.TEXT,
            "partition, statistics, bloom filter, page index or deletion vector; NULL: rows decide",
        ),
        Column("condition", Type.TEXT, "the part of the condition that decided, or that rows do"),
        Column("bounds", Type.TEXT, "what is known of the columns of that part"),
        Column("row_count", Type.LONG, "its rows"),
        Column("rows_left", Type.LONG, "those that may match"),
        Column("size_bytes", Type.LONG, "its bytes"),
        Column("row_group", Type.LONG, "its number in the file"),
        Column("path", Type.TEXT, "where the file is, from the dataset's URI on"),
    ),
    _explain_row_groups,
    told=lambda call: str(_pruning(call, details=True)),
    write_page=_write_details,
)
SUGGEST_LAYOUT = Operation(
    "suggest_layout",
    "Tells by which columns a table is best clustered for given conditions. Changes nothing.",
    (
        TABLE,
        Parameter("conditions", Type.TEXTS, "the conditions that you run, as SQL", required=True),
    ),
    (
        Column("partition_by", Type.TEXTS, "partition columns"),
        Column("cluster_by", Type.TEXTS, "clustering columns"),
        Column("bloom_filter_columns", Type.TEXTS, "columns with bloom filters"),
        Column("bytes_read", Type.LONG, "bytes that the conditions would read, each once"),
        Column("share", Type.DOUBLE, "the same, as a share of reading all files for each"),
        Column("is_now", Type.FLAG, "whether it is today's layout; the others are estimates"),
        Column("is_best", Type.FLAG, "whether it is the one to choose"),
    ),
    _suggest_layout,
)
