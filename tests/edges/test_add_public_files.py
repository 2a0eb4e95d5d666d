"""Every public test file through `add_files`: its rows as PyArrow reads them, or a `PlakeError`.

Each file has a process of its own, whose memory and time are bounded.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lakehouse_source as lake

FILES = Path("/work/shared/testdata/parquet-testing")
PUBLIC = sorted(FILES.rglob("*.parquet"))
SECONDS = 60  # for the start of Python on a busy machine; the work is bounded by MEMORY

# Reads the file as PyArrow does, in the types of the dataset, and compares.
CHILD = """
import contextlib, json, resource, sys
import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
import lakehouse_source as lake
from lakehouse_source.parquet import reader
from lakehouse_source.parquet.page_reader import ChosenPages
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
folder, path = sys.argv[1:]
try:
    dataset = lake.convert(folder, partitioning=None)
    mine = dataset.scan().to_table()
    again = dataset.scan().to_dataset().to_table()
except lake.PlakeError as error:
    print(json.dumps(["refused", type(error).__name__, str(error)]))
    sys.exit()
theirs = pq.read_table(path, coerce_int96_timestamp_unit="us", partitioning=None)
bare = lambda column: column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
text = lambda table, name: repr(bare(table.column(name)).to_pylist())
different = [
    name
    for name in theirs.column_names
    if not text(mine, name) == text(again, name) == text(theirs, name)
]
same_names = mine.column_names == theirs.column_names

@contextlib.contextmanager
def by_pages():
    kept, costs = reader._FEWEST_ROWS_FOR_PAGES, ChosenPages.pays
    reader._FEWEST_ROWS_FOR_PAGES, ChosenPages.pays = 0, True
    try:
        yield
    finally:
        reader._FEWEST_ROWS_FOR_PAGES, ChosenPages.pays = kept, costs

nan = lambda value: value != value
equal = lambda a, b: a == b or (nan(a) and nan(b))
less = lambda a, b: not nan(a) and (nan(b) or a < b)
t = pa.types
for field in theirs.schema:
    kind = field.type
    if not (t.is_integer(kind) or t.is_floating(kind) or t.is_string(kind) or t.is_decimal(kind)):
        continue
    values = [value for value in theirs.column(field.name).to_pylist() if value is not None]
    for value in values[:1] + values[len(values) // 2 :][:1]:
        for operator, holds in (("=", equal), ("<", less)):
            count = dataset.scan((field.name, operator, value)).count_rows()
            if count != sum(holds(one, value) for one in values):
                different.append(f"{field.name} {operator} {value!r}: {count}")
            with by_pages():
                paged = dataset.scan((field.name, operator, value)).to_table()
            whole = dataset.scan((field.name, operator, value)).to_table()
            if repr(paged.to_pylist()) != repr(whole.to_pylist()):
                different.append(f"by pages: {field.name} {operator} {value!r}")
            column, scalar = pc.field(field.name), pa.scalar(value, kind)
            if not nan(value) and not t.is_float16(kind):  # Arrow does not compare half floats
                filter = column == scalar if operator == "=" else column < scalar
                count = dataset.scan().to_dataset().to_table(filter=filter).num_rows
                if count != sum(holds(one, value) for one in values):
                    different.append(f"dataset {field.name} {operator} {value!r}: {count}")
print(json.dumps(["read", mine.num_rows, different, same_names]))
"""


def outcome(path: Path, folder: Path) -> list[object]:
    folder.mkdir()
    shutil.copy(path, folder / path.name)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), str(folder / path.name)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    found: list[object] = json.loads(child.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(not PUBLIC, reason="the public test files are not here")
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_a_public_file_has_the_rows_that_pyarrow_reads_or_is_refused(
    path: Path, tmp_path: Path
) -> None:
    found = outcome(path, tmp_path / "lake")
    if found[0] == "refused":
        assert path.name in str(found[2])
    else:
        assert found[2:] == [[], True]
        assert isinstance(found[1], int)
    assert (tmp_path / "lake" / path.name).read_bytes() == path.read_bytes()
    assert issubclass(getattr(lake, str(found[1]), lake.PlakeError), lake.PlakeError)
