"""A folder that was checked is swapped for a link: nothing outside is read, made or deleted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source.errors import CorruptDatasetError, PlakeError, StorageError
from lakehouse_source.storage import Storage


class Swap:
    """A folder `k=1` of a dataset, and how it becomes a link to a folder of the same files."""

    def __init__(self, root: Path, outside: Path) -> None:
        self.inside, self.outside, self.away = root / "k=1", outside, root / "away"

    def to_link(self) -> None:
        self.inside.rename(self.away)
        self.inside.symlink_to(self.outside)

    def back(self) -> None:
        self.inside.unlink()
        self.away.rename(self.inside)


@pytest.fixture
def swap(tmp_path: Path) -> Swap:
    found = Swap(tmp_path / "root", tmp_path / "outside")
    for folder, text in ((found.inside, b"ours"), (found.outside, b"theirs")):
        folder.mkdir(parents=True)
        for name in ("a", "b"):
            (folder / name).write_bytes(text)
    return found


def _write(storage: Storage, path: str) -> None:
    with storage.open_output(path) as sink:
        sink.write(b"written")


# Every way to a file of a dataset, but for `path`, whose names other programs open.
WAYS: dict[str, Callable[[Storage, str], Any]] = {
    "size": Storage.size,
    "open_input": lambda storage, path: storage.open_input(path).read(),
    "open_output": _write,
    "open_output_of_a_new_file": lambda storage, path: _write(storage, path + "-new"),
    "delete": Storage.delete,
    "rename_from": lambda storage, path: storage.rename_local(path, path.replace("k=1/", "x-")),
    "rename_to": lambda storage, path: storage.rename_local("k=2", path),
    "sync_file": Storage.sync_file,
    "sync_folders": lambda storage, path: storage.sync_folders([path]),
    "names_in": lambda storage, path: storage.names_in("k=1"),
    "remove_folder": lambda storage, path: storage.remove_local_folder("k=1/empty"),
    "path": Storage.path,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_that_was_checked_and_then_swapped_leads_to_no_file_outside(
    swap: Swap, way: str
) -> None:
    """`Storage` remembered for its life that a folder was no link."""
    (swap.inside.parent / "k=2").write_bytes(b"a file")
    (swap.outside / "empty").mkdir()
    storage = Storage(str(swap.inside.parent))
    for name in ("a", "b"):
        assert storage.open_input(f"k=1/{name}").read() == b"ours"
    swap.to_link()
    if way == "remove_folder":
        assert not WAYS[way](storage, "k=1/b")
    else:
        with pytest.raises(CorruptDatasetError, match="link leads out"):
            WAYS[way](storage, "k=1/b")
    assert [one.name for one in sorted(swap.outside.iterdir())] == ["a", "b", "empty"]
    assert {(swap.outside / name).read_bytes() for name in "ab"} == {b"theirs"}
    assert sorted(one.path for one in storage.files()) == ["away/a", "away/b", "k=2"]


def test_no_race_of_swaps_reads_or_deletes_a_file_outside(swap: Swap) -> None:
    storage = Storage(str(swap.inside.parent))
    ended = threading.Event()

    def flip() -> None:
        while not ended.is_set():
            swap.to_link()
            swap.back()

    flipping = threading.Thread(target=flip)
    flipping.start()
    read = tries = 0
    try:
        # On a busy machine the threads may keep step for long: then no read meets the folder.
        while tries < 1500 or (read == 0 and tries < 1_000_000):
            tries += 1
            with suppress(PlakeError):
                assert storage.open_input("k=1/b").read() == b"ours"
                read += 1
            with suppress(PlakeError):
                storage.delete("k=1/a")
    finally:
        ended.set()
        flipping.join()
    assert read > 0
    assert sorted(one.name for one in swap.outside.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("verb", ["vacuum", "drop", "erase"])
def test_a_deletion_spares_the_dataset_to_which_a_swapped_folder_leads(
    tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deleted files of another dataset: the folder was checked once, at its first file."""
    catalog = lake.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "w")
    schema = pa.schema({"k": pa.int64(), "n": pa.int64()})
    dataset = catalog.create_dataset("t", schema, partition_by="k")
    for n in range(3):
        lake.write_dataset({"k": [1], "n": [n]}, dataset.uri, catalog=catalog)
    root = tmp_path / "w" / "default" / "t"
    swap = Swap(root, tmp_path / "outside")
    swap.outside.mkdir()
    names = sorted(one.name for one in swap.inside.iterdir())
    for name in names:
        (swap.outside / name).write_bytes(b"theirs")
    if verb == "vacuum":
        lake.write_dataset({"k": [2], "n": [9]}, dataset.uri, catalog=catalog, mode="overwrite")
        dataset.refresh().expire_versions(keep_last=1)
    real, lock, deleted = Storage.delete, threading.Lock(), []

    def delete(self: Storage, relative: str) -> bool:
        with lock:
            done = real(self, relative)
            if relative.startswith("k=1/") and not swap.inside.is_symlink():
                deleted.append(relative)
                swap.to_link()
            return done

    monkeypatch.setattr(Storage, "delete", delete)
    with suppress(PlakeError):
        if verb == "vacuum":
            now = {"retention_seconds": 0, "allow_short_retention": True}
            dataset.refresh().vacuum(**now)
        elif verb == "drop":
            catalog.drop("t", purge=True)
        else:
            dataset.refresh().erase("n >= 0")
    assert len(deleted) == 1
    assert sorted(one.name for one in swap.outside.iterdir()) == names
    catalog.close()


def test_links_that_stay_in_the_dataset_are_followed(swap: Swap) -> None:
    root = swap.inside.parent
    (root / "folder").symlink_to("k=1")
    (root / "absolute").symlink_to(swap.inside)
    (root / "k=1" / "up").symlink_to("../k=1/b")
    storage = Storage(str(root))
    for path in ("folder/b", "absolute/b", "k=1/up", "folder/up"):
        assert storage.open_input(path).read() == b"ours"
        assert storage.size(path) == 4
    _write(storage, "folder/deep/new")
    assert (swap.inside / "deep" / "new").read_bytes() == b"written"
    assert storage.delete("folder/up") is True
    assert not (swap.inside / "up").is_symlink()
    assert (swap.inside / "b").exists()


def test_a_file_that_is_replaced_all_the_time_is_read_whole(tmp_path: Path) -> None:
    """As the hint of Iceberg's metadata: each open finds the old file or the new one."""
    storage = Storage(str(tmp_path))
    ended = threading.Event()
    (tmp_path / "hint").write_bytes(b"old")

    def replace() -> None:
        while not ended.is_set():
            _write(storage, "new")
            storage.rename_local("new", "hint")

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        found = {storage.open_input("hint").read() for _ in range(300)}
    finally:
        ended.set()
        replacing.join()
    assert found <= {b"old", b"written"}


def test_folders_that_are_nested_without_end_are_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "/".join("d" * 199)).mkdir(parents=True)
    assert list(Storage(str(tmp_path)).files()) == []
    (tmp_path / "/".join("d" * 300)).mkdir(parents=True)
    with pytest.raises(StorageError, match="nested more than 200"):
        list(Storage(str(tmp_path)).files())


def test_a_folder_that_was_deleted_and_made_again_is_written_to(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "d"))
    _write(storage, "a")
    (tmp_path / "d" / "a").unlink()
    (tmp_path / "d").rmdir()
    _write(storage, "k=1/b")
    assert (tmp_path / "d" / "k=1" / "b").read_bytes() == b"written"
    assert [one.path for one in storage.files()] == ["k=1/b"]
