"""Edge. Where a dataset is, how to reach it, and which hosts may get keys for that.

A row of a catalog, and a query of Spark, name the address of a store. Who wrote them must not get
what the program's storage options hold, or what a store's client finds on this machine.
`StorageLocation.of` asks here before a store can be opened.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from lakehouse_source.arguments import mapping, path_text
from lakehouse_source.errors import DISK_HAS_SPACE, InvalidOptionError, PlakeError, StorageError
from lakehouse_source.storage.options import (
    HOSTS_SETTING,
    checked_options,
    gets_secrets,
    is_from_environment,
    may_be_secret,
    resolved_texts,
    split_host,
)
from lakehouse_source.storage.uris import (
    AZURE_SCHEMES,
    GCS_SCHEMES,
    HADOOP_SCHEMES,
    S3_SCHEMES,
    UriOfCatalog,
    azure_names,
    canonical_uri,
    encoded,
    local_path,
    parts_of,
    redact_uri,
    scheme_of,
    split_branch,
)

# --- The list of fsspec's drivers that a URI may ask for: fsspec has drivers of any kind.
#
# Some drivers do more than reach a store: `reference` reads every path that a file names, caches
# write to the disk, `dask` and `jupyter` are servers that run code, `git`, `zip` and `tar` open
# files of strangers. The environment can allow another driver, but a URI cannot.


# Further protocols that are allowed, separated by commas.
ALLOWED_VARIABLE = "PLAKE_PROTOCOLS_ALLOWED"
# Stores for which PyArrow has clients, object stores, and plain remote stores.
OWN = {"file"} | S3_SCHEMES | GCS_SCHEMES | AZURE_SCHEMES | HADOOP_SCHEMES
_OBJECT_STORES = {"adl", "oci", "ocilake", "oss", "tos", "tosfs", "hf", "lakefs", "dbfs"}
# Their URIs name a host.
PLAIN = frozenset({"http", "https", "ftp", "sftp", "ssh", "smb", "webdav", "webhdfs", "root"})
_DRIVES = {"box", "dropbox", "gdrive"}
ALLOWED = frozenset(OWN | _OBJECT_STORES | PLAIN | _DRIVES | {"memory"})


def may_be_opened(scheme: str, *, by_itself: bool = True) -> bool:
    """Tell whether a driver is on the environment's list, or, `by_itself`, on that of plake."""
    more = os.environ.get(ALLOWED_VARIABLE, "").lower().split(",")
    return (by_itself and scheme in ALLOWED) or scheme in (one.strip() for one in more)


def check_protocol(uri: str, options: Mapping[str, Any]) -> None:
    """Check that a URI, and the options of its store, ask for a driver on the list."""
    scheme = scheme_of(uri)
    if scheme in OWN:
        return
    if not may_be_opened(scheme):
        raise InvalidOptionError(
            option="path",
            value=redact_uri(uri),
            reason=f"is of a kind that plake does not open by itself. Set the environment variable "
            f"{ALLOWED_VARIABLE}={scheme} to allow it.",
            known=sorted(ALLOWED),
        )
    # fsspec reads both as a chain of drivers, or as another driver than the URI names.
    if "::" in uri:
        raise InvalidOptionError(
            option="path", value=redact_uri(uri), reason="is a chain of URLs, which is not allowed."
        )
    for name in options:
        if name.lower() == "protocol":
            raise InvalidOptionError(
                option=f"storage_options[{name!r}]", reason="is what the URI says."
            )


# Parts of option names that say where a server is, in any driver.
_PLACE_WORDS = ("endpoint", "host", "url", "authority", "server", "addr", "proxy")
# The clouds of Microsoft. A request to one of these hosts goes to nobody else.
_AZURE = (
    *(".core.windows.net", ".core.usgovcloudapi.net", ".core.chinacloudapi.cn"),
    *(".fabric.microsoft.com", ".storage.azure.net"),
)
# Hadoop's own settings say what is sent, and `memory` is in this process.
_WITHOUT_KEYS = HADOOP_SCHEMES | {"file", "memory"}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ACCOUNT_NAMES = ("account_name", "azure_storage_account_name")
_SIGNATURES = ("sas_token", "azure_storage_sas_token")


def check_uri_of_catalog(uri: str, options: Mapping[str, Any]) -> None:
    """Refuse a URI of a catalog that names a host or a protocol which nobody permitted.

    A host is permitted by the list (`permitted`), or by the program's own storage options.

    Raises:
        InvalidOptionError
    """
    scheme = scheme_of(uri)
    if scheme in _WITHOUT_KEYS:
        return
    parts = parts_of(uri)
    if scheme in S3_SCHEMES | GCS_SCHEMES:
        if parts.query or not _BUCKET.fullmatch(parts.netloc):
            raise InvalidOptionError(
                option="path",
                value=redact_uri(uri),
                reason="comes from the catalog, and no catalog of plake holds a host, a user or "
                "parameters of such a store. Give them as storage options.",
            )
        return
    if scheme not in AZURE_SCHEMES | PLAIN:
        if not may_be_opened(scheme, by_itself=False):
            raise InvalidOptionError(
                option="path",
                value=redact_uri(uri),
                reason="comes from the catalog, which may not choose this kind of store. Allow it "
                f"in the environment variable {ALLOWED_VARIABLE}={scheme}.",
            )
        if scheme in ALLOWED:
            return  # its URIs name a bucket
    own = [value for name, value in options.items() if isinstance(value, str) and _is_place(name)]
    for host in _hosts_of_uri(uri, options):
        if gets_secrets(host, also=own):
            continue
        # A shared access signature is sent as it is. Other keys of Azure sign, and are not sent.
        is_cloud = scheme in AZURE_SCHEMES and split_host(host)[0].endswith(_AZURE)
        if is_cloud and (_has(options, _ACCOUNT_NAMES) or not _has(options, _SIGNATURES)):
            continue
        hint = ", or give the storage option account_name" if is_cloud else ""
        raise InvalidOptionError(
            option="storage",
            value=host,
            reason="is a host that the catalog names, and would get what this program knows. "
            f"Allow it in the environment variable {HOSTS_SETTING}={host}{hint}.",
        )


def check_query(uri: str, options: Mapping[str, str]) -> None:
    """Refuse to send secrets to a host that a query of Spark names and nobody permitted.

    Raises:
        InvalidOptionError: the URI or an option names such a host.
    """
    has_secrets = any(map(is_from_environment, options.values()))
    for host in hosts_named(uri, options):
        if gets_secrets(host) or not _gets_any(uri, host, options, has_secrets):
            continue
        raise InvalidOptionError(
            option="storage",
            value=host,
            reason="is a host that a query names, and would get secrets of this application. "
            f"Allow it in the application's configuration, spark.plake.hosts.allowed={host}, or "
            f"in the environment variable {HOSTS_SETTING}.",
        )


def hosts_named(uri: str, options: Mapping[str, str]) -> Iterator[str]:
    """The hosts that a URI and the storage options of its store name."""
    for name, value in options.items():
        if _is_place(name) and not is_from_environment(value):
            yield value
    yield from _hosts_of_uri(uri, options)


def _hosts_of_uri(uri: str, options: Mapping[str, Any]) -> Iterator[str]:
    scheme = scheme_of(uri)
    if scheme == "file" or scheme in HADOOP_SCHEMES:
        return
    parts = parts_of(uri)
    if scheme in S3_SCHEMES | GCS_SCHEMES:
        yield from parse_qs(parts.query).get("endpoint_override", ())
    elif scheme in AZURE_SCHEMES:
        yield azure_names(uri, _value(options, _ACCOUNT_NAMES))[1]
    elif parts.netloc:
        yield parts.netloc.rpartition("@")[2]


def _gets_any(uri: str, host: str, options: Mapping[str, str], has_secrets: bool) -> bool:
    """Tell whether a store's client would send secrets there, given ones or found ones."""
    if has_secrets:
        return True
    scheme = scheme_of(uri)
    if scheme in AZURE_SCHEMES:
        return not split_host(host)[0].endswith(_AZURE)
    flag = _value(options, ("anonymous", "anon")) or ""
    return scheme in S3_SCHEMES | GCS_SCHEMES and flag.lower() != "true"


def _is_place(option: str) -> bool:
    return any(word in option.lower() for word in _PLACE_WORDS)


def _has(options: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    return any(name.lower() in names for name in options)


def _value(options: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((value for name, value in options.items() if name.lower() in names), None)


# Parameters of a URI's query that are not secret and may be part of many other words.
_PLAIN_PARAMETERS = ("region", "scheme", "endpoint_override")
_SHORTEST_SECRET = 4


@dataclass(frozen=True, slots=True, repr=False)
class StorageLocation:
    """A URI as it was given, its canonical spelling, and the options of its store.

    A location can be pickled, with its secrets, because executors need these to open files. It is
    printed without secrets, and a catalog stores only its canonical URI.
    """

    given: str
    uri: str
    options: Mapping[str, Any] = field(default_factory=dict)
    # Values that came from the environment, of any option.
    hidden: tuple[str, ...] = ()
    # Other datasets, by id, in whose folders files of this one may be: it was cloned from them.
    origins: Mapping[int, StorageLocation] = field(default_factory=dict)

    @classmethod
    def of(
        cls, given: str | os.PathLike[str], options: Mapping[str, Any] | None = None
    ) -> StorageLocation:
        """The location of a URI, with options by any of the names that the store knows.

        Raises:
            InvalidOptionError: a catalog names the URI, and it leads where nobody permitted.
        """
        text = split_branch(path_text("path", given).strip())[0]
        scheme = scheme_of(text)
        given_options = mapping("storage_options", options or {})
        if scheme != "file":
            parts_of(text)
        check_protocol(text, given_options)
        if isinstance(given, UriOfCatalog):
            check_uri_of_catalog(text, given_options)
        checked = checked_options(scheme, given_options)
        uri = canonical_uri(text, checked.get("account_name") if scheme in AZURE_SCHEMES else None)
        location = cls(text, uri, checked, resolved_texts(given_options))
        if checked and location.has_own_settings:
            raise InvalidOptionError(
                option="storage_options",
                reason="cannot be given together with a user or parameters in the URI "
                f"{redact_uri(text)}. Give all of them as storage options.",
            )
        return location

    def __repr__(self) -> str:
        names = f", options=({', '.join(self.options)})" if self.options else ""
        return f"StorageLocation({redact_uri(self.given)!r}{names})"

    @property
    def scheme(self) -> str:
        return scheme_of(self.given)

    @property
    def is_of_driver(self) -> bool:
        """Tell whether a driver of fsspec opens the store: its errors are of any class."""
        return self.scheme not in OWN

    @property
    def has_own_settings(self) -> bool:
        """Tell whether the URI itself has a user or parameters for PyArrow's client."""
        parts = urlsplit(self.given)
        if self.scheme not in S3_SCHEMES | GCS_SCHEMES:
            return False
        return "@" in parts.netloc or bool(parts.query)

    @property
    def is_shown_in_errors(self) -> bool:
        """Tell whether the store's client puts a secret into the texts of its errors.

        The client of Azure names the URL of a request, and a shared access signature is part of
        this URL (measured with PyArrow 26).
        """
        return "sas_token" in self.options

    def sibling(self, given: str | os.PathLike[str]) -> StorageLocation:
        """Another URI, with the options of this one if its store is of the same kind."""
        is_same = self.is_like(given)
        found = StorageLocation.of(given, self.options if is_same else None)
        return replace(found, hidden=self.hidden)

    def is_like(self, given: str | os.PathLike[str]) -> bool:
        """Tell whether a URI names a store of the same kind."""
        return _kind(self.scheme) == _kind(scheme_of(path_text("path", given).strip()))

    def mask(self, text: str) -> str:
        """A text of the store's client with every secret of this location replaced by `***`."""
        for secret in sorted(set(self._secrets()), key=len, reverse=True):
            for spelling in (secret, quote(secret, safe=""), quote(secret), unquote(secret)):
                if len(spelling) >= _SHORTEST_SECRET:
                    text = text.replace(spelling, "***")
        return text

    def _secrets(self) -> Iterator[str]:
        yield from _texts(self.hidden)
        for name, value in self.options.items():
            if may_be_secret(self.scheme, name):
                yield from _texts(value)
        if self.scheme == "file":
            return
        parts = urlsplit(self.given)
        if parts.scheme.lower() not in AZURE_SCHEMES:
            user, _, password = parts.netloc.rpartition("@")[0].partition(":")
            yield from (user, password)
        for name, text in parse_qsl(parts.query):
            if name not in _PLAIN_PARAMETERS:
                yield text


def _kind(scheme: str) -> str:
    for schemes in (S3_SCHEMES, GCS_SCHEMES, AZURE_SCHEMES):
        if scheme in schemes:
            return min(schemes)
    return scheme


def _texts(value: Any) -> Iterator[str]:
    """The texts in an option's value; for a shared access signature, also each parameter."""
    if isinstance(value, str):
        yield value
        for name, text in parse_qsl(value.lstrip("?")):
            if name == "sig":
                yield text
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


# --- Opens the filesystem of a location: with PyArrow's own clients, else with fsspec's.


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
