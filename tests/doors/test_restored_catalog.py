"""A catalog that is put back to a backup gives the numbers of lost versions to other commits.

Who read a lost version, through any door, gets an error that says so, and never another version
under its number.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.iceberg.metadata import HINT
from lakehouse_source.read.address import Address
from lakehouse_source.spark.reading.changes_read import ChangesRequest
from lakehouse_source.spark.reading.frame_options import resolve
from lakehouse_source.spark.reading.stream_read import HAS_LIMITS, PlakeStreamReader, stream_request
from lakehouse_source.spark.types import spark_schema
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import commit
from lakehouse_source.write.commit.conflicts import Change
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions

Rows = list[int]
limited = pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.1 asks a source for no limits")
BACKED_UP, LOST = 2, 4


class Restored:
    """A dataset whose catalog was backed up at version 2; version n appends `n`.

    `put_back` loses the versions 3 and 4, and commits others, which append 13, 14 and so on.
    """

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "t")
        self.catalog = folder / "t" / "_plake" / "catalog.db"
        self.backup = folder / "backup.db"

    def fill(self) -> None:
        for number in range(1, LOST + 1):
            lake.write_dataset({"id": [number]}, self.uri)
            if number == BACKED_UP:
                shutil.copy(self.catalog, self.backup)

    def put_back(self, newest: int) -> None:
        shutil.copy(self.backup, self.catalog)
        for number in range(BACKED_UP + 1, newest + 1):
            lake.write_dataset({"id": [10 + number]}, self.uri)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    Restored(folder).fill()
    return folder


@pytest.fixture
def restored(filled: Path, tmp_path: Path) -> Restored:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return Restored(tmp_path)


def new_reader(uri: str, **options: str) -> PlakeStreamReader:
    newest = lake.open_dataset(uri)._snapshot
    lowered = {"path": uri, **{name.lower(): text for name, text in options.items()}}
    request = stream_request(lowered, {}, newest.schema_version, None)
    return PlakeStreamReader(request, spark_schema(newest.schema))


def batch(reader: PlakeStreamReader, start: Any = None) -> tuple[Rows, dict[str, Any]]:
    """The rows of the next batch, and its end as a checkpoint keeps it."""
    start = reader.initialOffset() if start is None else start
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return rows(reader, start, end), json.loads(json.dumps(end))


def rows(reader: PlakeStreamReader, start: Any, end: Any) -> Rows:
    parts = reader.partitions(start, end)
    return sorted(id for one in parts for b in reader.read(one) for id in b["id"].to_pylist())


# Each door is opened at the lost version; what it gives is called after the catalog is put back.
def python_scan(uri: str) -> Callable[[], Any]:
    return lake.open_dataset(uri).scan("id > 0").to_table


def python_pickled_scan(uri: str) -> Callable[[], Any]:
    packed = pickle.dumps(lake.open_dataset(uri).scan())
    return lambda: pickle.loads(packed).count_rows()


def python_files(uri: str) -> Callable[[], Any]:
    return lake.open_dataset(uri).files


def python_inspect(uri: str) -> Callable[[], Any]:
    return lake.open_dataset(uri).inspect.files


def python_verify(uri: str) -> Callable[[], Any]:
    return lake.open_dataset(uri).verify


def python_changes(uri: str) -> Callable[[], Any]:
    return lake.open_dataset(uri).changes(1).to_table


def spark_frame(uri: str) -> Callable[[], Any]:
    request = resolve({"path": uri})[0]
    return lambda: request.opened().__enter__()


def spark_changes(uri: str) -> Callable[[], Any]:
    request = ChangesRequest.of({"path": uri, "startingversion": "1"}, {})
    return lambda: request.planned(lake.PredicateSet.of(None), request.columns)


def consumer(uri: str) -> Callable[[], Any]:
    dataset = lake.open_dataset(uri)
    return lambda: dataset.advance_consumer("billing", LOST)


DOORS = [
    python_scan, python_pickled_scan, python_files, python_inspect, python_verify, python_changes,
    spark_frame, spark_changes, consumer,
]  # fmt: skip


@pytest.mark.parametrize("newest", [BACKED_UP, LOST - 1, LOST, LOST + 2])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_pinned_version_is_never_another_one_of_the_same_number(
    restored: Restored, door: Callable[[str], Callable[[], Any]], newest: int
) -> None:
    read = door(restored.uri)
    restored.put_back(newest)
    lake.open_dataset(restored.uri).add_consumer("billing", version=0)
    with pytest.raises(lake.VersionNotFoundError, match="put back to a backup") as caught:
        read()
    assert caught.value.replaced
    if door is not consumer:
        door(restored.uri)()  # opened again, it reads what there is


def staged(uri: str, **options: Any) -> StagedWrite:
    address = Address(uri, None)
    with address.open() as catalog:
        return begin(catalog, address, pa.schema([("id", pa.int64())]), WriteOptions(**options))


@pytest.mark.parametrize("newest", [BACKED_UP, LOST - 1, LOST, LOST + 2])
@pytest.mark.parametrize(
    "options",
    [{"mode": "append"}, {"mode": "overwrite"}, {"row_change": Change.DELETE}],
    ids=["append", "overwrite", "delete"],
)
def test_a_write_that_began_on_a_lost_version_is_a_conflict(
    restored: Restored, options: dict[str, Any], newest: int
) -> None:
    begun = staged(restored.uri, **options)
    restored.put_back(newest)
    with (
        Address(restored.uri, None).open() as catalog,
        pytest.raises(lake.CommitConflictError, match="put back to a backup"),
    ):
        commit(catalog, begun, ())
    assert lake.open_dataset(restored.uri).version == newest


def test_a_write_that_began_before_the_backup_is_committed(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lake.write_dataset({"id": [1]}, uri)
    begun = staged(uri, mode="append")
    shutil.copy(tmp_path / "t/_plake/catalog.db", tmp_path / "backup.db")
    lake.write_dataset({"id": [2]}, uri)
    shutil.copy(tmp_path / "backup.db", tmp_path / "t/_plake/catalog.db")
    lake.write_dataset({"id": [3]}, uri)
    with Address(uri, None).open() as catalog:
        assert commit(catalog, begun, ()).version == 3


@limited
@pytest.mark.parametrize("newest", [BACKED_UP, LOST - 1, LOST, LOST + 2])
@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("options", [{}, {"readChangeFeed": "true"}], ids=["rows", "changes"])
def test_a_stream_says_that_rows_would_be_missed(
    restored: Restored, newest: int, restart: bool, options: dict[str, str]
) -> None:
    reader = new_reader(restored.uri, startingVersion="1", **options)
    found, end = batch(reader)
    assert found == [1, 2, 3, 4]
    restored.put_back(newest)
    if restart:
        reader = new_reader(restored.uri, startingVersion="1", **options)
    with pytest.raises(lake.StreamCheckpointError, match="startingVersion"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    with pytest.raises(lake.StreamCheckpointError, match="older state"):
        reader.partitions(end, end)


@limited
def test_a_stream_in_a_part_of_a_lost_version_or_of_a_lost_snapshot_says_so(
    restored: Restored, tmp_path: Path
) -> None:
    ends = [batch(new_reader(restored.uri, maxFilesPerTrigger="1"))[1]]
    assert ends[0]["snapshot"] == LOST
    two = pa.table({"id": [40, 41], "p": [1, 2]})
    other = str(tmp_path / "two")
    lake.write_dataset(two, other, partition_by="p")
    shutil.copy(f"{other}/_plake/catalog.db", tmp_path / "one.db")
    lake.write_dataset(two, other)
    limited = {"startingVersion": "2", "maxFilesPerTrigger": "1"}
    found, inside = batch(new_reader(other, **limited))
    assert found == [40]
    shutil.copy(tmp_path / "one.db", f"{other}/_plake/catalog.db")
    lake.write_dataset(two, other)
    restored.put_back(LOST)
    for uri, end in [(restored.uri, ends[0]), (other, inside)]:
        with pytest.raises(lake.StreamCheckpointError, match="older state"):
            batch(new_reader(uri, maxFilesPerTrigger="1"), end)


@limited
def test_a_checkpoint_that_the_backup_has_goes_on(restored: Restored) -> None:
    reader = new_reader(restored.uri, startingVersion="1", maxFilesPerTrigger="2")
    found, end = batch(reader)
    assert found == [1, 2]
    restored.put_back(LOST)
    assert batch(reader, end)[0] == [13, 14]
    assert batch(new_reader(restored.uri, maxFilesPerTrigger="9"), end)[0] == [13, 14]


@limited
def test_what_a_running_stream_looked_through_is_looked_at_again(restored: Restored) -> None:
    reader = new_reader(restored.uri, startingVersion="1", where="id < 3 OR id > 9")
    found, end = batch(reader)
    assert found == [1, 2]
    start = {**end, "version": BACKED_UP + 1, "write": None}
    again = new_reader(restored.uri, where="id < 3 OR id > 9")
    assert batch(again, start)[0] == []  # 3 and 4 are looked at, and no rows are for the stream
    restored.put_back(LOST + 1)
    assert batch(again, start)[0] == [13, 14, 15]


@limited
def test_a_checkpoint_of_an_older_release_is_read(restored: Restored) -> None:
    found, end = batch(new_reader(restored.uri, startingVersion="1"))
    assert end.pop("write")
    lake.write_dataset({"id": [5]}, restored.uri)
    reader = new_reader(restored.uri)
    more, newer = batch(reader, end)
    assert (found, more, bool(newer["write"])) == ([1, 2, 3, 4], [5], True)
    restored.put_back(LOST + 1)
    assert batch(reader, end)[0] == [15]  # it cannot know: its write is unknown


def test_the_hint_of_iceberg_does_not_stay_at_a_lost_version(restored: Restored) -> None:
    lake.open_dataset(restored.uri).export_iceberg()
    hint = Path(restored.uri) / HINT
    assert hint.read_text().startswith("00004-")
    restored.put_back(LOST - 1)
    dataset = lake.open_dataset(restored.uri)
    path = dataset.export_iceberg()
    assert Path(path).name.startswith(hint.read_text())
    described = json.loads(Path(path).read_text())
    writes = [one["summary"]["plake.write-id"] for one in described["snapshots"]]
    assert writes == [one.write_id for one in reversed(dataset.history())]
