"""Any file, any bytes: an answer, or a `PlakeError` that names the file. The process lives."""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet.checked_footer import open_footer
from tests.edges.parquet_edit import (
    BINARY,
    FUZZ,
    I32,
    I64,
    STRUCT,
    Node,
    chunk,
    edited,
    field,
    file_of,
    fuzz,
)
from tests.versions import PYARROW, bloom_filters

pytestmark = pytest.mark.slow

TABLE = pa.table({"n": list(range(10)), "word": [f"w{i}" for i in range(10)], "x": [0.5] * 10})
VALID = file_of(TABLE, row_group_size=5)
BODY, FOOTER = fuzz.footer_of(VALID)

# In its own process: whatever a file does to it is seen. Memory is bounded.
READ = """
import json, resource, sys
from pathlib import Path
import lakehouse_source as lake
from lakehouse_source.storage import Storage
from lakehouse_source.parquet.reader import read_task
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sorted(Path(sys.argv[1]).glob("*.parquet")):
    try:
        found = [group.index for group in lake.prune_file(path, "n = 7").row_groups]
        outcome = f"row groups {found}"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    print(json.dumps([path.stem, outcome]), flush=True)
"""


def with_length(length: int) -> bytes:
    return VALID[:BODY] + FOOTER + struct.pack("<I", length & 0xFFFFFFFF) + b"PAR1"


def change(act: Callable[[Node], None]) -> bytes:
    return edited(VALID, act)


def column_type(footer: Node) -> None:
    chunk(footer)[3][1] = 5  # DOUBLE, where the schema says INT64


def bound(data: bytes) -> Callable[[Node], None]:
    def act(footer: Node) -> None:
        for group in range(2):
            for which in (5, 6):
                chunk(footer, group)[3][12][which] = data

    return act


def histogram(footer: Node) -> None:
    chunk(footer)[3][16].add(field(fuzz.LIST, 3, (I64, [field(I64, 0, 1)] * 9)))


def one_chunk_less(footer: Node) -> None:
    del footer[4][0][1][2]


def one_chunk_more(footer: Node) -> None:
    chunks = footer[4][0][1].fields
    chunks.append(chunks[0])


def schema(*elements: tuple[bytes, int | None]) -> Callable[[Node], None]:
    """A schema of groups (name, number of children) and INT64 columns (name, None)."""

    def act(footer: Node) -> None:
        made = []
        for name, children in elements:
            fields = [field(BINARY, 4, name), field(I32, 3, 1)]
            fields.append(field(I32, 1, 2) if children is None else field(I32, 5, children))
            made.append(field(STRUCT, 0, sorted(fields, key=lambda found: found.id)))
        footer[2] = (STRUCT, made)

    return act


def value(id_: int, given: object) -> Callable[[Node], None]:
    def act(footer: Node) -> None:
        footer[id_] = given

    return act


def in_metadata(id_: int, given: object) -> Callable[[Node], None]:
    def act(footer: Node) -> None:
        for group in range(2):
            chunk(footer, group)[3][id_] = given

    return act


def name(given: bytes) -> Callable[[Node], None]:
    def act(footer: Node) -> None:
        footer[2][2][4] = given
        for group in range(2):
            chunk(footer, group, 1)[3][3] = (BINARY, [field(BINARY, 0, given)])

    return act


def without_metadata(footer: Node) -> None:
    del chunk(footer)[3]


def encrypted_column(footer: Node) -> None:
    chunk(footer).add(field(STRUCT, 8, [field(STRUCT, 1, [])]), field(BINARY, 9, b"secret"))


def encrypted_file(footer: Node) -> None:
    footer.add(field(STRUCT, 8, [field(STRUCT, 1, [])]))


def logical_type(footer: Node) -> None:
    footer[2][1].add(field(STRUCT, 10, [field(STRUCT, 99, [])]))


@cache
def refused() -> dict[str, tuple[bytes, str]]:
    """The bytes of each bad file, and a part of the reason."""
    found = {
        "empty": (b"", "0 bytes"),
        "four bytes": (b"PAR1", "4 bytes"),
        "no footer": (b"PAR1" + b"\x00" * 4 + b"PAR1", "thrift"),
        "another magic": (VALID[:-4] + b"PAR2", "does not end"),
        "cut": (VALID[: len(VALID) // 2], "does not end"),
        "encrypted footer": (VALID[:-4] + b"PARE", "encrypted"),
        "negative length": (with_length(-1), "the file has"),
        "length of terabytes, cut to 32 bits": (with_length(2**31 - 1), "the file has"),
        "short length": (with_length(10), ""),
        "nested structures without end": (fuzz.framed(b"PAR1", b"\x1c" * 500_000), ""),
        "nested lists without end": (fuzz.framed(b"PAR1", b"\x19" * 500_000), ""),
        "two billion row groups": (fuzz.framed(b"PAR1", b"\x49\xfc\xff\xff\xff\xff\x07"), ""),
        "a million schema elements": (
            fuzz.framed(b"PAR1", b"\x15\x04\x19\xfc\xc0\x84\x3d" + b"\xff" * 1_000_000),
            "",
        ),
        "another physical type": (change(column_type), "DOUBLE; the schema says INT64"),
        "unknown physical type": (change(in_metadata(1, 77)), "number 77"),
        "histogram of other levels": (change(histogram), "histogram"),
        "fewer chunks than columns": (change(one_chunk_less), "2 column chunks, not 3"),
        "more chunks than columns": (change(one_chunk_more), "4 column chunks, not 3"),
        "no metadata of a chunk": (change(without_metadata), "no metadata"),
        "encrypted column": (change(encrypted_column), "encrypted"),
        "encrypted file, plain footer": (change(encrypted_file), "encrypted"),
        "negative row count": (change(value(3, -5)), "negative row count"),
        "more children than elements": (change(schema((b"r", 5), (b"a", None))), ""),
        "fewer children than elements": (change(schema((b"r", 1), (b"a", None), (b"b", None))), ""),
        "negative children": (change(schema((b"r", -1), (b"a", None))), ""),
        "name that is not UTF-8": (change(name(b"\xff\xfe")), "utf-8"),
        "writer that is not UTF-8": (change(value(6, b"\xff\xfe")), "utf-8"),
    }
    if PYARROW >= 26:  # older ones run out of stack, and the process ends
        found["deep groups"] = (change(schema(*[(b"g", 1)] * 60_000, (b"a", None))), "")
    return found


@cache
def answered() -> dict[str, tuple[bytes, list[int]]]:
    """The bytes of each file that can be pruned, and its row groups with n = 7."""
    return {
        "valid": (VALID, [1]),
        "bounds of no bytes": (change(bound(b"")), [0, 1]),
        "bounds of three bytes": (change(bound(b"\x00\x00\x00")), [0, 1]),
        "bounds of nine bytes": (change(bound(b"\x00" * 9)), [0, 1]),
        "pages beyond the file": (change(in_metadata(9, 2**40)), [1]),
        "negative sizes": (change(in_metadata(7, -(2**40))), [1]),
        "unknown codec": (change(in_metadata(4, 99)), [1]),
        "unknown encoding": (change(in_metadata(2, (I32, [field(I32, 0, 99)]))), [1]),
        "metadata that is not UTF-8": (
            change(value(5, (STRUCT, [field(STRUCT, 0, [field(BINARY, 1, b"\xff")])]))),
            [1],
        ),
        "same name twice": (change(name(b"x")), [1]),
    }


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("bad")
    for case, (data, _) in {**refused(), **answered()}.items():
        (folder / f"{case}.parquet").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder)], capture_output=True, text=True, check=False
    )
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    assert done.returncode == 0, f"the process ended after {list(found)[-1:]}: {done.stderr}"
    return found


def test_a_bad_file_is_refused_by_name(outcomes: dict[str, str]) -> None:
    wrong = {
        case: outcomes[case]
        for case, (_, reason) in refused().items()
        if not outcomes[case].startswith("CorruptDatasetError")
        or f"{case}.parquet" not in outcomes[case]
        or reason not in outcomes[case].lower() + outcomes[case]
    }
    assert wrong == {}


def test_what_does_not_concern_pruning_does_not_hinder_it(outcomes: dict[str, str]) -> None:
    found = {case: outcomes[case] for case in answered()}
    assert found == {case: f"row groups {groups}" for case, (_, groups) in answered().items()}


def test_a_dataset_whose_file_became_a_bad_one_says_so(tmp_path: Path) -> None:
    """The same check before rows are read and when files are verified."""
    lake.write_dataset(TABLE, tmp_path, row_group_rows=5, **bloom_filters("n"))
    [path] = tmp_path.glob("*.parquet")
    whole = path.read_bytes()
    dataset = lake.open_dataset(tmp_path)
    for act in (column_type, one_chunk_less, without_metadata, encrypted_column, name(b"\xff")):
        path.write_bytes(edited(whole, act))
        # As long as the catalog says, so that the footer is what is looked at.
        pad = len(whole) - path.stat().st_size
        path.write_bytes(edited(whole, act, appended=b"\x00" * max(pad, 0)))
        for condition in ("n = 3", None):
            with pytest.raises(lake.PlakeError, match=path.name):
                dataset.scan(condition).to_table()
        assert dataset.verify(checksums=True).differences


def test_a_footer_of_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """The file is as large as it says, and takes no room on the disk."""
    path = tmp_path / "huge.parquet"
    size = 3 << 30
    with path.open("wb") as file:
        file.write(b"PAR1")
        file.seek(size - 8)
        file.write(struct.pack("<I", size - 12) + b"PAR1")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (lambda: lake.prune_file(path, "n = 7"), lambda: lake.convert(tmp_path)):
        with pytest.raises(lake.CorruptDatasetError, match=r"huge\.parquet.* are not read"):
            read()
    # In KiB. A footer of 3 GiB was read before it was found to be none.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_footers_say_what_pyarrow_says(tmp_path: Path) -> None:
    for base in fuzz.bases():
        expected = pq.read_metadata(pa.BufferReader(base.data))
        footer = open_footer(pa.BufferReader(base.data), base.name)
        assert footer.row_count == expected.num_rows
        for group in range(expected.num_row_groups):
            for position in range(expected.num_columns):
                found = footer.chunk(group, position)
                chunk_ = expected.row_group(group).column(position)
                assert found.physical_type == chunk_.physical_type
                if PYARROW >= 25:  # the first that tells it
                    assert found.bloom_filter_offset == chunk_.bloom_filter_offset
                structure = footer.structure(group, position)
                assert (4 in structure) == chunk_.has_offset_index
                assert (6 in structure) == chunk_.has_column_index
                assert found.statistics == chunk_.statistics


@pytest.mark.long
def test_mutants_of_every_layout() -> None:
    """A sample of `integration/fuzz_parquet.py`; each mutant is read in a child process."""
    done = subprocess.run(
        [sys.executable, str(FUZZ), "--mutants", "200", "--verbose"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 200 mutants" in done.stdout
