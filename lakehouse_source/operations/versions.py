"""Verb. Operations on the versions of a dataset and on the names that they have."""

from __future__ import annotations

from lakehouse_source.operations.entry import (
    TABLE,
    VERSION,
    WRITTEN,
    Call,
    Column,
    Operation,
    Parameter,
    Rows,
    Type,
)

_BRANCH = Parameter("name", Type.TEXT, "the branch", required=True)
_CONSUMER = Parameter("name", Type.TEXT, "the consumer", required=True)
_TAG = Parameter("name", Type.TEXT, "the tag", required=True)


def _add_consumer(call: Call) -> Rows:
    dataset = call.dataset()
    given = {"version": dataset.version, **call.arguments}
    dataset.add_consumer(**given)
    yield given["name"], given["version"]


def _advance_consumer(call: Call) -> Rows:
    call.dataset().advance_consumer(**call.arguments)
    yield call.arguments["name"], call.arguments["version"]


def _consumers(call: Call) -> Rows:
    for row in call.dataset().inspect.consumers().to_pylist():
        yield tuple(row.values())


def _create_branch(call: Call) -> Rows:
    dataset = call.dataset()
    version = call.arguments.get("version", dataset.version)
    dataset.branch(call.arguments["name"], version)
    yield call.arguments["name"], version


def _create_tag(call: Call) -> Rows:
    dataset = call.dataset()
    name, version = call.arguments["name"], call.arguments.get("version", dataset.version)
    dataset.tag(name, version)
    yield name, version


def _drop_branch(call: Call) -> Rows:
    name = call.arguments["name"]
    dataset = call.dataset()
    version = dataset.branches().get(name)
    dataset.drop_branch(name)
    yield name, version


def _drop_consumer(call: Call) -> Rows:
    name = call.arguments["name"]
    dataset = call.dataset()
    found = dataset.consumers().get(name)
    dataset.drop_consumer(name)
    yield name, None if found is None else found.version


def _drop_tag(call: Call) -> Rows:
    name = call.arguments["name"]
    dataset = call.dataset()
    version = dataset.tags().get(name)
    dataset.drop_tag(name)
    yield name, version


def _fast_forward(call: Call) -> Rows:
    dataset = call.dataset()
    before = dataset.version
    yield call.arguments["branch"], before, dataset.fast_forward(call.arguments["branch"]).version


def _history(call: Call) -> Rows:
    # Without the class Dataset, which takes longer to import than this takes.
    address, limit = call.target.address(), call.arguments.get("limit")
    with address.open() as catalog, catalog.read() as reader:
        record = address.snapshot(catalog, reader).dataset
        tagged = set(reader.tags(record.id).values())
        commits = reader.transactions(record.id, limit)
    for one in commits:
        yield (
            one.version,
            one.timestamp,
            one.operation,
            *(one.summary.get(name) for name in _COUNTS),
            one.committed_by,
            dict(one.metadata),
            one.version >= record.oldest_version or one.version in tagged,
        )


def _refs(call: Call) -> Rows:
    for row in call.dataset().inspect.refs().to_pylist():
        yield tuple(row.values())


def _restore(call: Call) -> Rows:
    from lakehouse_source.write.metadata.restore import pairs_told

    result = call.dataset().restore(**call.arguments)
    counts, left = result.summary, pairs_told(result.pairs_left)
    yield (
        *(result.version, result.files, result.row_count, result.schema_version),
        *(counts[name] for name in ("rows_added", "rows_removed", "files_removed")),
        left,
    )


_READ = (
    Column("name", Type.TEXT, "the consumer"),
    Column("version", Type.LONG, "the last version whose changes it has read"),
)
ADD_CONSUMER = Operation(
    "add_consumer",
    "Notes a reader of the change feed. expire_versions keeps what it has not read yet.",
    (
        TABLE,
        _CONSUMER,
        Parameter("version", Type.LONG, "the last version read; 0: none; by default the newest"),
        Parameter(
            "keep_seconds",
            Type.LONG,
            "after this time without an advance the consumer keeps no version",
        ),
    ),
    _READ,
    _add_consumer,
)
ADVANCE_CONSUMER = Operation(
    "advance_consumer",
    "Notes that a reader of the change feed has processed the changes up to a version.",
    (
        TABLE,
        _CONSUMER,
        Parameter("version", Type.LONG, "the last version that it has read", required=True),
    ),
    _READ,
    _advance_consumer,
)
_COUNTS = ("files_added", "files_removed", "rows_added", "rows_removed", "live_rows")
CREATE_BRANCH = Operation(
    "create_branch",
    "Makes a branch, which is the table `<table>.branch_<name>`. The table does not show "
    "what is written to the branch until fast_forward.",
    (
        TABLE,
        _BRANCH,
        Parameter("version", Type.LONG, "what it begins as; by default the newest"),
    ),
    (Column("name", Type.TEXT, "the branch"), Column("version", Type.LONG, "its version")),
    _create_branch,
)
CREATE_TAG = Operation(
    "create_tag",
    "Gives a name to a version. VERSION AS OF 'name' reads it, and expire_versions keeps it.",
    (TABLE, _TAG, Parameter("version", Type.LONG, "the version; by default the newest")),
    (Column("name", Type.TEXT, "the tag"), Column("version", Type.LONG, "its version")),
    _create_tag,
)
DROP_BRANCH = Operation(
    "drop_branch",
    "Removes a branch, with the versions that the table did not take over.",
    (TABLE, _BRANCH),
    (Column("name", Type.TEXT, "the branch"), Column("version", Type.LONG, "its newest version")),
    _drop_branch,
)
DROP_CONSUMER = Operation(
    "drop_consumer",
    "Removes a reader of the change feed. The versions that it kept can be expired.",
    (TABLE, _CONSUMER),
    _READ,
    _drop_consumer,
)
DROP_TAG = Operation(
    "drop_tag",
    "Removes a tag. Its version stays until it is expired.",
    (TABLE, _TAG),
    (
        Column("name", Type.TEXT, "the tag"),
        Column("version", Type.LONG, "the version that it had"),
    ),
    _drop_tag,
)
FAST_FORWARD = Operation(
    "fast_forward",
    "Commits to a table what was committed to one of its branches, if nothing else was.",
    (TABLE, Parameter("branch", Type.TEXT, "the branch", required=True)),
    (
        Column("branch", Type.TEXT, "the branch"),
        Column("version_before", Type.LONG, "the version that was the newest"),
        VERSION,
    ),
    _fast_forward,
    changes_rows=True,
)
CONSUMERS = Operation(
    "consumers",
    "Lists the consumers of the change feed.",
    (TABLE,),
    (
        *_READ,
        Column("versions_behind", Type.LONG, "versions that it has not read"),
        Column("created_at", Type.TIMESTAMP, "when it was added"),
        Column("advanced_at", Type.TIMESTAMP, "when it was last advanced"),
        Column("expires_at", Type.TIMESTAMP, "when it stops keeping versions"),
        Column("is_expired", Type.FLAG, "whether that time has come"),
    ),
    _consumers,
    is_called=False,
)
HISTORY = Operation(
    "history",
    "Lists the commits, the newest first.",
    (TABLE, Parameter("limit", Type.LONG, "the most rows")),
    (
        Column("version", Type.LONG, "the version that the commit made"),
        Column("timestamp", Type.TIMESTAMP, "when"),
        Column("operation", Type.TEXT, "what was done"),
        Column("files_added", Type.LONG, "files that it added"),
        Column("files_removed", Type.LONG, "files that it took out"),
        Column("rows_added", Type.LONG, "rows that it added"),
        Column("rows_removed", Type.LONG, "rows that it took out"),
        Column("live_rows", Type.LONG, "rows of the version"),
        Column("committed_by", Type.TEXT, "who committed"),
        Column("metadata", Type.JSON, "what the writer noted"),
        Column("is_readable", Type.FLAG, "whether the version can be read"),
    ),
    _history,
    is_called=False,
)
REFS = Operation(
    "refs",
    "Lists the newest version, which is main, the branches and the tags.",
    (TABLE,),
    (
        Column("name", Type.TEXT, "the branch or tag"),
        Column("type", Type.TEXT, "BRANCH or TAG"),
        Column("version", Type.LONG, "its version"),
    ),
    _refs,
    is_called=False,
)
RESTORE = Operation(
    "restore",
    "Commits a new version with the rows and the schema of an old one.",
    (
        TABLE,
        Parameter("version", Type.LONG, "the old version"),
        Parameter("timestamp", Type.TIMESTAMP, "or a time: the version that was the newest then"),
    ),
    (
        *WRITTEN,
        Column("rows_added", Type.LONG, "rows that came back"),
        Column("rows_removed", Type.LONG, "rows that were taken out"),
        Column("files_removed", Type.LONG, "files that were taken out"),
        Column(
            "pairs_left",
            Type.TEXTS,
            "idempotency pairs of what was taken out; to load it again, use higher numbers",
        ),
    ),
    _restore,
    changes_rows=True,
)
