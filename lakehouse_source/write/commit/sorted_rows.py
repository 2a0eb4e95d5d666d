"""Verb. Rows of any number are sorted in bounded memory, with files in a temporary folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import StorageError
from lakehouse_source.layout.order import Curve, boundaries, places, row_keys, sorted_places
from lakehouse_source.parquet.writer import column_arrays

# Rows that are sorted at a time. Sorting copies them.
SORTED_BYTES = 160 * 1024 * 1024
# More rows are divided by so many values first: into those between two, and those equal to one.
_CUTS = 31
_SLICE_ROWS = 131_072

Paths = Sequence[tuple[str, ...]]


def sorted_rows(
    tables: Iterable[pa.Table], paths: Paths, curve: Curve | None
) -> Iterator[pa.Table]:
    """The rows in the order of columns (see `layout.order`); equal rows may change places.

    Raises:
        StorageError: the temporary folder is full or cannot be written.
    """
    with TemporaryDirectory(prefix="plake-sort-") as folder:
        yield from _sorted(iter(tables), paths, curve, folder)


def _sorted(
    tables: Iterator[pa.Table], paths: Paths, curve: Curve | None, folder: str
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
    cuts = boundaries(row_keys(columns, curve), _CUTS)
    del columns
    with TemporaryDirectory(prefix="part-", dir=folder) as own:
        spill = _Spill(own)
        while held:
            spill.add(held.pop(0), paths, curve, cuts)
        for table in tables:
            spill.add(table, paths, curve, cuts)
        for code, path in spill.finish():
            # Rows that equal a cut, or are NULL, are in order. The others are fewer than all,
            # because the cuts are values of them.
            if code % 2 == 0:
                yield from _read(path)
            else:
                yield from _sorted(_read(path), paths, curve, own)
            os.unlink(path)


class _Spill:
    """Rows in temporary files, one for the values between two cuts or equal to one.

    The files are numbered in the order of their values: 0 for NULL, an even number for the
    values that equal a cut.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sinks: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def add(self, table: pa.Table, paths: Paths, curve: Curve | None, cuts: pa.Array) -> None:
        keys = row_keys(column_arrays(table, paths), curve)
        code = pc.add(places(keys, cuts, after_equal=True), places(keys, cuts, after_equal=False))
        code = pc.fill_null(pc.add(code, 1), 0)
        table = table.take(pc.sort_indices(code))
        start = 0
        counts = {one["values"]: one["counts"] for one in pc.value_counts(code).to_pylist()}
        for number in sorted(counts):
            try:
                self._write(number, table.slice(start, counts[number]))
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

    def _path(self, code: int) -> str:
        return os.path.join(self._folder, str(code))

    def finish(self) -> list[tuple[int, str]]:
        """The files in the order of their values."""
        for sink in self._sinks.values():
            sink.close()
        return [(code, self._path(code)) for code in sorted(self._sinks)]


def _read(path: str) -> Iterator[pa.Table]:
    with pa.OSFile(path) as source, pa.ipc.open_stream(source) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])


def curve_of(tables: Iterable[pa.Table], paths: Paths) -> Curve | None:
    """The curve for rows of which `tables` are a sample; None: one column needs none."""
    if len(paths) < 2:
        return None
    sample = [table for table in tables if table.num_rows]
    return Curve.of(column_arrays(pa.concat_tables(sample), paths)) if sample else None
