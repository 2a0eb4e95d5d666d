"""Verb. Operations that tell what a query has to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse_source.operations.entry import TABLE, Call, Column, Operation, Parameter, Rows, Type

if TYPE_CHECKING:
    import pyarrow as pa

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


def _explain(call: Call) -> Rows:
    arguments = dict(call.arguments)
    pruning = call.dataset().scan(arguments.pop("where", None), **arguments).explain()
    yield [getattr(pruning, column.name) for column in _PRUNING]


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
        Parameter("version", Type.LONG, "the version; by default the newest"),
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
EXPLAIN = Operation(
    "explain",
    "Tells how much of a table a scan with a condition has to read. Reads no file.",
    (
        TABLE,
        Parameter("where", Type.TEXT, "the condition of the scan, as SQL"),
        Parameter("columns", Type.TEXTS, "the columns that it reads; by default all"),
        Parameter("version", Type.LONG, "the version; by default the newest"),
    ),
    _PRUNING,
    _explain,
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
        Column("is_now", Type.FLAG, "whether it is the layout as it is; the others are estimates"),
        Column("is_best", Type.FLAG, "whether it is the one to choose"),
    ),
    _suggest_layout,
)
