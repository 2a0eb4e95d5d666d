"""One contract for every kind of store, against real servers: S3, GCS, Azure, fsspec, a disk."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import InvalidOptionError, StorageError
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.storage import Storage, StorageLocation
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.options import WriteOptions
from tests.edges.object_stores import STORES, ObjectStore, account_signature

pytestmark = [pytest.mark.slow, pytest.mark.sampled(2)]

ODD_NAMES = ("a b/c d.parquet", "ü/é ñ 日本.parquet", "k=%20/100%.parquet", "k=1+2/x?y#z&.parquet")
# Folders as a path has them. URIs of object stores are percent-encoded.
ODD_FOLDER = "a b/ü 100%25 x+y/d"


@pytest.fixture(scope="module", params=list(STORES))
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as patch:
        # Whatever this machine has must play no part.
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        patch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        with STORES[request.param](tmp_path_factory.mktemp(request.param)) as opened:
            yield opened


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    return "".join(char if char.isalnum() else "-" for char in request.node.name)


@pytest.fixture
def location(store: ObjectStore, folder: str) -> StorageLocation:
    return StorageLocation.of(f"{store.base}/{folder}/things", store.options)


@pytest.fixture
def storage(location: StorageLocation) -> Storage:
    return Storage(location)


@pytest.fixture
def reach(store: ObjectStore, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The keywords that lead to a dataset in the store."""
    with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as catalog:
        yield {"catalog": catalog, "storage_options": store.options or None}


def put(storage: Storage, name: str, content: bytes) -> None:
    with storage.open_output(name) as stream:
        stream.write(content)


def table(*ids: int) -> pa.Table:
    keys = ["a b", "ü%/=", None]
    return pa.table({"id": pa.array(ids, pa.int64()), "k": [keys[n % 3] for n in ids]})


def ids_of(found: Any) -> list[int]:
    return sorted(found["id"].to_pylist())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["f.parquet", "k=1/f.parquet", *ODD_NAMES])
def test_a_file_is_written_read_listed_and_deleted(
    store: ObjectStore, storage: Storage, folder: str, name: str
) -> None:
    content = bytes(range(256)) * 40
    assert storage.size(name) is None
    put(storage, name, content)
    assert storage.size(name) == len(content)
    with storage.open_input(name) as file:
        assert file.size() == len(content)
        file.seek(250)
        assert file.read(10) == content[250:260]
    assert [(f.path, f.size_bytes) for f in storage.files()] == [(name, len(content))]
    assert store.objects(f"{folder}/things") == {name: len(content)}
    storage.sync_file(name)
    storage.sync_folders([name])
    assert storage.delete(name) is True
    assert storage.size(name) is None
    assert list(storage.files()) == []
    assert store.objects(f"{folder}/things") == {}


def test_a_file_that_is_not_there(storage: Storage) -> None:
    put(storage, "there.parquet", b"abc")
    for name in ("none.parquet", "none/none.parquet", "there.parquet.not"):
        assert storage.size(name) is None
        assert storage.delete(name) is False
        with pytest.raises(StorageError, match=r"none|\.not") as caught:
            storage.open_input(name)
        assert "the file is missing" in caught.value.reason
        assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_a_folder_without_files_lists_nothing(storage: Storage) -> None:
    assert list(storage.files()) == []
    put(storage, "_plake/catalog.db", b"abc")
    assert list(storage.files()) == []


def test_only_what_is_below_the_folder_is_listed(
    storage: Storage, location: StorageLocation
) -> None:
    other = Storage(location.sibling(location.given + "-2"))
    put(other, "f.parquet", b"abc")
    put(storage, "f.parquet", b"abcd")
    assert [(f.path, f.size_bytes) for f in storage.files()] == [("f.parquet", 4)]
    assert storage.delete("f.parquet")
    assert list(storage.files()) == []
    assert other.size("f.parquet") == 3


def test_a_folder_with_an_odd_name(store: ObjectStore) -> None:
    literal = store.name == "memory"  # the drivers of fsspec take paths as they are
    path = ODD_FOLDER if literal or store.name == "local" else quote(ODD_FOLDER)
    storage = Storage(StorageLocation.of(f"{store.base}/{path}", store.options))
    put(storage, "f.parquet", b"abc")
    assert store.objects(ODD_FOLDER) == {"f.parquet": 3}
    again = Storage(StorageLocation.of(storage.uri, store.options))
    assert again.uri == storage.uri
    assert [(f.path, f.size_bytes) for f in again.files()] == [("f.parquet", 3)]


def test_a_storage_is_the_same_in_another_process(storage: Storage) -> None:
    put(storage, "f.parquet", b"abc")
    there = pickle.loads(pickle.dumps(storage))
    assert there.uri == storage.uri
    assert there.size("f.parquet") == 3


def test_a_dataset_lives_in_the_store(
    store: ObjectStore, location: StorageLocation, folder: str, reach: dict[str, Any]
) -> None:
    uri = location.given
    lake.write_dataset(table(0, 1, 2), uri, partition_by="k", **reach)
    lake.write_dataset(table(3, 4), uri, **reach)
    lake.write_dataset(table(1), uri, mode="overwrite", overwrite_where="id IN (1, 4)", **reach)
    lake.write_dataset(table(9), uri, mode="overwrite", **reach)
    contents = [ids_of(lake.read_dataset(uri, version=v, **reach)) for v in range(1, 5)]
    assert contents == [[0, 1, 2], [0, 1, 2, 3, 4], [0, 1, 2, 3], [9]]
    dataset = lake.open_dataset(uri, **reach)
    assert ids_of(dataset.scan("k = 'ü%/='", version=2).to_table()) == [1, 4]
    assert ids_of(dataset.scan("k IS NULL", version=2).to_dataset().to_table()) == [2]
    dataset.restore(2)
    stored = store.objects(f"{folder}/things")
    for version in range(1, 6):
        for file in dataset.files(version):
            assert stored[file.path] == file.size_bytes
    assert dataset.verify(checksums=True).ok
    lake.write_dataset(table(7), uri, mode="overwrite", **reach)
    dataset.refresh().expire_versions(keep_last=1)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True)
    now = store.objects(f"{folder}/things")
    assert {name for name in now if not name.startswith("_plake/")} == {
        file.path for file in dataset.files()
    }
    assert ids_of(lake.read_dataset(uri, **reach)) == [7]


def test_files_of_others_are_added_where_they_stand_and_copied(
    store: ObjectStore, location: StorageLocation, folder: str, reach: dict[str, Any]
) -> None:
    def put_parquet(path: str, number: int) -> None:
        where = f"{store.root}/{folder}/{path}"
        if store.name == "local":
            Path(where).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [number]}), where, filesystem=store.client)

    put_parquet("things/k=a b/part 0.parquet", 1)
    put_parquet("things/k=c/x.parquet", 2)
    dataset = lake.convert(location.given, **reach)
    assert dataset.scan().to_table().sort_by("id").to_pydict() == {"id": [1, 2], "k": ["a b", "c"]}
    put_parquet("things/k=c/more.parquet", 3)
    dataset.add_files(f"{location.given}/k=c/more.parquet")
    put_parquet("elsewhere/k=d/y.parquet", 4)
    elsewhere = f"{store.base}/{folder}/elsewhere"
    with pytest.raises(InvalidOptionError, match="copy=True"):
        dataset.add_files(elsewhere)
    dataset.add_files(elsewhere, copy=True)
    dataset.add_files(f"{elsewhere}/k=d/y.parquet", copy=True)
    found = dataset.scan().to_table().sort_by("id").to_pydict()
    assert found == {"id": [1, 2, 3, 4, 4], "k": ["a b", "c", "c", "d", "d"]}


@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_a_file_changed_before_the_commit_is_named(
    store: ObjectStore, location: StorageLocation, folder: str, reach: dict[str, Any], damage: str
) -> None:
    lake.write_dataset(table(1), location.given, **reach)
    catalog = reach["catalog"]
    address = Address(location.given, catalog, store.options)
    staged = begin(catalog, address, table(2).schema, WriteOptions())
    (file,) = write_files(staged.spec, table(2, 3).to_batches())
    path = f"{store.root}/{folder}/things/{file.path}"
    if damage == "deleted":
        store.client.delete_file(path)
    else:
        with store.client.open_output_stream(path) as stream:
            stream.write(b"PAR1")
    with pytest.raises(StorageError, match="Nothing was committed") as caught:
        commit(catalog, staged, [file])
    assert caught.value.path.endswith(file.path)
    assert abort(catalog, staged, [file])
    assert ids_of(lake.read_dataset(location.given, **reach)) == [1]


@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_a_file_changed_after_the_commit_is_named(
    store: ObjectStore, location: StorageLocation, folder: str, reach: dict[str, Any], damage: str
) -> None:
    lake.write_dataset(table(*range(100)), location.given, **reach)
    dataset = lake.open_dataset(location.given, **reach)
    (file,) = dataset.files()
    path = f"{store.root}/{folder}/things/{file.path}"
    if damage == "deleted":
        store.client.delete_file(path)
    else:
        with store.client.open_output_stream(path) as stream:
            stream.write(b"PAR1")
    with pytest.raises((StorageError, lake.CorruptDatasetError)) as caught:
        dataset.scan("id > 5").to_table()
    assert file.path in str(caught.value)
    assert not dataset.verify().ok


@pytest.mark.parametrize("option", ["account_key", "sas_token"])
def test_errors_of_azure_do_not_hold_the_credential(store: ObjectStore, option: str) -> None:
    """Azure's client puts the URL of a request, signature included, into its errors."""
    if store.name != "azure":
        pytest.skip("is about Azure")
    secret = {
        "account_key": "Q0FOQVJZQ0FOQVJZ",
        "sas_token": "?sv=2021-08-06&ss=b&srt=sco&sp=rwdl&se=2030-01-01T00:00:00Z&sig=CAN%2BARY%3D",
    }[option]
    options = {**store.options, option: secret}
    if option == "sas_token":
        del options["account_key"]
    storage = Storage(StorageLocation.of(f"{store.base}/secret", options))
    for act in (storage.open_input, storage.open_output, storage.size, storage.delete):
        with pytest.raises(StorageError) as caught:
            put(storage, "x", b"abc") if act == storage.open_output else act("x y.parquet")
        shown = "".join(traceback.format_exception(caught.value))
        for part in (secret, "CAN%2BARY", "CAN+ARY"):
            assert part not in shown
    with pytest.raises(StorageError) as caught:
        list(storage.files())
    assert "CAN%2BARY" not in "".join(traceback.format_exception(caught.value))


def test_reading_with_a_shared_access_signature(store: ObjectStore) -> None:
    """Such a file is read through a wrapper that masks errors: it must give the same bytes."""
    if store.name != "azure":
        pytest.skip("is about Azure")
    options = {key: value for key, value in store.options.items() if key != "account_key"}
    options["sas_token"] = account_signature()
    storage = Storage(StorageLocation.of(f"{store.base}/signed", options))
    rows = pa.table({"id": list(range(5000)), "text": ["x" * (n % 50) for n in range(5000)]})
    with storage.open_output("f.parquet") as stream:
        pq.write_table(rows, stream, row_group_size=500)
    with storage.open_input("f.parquet") as file:
        assert file.size() == storage.size("f.parquet")
        parquet = pq.ParquetFile(file, pre_buffer=True)
        assert parquet.read().equals(rows)
        assert parquet.read_row_group(3, columns=["id"])["id"].to_pylist() == list(
            range(1500, 2000)
        )


def test_rows_change_in_the_store(store: ObjectStore, folder: str, reach: dict[str, Any]) -> None:
    uri = f"{store.base}/{folder}/things"
    rows = pa.table({"id": pa.arange(0, 40_000), "v": pa.repeat(0, 40_000)})
    lake.write_dataset(rows, uri, **reach)
    dataset = lake.open_dataset(uri, **reach)
    # The vector is too large for the catalog: readers fetch it from the store.
    assert dataset.delete("id % 7 = 3").vectors_written == 1
    assert dataset.update({"v": "id"}, "id < 5").rows_updated == 4
    assert dataset.upsert({"id": [6, 50_000], "v": [1, 1]}, on="id").rows_inserted == 1
    expected = {n: n if n < 5 else 0 for n in range(40_000) if n % 7 != 3} | {6: 1, 50_000: 1}
    table = dataset.scan().to_table()
    assert dict(zip(table["id"].to_pylist(), table["v"].to_pylist())) == expected
    assert dataset.scan().count_rows() == table.num_rows == len(expected)
    assert dataset.scan("id IN (3, 4, 10)").count_rows() == 1
    assert dataset.verify(checksums=True).ok
    assert sum(name.endswith(".puffin") for name in store.objects(f"{folder}/things")) == 3
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0)
    assert sum(name.endswith(".puffin") for name in store.objects(f"{folder}/things")) == 1
    assert dataset.scan().count_rows() == len(expected)
