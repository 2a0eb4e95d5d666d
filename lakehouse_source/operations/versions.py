"""Verb. Operations on versions, on the names that they have, and on what queries read of them."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from lakehouse_source.operations.entry import VERSION, Call, Rows, Table, operation
from lakehouse_source.result_tables import CONSUMERS, HISTORY, REFS, Column, History, Type

if TYPE_CHECKING:
    import pyarrow as pa

    from lakehouse_source.read.plan import Pruning


_Branch = Annotated[str, "the branch"]
_Consumer = Annotated[str, "the consumer"]
_Tag = Annotated[str, "the tag"]


@operation(*CONSUMERS[:2])
def add_consumer(
    table: Table,
    name: _Consumer,
    version: Annotated[int | None, "the last version read; 0: none; by default the newest"] = None,
    keep_seconds: Annotated[
        int | None, "after this time without an advance the consumer keeps no version"
    ] = None,
) -> Rows:
    """Notes a reader of the change feed. expire_versions keeps what it has not read yet."""
    dataset = table.dataset()
    given = {"version": dataset.version, **table.arguments}
    dataset.add_consumer(**given)
    yield given


@operation(*CONSUMERS[:2])
def advance_consumer(
    table: Table,
    name: _Consumer,
    version: Annotated[int, "the last version that it has read"],
) -> Rows:
    """Notes that a reader of the change feed has processed the changes up to a version."""
    table.dataset().advance_consumer(name, version)
    yield name, version


@operation(*CONSUMERS[:2])
def drop_consumer(table: Table, name: _Consumer) -> Rows:
    """Removes a reader of the change feed. The versions that it kept can be expired."""
    dataset = table.dataset()
    found = dataset.consumers().get(name)
    dataset.drop_consumer(name)
    yield name, None if found is None else found.version


@operation(*CONSUMERS, is_called=False)
def consumers(table: Table) -> Any:
    """Lists the consumers of the change feed."""
    return table.dataset().inspect.consumers().to_pylist()


@operation(Column("name", Type.TEXT, "the branch"), Column("version", Type.LONG, "its version"))
def create_branch(
    table: Table,
    name: _Branch,
    version: Annotated[int | None, "what it begins as; by default the newest"] = None,
) -> Rows:
    """Makes a branch, which is the table `<table>.branch_<name>`. The table does not show what is
    written to the branch until fast_forward.
    """
    dataset = table.dataset()
    version = dataset.version if version is None else version
    dataset.branch(name, version)
    yield name, version


@operation(Column("name", Type.TEXT, "the tag"), Column("version", Type.LONG, "its version"))
def create_tag(
    table: Table,
    name: _Tag,
    version: Annotated[int | None, "the version; by default the newest"] = None,
) -> Rows:
    """Gives a name to a version. VERSION AS OF 'name' reads it, and expire_versions keeps it."""
    dataset = table.dataset()
    version = dataset.version if version is None else version
    dataset.tag(name, version)
    yield name, version


@operation(
    Column("name", Type.TEXT, "the branch"), Column("version", Type.LONG, "its newest version")
)
def drop_branch(table: Table, name: _Branch) -> Rows:
    """Removes a branch, with the versions that the table did not take over."""
    dataset = table.dataset()
    version = dataset.branches().get(name)
    dataset.drop_branch(name)
    yield name, version


@operation(
    Column("name", Type.TEXT, "the tag"), Column("version", Type.LONG, "the version that it had")
)
def drop_tag(table: Table, name: _Tag) -> Rows:
    """Removes a tag. Its version stays until it is expired."""
    dataset = table.dataset()
    version = dataset.tags().get(name)
    dataset.drop_tag(name)
    yield name, version


@operation(
    Column("branch", Type.TEXT, "the branch"),
    Column("version_before", Type.LONG, "the version that was the newest"),
    VERSION,
    changes_rows=True,
)
def fast_forward(table: Table, branch: _Branch) -> Rows:
    """Commits to a table what was committed to one of its branches, if nothing else was."""
    dataset = table.dataset()
    yield branch, dataset.version, dataset.fast_forward(branch).version


@operation(*(one for one in HISTORY if one.comment), is_called=False)
def history(table: Table, limit: Annotated[int | None, "the most rows"] = None) -> Rows:
    """Lists the commits, the newest first."""
    # Without the class Dataset, which takes longer to import than this takes.
    address = table.target.address()
    with address.open() as catalog, catalog.read() as reader:
        record = address.snapshot(catalog, reader).dataset
        tagged = reader.tags(record.id).values()
        commits = reader.transactions(record.id, limit)
    return History(commits, record.oldest_version, tagged).rows()


@operation(*REFS, is_called=False)
def refs(table: Table) -> Any:
    """Lists the newest version, which is main, the branches and the tags."""
    return table.dataset().inspect.refs().to_pylist()


@operation(
    "model.WriteResult",
    Column("rows_added", Type.LONG, "rows that came back"),
    Column("rows_removed", Type.LONG, "rows that were taken out"),
    Column("files_removed", Type.LONG, "files that were taken out"),
    Column(
        "pairs_left",
        Type.TEXTS,
        "idempotency pairs of what was taken out; to load it again, use higher numbers",
    ),
    changes_rows=True,
)
def restore(
    table: Table,
    version: Annotated[int | None, "the old version"] = None,
    timestamp: Annotated[datetime | None, "or a time: the version that was the newest then"] = None,
) -> Rows:
    """Commits a new version with the rows and the schema of an old one."""
    from lakehouse_source.write.metadata.restore import describe_pairs

    result = table.dataset().restore(version, timestamp=timestamp)
    written = (result.version, result.files, result.row_count, result.schema_version)
    counts = (result.summary[name] for name in ("rows_added", "rows_removed", "files_removed"))
    yield *written, *counts, describe_pairs(result.pairs_left)


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
