"""Verb. Operations on the versions of a dataset and on the names that they have."""

from datetime import datetime
from typing import Annotated, Any

from lakehouse_source.operations.entry import VERSION, Rows, Table, operation
from lakehouse_source.result_tables import CONSUMERS, HISTORY, REFS, Column, History, Type

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
