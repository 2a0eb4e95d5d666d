"""URIs and paths: one spelling per dataset, and no way out of it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError, StorageError
from lakehouse_source.storage import Storage, canonical_uri, check_relative, redact_uri


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("/data/x/", "file:///data/x"),
        ("/data/./y/../x", "file:///data/x"),
        ("/data/a b%", "file:///data/a%20b%25"),
        ("file:/data/a%20b%25", "file:///data/a%20b%25"),
        ("file:///data/x", "file:///data/x"),
        ("FILE://localhost/data/x", "file:///data/x"),
        ("s3://key:secret@bucket/p/q/?region=eu", "s3://bucket/p/q"),
        ("S3://bucket", "s3://bucket"),
        ("memory://x/y", "memory://x/y"),
    ],
)
def test_one_spelling(given: str, canonical: str) -> None:
    assert canonical_uri(given) == canonical


def test_relative_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert canonical_uri("x") == canonical_uri(tmp_path / "x")


@pytest.mark.parametrize("given", ["", "  ", "file://host/x", "s3://", "s3://b/../c", "/a\x00b"])
def test_what_is_no_place(given: str) -> None:
    with pytest.raises(InvalidOptionError, match="path"):
        canonical_uri(given)


def test_nothing_secret_is_shown() -> None:
    shown = redact_uri("s3://key:canary@bucket/p?secret_key=canary")
    assert "canary" not in shown
    assert "bucket/p" in shown
    assert redact_uri("/data/x") == "/data/x"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a//b",
        "./a",
        "a/.",
        "s3://b/x",
        "C:x",
        "a\\..\\b",
        "a\n",
    ],
)
def test_paths_that_lead_out_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(CorruptDatasetError, match="must be relative"):
        check_relative(path)
    with pytest.raises(CorruptDatasetError):
        Storage(str(tmp_path)).delete(path)


def test_a_link_out_of_the_dataset_is_refused_before_reading_and_deleting(tmp_path: Path) -> None:
    """A prefix check on the path alone is beaten by a link (iceberg#16471)."""
    root, outside = tmp_path / "root", tmp_path / "root-outside"
    root.mkdir()
    outside.mkdir()
    (outside / "f.parquet").write_bytes(b"x")
    (root / "link").symlink_to(outside)
    storage = Storage(str(root))
    for act in (storage.open_input, storage.delete, storage.size):
        with pytest.raises(CorruptDatasetError, match="link leads out"):
            act("link/f.parquet")
    assert (outside / "f.parquet").exists()


def test_files_come_and_go(tmp_path: Path) -> None:
    storage = pickle.loads(pickle.dumps(Storage(str(tmp_path / "d"))))
    assert list(storage.files()) == []
    with storage.open_output("k=1/f.parquet") as file:
        file.write(b"abc")
    storage.sync_file("k=1/f.parquet")
    storage.sync_folders(["k=1/f.parquet"])
    (tmp_path / "d" / "_plake").mkdir()
    (tmp_path / "d" / "_plake" / "catalog.db").write_bytes(b"")
    assert [(f.path, f.size_bytes) for f in storage.files()] == [("k=1/f.parquet", 3)]
    assert storage.size("k=1/f.parquet") == 3
    assert storage.size("k=1/none") is None
    assert storage.delete("k=1/f.parquet") is True
    assert storage.delete("k=1/f.parquet") is False


def test_errors_name_the_file(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with pytest.raises(StorageError, match=r"none\.parquet") as caught:
        storage.open_input("none.parquet")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file/x"):
        storage.open_output("file/x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError):
        Storage(str(tmp_path)).open_output("x")


def test_other_stores_go_through_fsspec() -> None:
    storage = Storage("memory://plake-test/d")
    with storage.open_output("f.parquet") as file:
        file.write(b"abc")
    assert [f.path for f in storage.files()] == ["f.parquet"]
    assert storage.delete("f.parquet")


def test_an_unknown_store_is_named() -> None:
    with pytest.raises(StorageError, match="nosuch"):
        Storage("nosuch://x/y")
