"""Every public test file through `add_files`: its rows as PyArrow reads them, or a `PlakeError`.

The files are good and bad ones of other projects. Each has a process of its own, so that one that
ends the process, hangs or takes the memory is named.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.edges.read_added_file import read_added_file

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2)]

FILES = Path("/work/shared/testdata/parquet-testing")
PUBLIC = sorted(FILES.rglob("*.parquet"))
CPU_SECONDS, PEAK_BYTES = 10, 2 << 30


@pytest.mark.skipif(not PUBLIC, reason="the public test files are not here")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if number % 3 == 0 else pytest.mark.long)
        for number, path in enumerate(PUBLIC)
    ],
    ids=str,
)
def test_a_public_file_has_the_rows_that_pyarrow_reads_or_is_refused(
    path: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "lake" / path.name
    copied.parent.mkdir()
    shutil.copy(path, copied)
    found = read_added_file(copied.parent, copied)
    if found.refused is not None:
        assert path.name in found.refused
    assert found.differences == []
    assert found.cpu_seconds < CPU_SECONDS
    assert found.peak_bytes < PEAK_BYTES
    assert copied.read_bytes() == path.read_bytes()


def test_a_file_whose_rows_change_would_be_found(tmp_path: Path) -> None:
    """The comparison itself: statistics of another file make conditions keep too few rows."""
    path = tmp_path / "lake" / "one.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"n": [7, 8, 9]}), path)
    assert read_added_file(path.parent, path).differences == []
    shutil.rmtree(path.parent / "_plake")
    whole = path.read_bytes()
    lowest = (7).to_bytes(8, "little")
    lies = (9).to_bytes(8, "little")
    end = whole.index(b"schema")  # the footer begins after the pages
    path.write_bytes(whole[:end] + whole[end:].replace(lowest, lies))
    assert read_added_file(path.parent, path).differences != []
