"""Datasets in an object store: a real S3 client, a server on loopback, requests that fail."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.options import WriteOptions
from tests.edges.failing_proxy import FailingProxy
from tests.edges.object_stores import s3_server

pytestmark = pytest.mark.slow

SECRET = "canary-secret"
_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """The port of an S3 server that lives in this process."""
    with s3_server() as port, pytest.MonkeyPatch.context() as patch:
        # Whatever this machine has must play no part.
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        patch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        yield port


def address_of(port: int, path: str) -> str:
    """A URI with all that it takes to get there."""
    options = f"scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
    return f"s3://user:{SECRET}@{path}?{options}"


@pytest.fixture
def bucket(server: int) -> str:
    name = f"bucket-{next(_numbers)}"
    filesystem, _ = pafs.FileSystem.from_uri(
        address_of(server, name) + "&allow_bucket_creation=true"
    )
    filesystem.create_dir(name)
    return name


@pytest.fixture
def uri(server: int, bucket: str) -> str:
    return address_of(server, f"{bucket}/data/things")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lake.Catalog]:
    with lake.open_catalog(f"sqlite://{tmp_path}/catalog.db") as opened:
        yield opened


def table(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "k": [f"k{n % 3}" for n in ids]})


def ids(uri: str, catalog: lake.Catalog, **arguments: Any) -> list[int]:
    found: list[int] = lake.read_dataset(uri, catalog=catalog, **arguments)["id"].to_pylist()
    return sorted(found)


def objects(uri: str) -> dict[str, int]:
    """Every object of a dataset, with its size."""
    filesystem, root = pafs.FileSystem.from_uri(uri)
    selector = pafs.FileSelector(root, recursive=True, allow_not_found=True)
    return {
        info.path[len(root) + 1 :]: info.size
        for info in filesystem.get_file_info(selector)
        if info.type == pafs.FileType.File and "/_plake/owner-" not in info.path
    }


@pytest.mark.parametrize("partition_by", [None, "k"])
def test_append_overwrite_and_time_travel(
    uri: str, catalog: lake.Catalog, partition_by: str | None
) -> None:
    lake.write_dataset(table(0, 1, 2), uri, catalog=catalog, partition_by=partition_by)
    lake.write_dataset(table(3, 4), uri, catalog=catalog)
    lake.write_dataset(
        table(1), uri, catalog=catalog, mode="overwrite", overwrite_where="id IN (1, 4)"
    )
    lake.write_dataset(table(9), uri, catalog=catalog, mode="overwrite")
    contents = [ids(uri, catalog, version=version) for version in range(1, 5)]
    assert contents == [[0, 1, 2], [0, 1, 2, 3, 4], [0, 1, 2, 3], [9]]
    assert ids(uri, catalog, version=2, predicates="k = 'k1'") == [1, 4]
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.restore(2)
    assert ids(uri, catalog) == [0, 1, 2, 3, 4]
    assert dataset.scan("id > 2").explain().files_read < len(dataset.files())
    stored = objects(uri)
    for version in range(1, 6):
        for file in dataset.files(version):
            assert stored[file.path] == file.size_bytes


def test_vacuum_deletes_what_no_version_has(uri: str, catalog: lake.Catalog) -> None:
    lake.write_dataset(table(0, 1, 2), uri, catalog=catalog, partition_by="k")
    lake.write_dataset(table(3), uri, catalog=catalog, mode="overwrite")
    dataset = lake.open_dataset(uri, catalog=catalog)
    address = Address(uri, catalog)
    staged = begin(catalog, address, table(4).schema, WriteOptions())
    write_files(staged.spec, table(4, 5).to_batches())  # by a writer that dies now
    assert len(objects(uri)) == 6
    dataset.expire_versions(keep_last=1)
    dataset.vacuum(retention_seconds=0, allow_short_retention=True, abandoned_after_seconds=0)
    assert objects(uri).keys() == {file.path for file in dataset.files()}
    assert dataset.verify().ok
    assert ids(uri, catalog) == [3]


@pytest.mark.long
def test_a_vacuum_of_the_catalog_reaches_objects_by_the_environment(
    server: int, bucket: str, catalog: lake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog has URIs without keys and servers: both come from where Arrow's client looks."""
    places = [address_of(server, f"{bucket}/data/{name}") for name in ("a", "b")]
    for place in places:
        lake.write_dataset(table(0, 1), place, catalog=catalog, partition_by="k")
        lake.write_dataset(table(2), place, catalog=catalog, mode="overwrite")
        lake.open_dataset(place, catalog=catalog).expire_versions(keep_last=1)
    now: dict[str, Any] = {"retention_seconds": 0, "allow_short_retention": True}

    nobody = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_DEFAULT_REGION": ""}
    for name, value in {**nobody, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    report = lake.vacuum(catalog, **now)
    assert (len(report.reports), len(report.failed)) == (0, 2)
    assert [len(objects(place)) for place in places] == [3, 3]

    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "user")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    report = lake.vacuum(catalog, **now)
    assert (len(report.reports), len(report.failed)) == (2, 0)
    assert SECRET not in str(report)
    for place in places:
        dataset = lake.open_dataset(place, catalog=catalog)
        assert objects(place).keys() == {file.path for file in dataset.files()}
        assert ids(place, catalog) == [2]


def test_the_secret_stays_in_the_uri(uri: str, catalog: lake.Catalog) -> None:
    lake.write_dataset(table(1), uri, catalog=catalog)
    dataset = lake.open_dataset(uri, catalog=catalog)
    assert SECRET not in repr(dataset) + dataset.uri + str(dataset.scan().explain())
    wrong = uri.replace("/data/things", "/none/none").replace("bucket-", "absent-")
    with pytest.raises(lake.StorageError) as caught:
        lake.write_dataset(table(1), wrong, catalog=catalog)
    assert SECRET not in str(caught.value)
    assert SECRET.encode() not in Path(catalog.url.removeprefix("sqlite://")).read_bytes()


def test_a_write_that_raises_leaves_no_object(uri: str, catalog: lake.Catalog) -> None:
    """arrow #40502: leaving a writer by an exception published a truncated object."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table(1, 2, 3).to_batches()
        raise ZeroDivisionError("the source broke")

    reader = pa.RecordBatchReader.from_batches(table(1).schema, batches())
    with pytest.raises((ZeroDivisionError, pa.ArrowException)):
        lake.write_dataset(reader, uri, catalog=catalog, row_group_rows=1)
    assert objects(uri) == {}
    with pytest.raises(lake.DatasetNotFoundError):
        lake.open_dataset(uri, catalog=catalog)


@pytest.mark.long
def test_no_read_lists_objects(server: int, bucket: str, catalog: lake.Catalog) -> None:
    """Listing costs time and money with the size of a dataset, and misses fresh objects."""
    path = f"{bucket}/data/things"
    for number in range(3):
        rows = table(*range(number * 10, number * 10 + 10))
        lake.write_dataset(rows, address_of(server, path), catalog=catalog, partition_by="k")
    with FailingProxy(server, 0.0) as proxy:
        dataset = lake.open_dataset(address_of(proxy.port, path), catalog=catalog)
        for condition in (None, "id = 5", "k = 'k1' AND id > 7"):
            scan = dataset.scan(condition)
            expected = scan.to_table().num_rows
            assert scan.count_rows() == expected
            assert scan.to_dataset().count_rows() >= expected
            assert len(scan.to_polars().collect()) == expected
            scan.explain()
        reads = [line for line in proxy.asked if ".parquet" in line]
        assert reads
        assert [line for line in proxy.asked if line not in reads] == []
        dataset.vacuum()
        assert any("list-type=2" in line for line in proxy.asked)


def test_options_by_name_reach_the_store(
    server: int, bucket: str, catalog: lake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of PyArrow, of fsspec and of delta-rs; a value may be in the environment."""
    monkeypatch.setenv("PLAKE_STORE_SECRET", SECRET)
    place = f"http://127.0.0.1:{server}"
    spellings: list[dict[str, Any]] = [
        {"access_key": "user", "secret_key": SECRET, "endpoint_override": place},
        {"key": "user", "secret": SECRET, "endpoint_url": place},
        {
            "AWS_ACCESS_KEY_ID": "user",
            "AWS_SECRET_ACCESS_KEY": "env:PLAKE_STORE_SECRET",
            "AWS_ENDPOINT_URL": place,
            "AWS_REGION": "us-east-1",
        },
        {
            "access_key": "user",
            "secret_key": "env:PLAKE_STORE_SECRET",
            "scheme": "http",
            "endpoint_override": f"127.0.0.1:{server}",
            "request_timeout": "20",
        },
    ]
    where = f"s3://{bucket}/data/a b"
    for number, options in enumerate(spellings):
        lake.write_dataset(table(number), where, catalog=catalog, storage_options=options)
        dataset = lake.open_dataset(where, catalog=catalog, storage_options=options)
        assert sorted(dataset.scan().to_table()["id"].to_pylist()) == list(range(number + 1))
        assert SECRET not in repr(dataset) + repr(dataset.scan()) + repr(vars(dataset._address))
        with lake.transaction(catalog) as tx:
            tx.write(table(1), f"{where}/{number}", storage_options=options)
    assert SECRET.encode() not in Path(catalog.url.removeprefix("sqlite://")).read_bytes()
    report = lake.vacuum(catalog, storage_options=spellings[0])
    assert (len(report.reports), report.failed) == (1 + len(spellings), ())


@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_an_object_changed_before_the_commit_is_named(
    uri: str, catalog: lake.Catalog, damage: str
) -> None:
    lake.write_dataset(table(1), uri, catalog=catalog)
    address = Address(uri, catalog)
    staged = begin(catalog, address, table(2).schema, WriteOptions())
    files = write_files(staged.spec, table(2, 3).to_batches())
    filesystem, root = pafs.FileSystem.from_uri(uri)
    if damage == "deleted":
        filesystem.delete_file(f"{root}/{files[0].path}")
    else:
        with filesystem.open_output_stream(f"{root}/{files[0].path}") as stream:
            stream.write(b"PAR1")
    with pytest.raises(lake.StorageError, match="Nothing was committed") as caught:
        commit(catalog, staged, files)
    assert caught.value.path.endswith(files[0].path)
    assert abort(catalog, staged, files)
    assert ids(uri, catalog) == [1]
    assert len(objects(uri)) == 1


@pytest.mark.long
@pytest.mark.slow
def test_requests_that_fail_never_leave_a_version_with_a_partial_object(
    server: int, bucket: str, catalog: lake.Catalog
) -> None:
    """One request of twenty. Arrow's client repeats them, those that were carried out too."""
    path = f"{bucket}/data/things"
    direct = address_of(server, path)
    lake.write_dataset(table(0), direct, catalog=catalog)
    committed = {0}
    errors: list[lake.PlakeError] = []
    with FailingProxy(server, 0.05) as proxy:
        through = address_of(proxy.port, path)
        for number in range(1, 13):
            chosen = tuple(range(number * 10, number * 10 + 3))
            low, high = (number - 1) * 10, number * 10 + 2
            replaced: dict[str, Any] = {}
            if number % 4 == 0:
                replaced = {
                    "mode": "overwrite",
                    "overwrite_where": f"id BETWEEN {low} AND {high}",
                }
            try:
                lake.write_dataset(table(*chosen), through, catalog=catalog, **replaced)
            except lake.PlakeError as error:
                errors.append(error)
            else:
                committed = {n for n in committed if not replaced or n < low} | set(chosen)
            try:
                found = ids(through, catalog)
            except lake.PlakeError as error:
                errors.append(error)
            else:
                assert found == sorted(committed)
        assert proxy.failed > 0
    for error in errors:
        assert isinstance(error, lake.StorageError | lake.CorruptDatasetError)
        assert SECRET not in str(error)
    print(f"{proxy.requests} requests, {proxy.failed} failed, {len(errors)} calls failed")
    assert ids(direct, catalog) == sorted(committed)
    check_objects(direct, catalog)


@pytest.mark.slow
@pytest.mark.parametrize(
    "requests", [pytest.param(count, marks=pytest.mark.long) for count in (0, 1, 2)]
)
def test_a_store_that_goes_away_during_a_write(
    server: int, bucket: str, catalog: lake.Catalog, requests: int
) -> None:
    """An upload is three requests: it begins, one part, it ends."""
    path = f"{bucket}/data/things"
    direct = address_of(server, path)
    lake.write_dataset(table(0), direct, catalog=catalog)
    with FailingProxy(server, 0.0) as proxy:
        proxy.fail_after = requests
        with pytest.raises(lake.StorageError) as caught:
            lake.write_dataset(table(1), address_of(proxy.port, path), catalog=catalog)
    assert SECRET not in str(caught.value)
    assert caught.value.path.endswith(".parquet")
    assert ids(direct, catalog) == [0]
    check_objects(direct, catalog)


def check_objects(uri: str, catalog: lake.Catalog) -> None:
    """Every object that a version names is there, whole."""
    direct = uri
    dataset = lake.open_dataset(direct, catalog=catalog)
    stored = objects(direct)
    filesystem, root = pafs.FileSystem.from_uri(direct)
    for version in range(1, dataset.version + 1):
        for file in dataset.files(version):
            assert stored[file.path] == file.size_bytes
            footer = pq.read_metadata(f"{root}/{file.path}", filesystem=filesystem)
            assert footer.num_rows == file.row_count


def test_objects_that_others_wrote_are_added_where_they_stand(
    uri: str, catalog: lake.Catalog
) -> None:
    filesystem, root = pafs.FileSystem.from_uri(uri)
    for key, number in (("a b", 1), ("c", 2)):
        pq.write_table(
            pa.table({"id": [number]}), f"{root}/k={key}/part 0.parquet", filesystem=filesystem
        )
    before = objects(uri)
    dataset = lake.convert(uri, catalog=catalog)
    assert dataset.scan().to_table().sort_by("id").to_pydict() == {"id": [1, 2], "k": ["a b", "c"]}
    pq.write_table(pa.table({"id": [3]}), f"{root}/k=c/more.parquet", filesystem=filesystem)
    dataset.add_files(uri.replace("?", "/k=c/more.parquet?"))
    assert ids(uri, catalog, predicates="k = 'c'") == [2, 3]
    with pytest.raises(lake.InvalidOptionError, match="copy=True") as refused:
        dataset.add_files(uri.replace("data/things", "data/elsewhere/x.parquet"))
    assert SECRET not in str(refused.value)
    elsewhere = f"{root.removesuffix('things')}elsewhere/k=d"
    pq.write_table(pa.table({"id": [4]}), f"{elsewhere}/x.parquet", filesystem=filesystem)
    for path in ("data/elsewhere", "data/elsewhere/k=d/x.parquet"):
        dataset.add_files(uri.replace("data/things", path), copy=True)
    assert ids(uri, catalog, predicates="k = 'd'") == [4, 4]
    assert before.items() <= objects(uri).items()


@pytest.mark.long
def test_a_point_fetches_the_pages_that_may_hold_it(
    server: int, bucket: str, catalog: lake.Catalog
) -> None:
    rows = 200_000
    texts = [random.Random(n).randbytes(12).hex() for n in range(rows)]
    wide = pa.table({"id": pa.array(range(rows), pa.int64()), "a": texts, "b": texts[::-1]})
    direct = address_of(server, f"{bucket}/wide")
    lake.write_dataset(wide, direct, catalog=catalog, row_group_rows=rows)
    [file] = lake.open_dataset(direct, catalog=catalog).files()
    with FailingProxy(server, 0.0) as proxy:
        through = address_of(proxy.port, f"{bucket}/wide")
        found = lake.read_dataset(through, catalog=catalog, predicates="id = 123456")
        assert found.to_pylist() == wide.slice(123_456, 1).to_pylist()
        # Two for the size and the end of the file, one for all indexes, one for the pages of
        # the condition; those of both other columns are too far apart for one.
        assert proxy.requests <= 6
        # The end of the file, and a page of 8,192 rows of each column.
        assert proxy.answered_bytes < file.size_bytes / 10


@pytest.mark.long
def test_erased_rows_are_in_no_object(server: int, bucket: str, uri: str, tmp_path: Path) -> None:
    catalog = f"sqlite://{tmp_path}/catalog.db"
    table = pa.table({"id": [1, 2, 3, 4], "who": ["ann", "bob-the-builder", "cy", "di"]})
    lake.write_dataset(
        table, uri, catalog=catalog, partition_by="id", compression="none", rewrite_threshold=1.0
    )
    lake.write_dataset(table, uri, catalog=catalog)
    dataset = lake.open_dataset(uri, catalog=catalog)
    dataset.delete("id = 2")
    dataset.compact()
    report = dataset.erase("who = 'bob-the-builder'")
    assert report.rows == 2
    for version, left in ((1, 3), (2, 6), (3, 6)):
        assert dataset.scan(version=version).count_rows() == left
        assert sorted(set(dataset.scan(version=version).to_table()["id"].to_pylist())) == [1, 3, 4]
        assert dataset.verify(version, checksums=True).ok
    filesystem, _ = pafs.FileSystem.from_uri(address_of(server, bucket))
    found = filesystem.get_file_info(pafs.FileSelector(bucket, recursive=True))
    files = [one for one in found if one.is_file]
    assert len(files) > 6
    for one in files:
        assert b"bob-the-builder" not in filesystem.open_input_file(one.path).read()
    assert b"bob-the-builder" not in (tmp_path / "catalog.db").read_bytes()
