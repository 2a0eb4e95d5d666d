"""Verb. Operations that keep a dataset small, or compare it with its files."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

from lakehouse_source.operations.entry import (
    TABLE,
    VERSION,
    Call,
    Column,
    Operation,
    Parameter,
    Rows,
    Subject,
    Type,
)

if TYPE_CHECKING:
    from lakehouse_source.maintenance.reports import VacuumReport

# The values of `vacuum_plan.RETENTION_SECONDS` and `catalog.base.ABANDONED_SECONDS`, whose modules
# take long to import; a test compares them.
_RETENTION_SECONDS = 7 * 24 * 3600.0
_ABANDONED_SECONDS = 24 * 3600.0

_REWRITE_DELETED = Parameter(
    "rewrite_deleted",
    Type.FLAG,
    "rewrite every file that has deleted rows, without these rows",
    False,
)
_SHORT_RETENTION = Parameter("allow_short_retention", Type.FLAG, "allow ages below one hour", False)


def _cluster(call: Call) -> Rows:
    yield astuple(call.dataset().cluster(**call.arguments))


def _compact(call: Call) -> Rows:
    yield astuple(call.dataset().compact(**call.arguments))


def _erase(call: Call) -> Rows:
    report = call.dataset().erase(**call.arguments)
    yield (
        report.version,
        report.rows,
        report.files_rewritten,
        report.files_removed,
        report.notes_changed,
        report.left,
    )


def _expire_versions(call: Call) -> Rows:
    report = call.dataset().expire_versions(**call.arguments)
    yield (
        report.expired,
        report.oldest_version,
        report.newest_version,
        report.files,
        report.size_bytes,
    )


def _health(call: Call) -> Rows:
    yield from call.dataset().health(**call.arguments).table()


def _write_health(call: Call, path: str) -> None:
    call.dataset().health(**call.arguments).to_html(path)


def _maintain(call: Call) -> Rows:
    report = call.dataset().maintain(**call.arguments)
    did = "would be deleted" if report.dry_run else "deleted"
    if report.rows_expired is not None:
        yield "expire_rows", f"rows {did}", report.rows_expired
    if report.compaction is not None:
        yield "compact", "files rewritten", report.compaction.files_removed
    if report.expiry is not None:
        yield "expire_versions", "versions expired", len(report.expiry.expired)
    yield "vacuum", f"files {did}", report.vacuum.files_removed


def _vacuum(call: Call) -> Rows:
    yield from _vacuumed(call.dataset().vacuum(progress=call.progress, **call.arguments))


def _vacuum_catalog(call: Call) -> Rows:
    from lakehouse_source.maintenance.vacuum_catalog import vacuum

    storage = call.target.storage_options()
    with call.target.names() as catalog:
        whole = vacuum(catalog, progress=call.progress, storage_options=storage, **call.arguments)
    for report in whole.reports:
        for row in _vacuumed(report):
            yield report.dataset, *row
    for uri, reason in whole.failed:
        yield uri, "failed", reason, None, None, ()


def _vacuumed(report: VacuumReport) -> Rows:
    did = "would remove" if report.dry_run else "removed"
    for action, tallies in ((did, report.removed), ("left", report.left)):
        for tally in tallies:
            yield action, tally.what, tally.files, tally.size_bytes, tally.paths
    if report.folders_removed:
        yield did, "empty folders", report.folders_removed, 0, ()


def _verify(call: Call) -> Rows:
    report = call.dataset().verify(progress=call.progress, **call.arguments)
    about = (report.ok, report.version, report.files, report.size_bytes)
    if report.ok:
        yield *about, None, None, None, None
    for one in report.differences:
        yield *about, one.path, one.what, one.expected, one.found


_REWRITTEN = (
    VERSION,
    Column("files_removed", Type.LONG, "files whose rows were rewritten"),
    Column("files_added", Type.LONG, "files with these rows"),
    Column("bytes_removed", Type.LONG, "bytes of the files that were removed"),
    Column("bytes_added", Type.LONG, "bytes that were written"),
)
CLUSTER = Operation(
    "cluster",
    "Sorts files that overlap by the columns that the table is clustered by.",
    (
        TABLE,
        Parameter("max_bytes", Type.LONG, "stop before more bytes than these are rewritten"),
        Parameter(
            "full", Type.FLAG, "sort all files again, after other columns were chosen", False
        ),
        Parameter("dry_run", Type.FLAG, "only tell what would be rewritten", False),
    ),
    _REWRITTEN,
    _cluster,
)
COMPACT = Operation(
    "compact",
    "Merges the small files of each partition into few large ones.",
    (
        TABLE,
        Parameter("where", Type.TEXT, "only files that may hold a row of this condition"),
        Parameter("target_file_size", Type.LONG, "bytes of a large file"),
        Parameter(
            "max_concurrent",
            Type.INT,
            "partitions that are written at a time; by default one, in Spark as many as it has "
            "cores",
        ),
        _REWRITE_DELETED,
    ),
    (
        VERSION,
        Column("files_removed", Type.LONG, "small files"),
        Column("files_added", Type.LONG, "large files"),
        Column("bytes_removed", Type.LONG, "bytes of the small files"),
        Column("bytes_added", Type.LONG, "bytes of the large files"),
    ),
    _compact,
)
ERASE = Operation(
    "erase",
    "Erases rows from every version, from all files and from the catalog, at once.",
    (
        TABLE,
        Parameter(
            "where",
            Type.TEXT,
            "which rows, as SQL: in any version that can be read",
            required=True,
        ),
        Parameter(
            "foreign",
            Type.TEXT,
            "files that plake did not write: 'refuse', or 'rewrite' without their rows",
            "refuse",
        ),
    ),
    (
        VERSION,
        Column("rows", Type.LONG, "rows that were erased"),
        Column("files_rewritten", Type.LONG, "files that were rewritten without them"),
        Column("files_removed", Type.LONG, "files that were deleted"),
        Column("notes_changed", Type.LONG, "commits in whose metadata a text of the condition was"),
        Column("left", Type.TEXTS, "where values may still be"),
    ),
    _erase,
    changes_rows=True,
)
EXPIRE_VERSIONS = Operation(
    "expire_versions",
    "Expires the versions that are older than both limits. vacuum deletes their files later.",
    (
        TABLE,
        Parameter(
            "keep_seconds",
            Type.DOUBLE,
            "keep each version that was the newest at some time during this many seconds",
        ),
        Parameter("keep_last", Type.INT, "keep this many of the newest versions"),
    ),
    (
        Column("expired", Type.LONGS, "the versions that were expired"),
        Column("oldest_version", Type.LONG, "the oldest version that can be read"),
        Column("newest_version", Type.LONG, "the newest version"),
        Column("files", Type.LONG, "files that only expired versions have"),
        Column("size_bytes", Type.LONG, "bytes of these files"),
    ),
    _expire_versions,
)
HEALTH = Operation(
    "health",
    "Tells how files are laid out and what upkeep would do about it. Reads the catalog only.",
    (
        TABLE,
        Parameter("columns", Type.TEXTS, "columns of the search index whose overlap is wanted"),
    ),
    (
        Column("measure", Type.TEXT, "what is measured, or the call of upkeep"),
        Column("subject", Type.TEXT, "the column or the sizes that it is about"),
        Column("files", Type.LONG, "files"),
        Column("size_bytes", Type.LONG, "their bytes"),
        Column("value", Type.DOUBLE, "the measure; for a call of upkeep: 1 if it is worth doing"),
        Column("note", Type.TEXT, "what the value means"),
    ),
    _health,
    write_page=_write_health,
)
MAINTAIN = Operation(
    "maintain",
    "Deletes the rows of the property expire_rows, compacts, expires versions and vacuums.",
    (
        TABLE,
        Parameter("compact", Type.FLAG, "by default where auto_compact is set"),
        _REWRITE_DELETED,
        Parameter("keep_seconds", Type.DOUBLE, "keep versions younger than this"),
        Parameter(
            "keep_last", Type.INT, "keep this many versions; without both limits none expires"
        ),
        Parameter(
            "retention_seconds",
            Type.DOUBLE,
            "delete files that no version needs after this time",
            _RETENTION_SECONDS,
        ),
        _SHORT_RETENTION,
        Parameter("dry_run", Type.FLAG, "change nothing, tell what would be done", False),
    ),
    (
        Column("step", Type.TEXT, "expire_rows, compact, expire_versions or vacuum"),
        Column("what", Type.TEXT, "what is counted"),
        Column("count", Type.LONG, "how many"),
    ),
    _maintain,
    changes_rows=True,
)
_VACUUM = (
    Parameter(
        "retention_seconds",
        Type.DOUBLE,
        "delete files of versions that were expired at least this long ago, and files of "
        "writes that were never committed and are at least this old",
        _RETENTION_SECONDS,
    ),
    Parameter("dry_run", Type.FLAG, "delete nothing, tell what would be deleted", False),
    _SHORT_RETENTION,
    Parameter(
        "abandoned_after_seconds",
        Type.DOUBLE,
        "a write without a heartbeat for this time is abandoned",
        _ABANDONED_SECONDS,
    ),
)
_VACUUMED = (
    Column("action", Type.TEXT, "removed, would remove, or left; of a catalog also failed"),
    Column("what", Type.TEXT, "which files these are, or why it failed"),
    Column("count", Type.LONG, "how many"),
    Column("size_bytes", Type.LONG, "their bytes"),
    Column("examples", Type.TEXTS, "some of their paths"),
)
VACUUM = Operation(
    "vacuum", "Deletes files that no version needs any more.", (TABLE, *_VACUUM), _VACUUMED, _vacuum
)
VACUUM_CATALOG = Operation(
    "vacuum_catalog",
    "Vacuums all tables, and deletes those without a location that were dropped longer ago than "
    "the retention.",
    _VACUUM,
    (Column("uri", Type.TEXT, "where the table is"), *_VACUUMED),
    _vacuum_catalog,
    subject=Subject.NONE,
)
VERIFY = Operation(
    "verify",
    "Compares the files of a version with the catalog. One row for each difference, or one "
    "where there is none.",
    (
        TABLE,
        Parameter("version", Type.LONG, "the version; by default the newest"),
        Parameter("checksums", Type.FLAG, "read and decode every page too", False),
    ),
    (
        Column("ok", Type.FLAG, "whether there is no difference"),
        Column("version", Type.LONG, "the version"),
        Column("files", Type.LONG, "its files"),
        Column("size_bytes", Type.LONG, "their bytes"),
        Column("path", Type.TEXT, "the file that differs"),
        Column("what", Type.TEXT, "the property that differs"),
        Column("expected", Type.TEXT, "what the catalog says"),
        Column("found", Type.TEXT, "what was found"),
    ),
    _verify,
)
