"""A damaged data file: a read that verifies checksums is refused, or the rows are those written.

`integration/damage.py` does the same with a thousand damages.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from integration import damage

pytestmark = pytest.mark.slow


@pytest.mark.long
@pytest.mark.slow
def test_no_damage_gives_other_rows_silently(tmp_path: Path) -> None:
    found = damage.run(range(5000, 5100), tmp_path)
    assert len(found) == 100
    assert {number: what for number, what in found.items() if what in damage.WRONG} == {}
    # Where the rows are the same nevertheless, `verify` finds the changed byte.
    assert set(found.values()) == {damage.REFUSED, damage.REPORTED}


@pytest.mark.slow
def test_a_column_with_another_name_in_the_footer_is_reported(tmp_path: Path) -> None:
    """Readers take such a column for one that was added later: its rows are NULL."""
    lake.write_dataset(damage.table(), tmp_path / "d")
    dataset = lake.open_dataset(tmp_path / "d")
    path = tmp_path / "d" / dataset.files()[0].path
    whole = path.read_bytes()
    footer = whole.rindex(b"money")  # the last ones are in the footer
    for at in [i for i in range(len(whole) - 6000, footer + 1) if whole.startswith(b"money", i)]:
        path.write_bytes(whole[:at] + b"Money" + whole[at + 5 :])
        report = dataset.verify(checksums=True)
        same = dataset.scan().to_table().equals(damage.table()) if report.ok else None
        assert same in (None, True), at
    path.write_bytes(whole.replace(b"money", b"Money"))
    assert [d.found for d in dataset.verify().differences] == ["Money"]


@pytest.mark.slow
def test_files_of_every_schema_have_no_difference(tmp_path: Path) -> None:
    lake.write_dataset(damage.table(), tmp_path / "d", partition_by="flag")
    dataset = lake.open_dataset(tmp_path / "d")
    dataset.rename_column("money", "amount")
    dataset.promote_column("small", pa.int64())
    dataset.drop_column("day")
    dataset.add_column("note", pa.string())
    rows = pa.table({"id": [1], "amount": [None], "flag": [True], "note": ["n"]})
    lake.write_dataset(rows, tmp_path / "d")
    assert dataset.refresh().verify(checksums=True).ok
    for version in range(1, dataset.version + 1):
        assert dataset.verify(version, checksums=True).ok


def test_a_changed_value_is_found_where_checksums_are_verified(tmp_path: Path) -> None:
    numbers = pa.table({"n": pa.array(range(1000, 2000), pa.int64())})
    lake.write_dataset(numbers, tmp_path, compression="none")
    dataset = lake.open_dataset(tmp_path)
    path = tmp_path / dataset.files()[0].path
    whole = path.read_bytes()
    for at in range(4, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            if not dataset.scan().to_table().equals(numbers):
                break
        except lake.PlakeError:
            continue
    else:
        raise AssertionError("no byte changes a value without an error")
    for predicates in (None, "n > 0"):
        with pytest.raises(lake.CorruptDatasetError, match=path.name):
            lake.read_dataset(tmp_path, predicates=predicates, verify_checksums=True)
        with pytest.raises(lake.CorruptDatasetError, match=path.name):
            list(dataset.scan(predicates, verify_checksums=True).to_batches())
    with pytest.raises(lake.InvalidOptionError, match="verify_checksums"):
        lake.read_dataset(tmp_path, as_dataset=True, verify_checksums=True)


def test_a_column_that_the_footer_calls_by_another_name_is_no_column_of_nulls(
    tmp_path: Path,
) -> None:
    lake.write_dataset({"money": [1, 2], "n": [3, 4]}, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    path = tmp_path / dataset.files()[0].path
    path.write_bytes(path.read_bytes().replace(b"money", b"Money"))
    for predicates in (None, "money = 1", "n = 3"):
        with pytest.raises(lake.CorruptDatasetError, match="'money' 'Money'"):
            dataset.scan(predicates).to_table()


def test_a_page_that_a_damaged_header_hides_is_missed(tmp_path: Path) -> None:
    """PyArrow skips pages of other types. No checksum covers the type."""
    lake.write_dataset({"n": list(range(1000))}, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    path = tmp_path / dataset.files()[0].path
    whole = path.read_bytes()
    assert whole[4:6] == b"\x15\x00"  # the first page is a data page
    path.write_bytes(whole[:5] + b"\x02" + whole[6:])  # an index page
    for predicates in (None, "n = 5", "n <> 5"):
        with pytest.raises(lake.CorruptDatasetError, match="rows, and its footer says 1000"):
            dataset.scan(predicates).to_table()


def test_a_footer_with_other_types_is_refused(tmp_path: Path) -> None:
    """One bit made microseconds nanoseconds, and 2020 became 1970 without an error."""
    inner = pa.struct({"at": pa.timestamp("us"), "big": pa.decimal128(9, 2)})
    rows = pa.table(
        {
            "at": pa.array([10**15, None], pa.timestamp("us")),
            "n": pa.array([7, 9], pa.int16()),
            "inside": pa.array([{"at": 10**15, "big": 4}, None], inner),
            "times": pa.array([[1, 2], []], pa.list_(pa.time64("us"))),
        }
    )
    lake.write_dataset(rows, tmp_path, compression="none")
    dataset = lake.open_dataset(tmp_path)
    path = tmp_path / dataset.files()[0].path
    whole = path.read_bytes()
    written = pq.read_schema(path)
    refused = set()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for at in range(start, start + 400):  # the schema comes first
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            try:
                found = pq.read_schema(pa.BufferReader(changed))
            except (OSError, ValueError, pa.ArrowException):
                continue
            other = [n for n in written.names if n in found.names]
            other = [n for n in other if found.field(n).type != written.field(n).type]
            if other:
                path.write_bytes(changed)
                try:  # elements of lists may have other names
                    assert dataset.scan().to_table().equals(rows), (at, bit, other)
                except lake.PlakeError:
                    refused.update(other)
    assert refused == {*rows.column_names}
