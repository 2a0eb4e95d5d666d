"""Verb. Sorts any number of rows in bounded memory, with files in a temporary folder."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import StorageError
from lakehouse_source.layout.order import Curve, boundaries, places, row_keys, sorted_places
from lakehouse_source.parquet.writer import column_arrays

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
    """The rows in the order of columns (see `layout.order`); equal rows may change places.

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
