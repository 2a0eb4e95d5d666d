"""Edge. Where keys may go, and which drivers a URI may ask for, if no program named them.

A row of a catalog, and a query of Spark, name the address of a store. Who wrote them must not get
what the program's storage options hold, or what a store's client finds on this machine.
`StorageLocation.of` asks here before a store can be opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.storage.options import (
    HOSTS_SETTING,
    gets_secrets,
    is_from_environment,
    split_host,
)
from lakehouse_source.storage.uris import (
    AZURE_SCHEMES,
    GCS_SCHEMES,
    HADOOP_SCHEMES,
    S3_SCHEMES,
    azure_names,
    parts_of,
    redact_uri,
    scheme_of,
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
