"""URIs and paths: one spelling per dataset, and no way out of it."""

from __future__ import annotations

import errno
import os
import pickle
import traceback
from pathlib import Path

import pytest
from fsspec.registry import known_implementations

from lakehouse_source.errors import (
    DISK_HAS_SPACE,
    CorruptDatasetError,
    InvalidOptionError,
    StorageError,
)
from lakehouse_source.storage import (
    Storage,
    StorageLocation,
    canonical_uri,
    check_relative,
    redact_uri,
)
from lakehouse_source.storage.location import ALLOWED

pytestmark = pytest.mark.slow


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
    (root / "f.parquet").symlink_to(outside / "f.parquet")
    storage = Storage(str(root))
    for act in (storage.open_input, storage.delete, storage.size):
        for path in ("link/f.parquet", "f.parquet"):
            with pytest.raises(CorruptDatasetError, match="link leads out"):
                act(path)
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


def test_a_full_disk_is_known_by_its_number_in_every_language(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    for number, later in ((errno.ENOSPC, DISK_HAS_SPACE), (errno.EDQUOT, DISK_HAS_SPACE), (13, "")):
        with pytest.raises(StorageError) as caught, storage.errors("x"):
            raise OSError(number, "Auf dem Gerät ist kein Speicherplatz mehr verfügbar")
        assert caught.value.later == later


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError):
        Storage(str(tmp_path)).open_output("x")


def test_a_folder_that_becomes_a_link_is_not_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "f.parquet").write_bytes(b"abc")
    storage = Storage(str(folder))
    assert storage.size("f.parquet") == 3
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    assert storage.size("f.parquet") == 3
    assert Storage(str(folder)).size("f.parquet") == 3


@pytest.mark.parametrize(
    ("uri", "options", "canonical"),
    [
        ("abfs://c@a.dfs.core.windows.net/x/", {}, "abfs://c@a.dfs.core.windows.net/x"),
        ("abfss://c@a.blob.core.windows.net/x", {}, "abfs://c@a.dfs.core.windows.net/x"),
        ("az://c/x", {"account_name": "a"}, "abfs://c@a.dfs.core.windows.net/x"),
        (
            "abfs://c/a b/100%",
            {"account_name": "a"},
            "abfs://c@a.dfs.core.windows.net/a%20b/100%25",
        ),
        ("abfs://c@a.dfs.core.chinacloudapi.cn", {}, "abfs://c@a.dfs.core.chinacloudapi.cn"),
        ("s3://b/a b/ü", {}, "s3://b/a%20b/%C3%BC"),
        ("s3://b/a%20b/x+y", {}, "s3://b/a%20b/x+y"),
    ],
)
def test_one_spelling_of_a_location(uri: str, options: dict[str, str], canonical: str) -> None:
    location = StorageLocation.of(uri, options)
    assert location.uri == canonical
    assert StorageLocation.of(location.uri).uri == canonical


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("abfs://c/x", {}),  # which account?
        ("abfs://c@a.dfs.core.windows.net/x?sig=CANARY", {}),
        ("abfs://account:CANARY@c/x", {}),
        ("abfs://account.blob.core.windows.net/c/x", {}),
        ("abfs://c@a.dfs.core.windows.net/x", {"account_name": "other"}),
        ("s3://b/%2e%2e/x", {}),
        ("s3://b/x", {"secret_kye": "CANARY"}),
        ("s3://b/x", {"secret_key": "CANARY", "secret": "CANARY"}),
        ("s3://b/x", {"anonymous": "CANARY"}),
        ("s3://b/x", {"request_timeout": "CANARY"}),
        ("s3://b/x", {"secret_key": b"CANARY"}),
        ("s3://b/x", {"secret_key": "env:PLAKE_NOT_SET"}),
        ("s3://b/x", {"endpoint_url": "http://CANARY@host/path"}),
        ("s3://user:CANARY@b/x", {"region": "x"}),
        ("gs://b/x", {"access_token": "CANARY"}),
        ("gs://b/x", {"secret_key": "CANARY"}),
        ("hdfs://b/x", {"secret_key": "CANARY"}),
        ("/data/x", {"secret_key": "CANARY"}),
    ],
)
def test_wrong_options_are_refused_without_their_values(uri: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        StorageLocation.of(uri, options)
    shown = "".join(traceback.format_exception(caught.value)).partition("InvalidOptionError")[2]
    assert "CANARY" not in shown + repr(caught.value) + repr(vars(caught.value))


def test_a_location_is_printed_without_its_secrets() -> None:
    location = StorageLocation.of("s3://b/x", {"secret_key": "CANARY/1+2", "region": "eu"})
    assert "CANARY" not in repr(location) + str(location)
    assert "secret_key" in repr(location)
    text = "GET https://h/?a=CANARY%2F1%2B2&b=CANARY/1+2 in eu failed"
    assert location.mask(text) == "GET https://h/?a=***&b=*** in eu failed"
    inside = StorageLocation.of("s3://user:CANARY@b/x?region=eu")
    assert inside.mask("no CANARY, eu") == "no ***, eu"


def test_a_uri_that_cannot_be_parsed_is_shown_without_its_secret() -> None:
    """PyArrow's error holds the whole URI."""
    with pytest.raises(StorageError) as caught:
        Storage("s3://user:CANA RY@bucket/x?region=eu")
    shown = "".join(traceback.format_exception(caught.value)).partition("\nlakehouse_source")[2]
    assert "CANA" not in shown


def test_other_stores_go_through_fsspec() -> None:
    storage = Storage("memory://plake-test/d")
    with storage.open_output("f.parquet") as file:
        file.write(b"abc")
    assert [f.path for f in storage.files()] == ["f.parquet"]
    assert storage.delete("f.parquet")


def test_an_unknown_store_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOptionError, match="PLAKE_PROTOCOLS_ALLOWED=nosuch"):
        Storage("nosuch://x/y")
    monkeypatch.setenv("PLAKE_PROTOCOLS_ALLOWED", "other, NoSuch")
    with pytest.raises(StorageError, match="nosuch"):
        Storage("nosuch://x/y")


# A name with an underscore is no scheme: with `://` behind it, it is a local folder.
@pytest.mark.parametrize("protocol", sorted(n for n in known_implementations if "_" not in n))
def test_only_stores_on_the_list_are_opened(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec has drivers that cache, unpack, follow references or talk to servers of code."""
    opened: list[str] = []
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url, **options: opened.append(url))
    refused = {
        *("reference", "simplecache", "filecache", "blockcache", "cached", "dask", "jupyter"),
        *("git", "github", "gist", "zip", "tar", "libarchive", "generic", "dir", "data", "jlab"),
        *("local", "asynclocal", "asyncwrapper", "pyscript"),
        *("dvc", "wandb"),
    }
    assert (protocol in ALLOWED) == (protocol not in refused)
    if protocol in refused:
        for url in (f"{protocol}://x/y", f"{protocol.upper()}://x/y"):
            with pytest.raises(InvalidOptionError, match="does not open by itself"):
                Storage(url)
    assert opened == []


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("memory://x::memory://y", {}),
        ("simplecache::memory://x/y", {}),
        ("http://x/y::file:///etc", {}),
        ("memory://x/y", {"protocol": "reference", "fo": "/etc/x"}),
        ("memory://x/y", {"Protocol": "reference", "fo": "/etc/x"}),
    ],
)
def test_a_chain_of_drivers_is_refused(url: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidOptionError):
        StorageLocation.of(url, options)


def test_a_local_folder_may_have_two_colons_in_its_name(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "a::b"))
    with storage.open_output("f") as file:
        file.write(b"abc")
    assert (tmp_path / "a::b" / "f").read_bytes() == b"abc"


def test_the_path_of_a_pipe_is_refused_and_that_of_a_link_to_a_file_is_not(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x")
    os.symlink(tmp_path / "file", tmp_path / "link")
    os.symlink(tmp_path / "pipe", tmp_path / "link to pipe")
    storage = Storage(str(tmp_path))
    assert storage.size("link") == 1
    for name in ("pipe", "link to pipe"):
        with pytest.raises(CorruptDatasetError, match="no plain file"):
            storage.path(name)
