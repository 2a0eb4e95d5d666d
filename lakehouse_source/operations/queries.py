"""Verb. Operations that tell what a query has to read."""

from typing import TYPE_CHECKING, Annotated

from lakehouse_source.operations.entry import Call, Rows, Table, operation
from lakehouse_source.result_tables import Column, Type

if TYPE_CHECKING:
    import pyarrow as pa

    from lakehouse_source.read.plan import Pruning

_Where = Annotated[str | None, "the condition of the scan, as SQL"]
_Columns = Annotated[list[str] | None, "the columns that it reads; by default all"]
_Version = Annotated[int | None, "the version; by default the newest"]


def _pruning(call: Call, details: bool = False) -> "Pruning":
    scan = call.dataset().scan(*map(call.arguments.get, ("where", "columns", "version")))
    return scan.explain(details=details)


@operation("read.plan.Pruning", write_page=lambda table, path: _pruning(table).to_html(path))
def explain(
    table: Table, where: _Where = None, columns: _Columns = None, version: _Version = None
) -> object:
    """Tells how much of a table a scan with a condition has to read. Reads no file."""
    return _pruning(table)


@operation(
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
    text=lambda table: str(_pruning(table, details=True)),
    write_page=lambda table, path: _pruning(table, details=True).to_html(path),
)
def explain_row_groups(
    table: Table, where: _Where = None, columns: _Columns = None, version: _Version = None
) -> Rows:
    """Tells for each row group whether a scan reads it, and which part of the condition decided.
    Opens the footers of the files that are left.
    """
    found = _pruning(table, details=True).details
    assert found is not None
    return found.rows()


@operation(
    Column("partition_by", Type.TEXTS, "partition columns"),
    Column("cluster_by", Type.TEXTS, "clustering columns"),
    Column("bloom_filter_columns", Type.TEXTS, "columns with bloom filters"),
    Column("bytes_read", Type.LONG, "bytes that the conditions would read, each once"),
    Column("share", Type.DOUBLE, "the same, as a share of reading all files for each"),
    Column("is_now", Type.FLAG, "whether it is today's layout; the others are estimates"),
    Column("is_best", Type.FLAG, "whether it is the one to choose"),
)
def suggest_layout(
    table: Table, conditions: Annotated[list[str], "the conditions that you run, as SQL"]
) -> Rows:
    """Tells by which columns a table is best clustered for given conditions. Changes nothing."""
    return table.dataset().suggest_layout(conditions).table()


@operation(Column("row_count", Type.LONG, "how many rows match"), is_called=False)
def count(
    table: Table,
    where: Annotated[str | None, "which rows, as SQL"] = None,
    version: Annotated[str | None, "a version or a tag; by default the newest"] = None,
) -> Rows:
    """Counts rows. Files in which all or no rows match are not opened."""
    yield (table.dataset().scan(where, version=version).count_rows(),)


@operation(
    Column("what", Type.TEXT, "column, files or rows"),
    Column("name", Type.TEXT, "which column, or what is counted"),
    Column("before", Type.TEXT, "in the older version; NULL: it is not there"),
    Column("after", Type.TEXT, "in the newer version; NULL: it is not there"),
    is_called=False,
)
def diff(
    table: Table,
    version: Annotated[int, "the older version"],
    other_version: Annotated[int, "the newer version"],
) -> Rows:
    """Compares two versions: columns, files and rows. The first has to be the older one."""
    dataset = table.dataset()
    scans = [dataset.scan(version=one) for one in (version, other_version)]
    yield from _schema_diff(*(scan.head(0).schema for scan in scans))
    old, new = ({file.path: file for file in dataset.files(v)} for v in (version, other_version))
    added = [file for path, file in new.items() if path not in old]
    removed = [file for path, file in old.items() if path not in new]
    yield "files", "all", str(len(old)), str(len(new))
    yield "files", "removed", str(len(removed)), None
    yield "files", "added", None, str(len(added))
    yield "files", "bytes removed", str(sum(file.size_bytes for file in removed)), None
    yield "files", "bytes added", None, str(sum(file.size_bytes for file in added))
    yield "rows", "all", *(str(scan.count_rows()) for scan in scans)
    if version != other_version:
        changed = dataset.changes(version + 1, other_version, net=True).count_rows()
        yield "rows", "deleted", str(changed.get("delete", 0)), None
        yield "rows", "updated", *[str(changed.get("update_postimage", 0))] * 2
        yield "rows", "inserted", None, str(changed.get("insert", 0))


def _schema_diff(old: "pa.Schema", new: "pa.Schema") -> Rows:
    before, after = (
        {field.name: f"{field.type}{'' if field.nullable else ' NOT NULL'}" for field in schema}
        for schema in (old, new)
    )
    for name in [*before, *(name for name in after if name not in before)]:
        if before.get(name) != after.get(name):
            yield "column", name, before.get(name), after.get(name)
