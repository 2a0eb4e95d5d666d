"""Verb. Operations that keep a dataset small, and those on files that anybody wrote."""

from typing import TYPE_CHECKING, Annotated, Any

from lakehouse_source.errors import DatasetNotFoundError, InvalidOptionError
from lakehouse_source.operations.entry import Call, Rows, Subject, Table, operation
from lakehouse_source.result_tables import HEALTH, Column, Type

if TYPE_CHECKING:
    from lakehouse_source.maintenance.reports import VacuumReport


_Partitioning = Annotated[str, "'hive': folders are named key=value; 'none': without meaning"]
_SchemaMerge = Annotated[bool, "add columns, and promote types"]


@operation("model.WriteResult", changes_rows=True)
def add_files(
    table: Table,
    path: Annotated[str | None, "a file or a folder"] = None,
    paths: Annotated[list[str] | None, "files or folders, where it is not one path"] = None,
    partitioning: _Partitioning = "hive",
    schema_merge: _SchemaMerge = False,
    copy: Annotated[bool, "copy files from outside of the table's folder"] = False,
) -> object:
    """Adds Parquet files, whoever wrote them, as one version, without a rewrite."""
    given = [one for one in (path, paths) if one is not None]
    if len(given) != 1:
        raise InvalidOptionError(option="path", reason="or paths must be given, and not both.")
    return table.dataset().add_files(
        given[0],
        partitioning=_partitioning(partitioning),
        schema_merge=schema_merge,
        copy=copy,
        progress=table.progress,
    )


@operation(
    Column("uri", Type.TEXT, "where the table is"),
    Column("version", Type.LONG, "its first version"),
    Column("files", Type.LONG, "its files"),
    Column("row_count", Type.LONG, "its rows"),
    Column("partition_by", Type.TEXTS, "its partition columns"),
)
def convert(
    path: Annotated[Call, Subject.FOLDER, "the folder, or its URI"],
    partitioning: _Partitioning = "hive",
    index_columns: Annotated[list[str] | None, "columns of the search index"] = None,
    format: Annotated[str | None, "parquet or delta; by default as the folder is"] = None,
    version: Annotated[int | None, "of a Delta table; by default the newest"] = None,
    partitioned_by: Annotated[
        list[str] | None, "name TYPE of partition columns, whose type is not to be inferred"
    ] = None,
) -> Rows:
    """Makes a table of a folder of Parquet files, or of a Delta table, where it stands.
    CREATE TABLE ... LOCATION gives it a name.
    """
    from lakehouse_source.functions import convert_files
    from lakehouse_source.operations.column_texts import columns_of

    address = path.target.address()
    columns = columns_of(partitioned_by or (), "partitioned_by")
    # Nothing is read after the commit: the catalog may be unavailable by then.
    made = convert_files(
        address,
        format=format,
        version=version,
        partitioning=_partitioning(partitioning),
        partition_types={field.name: field.type for field in columns},
        index_columns=index_columns,
        progress=path.progress,
    )
    partitions = [] if not made.metadata else list(made.metadata[0].partitions)
    yield address.uri, made.version, made.files, made.row_count, partitions


@operation(
    Column("path", Type.TEXT, "where it is, from the dataset's URI on"),
    Column("size_bytes", Type.LONG, "its bytes"),
    Column("row_count", Type.LONG, "its rows, deleted ones too"),
    Column("deleted_rows", Type.LONG, "those of them that are deleted"),
    Column("partitions", Type.JSON, "the value of each partition column"),
    Column("version", Type.LONG, "the version that added it"),
    is_called=False,
)
def files(
    table: Table, version: Annotated[int | None, "the version; by default the newest"] = None
) -> Rows:
    """Lists the data files of a version."""
    for file in table.dataset().inspect.files(version).to_pylist():
        path, size_bytes = file["file_path"], file["file_size_bytes"]
        yield {
            **file,
            "path": path,
            "size_bytes": size_bytes,
            "partitions": dict(file["partitions"]),
        }


@operation(
    "model.WriteResult",
    Column("inferred", Type.JSON, "the types that were chosen by values, by column"),
    changes_rows=True,
    is_called=False,
)
def import_(
    table: Annotated[Call, Subject.NEW, "the table's name, or its path or URI"],
    paths: Annotated[list[str], "the files"],
    format: Annotated[
        str | None,
        "csv, json (objects in lines or in one array) or parquet; by default as the file's name "
        "says",
    ] = None,
    schema: Annotated[
        list[str] | None,
        "name TYPE of columns of CSV and JSON whose type is not to be inferred, as in SQL",
    ] = None,
    delimiter: Annotated[str | None, "what separates fields of CSV; by default a comma"] = None,
    mode: Annotated[str, "append, overwrite, or error: it must be new"] = "append",
    partition_by: Annotated[list[str] | None, "the partition columns of a new dataset"] = None,
    schema_merge: _SchemaMerge = False,
) -> Rows:
    """Writes the rows of CSV, JSON or Parquet files as one version. A missing dataset is made."""
    from lakehouse_source.dataset import Dataset
    from lakehouse_source.functions import write_at
    from lakehouse_source.operations.column_texts import column_text, columns_of
    from lakehouse_source.operations.input_files import import_batches
    from lakehouse_source.read.address import Address
    from lakehouse_source.write.rows import write_options

    chosen: dict[str, Any] = {
        "mode": mode,
        "partition_by": partition_by,
        "schema_merge": schema_merge,
    }
    given = None if schema is None else columns_of(schema, "schema")
    address, known = table.target.address(), None
    try:
        known = Dataset(address).schema
    except DatasetNotFoundError:
        if not table.target.is_path:
            name = chosen["register_as"] = table.target.name()
            with table.target.names() as catalog:
                address = Address(catalog.new_location(name), address.catalog)
    found, batches, inferred = import_batches(
        paths, address.location, known=known, given=given, format=format, delimiter=delimiter
    )
    options = write_options(**chosen)
    result = write_at(address, batches, options, schema=found, progress=table.progress)
    shown = {name: column_text(type_) for name, type_ in inferred.items()}
    yield result.version, result.files, result.row_count, result.schema_version, shown


def _partitioning(chosen: str) -> str | None:
    """'none' means Python's None, because NULL means that nothing was chosen."""
    return None if chosen == "none" else chosen


# The values of `vacuum_plan.RETENTION_SECONDS` and `catalog.base.ABANDONED_SECONDS`, whose modules
# take long to import; a test compares them.
_RETENTION_SECONDS = 7 * 24 * 3600.0
_ABANDONED_SECONDS = 24 * 3600.0

_RewriteDeleted = Annotated[bool, "rewrite every file that has deleted rows, without these rows"]
_ShortRetention = Annotated[bool, "allow ages below one hour"]


@operation("model.CompactionResult")
def cluster(
    table: Table,
    max_bytes: Annotated[int | None, "stop before more bytes than these are rewritten"] = None,
    full: Annotated[bool, "sort all files again, after other columns were chosen"] = False,
    dry_run: Annotated[bool, "only tell what would be rewritten"] = False,
) -> object:
    """Sorts files that overlap by the columns that the table is clustered by."""
    return table.dataset().cluster(**table.arguments)


@operation("model.CompactionResult")
def compact(
    table: Table,
    where: Annotated[str | None, "only files that may hold a row of this condition"] = None,
    target_file_size: Annotated[int | None, "bytes of a large file"] = None,
    max_concurrent: Annotated[
        int | None,
        Type.INT,
        "partitions that are written at a time; by default one, in Spark as many as it has cores",
    ] = None,
    rewrite_deleted: _RewriteDeleted = False,
) -> object:
    """Merges the small files of each partition into few large ones."""
    return table.dataset().compact(**table.arguments)


@operation("maintenance.reports.ErasureReport", changes_rows=True)
def erase(
    table: Table,
    where: Annotated[str, "which rows, as SQL: in any version that can be read"],
    foreign: Annotated[
        str, "files that plake did not write: 'refuse', or 'rewrite' without their rows"
    ] = "refuse",
) -> object:
    """Erases rows from every version, from all files and from the catalog, at once."""
    return table.dataset().erase(**table.arguments)


@operation("maintenance.reports.ExpiryReport")
def expire_versions(
    table: Table,
    keep_seconds: Annotated[
        float | None,
        "keep each version that was the newest at some time during this many seconds",
    ] = None,
    keep_last: Annotated[int | None, Type.INT, "keep this many of the newest versions"] = None,
) -> object:
    """Expires the versions that are older than both limits. vacuum deletes their files later."""
    return table.dataset().expire_versions(**table.arguments)


@operation(
    *HEALTH,
    write_page=lambda table, path: table.dataset().health(**table.arguments).to_html(path),
)
def health(
    table: Table,
    columns: Annotated[
        list[str] | None, "columns of the search index whose overlap is wanted"
    ] = None,
) -> Rows:
    """Tells how files are laid out and what upkeep would do about it. Reads the catalog only."""
    return table.dataset().health(**table.arguments).table()


@operation(
    Column("step", Type.TEXT, "expire_rows, compact, expire_versions or vacuum"),
    Column("what", Type.TEXT, "what is counted"),
    Column("count", Type.LONG, "how many"),
    changes_rows=True,
)
def maintain(
    table: Table,
    compact: Annotated[bool | None, "by default where auto_compact is set"] = None,
    rewrite_deleted: _RewriteDeleted = False,
    keep_seconds: Annotated[float | None, "keep versions younger than this"] = None,
    keep_last: Annotated[
        int | None,
        Type.INT,
        "keep this many versions; without both limits those of the properties keep_versions and "
        "keep_versions_seconds hold",
    ] = None,
    retention_seconds: Annotated[
        float, "delete files that no version needs after this time"
    ] = _RETENTION_SECONDS,
    allow_short_retention: _ShortRetention = False,
    dry_run: Annotated[bool, "change nothing, tell what would be done"] = False,
) -> Rows:
    """Deletes the rows of the property expire_rows, compacts, expires versions and vacuums."""
    report = table.dataset().maintain(**table.arguments)
    did = "would be deleted" if report.dry_run else "deleted"
    if report.rows_expired is not None:
        yield "expire_rows", f"rows {did}", report.rows_expired
    if report.compaction is not None:
        yield "compact", "files rewritten", report.compaction.files_removed
    if report.expiry is not None:
        yield "expire_versions", "versions expired", len(report.expiry.expired)
    yield "vacuum", f"files {did}", report.vacuum.files_removed


@operation("model.CompactionResult")
def optimize(
    table: Table,
    where: Annotated[str | None, "only the partitions of this condition"] = None,
    full: Annotated[bool, "sort all files again"] = False,
    zorder_by: Annotated[
        list[str] | None, "the clustering columns; a table that has none gets these"
    ] = None,
) -> object:
    """Clusters a table that has clustering columns, and compacts one that has none."""
    return table.dataset().optimize(**table.arguments)


_Retention = Annotated[
    float,
    "delete files of versions that were expired at least this long ago, and files of writes that "
    "were never committed and are at least this old",
]
_DryVacuum = Annotated[bool, "delete nothing, tell what would be deleted"]
_Abandoned = Annotated[float, "a write without a heartbeat for this time is abandoned"]
_VACUUMED = (
    Column("action", Type.TEXT, "removed, would remove, or left; of a catalog also failed"),
    Column("what", Type.TEXT, "which files these are, or why it failed"),
    Column("count", Type.LONG, "how many"),
    Column("size_bytes", Type.LONG, "their bytes"),
    Column("examples", Type.TEXTS, "some of their paths"),
)


@operation(*_VACUUMED)
def vacuum(
    table: Table,
    retention_seconds: _Retention = _RETENTION_SECONDS,
    dry_run: _DryVacuum = False,
    allow_short_retention: _ShortRetention = False,
    abandoned_after_seconds: _Abandoned = _ABANDONED_SECONDS,
) -> Rows:
    """Deletes files that no version needs any more."""
    return _vacuumed(table.dataset().vacuum(progress=table.progress, **table.arguments))


@operation(Column("uri", Type.TEXT, "where the table is"), *_VACUUMED)
def vacuum_catalog(
    call: Call,
    retention_seconds: _Retention = _RETENTION_SECONDS,
    dry_run: _DryVacuum = False,
    allow_short_retention: _ShortRetention = False,
    abandoned_after_seconds: _Abandoned = _ABANDONED_SECONDS,
) -> Rows:
    """Vacuums all tables, and deletes those without a location that were dropped longer ago than
    the retention.
    """
    from lakehouse_source.maintenance.vacuum_catalog import vacuum

    storage = call.target.storage_options()
    with call.target.names() as catalog:
        whole = vacuum(catalog, progress=call.progress, storage_options=storage, **call.arguments)
    for report in whole.reports:
        for row in _vacuumed(report):
            yield report.dataset, *row
    for uri, reason in whole.failed:
        yield uri, "failed", reason, None, None, ()


def _vacuumed(report: "VacuumReport") -> Rows:
    did = "would remove" if report.dry_run else "removed"
    for action, tallies in ((did, report.removed), ("left", report.left)):
        for tally in tallies:
            yield action, tally.what, tally.files, tally.size_bytes, tally.paths
    if report.folders_removed:
        yield did, "empty folders", report.folders_removed, 0, ()


@operation(
    Column("ok", Type.FLAG, "whether there is no difference"),
    Column("version", Type.LONG, "the version"),
    Column("files", Type.LONG, "its files"),
    Column("size_bytes", Type.LONG, "their bytes"),
    Column("path", Type.TEXT, "the file that differs"),
    Column("what", Type.TEXT, "the property that differs"),
    Column("expected", Type.TEXT, "what the catalog says"),
    Column("found", Type.TEXT, "what was found"),
)
def verify(
    table: Table,
    version: Annotated[int | None, "the version; by default the newest"] = None,
    checksums: Annotated[bool, "read and decode every page too"] = False,
) -> Rows:
    """Compares the files of a version with the catalog. One row for each difference, or one where
    there is none.
    """
    report = table.dataset().verify(progress=table.progress, **table.arguments)
    about = (report.ok, report.version, report.files, report.size_bytes)
    if report.ok:
        yield *about, None, None, None, None
    for one in report.differences:
        yield *about, one.path, one.what, one.expected, one.found
