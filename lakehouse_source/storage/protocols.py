"""Edge. The list of fsspec's drivers that a URI may ask for: fsspec has drivers of any kind.

Some drivers do more than reach a store: `reference` reads every path that a file names, caches
write to the disk, `dask` and `jupyter` are servers that run code, `git`, `zip` and `tar` open files
of strangers. The environment can allow another driver, but a URI cannot.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.storage.uris import (
    AZURE_SCHEMES,
    GCS_SCHEMES,
    HADOOP_SCHEMES,
    S3_SCHEMES,
    redact_uri,
    scheme_of,
)

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
