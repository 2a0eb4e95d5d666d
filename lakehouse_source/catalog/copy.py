"""Edge. Copies a whole catalog to another database: every version, name, tag, branch and write.

Rows are copied as they are, ids too. A catalog in a dataset's own folder knows the dataset as `.`:
the copy knows it by its URI. The copy is one transaction of the new database, which ends when all
rows were read back from it and compared. An interrupted copy leaves no catalog. A catalog that
moves is fenced first: both own the same files, and only one may be written to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from lakehouse_source.catalog.backends.sqlite_checks import columns_of_tables
from lakehouse_source.catalog.base import Catalog, CatalogTransaction, in_transaction
from lakehouse_source.catalog.locate import folder_around
from lakehouse_source.catalog.same_place import OWN_KEY
from lakehouse_source.catalog.sql.migrations import TABLES
from lakehouse_source.catalog.sql.statements import Row, Session
from lakehouse_source.errors import CatalogUnavailableError
from lakehouse_source.progress import counted
from lakehouse_source.storage import split_branch, with_branch

_ROWS_AT_ONCE = 5000
# A file has a row for each of up to 32 columns in the search index.
_FILES_AT_ONCE = 500
# Tables whose ids the database gives, and gives only once.
_WITH_IDS = ("datasets", "schema_versions", "transactions", "files", "row_groups")


@dataclass(slots=True)
class CopyReport:
    """How many rows of each table of the catalog were copied, and compared."""

    rows: dict[str, int] = field(default_factory=dict)


def move_catalog(source: Catalog, target: Catalog, *, progress: bool | None = None) -> CopyReport:
    """Copy a catalog, which is fenced: from then on only the copy is written to.

    Where the copy fails, the fence is taken off again.

    Raises:
        InvalidOptionError: the target has a catalog already.
        CatalogUnavailableError: as `copy_catalog`, or the source is fenced for another copy.
    """
    copy = target.redacted_url

    def fence(tx: CatalogTransaction) -> bool:
        return tx.set_fence(copy)

    is_new = in_transaction(source, source.redacted_url, "", fence, resolve=False)
    try:
        return copy_catalog(source, target, progress=progress)
    except BaseException:
        if is_new:
            unfence_catalog(source, copy)
        raise


def unfence_catalog(catalog: Catalog, copy: str) -> None:
    """Let a catalog be written to again that was copied; `copy` is what its fence names.

    Raises:
        InvalidOptionError: there is no fence, or it names another copy.
    """
    remove = partial(CatalogTransaction.remove_fence, copy=copy)
    in_transaction(catalog, catalog.redacted_url, "", remove, resolve=False)


def copy_catalog(source: Catalog, target: Catalog, *, progress: bool | None = None) -> CopyReport:
    """Copy a catalog to a database that has none, as for a backup. The copy has no fence.

    Both catalogs then own the same files, and either may delete them: use only one.

    Raises:
        InvalidOptionError: the target has a catalog already.
        CatalogUnavailableError: a catalog cannot be read or written, or a row differs in the copy.
            Then there is no target.
    """
    report = CopyReport()
    own_uri = folder_around(source)
    with source.still() as reader:
        read = reader._session

        def fill(written: Session) -> None:
            written.execute("DELETE FROM dataset_namespaces")  # every new catalog has it
            sums: dict[str, int] = {}
            for table, rows in counted(
                _pages(read, own_uri),
                progress,
                label="copying the catalog",
                unit="rows",
                size=lambda page: len(page[1]),
            ):
                written.insert(table, list(columns_of_tables()[table]), rows)
                report.rows[table] = report.rows.get(table, 0) + len(rows)
                sums[table] = _summed(sums.get(table, 0), rows)
            written.flush()
            ((made,),) = read.query("SELECT created_at FROM catalog_format")
            written.execute("UPDATE catalog_format SET created_at = ?", (made,))
            _check(read, written, sums, report)
            written.execute("DELETE FROM catalog_settings WHERE name = 'fence'")

        target.fill(_highest_ids(read), fill)
    return report


def _check(read: Session, written: Session, sums: dict[str, int], report: CopyReport) -> None:
    """Compare the rows of the new database with those that were read."""
    found: dict[str, int] = {}
    for table, rows in _pages(written, None):
        found[table] = _summed(found.get(table, 0), rows)
    for table in TABLES:
        ((there,),) = read.query(f"SELECT count(*) FROM {table}")
        if there != report.rows.get(table, 0) or found.get(table) != sums.get(table):
            raise CatalogUnavailableError(
                catalog=written.redacted_url,
                reason=f"the table {table} differs in the copy; nothing was kept",
            )


def _summed(before: int, rows: Sequence[Row]) -> int:
    """A checksum of rows that does not depend on their order."""
    return (before + sum(map(hash, rows))) % 2**64


def _pages(session: Session, own_uri: str | None) -> Iterator[tuple[str, list[Row]]]:
    """The rows of all tables, in the order of their foreign keys, some at a time."""
    for table in TABLES:
        columns = columns_of_tables()[table]
        flags = [number for number, kind in enumerate(columns.values()) if kind == "BOOLEAN"]
        key = list(columns).index("base_uri") if table == "datasets" else None
        for page in _raw_pages(session, table, list(columns)):
            if flags or key is not None:
                page = [_same(row, flags, key, own_uri) for row in page]
            if page:
                yield table, page


def _same(row: Row, flags: Sequence[int], key: int | None, own_uri: str | None) -> Row:
    """A row in the form of every database: SQLite stores FALSE and TRUE as 0 and 1."""
    cells = list(row)
    for number in flags:
        cells[number] = None if cells[number] is None else bool(cells[number])
    if key is not None and own_uri is not None:
        folder, branch = split_branch(cells[key])
        if folder == OWN_KEY:
            cells[key] = with_branch(own_uri, branch)
    return tuple(cells)


def _raw_pages(session: Session, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
    select = f"SELECT {', '.join(columns)} FROM {table}"
    if "file_id" in columns:
        for first, last in _ranges_of_files(session):
            yield session.query(f"{select} WHERE file_id >= ? AND file_id <= ?", (first, last))
    elif "id" in columns:
        position, last = list(columns).index("id"), -1
        while True:
            page = session.query(
                f"{select} WHERE id > ? ORDER BY id LIMIT {_ROWS_AT_ONCE}", (last,)
            )
            yield page
            if len(page) < _ROWS_AT_ONCE:
                return
            last = page[-1][position]
    else:
        yield session.query(select)


def _ranges_of_files(session: Session) -> Iterator[tuple[int, int]]:
    last = -1
    while True:
        ids = session.query(
            f"SELECT id FROM files WHERE id > ? ORDER BY id LIMIT {_FILES_AT_ONCE}", (last,)
        )
        if not ids:
            return
        yield ids[0][0], ids[-1][0]
        last = ids[-1][0]


def _highest_ids(session: Session) -> dict[str, int]:
    """The highest id that each table has, or had."""
    found = {}
    for table in _WITH_IDS:
        given = session.query(session.dialect.highest_id.replace("$table", table))
        ((here,),) = session.query(f"SELECT coalesce(max(id), 0) FROM {table}")
        found[table] = max([here, *(row[0] for row in given if row[0] is not None)])
    return found
