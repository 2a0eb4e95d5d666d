"""Full or read-only disks and missing files: the error names the file; nothing is committed."""

from __future__ import annotations

import os
import random
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.catalog.backends.sqlite import idle_connections
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.writer import write_files
from lakehouse_source.read.address import Address
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort, commit
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from tests import processes
from tests.verbs import writers

pytestmark = [pytest.mark.slow, pytest.mark.one_catalog]

SMALL = pa.table({"n": [1, 2, 3]})
SIZE_BYTES = 1024 * 1024


def large() -> pa.Table:
    """Twice as many bytes as the small disk holds, which no codec compresses."""
    noise = random.Random(1)
    return pa.table(
        {"n": range(64), "noise": [noise.randbytes(SIZE_BYTES // 32) for _ in range(64)]}
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = f"mode=700,size={SIZE_BYTES}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(disk: Path, how: str) -> None:
    # The file of an idle connection is open for writing, so that its disk would be busy.
    idle_connections.close_all()
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def parquet_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


class TestFullDisk:
    def test_a_file_that_does_not_fit(self, disk: Path, catalog: lake.Catalog) -> None:
        uri = disk / "things"
        lake.write_dataset(SMALL, uri, catalog=catalog)
        for mode in ("append", "overwrite"):
            with pytest.raises(lake.StorageError, match="No space left") as caught:
                lake.write_dataset(large(), uri, catalog=catalog, mode=mode, schema_merge=True)
            assert caught.value.path.startswith(f"file://{uri}/")
            assert caught.value.path.endswith(".parquet")
        dataset = lake.open_dataset(uri, catalog=catalog)
        assert dataset.version == 1
        assert dataset.scan().to_table() == SMALL
        # The unfinished file was deleted, and so there is room again.
        assert len(parquet_files(uri)) == 1
        assert lake.write_dataset(SMALL, uri, catalog=catalog).version == 2

    def test_the_rows_to_keep_do_not_fit(self, disk: Path, catalog: lake.Catalog) -> None:
        uri = disk / "things"
        noise = random.Random(2)
        table = pa.table({"n": range(64), "noise": [noise.randbytes(12_000) for _ in range(64)]})
        lake.write_dataset(table, uri, catalog=catalog)
        with pytest.raises(lake.StorageError, match="No space left"):
            lake.write_dataset(
                table.slice(0, 1), uri, catalog=catalog, mode="overwrite", overwrite_where="n = 0"
            )
        assert lake.read_dataset(uri, catalog=catalog) == table
        assert len(parquet_files(uri)) == 1

    @pytest.mark.parametrize("beside", ["sqlite", "duckdb", "elsewhere"])
    def test_expiry_and_vacuum_free_a_full_disk(
        self, beside: str, disk: Path, catalog: lake.Catalog, tmp_path: Path
    ) -> None:
        """With the catalog on it, what expired before; with the catalog elsewhere, all."""
        url = catalog.url if beside == "elsewhere" else f"{beside}://{disk}/catalog.db"
        noise = random.Random(3)
        with lake.open_catalog(url) as opened:
            uri = disk / "things"
            for _ in range(3):
                rows = {"noise": [noise.randbytes(4096) for _ in range(10)]}
                lake.write_dataset(rows, uri, catalog=opened, mode="overwrite")
            dataset = lake.open_dataset(uri, catalog=opened)
            if beside != "elsewhere":
                dataset.expire_versions(keep_last=1)
            (disk / "filler").write_bytes(b"x" * free(disk))
            with pytest.raises(lake.PlakeError) as caught:
                lake.write_dataset(rows, uri, catalog=opened)
            assert (caught.value.later, caught.value.retryable) == (
                "the disk has free space",
                False,
            )
            if beside == "elsewhere":
                dataset.expire_versions(keep_last=1)
            dataset.vacuum(retention_seconds=0, allow_short_retention=True)
            assert free(disk) > 2 * 4096 * 10
            lake.write_dataset({"noise": [b""]}, uri, catalog=opened)
            assert dataset.refresh().scan().to_table().num_rows == 11

    def test_the_catalog_beside_the_data_is_full(self, disk: Path) -> None:
        uri = disk / "things"
        lake.write_dataset(SMALL, uri)
        filler = disk / "filler"
        filler.write_bytes(b"x" * free(disk))
        with pytest.raises(lake.CatalogUnavailableError, match="the disk is full"):
            lake.write_dataset(SMALL, uri)
        assert lake.read_dataset(uri) == SMALL
        filler.unlink()
        assert lake.write_dataset(SMALL, uri).version == 2

    def test_the_catalog_becomes_full_between_files_and_commit(self, disk: Path) -> None:
        uri = disk / "things"
        lake.write_dataset(SMALL, uri)
        with Address(uri, None).open() as catalog:
            staged, files = stage(catalog, uri)
            (disk / "filler").write_bytes(b"x" * free(disk))
            with pytest.raises(lake.CatalogUnavailableError, match="the disk is full"):
                commit(catalog, staged, files)
            # The disk has no room for the fence either: the file stays for vacuum.
            assert abort(catalog, staged, files) is False
            assert lake.read_dataset(uri, catalog=catalog).num_rows == 3
            (disk / "filler").unlink()
            assert abort(catalog, staged, files) is True
        assert len(parquet_files(uri)) == 1

    def test_a_file_larger_than_this_process_may_write(
        self, tmp_path: Path, catalog: lake.Catalog
    ) -> None:
        """Stands for the full disk where no disk can be mounted."""
        uri = str(tmp_path / "things")
        lake.write_dataset(SMALL, uri, catalog=catalog)
        ours, theirs = processes.CONTEXT.Pipe(duplex=False)
        assert processes.run(write_limited, catalog.url, uri, theirs) == 0
        error = ours.recv()
        assert isinstance(error, lake.StorageError)
        assert error.path.startswith(f"file://{uri}/")
        assert lake.open_dataset(uri, catalog=catalog).version == 1
        assert len(parquet_files(Path(uri))) == 1


def write_limited(url: str, uri: str, answers: Any) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE_BYTES, SIZE_BYTES))
    arguments = {"schema_merge": True}
    writers.write_once(url, uri, large(), arguments, None, answers)


def free(disk: Path) -> int:
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def stage(
    catalog: lake.Catalog, uri: Path, options: WriteOptions | None = None
) -> tuple[StagedWrite, list[FileMetadata]]:
    """A write whose files are written and that is not committed."""
    address = Address(uri, catalog)
    staged = begin(catalog, address, SMALL.schema, options or WriteOptions())
    return staged, write_files(staged.spec, SMALL.slice(1).to_batches())


class TestReadOnlyDisk:
    def test_nothing_can_be_written_and_everything_read(
        self, disk: Path, catalog: lake.Catalog
    ) -> None:
        uri = disk / "things"
        lake.write_dataset(SMALL, uri, catalog=catalog)
        remount(disk, "ro")
        with pytest.raises(lake.StorageError, match="Read-only file system") as caught:
            lake.write_dataset(SMALL, uri, catalog=catalog)
        assert caught.value.path.startswith(f"file://{uri}/")
        assert lake.read_dataset(uri, catalog=catalog) == SMALL
        remount(disk, "rw")
        assert lake.write_dataset(SMALL, uri, catalog=catalog).version == 2

    def test_the_catalog_beside_the_data(self, disk: Path) -> None:
        uri = disk / "things"
        lake.write_dataset(SMALL, uri)
        remount(disk, "ro")
        with pytest.raises(lake.CatalogUnavailableError, match=r"read-only|cannot be opened"):
            lake.write_dataset(SMALL, uri)
        assert lake.read_dataset(uri) == SMALL

    def test_it_becomes_read_only_before_the_commit(
        self, disk: Path, catalog: lake.Catalog
    ) -> None:
        """A commit needs only the catalog. An abort leaves the files, which cannot be deleted."""
        uri = disk / "things"
        lake.write_dataset(SMALL, uri, catalog=catalog)
        staged, files = stage(catalog, uri)
        given_up, orphans = stage(catalog, uri)
        remount(disk, "ro")
        assert commit(catalog, staged, files).version == 2
        assert abort(catalog, given_up, orphans) is True
        assert len(parquet_files(uri)) == 3
        assert lake.read_dataset(uri, catalog=catalog).num_rows == 5


class TestFilesUnderTheCatalog:
    @pytest.mark.parametrize("mode", ["append", "overwrite", "overwrite where"])
    @pytest.mark.parametrize("damage", ["deleted", "truncated", "emptied", "longer"])
    def test_a_file_changed_before_the_commit_is_named_and_nothing_committed(
        self, tmp_path: Path, catalog: lake.Catalog, damage: str, mode: str
    ) -> None:
        """A data file empty after a power loss (horaedb #394) is one of them."""
        uri = tmp_path / "things"
        lake.write_dataset(SMALL, uri, catalog=catalog)
        options = WriteOptions(mode=mode.split()[0])
        if mode == "overwrite where":
            options = WriteOptions(mode="overwrite", overwrite_where=lake.PredicateSet.of("n >= 2"))
        staged, files = stage(catalog, uri, options)
        path = uri / files[0].path
        if damage == "deleted":
            path.unlink()
        elif damage == "longer":
            with path.open("ab") as file:
                file.write(b"more")
        else:
            os.truncate(path, 0 if damage == "emptied" else path.stat().st_size - 1)
        with pytest.raises(lake.StorageError, match="Nothing was committed") as caught:
            commit(catalog, staged, files)
        assert caught.value.path == f"file://{path}"
        assert abort(catalog, staged, files)
        dataset = lake.open_dataset(uri, catalog=catalog)
        assert (dataset.version, dataset.scan().to_table()) == (1, SMALL)
        assert len(parquet_files(uri)) == 1

    @pytest.mark.parametrize("damage", ["deleted", "truncated"])
    def test_a_file_changed_after_the_commit_is_named(
        self, tmp_path: Path, catalog: lake.Catalog, damage: str
    ) -> None:
        uri = tmp_path / "things"
        result = lake.write_dataset(SMALL, uri, catalog=catalog)
        path = uri / result.metadata[0].path
        if damage == "deleted":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2)
        with pytest.raises((lake.StorageError, lake.CorruptDatasetError)) as caught:
            lake.read_dataset(uri, catalog=catalog)
        assert path.name in str(caught.value)
        # An overwrite of a condition raises the same; an overwrite of everything repairs.
        with pytest.raises((lake.StorageError, lake.CorruptDatasetError)) as caught:
            lake.write_dataset(
                SMALL.slice(0, 1), uri, catalog=catalog, mode="overwrite", overwrite_where="n = 1"
            )
        assert path.name in str(caught.value)
        assert lake.open_dataset(uri, catalog=catalog).version == 1
        lake.write_dataset(SMALL, uri, catalog=catalog, mode="overwrite")
        assert lake.read_dataset(uri, catalog=catalog) == SMALL


def test_files_and_folders_are_synced_before_the_catalog_names_them(
    tmp_path: Path, catalog: lake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """horaedb #394: a data file was empty after a power cut, and committed."""
    events: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        events.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    commit = type(catalog.database)._commit  # type: ignore[attr-defined]

    def recorded_commit(self: Any, *arguments: Any) -> None:
        events.append("COMMIT")
        commit(self, *arguments)

    monkeypatch.setattr(type(catalog.database), "_commit", recorded_commit)
    table = pa.table({"n": [1], "k": ["a"]})
    result = lake.write_dataset(table, tmp_path / "things", catalog=catalog, partition_by="k")
    file = os.path.basename(result.metadata[0].path)
    # First the folder becomes the catalog's own.
    owner = next(name for name in events if name.startswith("owner-"))
    claimed = events.index("COMMIT", len(events) - 1 - events[::-1].index(owner))
    assert set(events[:claimed]) == {"COMMIT", owner, "_plake", "things"}
    assert events[claimed:] == ["COMMIT", file, "k=a", "things", "COMMIT"]
