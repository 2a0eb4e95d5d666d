"""Small files of the same columns: read at one go, with the rows and the errors of any file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet import reader
from lakehouse_source.parquet.alike import AlikeFiles
from lakehouse_source.storage import Storage

COUNT = 12


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that are read in the ordinary way."""
    found: list[str] = []
    read = reader._FileReader.tables

    def tables(self: Any) -> Any:
        found.append(self.task.path)
        return read(self)

    monkeypatch.setattr(reader._FileReader, "tables", tables)
    return found


def rows(number: int, **more: Any) -> pa.Table:
    columns = {
        "n": pa.array([number, None, -number], pa.int32()),
        "text": [f"t{number}", None, ""],
        "x": [number / 7, float("nan"), None],
        "part": [number % 2] * 3,
    }
    return pa.table({**columns, **more})


def files_of(dataset: lake.Dataset) -> list[Path]:
    folder = Path(dataset.uri.removeprefix("file://"))
    return [folder / file.path for file in dataset.refresh().files()]


def values(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_files_like_the_first_are_read_at_one_go(tmp_path: Path, ordinary: list[str]) -> None:
    parts = [rows(number) for number in range(COUNT)]
    for part in parts:
        lake.write_dataset(part, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    for columns in (None, ["text"], ["x", "n"], ["part", "text", "n", "x"]):
        ordinary.clear()
        wanted = pa.concat_tables(parts).select(columns or parts[0].column_names)
        assert values(dataset.scan(columns=columns).to_table()) == values(wanted)
        assert len(set(ordinary)) == 1
    told = dataset.changes(1).to_table()
    assert values(told.select(parts[0].column_names)) == values(pa.concat_tables(parts))
    of_version = [number for number in range(1, COUNT + 1) for _ in range(3)]
    assert told["_commit_version"].to_pylist() == of_version
    assert set(told["_change_type"].to_pylist()) == {"insert"}


def test_files_of_other_schemas_and_with_deleted_rows_are_read_as_they_are(
    tmp_path: Path, ordinary: list[str]
) -> None:
    names = ["n", "text", "words", "part"]
    expected: list[dict[str, Any]] = []

    def append(numbers: range, names: list[str], **more: pa.Array) -> None:
        for number in numbers:
            part = rows(number, words=["a", "b", None]).select(["n", "text", "words", "part"])
            part = pa.table({**dict(zip(names, part.columns)), **more})
            lake.write_dataset(part, tmp_path, schema_merge=True)
            expected.extend(part.to_pylist())

    append(range(COUNT), names)
    dataset = lake.open_dataset(tmp_path)
    dataset.promote_column("n", pa.int64())
    append(range(COUNT, 2 * COUNT), names)
    dataset.refresh().rename_column("text", "other")
    dataset.refresh().rename_column("words", "text")
    dataset.refresh().rename_column("other", "words")
    expected = [{**one, "text": one["words"], "words": one["text"]} for one in expected]
    append(range(2 * COUNT, 3 * COUNT), ["n", "words", "text", "part"], more=pa.array([1, 2, 3]))
    lake.open_dataset(tmp_path).delete("n % 5 = 0")
    wanted = [{"more": None, **one} for one in expected if one["n"] is None or one["n"] % 5]
    ordinary.clear()
    found = lake.open_dataset(tmp_path).scan().to_table().to_pylist()
    assert sorted(repr(sorted(one.items())) for one in found) == sorted(
        repr(sorted(one.items())) for one in wanted
    )
    assert 0 < len(set(ordinary)) < 3 * COUNT


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def gone(path: Path) -> None:
    path.unlink()


def longer(path: Path) -> None:
    path.write_bytes(b"\0" + path.read_bytes())


def other_name(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"text", b"test"))


def hidden_page(path: Path) -> None:
    whole = path.read_bytes()
    assert whole[4:6] == b"\x15\x00"
    path.write_bytes(whole[:5] + b"\x02" + whole[6:])


def no_footer(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-8] + b"\xff\xff\xff\x7f" + whole[-4:])


@pytest.mark.parametrize("damage", [cut, gone, longer, other_name, hidden_page, no_footer])
def test_a_damaged_file_among_alike_ones_is_named(
    tmp_path: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(COUNT):
        lake.write_dataset(rows(number), tmp_path)
    dataset = lake.open_dataset(tmp_path)
    path = files_of(dataset)[COUNT // 2]
    damage(path)
    for columns in (None, ["n"])[: 1 if damage is other_name else 2]:
        with pytest.raises(lake.PlakeError, match=path.name) as among:
            dataset.scan(columns=columns).to_table()
        with monkeypatch.context() as patched:
            patched.setattr(AlikeFiles, "read", lambda self, task, storage: None)
            with pytest.raises(lake.PlakeError) as ordinary:
                dataset.scan(columns=columns).to_table()
        assert type(among.value) is type(ordinary.value)
        assert str(among.value) == str(ordinary.value)


@pytest.mark.parametrize("count", [2, 4])
def test_another_file_in_its_place_is_refused(tmp_path: Path, count: int) -> None:
    """Its size and its columns are those of the file; of 4 rows, 3 are in a row group."""
    for number in range(COUNT):
        lake.write_dataset({"n": [number] * 3, "text": ["long" * 100, None, ""]}, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    path = files_of(dataset)[5]
    size = path.stat().st_size
    lake.write_dataset({"n": [1] * count, "text": ["a"] * count}, tmp_path, row_group_rows=3)
    other = files_of(dataset)[-1].read_bytes()
    footer = int.from_bytes(other[-8:-4], "little") + 8
    path.write_bytes(other[:-footer] + bytes(size - len(other)) + other[-footer:])
    with pytest.raises(lake.CorruptDatasetError, match=f"its footer says {count} rows, not 3"):
        dataset.scan().to_table()


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    for number in range(COUNT):
        lake.write_dataset({"n": [number] * 3}, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    path = files_of(dataset)[5]
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    for size in (len(whole) + 1, len(whole) + 100):
        path.write_bytes(whole[:-footer] + bytes(size - len(whole)) + whole[-footer:])
        with pytest.raises(lake.CorruptDatasetError, match=f"has {size} bytes, not {len(whole)}"):
            dataset.scan().to_table()


def test_files_with_vectors_and_of_a_condition_give_the_rows_that_are_left(tmp_path: Path) -> None:
    for number in range(COUNT):
        lake.write_dataset({"n": range(40 * number, 40 * number + 40)}, tmp_path)
    dataset = lake.open_dataset(tmp_path)
    dataset.delete("n % 40 = 7 AND n > 100 AND n < 200")
    kept = [n for n in range(40 * COUNT) if n % 40 != 7 or not 100 < n < 200]
    assert len(dataset.refresh().files()) == COUNT
    assert dataset.scan().to_table()["n"].to_pylist() == kept
    for condition in ("n >= 50 AND n < 333", "n < 333"):
        found = dataset.scan(condition).to_table()["n"].to_pylist()
        assert found == [n for n in kept if n < 333 and (n >= 50 or ">" not in condition)]


def test_a_null_where_none_is_allowed_is_refused(tmp_path: Path) -> None:
    for number in (1, 2, None):
        lake.write_dataset(pa.table({"n": pa.array([number, 7], pa.int64())}), tmp_path)
    plan = lake.open_dataset(tmp_path).scan().plan()
    fields = [field.with_nullable(False) for field in plan.spec.schema]
    spec = replace(plan.spec, schema=pa.schema(fields))
    found = reader.read_all(spec, plan.tasks, Storage(spec.uri))
    assert [next(found)["n"].to_pylist() for _ in range(2)] == [[1, 7], [2, 7]]
    with pytest.raises(lake.SchemaMismatchError, match=r"'n'.* NULL"):
        next(found)
