"""Edge. The only room that touches files and object stores.

uris         one spelling per dataset's URI, checked relative paths, URIs without secrets
options      the storage options of each kind of store, and their spellings
location     a URI with what it takes to reach it
filesystems  opens the filesystem of a location
files        the files below one URI: read, write, list, delete, sync
"""

from lakehouse_source.storage.files import FoundFile, Storage
from lakehouse_source.storage.location import StorageLocation
from lakehouse_source.storage.uris import (
    RESERVED_FOLDER,
    canonical_uri,
    check_relative,
    local_path,
    redact_uri,
    split_branch,
    with_branch,
)

__all__ = [
    "RESERVED_FOLDER",
    "FoundFile",
    "Storage",
    "StorageLocation",
    "canonical_uri",
    "check_relative",
    "local_path",
    "redact_uri",
    "split_branch",
    "with_branch",
]
