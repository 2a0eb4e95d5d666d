"""A damaged data file: `verify(checksums=True)` reports it, or the rows are those written.

`integration/damage.py` does the same with a thousand damages.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse_source as lake
from integration import damage


@pytest.mark.slow
def test_no_damage_gives_other_rows_silently(tmp_path: Path) -> None:
    found = damage.run(range(5000, 5100), tmp_path)
    assert len(found) == 100
    assert {number: what for number, what in found.items() if what in damage.WRONG} == {}
    assert {damage.REPORTED, damage.EQUAL} <= set(found.values())


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
