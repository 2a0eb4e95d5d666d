"""Edge. The only room that touches files and object stores.

uris         one spelling per dataset's URI, checked relative paths, URIs without secrets
options      the storage options of each kind of store, and which variables a text may name
hosts        where an address of a catalog or a query may lead, and by which drivers of fsspec
location     a URI with the options to reach it, and its filesystem
local_folder the files below one local folder, looked up from descriptors of folders
files        the files below one URI: read, write, list, delete, sync; who owns the folder
hashed       the SHA-256 of files, as they are written and as they are stored
"""

from lakehouse_source.storage.files import (
    FoundFile,
    Storage,
    claim_folder,
    owner_files,
    release_folder,
)
from lakehouse_source.storage.hashed import HashedOutput, sha256_of, verified
from lakehouse_source.storage.location import StorageLocation
from lakehouse_source.storage.uris import (
    RESERVED_FOLDER,
    SHARED,
    UriOfCatalog,
    branch_of_transaction,
    canonical_uri,
    check_relative,
    is_of_transaction,
    local_path,
    redact_uri,
    shared_folder,
    split_branch,
    split_shared,
    with_branch,
    without_transaction,
)

__all__ = [
    "RESERVED_FOLDER",
    "SHARED",
    "FoundFile",
    "HashedOutput",
    "Storage",
    "StorageLocation",
    "UriOfCatalog",
    "branch_of_transaction",
    "canonical_uri",
    "check_relative",
    "claim_folder",
    "is_of_transaction",
    "local_path",
    "owner_files",
    "redact_uri",
    "release_folder",
    "sha256_of",
    "shared_folder",
    "split_branch",
    "split_shared",
    "verified",
    "with_branch",
    "without_transaction",
]
