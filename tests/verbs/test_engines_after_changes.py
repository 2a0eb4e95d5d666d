"""Engines give the rows that plake reads after every kind of change, not of fresh tables only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from tests.verbs.test_engine_files import ENGINES, check, rows

pytestmark = [pytest.mark.slow, pytest.mark.sampled(4)]


def table(start: int, count: int = 6) -> pa.Table:
    number = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(number, pa.int32()),
            "s": [None if n % 4 == 3 else f"t{n}" for n in number],
            "f": pa.array([n / 2 for n in number], pa.float32()),
            "k": pa.array([n % 2 for n in number], pa.int64()),
        }
    )


def appended(dataset: lake.Dataset) -> None:
    lake.write_dataset(table(100), dataset.uri, schema_merge=True)


def updated(dataset: lake.Dataset) -> None:
    dataset.update({"f": "f + 1"}, "id = 2")


def merged(dataset: lake.Dataset) -> None:
    source = pa.concat_tables([table(2, 1), table(50, 2)])
    dataset.upsert(source, on="id")


def rewritten(dataset: lake.Dataset) -> None:
    dataset.delete("id IN (0, 2, 4)")
    dataset.compact()


def restored(dataset: lake.Dataset) -> None:
    dataset.delete("id > 2")
    appended(dataset)
    dataset.restore(2)


def replaced_where(dataset: lake.Dataset) -> None:
    lake.write_dataset(table(3, 1), dataset.uri, mode="overwrite", overwrite_where="id = 3")


def file_added(dataset: lake.Dataset) -> None:
    folder = Path(dataset.uri.removeprefix("file://")).parent
    rows = table(70).drop_columns(["k"]) if dataset.partition_by else table(70)
    place = folder / "more" / "k=7" if dataset.partition_by else folder / "more"
    place.mkdir(parents=True)
    pq.write_table(
        rows.cast(pa.schema([(f.name, f.type) for f in rows.schema])), place / "a.parquet"
    )
    dataset.add_files(folder / "more", copy=True)


CHANGES: dict[str, Callable[[lake.Dataset], object]] = {
    "append": appended,
    "delete": lambda dataset: dataset.delete("id = 4"),
    "update": updated,
    "merge": merged,
    "compact": lambda dataset: dataset.compact(),
    "rewrite": rewritten,
    "add column": lambda dataset: dataset.add_column("late", pa.int64()),
    "add column with default": lambda dataset: dataset.add_column("late", pa.int64(), default=7),
    "rename column": lambda dataset: dataset.rename_column("s", "S t"),
    "drop column": lambda dataset: dataset.drop_column("s"),
    "promote column": lambda dataset: dataset.promote_column("id", pa.int64()),
    "restore": restored,
    "overwrite where": replaced_where,
    "add files": file_added,
}


@pytest.mark.parametrize("partition_by", [None, "k"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_engine_after_every_change(
    tmp_path: Path, change: str, partition_by: str | None
) -> None:
    uri = str(tmp_path / "d")
    lake.write_dataset(table(0), uri, partition_by=partition_by)
    lake.write_dataset(table(10), uri)
    CHANGES[change](lake.open_dataset(uri))
    _check_all(uri)
    # Files with moved rows beside files without them.
    for more in (updated, appended):
        more(lake.open_dataset(uri))
        _check_all(uri)


def _check_all(uri: str) -> None:
    dataset = lake.open_dataset(uri)
    for condition, columns in ((None, None), ("id > 2", ["id"]), ("f < 4", None)):
        scan = dataset.scan(condition, columns)
        for name, read_in in ENGINES.items():
            try:
                check(read_in, scan)
            except Exception as error:
                raise AssertionError(f"{name}: where {condition}, columns {columns}") from error
    scan = dataset.scan()
    assert rows(scan.to_dataset().to_table()) == rows(scan.to_table())


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize(
    "name", ["a\nb", "a\rb", "a\tb", "a\x7fb", "a\u2028b", "a b'\"c;--", "é*?[]{}%#"]
)
def test_every_engine_reads_folders_with_odd_names(tmp_path: Path, name: str, engine: str) -> None:
    """A line break in the path was an error of DataFusion's parser."""
    lake.write_dataset(table(0), tmp_path / name)
    lake.write_dataset(table(10), tmp_path / name)
    check(ENGINES[engine], lake.open_dataset(tmp_path / name).scan())


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("condition", [None, "id >= 3"])
def test_a_frame_whose_files_were_vacuumed_is_no_smaller_table(
    tmp_path: Path, lost: int, condition: str | None
) -> None:
    """DataFusion took a file that is gone for an empty one, and answered the rows of the others."""
    for start in (0, 6):
        lake.write_dataset(table(start), tmp_path)
    scan, context = lake.open_dataset(tmp_path).scan(condition), datafusion.SessionContext()
    scan.to_datafusion(context, "t")
    with duckdb.connect() as connection:
        frames: list[Callable[[], object]] = [
            scan.to_duckdb(connection).fetchall,
            scan.to_polars().collect,
            *(
                context.sql(f"SELECT {query}").collect
                for query in (
                    "* FROM t", "count(*) FROM t", "s FROM t WHERE id = 8", "id FROM t WHERE f < 0",
                    "max(id) FROM t GROUP BY k", "* FROM t ORDER BY id DESC LIMIT 12",
                    "a.id FROM t a LEFT JOIN t b ON a.id = b.id", "id FROM t UNION SELECT 1",
                )
            ),
        ]  # fmt: skip
        for path in sorted(tmp_path.glob("*.parquet"))[-lost:]:
            path.unlink()
        for query in frames:
            with pytest.raises(Exception, match=r"missing|No such file|No files found"):
                query()
