"""Edge. Opens the filesystem of a location: with PyArrow's own clients, else with fsspec's."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from lakehouse_source.errors import DISK_HAS_SPACE, PlakeError, StorageError
from lakehouse_source.storage.location import StorageLocation
from lakehouse_source.storage.uris import (
    AZURE_SCHEMES,
    GCS_SCHEMES,
    HADOOP_SCHEMES,
    S3_SCHEMES,
    azure_names,
    encoded,
    local_path,
    redact_uri,
)

# Arrow's client reads these too. With a custom endpoint there is no region to look up.
_S3_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# The errors of clients while they work, and further errors when they are made.
CLIENT_ERRORS = (OSError, pa.ArrowException)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OPENING_ERRORS = (*CLIENT_ERRORS, ValueError, TypeError, ImportError)


def open_filesystem(location: StorageLocation) -> tuple[pafs.FileSystem, str]:
    """The filesystem, and the path in it that the location means, without a final slash.

    Raises:
        StorageError: there is no client for this kind of store, or it refuses the options.
    """
    path = local_path(location.uri)
    if path is not None:
        return pafs.LocalFileSystem(), path
    with storage_errors(location, redact_uri(location.given), _OPENING_ERRORS):
        if location.scheme in S3_SCHEMES | GCS_SCHEMES:
            filesystem, root = _bucket(location)
        elif location.scheme in AZURE_SCHEMES:
            filesystem, root = _azure(location)
        elif location.scheme in HADOOP_SCHEMES:
            filesystem, root = pafs.FileSystem.from_uri(location.given)
        else:
            filesystem, root = _fsspec(location)
    return filesystem, root.rstrip("/")


@contextmanager
def storage_errors(
    location: StorageLocation, shown: str, kinds: tuple[type[Exception], ...] = CLIENT_ERRORS
) -> Iterator[None]:
    """Raise the errors of a store's client as `StorageError`, without the location's secrets."""
    try:
        yield
    except PlakeError:
        raise
    except Exception as error:
        # A driver has errors of its own: those of `ftplib` are not even OSErrors.
        if not (isinstance(error, kinds) or location.is_of_driver):
            raise
        text = getattr(error, "strerror", None) or str(error)
        # By its number: the text may be in another language.
        later = DISK_HAS_SPACE if getattr(error, "errno", None) in _FULL else ""
        if location.mask(str(error)) == str(error):
            raise StorageError(path=shown, reason=text, later=later) from error
        # The text of the client's error has a secret, and a cause would be printed and logged too.
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else OSError
        masked = location.mask(text)
        raise StorageError(path=shown, reason=masked, later=later) from kind(masked)


def _bucket(location: StorageLocation) -> tuple[pafs.FileSystem, str]:
    scheme = "s3" if location.scheme in S3_SCHEMES else "gs"
    parts = urlsplit(location.given)
    if not location.options:
        uri = parts._replace(scheme=scheme, path=encoded(parts.path)).geturl()
        filesystem, root = pafs.FileSystem.from_uri(uri)
        return filesystem, root
    given = dict(location.options)
    root = parts.netloc + unquote(encoded(parts.path))
    if scheme == "s3":
        has_endpoint = "endpoint_override" in given or any(
            os.environ.get(name) for name in _S3_ENDPOINT_VARIABLES
        )
        if "region" not in given and not has_endpoint:
            given["region"] = pafs.resolve_s3_region(parts.netloc)  # as `from_uri` does
        if "load_frequency" in given:
            given["load_frequency"] = int(given["load_frequency"])
        return pafs.S3FileSystem(**given), root
    if "retry_time_limit" in given:
        given["retry_time_limit"] = timedelta(seconds=given["retry_time_limit"])
    return pafs.GcsFileSystem(**given), root


def _azure(location: StorageLocation) -> tuple[pafs.FileSystem, str]:
    given = dict(location.options)
    container, host = azure_names(location.given, given.get("account_name"))
    account, _, endpoint = host.partition(".")
    given["account_name"] = account
    # Other clouds have other endpoints. A leading dot means: after the account's name.
    if endpoint != "dfs.core.windows.net":
        given.setdefault("dfs_storage_authority", f".{endpoint}")
        given.setdefault("blob_storage_authority", f".{endpoint.replace('dfs.', 'blob.', 1)}")
    root = container + unquote(encoded(urlsplit(location.given).path))
    filesystem = pafs.AzureFileSystem(**given)
    if not {"account_key", "sas_token"} & given.keys():
        # Where no token is found, opening a file ends the process (C++ terminate, PyArrow 26), and
        # this is an error.
        filesystem.get_file_info(root)
    return filesystem, root


def _fsspec(location: StorageLocation) -> tuple[pafs.FileSystem, str]:
    import fsspec

    driver, root = fsspec.core.url_to_fs(location.given, **location.options)
    # fsspec caches listings and takes sizes from them: files of other processes would be missing.
    cache = getattr(driver, "dircache", None)
    if cache is not None:
        cache.use_listings_cache = False
        cache.clear()
    return pafs.PyFileSystem(pafs.FSSpecHandler(driver)), root
