"""The SHA-256 of files: kept at commit, carried along, and compared where somebody asks."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet import reader
from lakehouse_source.parquet.new_file import NewFile
from lakehouse_source.storage import hashed

pytestmark = pytest.mark.slow

SEED = 30


def differing(dataset: lake.Dataset, folder: Path, *, known: int | None = None) -> list[str]:
    """Files whose bytes are not those of the catalog; all of them (or `known`) have a checksum."""
    rows = dataset.inspect.files().to_pylist()
    sums = {row["file_path"]: row["sha256"] for row in rows}
    assert sum(one is not None for one in sums.values()) == (len(rows) if known is None else known)
    return [
        path
        for path, sha256 in sums.items()
        if sha256 is not None and hashlib.sha256((folder / path).read_bytes()).hexdigest() != sha256
    ]


def flipped(path: Path, at: int) -> bytes:
    """Change one bit of a file; answers the bytes that it had."""
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    return whole


def test_files_of_every_size_and_partition_have_the_sha256_of_their_bytes(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    rows = 400_000  # of random bytes, so that the hash has its thread
    table = pa.table(
        {
            "part": [n % 3 for n in range(rows)],
            "n": range(rows),
            "noise": [chance.randbytes(16) for _ in range(rows)],
        }
    )
    lake.write_dataset(table, tmp_path / "large", target_file_size_bytes=3_000_000)
    lake.write_dataset(table, tmp_path / "parts", partition_by="part")
    lake.write_dataset(table.slice(0, 1), tmp_path / "small")
    for name in ("large", "parts", "small"):
        dataset = lake.open_dataset(tmp_path / name)
        assert differing(dataset, tmp_path / name) == []
        assert dataset.verify(checksums=True).ok
    assert dataset.scan(verify_checksums="file").to_table().num_rows == 1


def test_copies_of_the_records_of_files_keep_the_sha256(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    lake.write_dataset({"n": list(range(100)), "k": [1] * 100}, folder)
    lake.write_dataset({"n": [7], "k": [2]}, folder)
    dataset = lake.open_dataset(folder)
    dataset.delete("n = 5")
    dataset.rename_column("k", "key")
    branch = dataset.branch("b")
    assert differing(branch, folder) == []
    branch.delete("n = 6")
    lake.write_dataset({"n": [8], "key": [2]}, branch.uri)
    dataset.fast_forward("b")
    dataset = dataset.refresh()
    assert differing(dataset, folder) == []
    dataset.compact()
    dataset.restore(2)
    dataset = lake.open_dataset(folder)
    assert dataset.scan().count_rows() == 101
    assert differing(dataset, folder) == []
    lake.write_dataset({"n": [90]}, folder, mode="overwrite", overwrite_where="n > 50")
    dataset = dataset.refresh()
    assert differing(dataset, folder) == []
    assert dataset.verify(checksums=True).ok


@pytest.mark.parametrize("backend", ["sqlite", "duckdb"])
def test_a_commit_that_another_one_overtakes_keeps_the_sha256(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = f"{backend}:///{tmp_path}/catalog"
    folder = tmp_path / "d"
    lake.write_dataset({"n": [1]}, folder, catalog=catalog)
    close, others = NewFile.close, [None]

    def overtaken(self: NewFile, partitions: dict[str, object]) -> lake.FileMetadata:
        if others:
            others.pop()
            lake.write_dataset({"n": [2]}, folder, catalog=catalog)
        return close(self, partitions)

    monkeypatch.setattr(NewFile, "close", overtaken)
    lake.write_dataset({"n": [3]}, folder, catalog=catalog)
    dataset = lake.open_dataset(folder, catalog=catalog)
    assert dataset.version == 3
    assert differing(dataset, folder) == []


def test_files_whose_bytes_plake_did_not_write_have_none(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    lake.write_dataset({"n": [1, 2]}, folder, writer="duckdb")
    pq.write_table(pa.table({"n": [3]}), folder / "added.parquet")
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({"n": [4]}), tmp_path / "other" / "copied.parquet")
    dataset = lake.open_dataset(folder)
    dataset.add_files(folder / "added.parquet")
    dataset.refresh().add_files(tmp_path / "other" / "copied.parquet", copy=True)
    dataset = dataset.refresh()
    # The copy was made by plake.
    assert differing(dataset, folder, known=1) == []
    table = lake.read_dataset(folder, verify_checksums="file")
    assert sorted(table["n"].to_pylist()) == [1, 2, 3, 4]
    assert dataset.verify(checksums=True).ok


def test_any_changed_byte_of_a_data_file_is_found(tmp_path: Path) -> None:
    lake.write_dataset({"n": list(range(500)), "s": ["text"] * 500}, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    path = tmp_path / dataset.files()[0].path
    size = path.stat().st_size
    for at in sorted({*range(0, size, 37), size - 1}):
        whole = flipped(path, at)
        found = {one.what: one for one in dataset.verify(checksums=True).differences}
        assert found["SHA-256"].path == path.name, at
        assert found["SHA-256"].expected == hashlib.sha256(whole).hexdigest()
        assert found["SHA-256"].found == hashlib.sha256(path.read_bytes()).hexdigest()
        for read in (
            lambda: dataset.scan(verify_checksums="file").to_table(),
            lambda: next(dataset.scan("n = 3", verify_checksums="file").to_batches()),
            lambda: dataset.scan("n = 3", verify_checksums="file").count_rows(),
            lambda: lake.read_dataset(tmp_path, columns=["n"], verify_checksums="file"),
        ):
            with pytest.raises(lake.CorruptDatasetError, match="SHA-256"):
                read()
        path.write_bytes(whole)
    assert dataset.verify(checksums=True).ok
    assert lake.read_dataset(tmp_path, verify_checksums="file").num_rows == 500


@pytest.mark.long
def test_any_changed_byte_of_a_vector_is_found(tmp_path: Path) -> None:
    rows = 400_000
    lake.write_dataset({"n": list(range(rows))}, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    chance = random.Random(SEED)
    gone = sorted(chance.sample(range(rows), 30_000))  # too many for a copy in the catalog
    dataset.delete(f"n IN ({', '.join(map(str, gone))})")
    dataset = dataset.refresh()
    vector = dataset.inspect.deletion_vectors().to_pylist()[0]
    path = tmp_path / vector["vector_path"]
    size = path.stat().st_size
    assert vector["length"] > 4096
    for at in sorted({*range(0, size, size // 40), *range(size - 200, size, 7), size - 1}):
        whole = flipped(path, at)
        found = {one.what: one for one in dataset.verify().differences}
        assert found["SHA-256"].expected == hashlib.sha256(whole).hexdigest(), at
        with pytest.raises(lake.CorruptDatasetError, match="SHA-256"):
            dataset.scan(verify_checksums="file").to_table()
        path.write_bytes(whole)
    table = dataset.scan(verify_checksums="file").to_table()
    assert table.num_rows == rows - len(gone)


def test_other_engines_refuse_to_verify_files(tmp_path: Path) -> None:
    lake.write_dataset({"n": [1]}, tmp_path)
    with pytest.raises(lake.InvalidOptionError, match=r"given: .file."):
        lake.read_dataset(tmp_path, as_dataset=True, verify_checksums="file")
    with pytest.raises(lake.InvalidOptionError, match="verify_checksums"):
        lake.read_dataset(tmp_path, verify_checksums="files")  # type: ignore[arg-type]


CHILD = """
import resource, sys
import lakehouse_source as lake
dataset = lake.open_dataset(sys.argv[1])
dataset.verify()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for difference in dataset.verify(checksums=True).differences:
    print(difference.what, difference.found)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.long
def test_verify_decodes_no_page_that_is_larger_than_its_row_group(tmp_path: Path) -> None:
    """A page of 400 MB takes a few kilobytes of a file that somebody put in place of another."""
    lake.write_dataset({"n": list(range(1000))}, tmp_path)
    path = tmp_path / lake.open_dataset(tmp_path).files()[0].path
    rows = 50_000_000
    zeros = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(bytes(8 * rows))])
    pq.write_table(
        pa.table({"n": zeros}),
        path,
        compression="zstd",
        use_dictionary=False,
        row_group_size=rows,
        data_page_size=1 << 30,
        write_batch_size=rows,
        max_rows_per_page=rows,
    )
    assert path.stat().st_size < 100_000
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=True
    )
    *found, grown_kib = done.stdout.splitlines()
    assert any(line.startswith("SHA-256") for line in found)
    assert "pages of row group 0 a page of column 0 says that it has" in done.stdout
    assert int(grown_kib) < 100_000


@pytest.mark.parametrize("in_memory_bytes", [0, 10**6])
def test_what_is_read_is_what_was_compared_with_the_sha256(
    tmp_path: Path, in_memory_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was hashed and then read a second time: it could change in between."""
    for name, first in (("d", 6), ("forged", 7)):
        lake.write_dataset({"n": [first, 2, 3]}, tmp_path / name)
    (path,), (forged,) = ((tmp_path / one).glob("*.parquet") for one in ("d", "forged"))
    real, whole = reader.open_footer, path.read_bytes()
    assert len(forged.read_bytes()) == len(whole) != 0

    def changed(*given: Any, **options: Any) -> Any:
        path.write_bytes(forged.read_bytes())
        return real(*given, **options)

    monkeypatch.setattr(hashed, "_MOST_IN_MEMORY_BYTES", in_memory_bytes)
    monkeypatch.setattr(reader, "open_footer", changed)
    for condition in (None, "n >= 1"):
        path.write_bytes(whole)
        scan = lake.open_dataset(tmp_path / "d").scan(condition, verify_checksums="file")
        found = scan.to_table()
        assert found["n"].to_pylist() == [6, 2, 3]
        assert path.read_bytes() != whole
    assert lake.read_dataset(tmp_path / "d")["n"].to_pylist() == [7, 2, 3]
