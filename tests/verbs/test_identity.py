"""Identity columns: numbers of the catalog, unique whoever writes meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import CommitConflictError, SchemaMismatchError
from lakehouse_source.generated import Numbers, lanes
from lakehouse_source.read.snapshot import open_snapshot
from lakehouse_source.schema.defaults import computed_columns
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.rows import stage, write_options
from tests import processes
from tests.verbs.conftest import EVERY_KIND, catalog_of

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})
every_catalog = catalog_of(*EVERY_KIND)


def made(url: str, folder: Path, **how: Any) -> lake.Dataset:
    with lake.open_catalog(url) as catalog:
        uri = catalog.create_dataset(
            "t", SCHEMA, location=folder / "t", generated={"id": lake.Identity(**how)}, replace=True
        ).uri
    return lake.open_dataset(uri, catalog=url)


def ids(dataset: lake.Dataset) -> list[int | None]:
    return dataset.refresh().scan().to_table()["id"].to_pylist()


def append(dataset: lake.Dataset, count: int = 2, **further: Any) -> None:
    lake.write_dataset(
        {"v": list(range(count))}, dataset.uri, catalog=dataset._address.catalog, **further
    )


@pytest.fixture
def dataset(tmp_path: Path) -> lake.Dataset:
    return made(f"sqlite://{tmp_path}/catalog.db", tmp_path)


def _write(url: str, uri: str, writes: int) -> None:
    dataset = lake.open_dataset(uri, catalog=url)
    for number in range(writes):
        while True:
            try:
                if number % 3 == 2:
                    dataset.refresh().merge(
                        pa.table({"v": [-1, -2]}), "target.v = source.v + 1000"
                    ).when_not_matched_insert_all().execute()
                else:
                    lake.write_dataset({"v": [1, 2, 3]}, uri, catalog=url)
                break
            except CommitConflictError:
                continue


def test_processes_that_write_at_one_time_get_numbers_of_their_own(
    catalog: lake.Catalog, tmp_path: Path
) -> None:
    dataset = made(catalog.url, tmp_path)
    running = [processes.start(_write, catalog.url, dataset.uri, 6) for _ in range(4)]
    for process in running:
        process.join(90)
        assert process.exitcode == 0
    found = ids(dataset)
    assert len(found) == 4 * (4 * 3 + 2 * 2) == len(set(found))
    assert None not in found


def test_writes_that_cross_give_their_numbers_back(
    every_catalog: lake.Catalog, tmp_path: Path
) -> None:
    dataset = made(every_catalog.url, tmp_path, start=10, step=5)
    append(dataset)
    with dataset._address.open() as catalog:
        rows = pa.table({"v": [7, 8, 9]})
        begun = [
            stage(catalog, dataset._address, rows.to_reader(), write_options()) for _ in range(3)
        ]
        for staged, files in (begun[2], begun[0]):
            commit(catalog, staged, files)
        abort(catalog, *begun[1])
    size = lanes(lake.Identity(start=10, step=5))[0]
    first = [10, 15, 20, 25, 30]
    assert sorted(ids(dataset)) == [*first, *(10 + 5 * (2 * size + n) for n in range(3))]
    append(dataset)  # the first lane again, from where it was left
    append(dataset)
    assert sorted(ids(dataset))[5:9] == [35, 40, 45, 50]


def test_a_write_whose_numbers_another_one_got_does_not_commit(dataset: lake.Dataset) -> None:
    """A vacuum forgot the write, which was idle for too long; others took its numbers."""
    with dataset._address.open() as catalog:
        rows = pa.table({"v": [7]})
        late = stage(catalog, dataset._address, rows.to_reader(), write_options())
        with catalog.write() as tx:
            tx.finish_pending(late[0].write_id)
        append(dataset)
        with pytest.raises(CommitConflictError, match="another write got the numbers"):
            commit(catalog, *late)
    assert ids(dataset) == [1, 2]


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
def test_what_rows_bring(writer: str, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/catalog.db"
    always = made(url, tmp_path)
    rows = {"id": [None, 50, None], "v": [1, 2, 3]}
    with pytest.raises(SchemaMismatchError, match="and a row brings 50"):
        lake.write_dataset(rows, always.uri, catalog=url, writer=writer)
    lake.write_dataset({"id": [None], "v": [1]}, always.uri, catalog=url, writer=writer)
    append(always, writer=writer)
    assert ids(always) == [1, 2, 3]
    other = made(url, tmp_path, start=-1, step=-1, always=False)
    lake.write_dataset(rows, other.uri, catalog=url, writer=writer)
    append(other, writer=writer)
    assert ids(other) == [-1, 50, -2, -3, -4]


def test_statements_leave_numbers_as_they_are(dataset: lake.Dataset) -> None:
    append(dataset, 4)
    dataset.update({"v": "v + 10"}, where="v < 2")
    with pytest.raises(SchemaMismatchError, match="its numbers stay"):
        dataset.update({"id": "id + 1"})
    source = pa.table({"v": [10, 99]})
    merge = dataset.refresh().merge(source, "target.v = source.v")
    merge.when_matched_update({"v": "-5"}).when_not_matched_insert_all().execute()
    with pytest.raises(SchemaMismatchError, match="and a row brings 3"):
        dataset.merge(
            pa.table({"id": [3], "v": [3]}), "false"
        ).when_not_matched_insert_all().execute()
    dataset.refresh().compact()
    lake.write_dataset(
        {"v": [2]}, dataset.uri, catalog=dataset._address.catalog, mode="overwrite",
        overwrite_where="v = 2",
    )  # fmt: skip
    found = {row["id"]: row["v"] for row in dataset.refresh().scan().to_table().to_pylist()}
    assert found == {1: -5, 2: 11, 4: 3, 5: 99, 6: 2}


def test_branches_clones_and_versions_count_on(dataset: lake.Dataset, tmp_path: Path) -> None:
    append(dataset)
    branch, clone = dataset.refresh().branch("b"), dataset.clone(tmp_path / "clone")
    for one in (branch, dataset, clone, branch):
        append(one)
    assert (ids(branch)[2:], ids(dataset)[2:], ids(clone)[2:]) == ([3, 4, 9, 10], [5, 6], [7, 8])
    dataset.restore(2)
    append(dataset)
    assert ids(dataset) == [1, 2, 11, 12]


def test_a_schema_of_another_dataset_takes_none_of_its_numbers(
    dataset: lake.Dataset, tmp_path: Path
) -> None:
    with dataset._address.open() as opened, opened.read() as reader:
        schema = open_snapshot(reader, dataset._address.key, dataset.uri, "").schema
    assert isinstance(computed_columns(schema)["id"], lake.Identity)
    with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog:
        other = catalog.create_dataset("other", schema, location=tmp_path / "other")
        lake.write_dataset(pa.table({"v": [1]}), other.uri, catalog=catalog)
        mine = lake.open_dataset(other.uri, catalog=catalog)
        append(mine)
        assert ids(mine) == [1, 2, 3]
    append(dataset)
    assert ids(dataset) == [1, 2]


def test_what_is_refused(dataset: lake.Dataset, tmp_path: Path) -> None:
    with lake.open_catalog(f"sqlite://{tmp_path}/other.db") as catalog:
        for type_ in (pa.int32(), pa.string()):
            with pytest.raises(SchemaMismatchError, match="BIGINT"):
                catalog.create_dataset(
                    "u",
                    pa.schema({"id": type_}),
                    location=tmp_path / "u",
                    generated={"id": lake.Identity()},
                )
        with pytest.raises(SchemaMismatchError, match="Leave sequence out"):
            catalog.create_dataset(
                "u", SCHEMA, location=tmp_path / "u", generated={"id": lake.Identity(sequence="s")}
            )
    for wrong in ({"step": 0}, {"start": 1 << 63}, {"start": True}, {"always": 1}):
        with pytest.raises((ValueError, TypeError)):
            lake.Identity(**wrong)  # type: ignore[arg-type]
    with pytest.raises(SchemaMismatchError, match="its type stays"):
        dataset.promote_column("id", pa.decimal128(20, 0))
    folder = tmp_path / "files"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1], "v": [1]}), folder / "1.parquet")
    with pytest.raises(SchemaMismatchError, match="files of others have no numbers"):
        dataset.add_files(folder, copy=True)
    dataset.rename_column("id", "key")
    append(dataset)
    assert dataset.refresh().scan().to_table()["key"].to_pylist() == [1, 2]


def test_the_numbers_of_64_bits_end(tmp_path: Path) -> None:
    dataset = made(f"sqlite://{tmp_path}/catalog.db", tmp_path, start=(1 << 63) - 4)
    append(dataset, 1)
    with pytest.raises(SchemaMismatchError, match="has no more numbers"):
        append(dataset, 2)
    for _ in range(3):
        append(dataset, 1)
    assert sorted(ids(dataset)) == [(1 << 63) - 4 + n for n in range(4)]
    with pytest.raises(SchemaMismatchError, match="were given out"):
        append(dataset, 1)


def test_tasks_of_spark_have_numbers_of_their_own() -> None:
    """The million first rows of a task are one block; then come those of other tasks."""
    how = lake.Identity()
    size, _ = lanes(how)
    seen: dict[int, int] = {}
    for task in (0, 1, 2, 65_535):
        one = Numbers("id", how, 0, 40, size, task)
        for taken in (0, 10, (1 << 20) - 3, 3 << 20, (1 << 27) - 6):
            for value in one.values(taken, 6).to_pylist():
                assert 41 <= value <= size
                assert seen.setdefault(value, task) == task
    with pytest.raises(SchemaMismatchError, match="no more numbers for task 65536"):
        Numbers("id", how, 0, 0, size, 65_536).values(0, 1)
    with pytest.raises(SchemaMismatchError, match="no more numbers for task 5"):
        Numbers("id", how, 0, 0, size, 5).values(1 << 28, 1)
