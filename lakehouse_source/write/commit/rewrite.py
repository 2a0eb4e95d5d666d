"""Verb. Rows of existing files are written again: copied, sorted, or left of changed files."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.catalog.base import Catalog
from lakehouse_source.deletion import Positions, encode
from lakehouse_source.errors import StorageError
from lakehouse_source.failpoints import reach
from lakehouse_source.layout import Curve, boundaries, places, row_keys, sorted_places
from lakehouse_source.model import DeletionVector, FileMetadata, FileRecord, ScanTask
from lakehouse_source.parquet.read_write_specs import ReadSpec, WriteSpec
from lakehouse_source.parquet.reader import in_order, read_all, read_each, read_task
from lakehouse_source.parquet.writer import column_arrays, write_files
from lakehouse_source.read.plan import keep_others
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import hidden_columns
from lakehouse_source.storage import Storage
from lakehouse_source.write.commit.begin import base_snapshot
from lakehouse_source.write.commit.conflicts import committed_first
from lakehouse_source.write.commit.options import StagedWrite
from lakehouse_source.write.commit.prerecord import PreparedCommit, prepare_files
from lakehouse_source.write.commit.row_changes import (
    FileChange,
    PreparedRows,
    RowChanges,
    TouchedRows,
    find_changes,
    write_vectors,
)

# --- Sorts any number of rows in bounded memory, with files in a temporary folder.


# Rows that are sorted at a time. Sorting copies them.
SORTED_BYTES = 160 * 1024 * 1024
# More rows are first divided by this many cuts: into rows between two cuts, and rows equal to one.
_CUTS = 31
_SLICE_ROWS = 131_072
# One key of this many rows is kept, to divide a part again.
_NOTED_ROWS = 1024

Paths = Sequence[tuple[str, ...]]


def sorted_rows(
    tables: Iterable[pa.Table],
    paths: Paths,
    curve: Curve | None,
    sample: pa.Table | None = None,
) -> Generator[pa.Table, None, None]:
    """The rows in the order of columns (see `layout`); equal rows may change places.

    `sample` has rows from the whole input; without a sample the first rows represent all rows.

    Raises:
        StorageError: the temporary folder is full or cannot be written.
    """
    keys = None
    if sample is not None and sample.num_rows:
        keys = row_keys(column_arrays(sample, paths), curve)
    with TemporaryDirectory(prefix="plake-sort-") as folder:
        yield from _sorted(iter(tables), paths, curve, folder, keys)


def _sorted(
    tables: Iterator[pa.Table],
    paths: Paths,
    curve: Curve | None,
    folder: str,
    sample: pa.Array | None,
) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        if table.num_rows:
            held.append(table)
            size += table.nbytes
        if size > SORTED_BYTES:
            break
    if not held:
        return
    columns = column_arrays(pa.concat_tables(held), paths)
    if size <= SORTED_BYTES:
        rows = pa.concat_tables(held).take(sorted_places(columns, curve))
        held.clear()
        for start in range(0, rows.num_rows, _SLICE_ROWS):
            yield rows.slice(start, _SLICE_ROWS)
        return
    # Rows are often ordered already. If the first rows represented all, nearly all others would lie
    # behind the last cut, and be divided again and again.
    if sample is None or len(sample) == sample.null_count:
        sample = row_keys(columns, curve)
    cuts = boundaries(sample, _CUTS)
    del columns, sample
    with TemporaryDirectory(prefix="part-", dir=folder) as own:
        spill = _Spill(own)
        while held:
            spill.add(held.pop(0), paths, curve, cuts)
        for table in tables:
            spill.add(table, paths, curve, cuts)
        for code, path, keys in spill.finish():
            # Rows that equal a cut, or are NULL, are in order. The other rows are fewer each time,
            # because each cut is the value of a row.
            if code % 2 == 0:
                yield from _read(path)
            else:
                yield from _sorted(_read(path), paths, curve, own, keys)
            os.unlink(path)


class _Spill:
    """Rows in temporary files, one for the values between two cuts or equal to one.

    The files are numbered in the order of their values: 0 for NULL, an even number for the
    values that equal a cut.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sinks: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        # By file: the key of one of `_NOTED_ROWS` rows, and how many rows there are.
        self._keys: dict[int, list[pa.Array]] = {}
        self._rows: dict[int, int] = {}

    def add(self, table: pa.Table, paths: Paths, curve: Curve | None, cuts: pa.Array) -> None:
        keys = row_keys(column_arrays(table, paths), curve)
        code = pc.add(places(keys, cuts, after_equal=True), places(keys, cuts, after_equal=False))
        code = pc.fill_null(pc.add(code, 1), 0)
        order = pc.sort_indices(code)
        table, keys = table.take(order), keys.take(order)
        start = 0
        counts = {one["values"]: one["counts"] for one in pc.value_counts(code).to_pylist()}
        for number in sorted(counts):
            try:
                self._write(number, table.slice(start, counts[number]))
                self._note(number, keys.slice(start, counts[number]))
            except OSError as error:
                raise StorageError(
                    path=self._folder,
                    reason=f"{error}. Rows are sorted there: set TMPDIR to a folder with as much "
                    "room as they take",
                ) from error
            start += counts[number]

    def _write(self, code: int, rows: pa.Table) -> None:
        if code not in self._sinks:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            path = self._path(code)
            self._sinks[code] = pa.ipc.new_stream(path, rows.schema, options=options)
        self._sinks[code].write_table(rows)

    def _note(self, code: int, keys: pa.Array) -> None:
        before = self._rows.get(code, 0)
        self._rows[code] = before + len(keys)
        chosen = pa.array(range(-before % _NOTED_ROWS, len(keys), _NOTED_ROWS), pa.int64())
        if len(chosen):
            self._keys.setdefault(code, []).append(keys.take(chosen))

    def _path(self, code: int) -> str:
        return os.path.join(self._folder, str(code))

    def finish(self) -> Iterator[tuple[int, str, pa.Array]]:
        """The files in the order of their values, with some keys of each."""
        for sink in self._sinks.values():
            sink.close()
        for code in sorted(self._sinks):
            yield code, self._path(code), pa.concat_arrays(self._keys.pop(code))


def _read(path: str) -> Iterator[pa.Table]:
    with pa.OSFile(path) as source, pa.ipc.open_stream(source) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])


def curve_of(sample: pa.Table | None, paths: Paths) -> Curve | None:
    """The curve for rows like those of `sample`; None: one column needs no curve."""
    if len(paths) < 2 or sample is None or not sample.num_rows:
        return None
    return Curve.of(column_arrays(sample, paths))


# --- Rows of existing files are written to new files as they are, with their identities.


# A sample for the order: its files, and the rows of each file (up to twice as many).
_SAMPLE_FILES = 64
_SAMPLE_ROWS = 2_000
# Decoded rows that wait to be sorted.
_READ_AHEAD_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Copy:
    """Rows to write to new files: which, and how they are read and written. Picklable."""

    spec: WriteSpec
    read: ReadSpec
    tasks: tuple[ScanTask, ...]

    def write(
        self,
        storage: Storage,
        watch: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter,
    ) -> list[FileMetadata]:
        """Write the rows, in the order of the clustering columns where `spec` names some.

        `watch` sees the batches go by.
        """
        if self.spec.cluster_by:
            return self._write_sorted(storage, watch)
        tables = read_all(self.read, self.tasks, storage)
        batches = (batch for table in tables for batch in table.to_batches())
        return write_files(self.spec, watch(batches), storage)

    def _write_sorted(
        self,
        storage: Storage,
        watch: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]],
    ) -> list[FileMetadata]:
        paths = self.spec.cluster_by
        tables_of_sample = list(self._sample(storage))
        sample = pa.concat_tables(tables_of_sample) if tables_of_sample else None
        curve = curve_of(sample, paths)
        tables = read_all(self.read, self.tasks, storage, buffer_bytes=_READ_AHEAD_BYTES)
        watched = watch(batch for table in tables for batch in table.to_batches())
        rows = (pa.Table.from_batches([batch]) for batch in watched)
        with (
            closing(sorted_rows(rows, paths, curve, sample)) as ordered,
            ThreadPoolExecutor(1, thread_name_prefix="plake-sort") as pool,
        ):
            # All rows are read here. Then parts of them are sorted while the writer works.
            first = list(islice(ordered, 1))
            buffer = _READ_AHEAD_BYTES
            with closing(
                in_order([ordered], iter, width=1, buffer_bytes=buffer, pool=pool)
            ) as others:
                sorted_tables = chain(first, (table for _, table in others))
                batches = (batch for table in sorted_tables for batch in table.to_batches())
                spec = replace(self.spec, cluster_by=(), ordered_by=paths)
                return write_files(spec, batches, storage)

    def _sample(self, storage: Storage) -> Iterator[pa.Table]:
        """Some rows of some files, evenly spread."""
        names = tuple(dict.fromkeys(path[0] for path in self.spec.cluster_by))
        read = replace(self.read, columns=names)
        step = -(-len(self.tasks) // _SAMPLE_FILES)
        for task in self.tasks[::step]:
            every = max(1, task.row_count // _SAMPLE_ROWS)
            for table in read_task(read, task, storage):
                chosen = pa.array(range(0, table.num_rows, every), pa.int64())
                yield table.take(chosen)


def copy_of(
    spec: WriteSpec,
    snapshot: Snapshot,
    files: Iterable[tuple[FileRecord, DeletionVector | None]],
) -> Copy:
    """The copy of the rows of files, in order, without those that a vector marks.

    The hidden columns keep the identity of each row and the version that last changed it.
    `spec` has the schema of the snapshot.
    """
    texts = snapshot.partition_texts()
    tasks = tuple(ScanTask.whole(file, texts(file), deleted) for file, deleted in files)
    hidden = hidden_columns(snapshot.schema)
    read = ReadSpec(
        uri=spec.uri,
        schema=pa.schema([*snapshot.schema, *hidden]),
        columns=(*snapshot.schema.names, *(column.name for column in hidden)),
        partition_by=snapshot.partition_by,
        file_schemas=snapshot.file_schemas,
    )
    return Copy(spec.of_rows_as_they_are(), read, tasks)


def copy_rows(
    spec: WriteSpec,
    snapshot: Snapshot,
    files: Iterable[tuple[FileRecord, DeletionVector | None]],
    storage: Storage,
) -> list[FileMetadata]:
    """Write the rows of files to new ones, as `copy_of` tells."""
    copy = copy_of(spec, snapshot, files)
    return copy.write(storage) if copy.tasks else []


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files to remove, and new files with the rows that stay.

    `row_groups` has the number of row groups of each removed file, by file id.
    """

    removed: tuple[FileRecord, ...] = ()
    files: tuple[FileMetadata, ...] = ()
    row_groups: Mapping[int, int] = field(default_factory=dict)


def rewrite_matching(catalog: Catalog, staged: StagedWrite) -> Rewrite:
    """Find the files that hold rows of the condition, and rewrite their other rows.

    Nothing is done for a write that overwrites no condition or was committed already.

    Raises:
        CommitConflictError: the version that the write is based on was expired.
    """
    if staged.options.overwrite_where is None or staged.base_version == 0:
        return Rewrite()
    with catalog.read() as reader:
        if reader.transaction_by_write_id(staged.write_id) is not None:
            return Rewrite()  # the commit finds this under the lock too
        snapshot = base_snapshot(reader, staged)
        removed, tasks, spec = keep_others(
            reader, snapshot, staged.options.overwrite_where, staged.spec.uri
        )
        groups = reader.row_groups([file.id for file in removed])
    counts = {file_id: len(found) for file_id, found in groups.items()}
    reach("rows to keep found")
    storage = Storage(staged.spec.uri)
    untouched = _without_match(spec, tasks, storage)
    removed = [file for file in removed if file.path not in untouched]
    tasks = tuple(task for task in tasks if task.path not in untouched)
    if not tasks:
        return Rewrite(tuple(removed), (), counts)
    kept = write_files(
        staged.spec.of_rows_as_they_are(),
        (batch for table in read_all(spec, tasks, storage) for batch in table.to_batches()),
        storage,
    )
    reach("rows to keep written")
    return Rewrite(tuple(removed), tuple(kept), counts)


def _without_match(spec: ReadSpec, tasks: tuple[ScanTask, ...], storage: Storage) -> set[str]:
    """The files in which no row matches, though their statistics leave it open.

    These files stay as they are. If they were rewritten, a commit that only adds rows would count
    as a commit that replaces rows, which streams skip or refuse. Only the columns of the condition
    are read.
    """
    assert spec.predicate is not None
    names = tuple(spec.predicate.columns) or spec.columns[:1]
    narrow = replace(spec, columns=names, unmatched=False)
    matched = {task.path for task, table in read_each(narrow, tasks, storage) if table.num_rows}
    return {task.path for task in tasks} - matched


# --- Before the transaction of a commit that changes rows: writes vectors, rewrites files.
#
# A file with few rows left is not worth a deletion vector: these rows are written to a new file in
# the same commit, with their identities.


REWRITE_THRESHOLD = 0.3


def prepare_rows(
    catalog: Catalog,
    staged: StagedWrite,
    files: Sequence[FileMetadata],
    rows: RowChanges,
    written: list[FileMetadata],
    *,
    rewrite: bool = True,
) -> PreparedCommit:
    """Write the deletion vectors of a commit, and the rows of files that are not worth one.

    Appends to `written` each file that it writes. Without `rewrite`, and where the schema changed
    between the base version and the beginning of the write, every file that keeps a row gets a
    vector.
    """
    storage = Storage(staged.spec.uri)
    with catalog.read() as reader:
        if reader.transaction_by_write_id(staged.write_id) is not None:
            # The commit finds this under the lock too.
            return prepare_files(staged, files, (), {}, PreparedRows(rows, ()))
        snapshot = base_snapshot(reader, staged)
        erased = snapshot.dataset.properties.erased_version
        if erased > staged.base_version:
            # The positions that were read belong to files that are gone.
            now = snapshot.dataset.current_version
            raise staged.conflict(now, committed_first(erased, "erase"))
        changes = find_changes(reader, rows, snapshot.dataset.id, snapshot.version, storage)
        read_files = list[FileChange]()
        if rows.read:
            read = {path: TouchedRows(Positions(), one) for path, one in rows.read.items()}
            read_files = find_changes(
                reader, replace(rows, touched=read), snapshot.dataset.id, snapshot.version, storage
            )
    reach("changed files found")
    threshold = snapshot.dataset.properties.layout.rewrite_threshold
    if threshold is None:
        threshold = REWRITE_THRESHOLD
    # The rows are written with the columns of the base version, but recorded with those of the
    # version at which the write began, which may be newer.
    if rewrite and _has_columns_of(staged.spec.schema, snapshot.schema):
        changes = [
            replace(one, replaced=not one.is_empty and _share(one) > threshold) for one in changes
        ]
        replaced = [one for one in changes if one.replaced]
        written += _write_anew(staged, snapshot, replaced, storage)
    moved = tuple(written)
    reach("rows written anew")
    stay = {
        one.file.id: (one.file, one.after)
        for one in changes
        if not one.replaced and not one.is_empty
    }
    vectors = write_vectors(stay, staged.write_id, storage)
    for vector in list(vectors.values())[:1]:
        # One file holds all of them. `abort` has to know it.
        written.append(FileMetadata(vector.path, 0, vector.size_bytes, pa.schema([]), ()))
    positions = {one.file.id: one.after for one in changes if one.file.id in stay}
    prepared = PreparedRows(
        rows,
        tuple(changes),
        vectors,
        positions,
        read_files=tuple(read_files),
        history=snapshot.history,
    )
    return prepare_files(staged, (*files, *moved), (), {}, prepared)


def _has_columns_of(schema: pa.Schema, other: pa.Schema) -> bool:
    """Tell whether a schema has each column of another schema, unchanged."""
    mine = {field.name: field for field in schema}
    return all(
        field.name in mine and mine[field.name].equals(field, check_metadata=True)
        for field in other
    )


def _share(change: FileChange) -> float:
    """The share of a file's rows that are deleted."""
    return len(change.after) / change.file.row_count


def _write_anew(
    staged: StagedWrite, snapshot: Snapshot, changes: Sequence[FileChange], storage: Storage
) -> list[FileMetadata]:
    """Write the remaining rows of files to new files."""
    if not changes:
        return []
    kept = []
    for one in changes:
        blob = encode(one.after)
        kept.append((one.file, DeletionVector("", len(blob), 0, len(blob), len(one.after), blob)))
    spec = replace(staged.spec, schema=snapshot.schema)
    return copy_rows(spec, snapshot, kept, storage)
