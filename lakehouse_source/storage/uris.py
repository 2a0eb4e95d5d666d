"""Edge. URIs of datasets and relative paths of data files: one spelling, checked."""

from __future__ import annotations

import os
import re
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from lakehouse_source.arguments import path_text
from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]+:")
RESERVED_FOLDER = "_plake"
# In the catalog, a file of a clone in the folder of another dataset: that one's id, then its path.
SHARED = f"{RESERVED_FOLDER}/of/"
_SHARED_PATH = re.compile(rf"{SHARED}([1-9][0-9]{{0,18}})/(.*)", re.DOTALL)

S3_SCHEMES = frozenset({"s3", "s3a"})
GCS_SCHEMES = frozenset({"gs", "gcs"})
AZURE_SCHEMES = frozenset({"abfs", "abfss", "az"})
HADOOP_SCHEMES = frozenset({"hdfs", "viewfs"})
# Stores whose URIs are parsed as URIs: their paths are percent-encoded. The drivers of fsspec
# take paths literally.
_ENCODED = S3_SCHEMES | GCS_SCHEMES | AZURE_SCHEMES | HADOOP_SCHEMES
_AZURE_HOST = "dfs.core.windows.net"
# The text between the folder of a dataset and the name of a branch. A canonical URI has no other
# `#`.
BRANCH = "#branch="
_OF_TRANSACTION = re.compile(
    "transaction-[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
)
# Every character that a URI may contain, `%` included.
_LEGAL = "%/:?#[]@!$&'()*+,;=-._~"


class UriOfCatalog(str):
    """A URI from a row of a catalog. It leads only where the program lets it (`hosts`)."""

    __slots__ = ()


def canonical_uri(uri: str | os.PathLike[str], account_name: str | None = None) -> str:
    """The one spelling of a dataset's URI: `file:///abs/path` for local paths, no final slash.

    Local paths become absolute; symbolic links in them are kept. Credentials and query
    parameters of remote URIs are dropped: they tell how to reach a dataset, not which dataset this
    is. The name of a branch is dropped too: its files are in the dataset's folder.

    Args:
        account_name: the storage account of an Azure URI that does not name one.
    """
    text = split_branch(path_text("path", uri).strip())[0]
    if not text:
        raise InvalidOptionError(
            option="path",
            reason="is missing. Give the dataset's folder or URI: load('/data/flights').",
        )
    if "\x00" in text:
        raise InvalidOptionError(option="path", value=text, reason="holds a NUL character.")
    if not _SCHEME.match(text):
        return _local_uri(text)
    parts = urlsplit(text)
    scheme = parts.scheme.lower()
    if scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidOptionError(
                option="path", value=text, reason="names a host; write file:///absolute/path."
            )
        return _local_uri(unquote(text[len("file:") :].removeprefix("//" + parts.netloc)))
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/")
    shown = redact_uri(text)
    if not host and not path:
        raise InvalidOptionError(option="path", value=shown, reason="names no bucket or path.")
    if scheme in _ENCODED:
        path = encoded(path)
    if ".." in re.split(r"[/\\]", decoded(path)):
        raise InvalidOptionError(option="path", value=shown, reason="must not hold '..'.")
    if scheme in AZURE_SCHEMES:
        container, account = azure_names(text, account_name)
        return f"abfs://{container}@{account}{path}"
    return urlunsplit((scheme, host, path, "", ""))


def split_branch(uri: str) -> tuple[str, str | None]:
    """The URI of a dataset's folder, and the branch that the URI names: `<folder>#branch=<name>`.

    The name is not checked.
    """
    folder, separator, name = uri.rpartition(BRANCH)
    return (type(uri)(folder), name) if separator and "/" not in name else (uri, None)


def with_branch(folder: str, name: str | None) -> str:
    """The URI of a branch of the dataset in a folder; None: of the dataset itself."""
    return folder if name is None else type(folder)(f"{folder}{BRANCH}{name}")


def branch_of_transaction(id: str) -> str:
    """The name of the branches of a transaction, by its UUIDv7.

    Raises:
        InvalidOptionError: the text is no UUIDv7.
    """
    name = f"transaction-{id}"
    if not is_of_transaction(name):
        raise InvalidOptionError(
            option="transaction", value=id, reason="is not the id of a transaction."
        )
    return name


def is_of_transaction(branch: str) -> bool:
    """Tell whether a branch has the name that a transaction of a Spark session gives."""
    return _OF_TRANSACTION.fullmatch(branch) is not None


def without_transaction(uri: str) -> str:
    """The URI of a dataset, given that of its branch in a transaction; any other as it is."""
    folder, branch = split_branch(uri)
    return folder if branch is not None and is_of_transaction(branch) else uri


def _local_uri(path: str) -> str:
    absolute = os.path.abspath(os.path.expanduser(path))
    return "file://" + quote(absolute, safe="/")


def encoded(path: str) -> str:
    """The path; characters that a URI must not contain are percent-encoded."""
    single = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", path)
    return quote(single, safe=_LEGAL)


def decoded(text: str) -> str:
    """A text without percent-encoding, however often it was encoded."""
    while (once := unquote(text)) != text:
        text = once
    return text


def azure_names(uri: str, account_name: str | None) -> tuple[str, str]:
    """The container and the account's host of an Azure URI.

    The URI is `abfs://container@account.dfs.core.windows.net/path`, or `abfs://container/path` if
    `account_name` is given.
    """
    parts = urlsplit(uri)
    container, _, host = parts.netloc.rpartition("@")
    if not container:
        container, host = host, f"{account_name}.{_AZURE_HOST}" if account_name else ""
    elif "." not in host:
        container = ""
    # One account has two endpoints; `.dfs.` stands for both.
    host = host.replace(".blob.", ".dfs.", 1)
    given_and_other = account_name is not None and host.partition(".")[0] != account_name
    named = re.fullmatch(r"[$a-zA-Z0-9-]+", container) is not None and host != ""
    if not named or given_and_other or parts.query:
        raise InvalidOptionError(
            option="path",
            value=redact_uri(uri),
            reason="must be abfs://container@account.dfs.core.windows.net/path, or "
            "abfs://container/path with the storage option account_name. Keys are storage "
            "options and not part of the URI.",
        )
    return container, host


def parts_of(uri: str) -> SplitResult:
    """The parts of a URI.

    Raises:
        InvalidOptionError: it is none.
    """
    try:
        return urlsplit(uri)
    except ValueError as error:
        raise InvalidOptionError(
            option="path", value=redact_uri(uri), reason="cannot be read as a URI."
        ) from error


def scheme_of(uri: str) -> str:
    """The scheme in lower case; `file` for a path without one."""
    found = _SCHEME.match(uri)
    return found[0][:-1].lower() if found else "file"


def local_path(uri: str) -> str | None:
    """The folder of a canonical `file:` URI, None for a remote one."""
    folder = split_branch(uri)[0]
    return unquote(folder[len("file://") :]) if folder.startswith("file://") else None


def redact_uri(uri: str) -> str:
    """The URI without user, password and query values, for messages and plans."""
    if not _SCHEME.match(uri) or uri.startswith("file:"):
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:
        return f"{scheme_of(uri)}:***"
    user, _, host = parts.netloc.rpartition("@")
    is_container = parts.scheme.lower() in AZURE_SCHEMES and user and ":" not in user
    shown = f"{user}@" if is_container else "***@" if user else ""
    return urlunsplit((parts.scheme, shown + host, parts.path, "***" if parts.query else "", ""))


# A scheme, which has no `=`, an empty part, `.` or `..`, a backslash, a control character.
_UNSAFE = re.compile(r"\A[^/=]*:|(?:\A|/)\.{0,2}(?:/|\Z)|[\\\x00-\x1f]")


def check_relative(path: str) -> str:
    """A file path from the catalog or a commit message, checked to stay in its dataset."""
    if _UNSAFE.search(path):
        raise CorruptDatasetError(
            path=repr(path), reason="a data file's path must be relative and stay in its dataset"
        )
    return path


def check_own(path: str) -> str:
    """The path of a file to write or to delete, checked to be in the dataset's own folder."""
    if path.startswith(SHARED):
        raise CorruptDatasetError(
            path=repr(path), reason="it is the file of another dataset, which is only read here"
        )
    return check_relative(path)


def shared_folder(origin: int) -> str:
    """What the paths of files in the folder of another dataset, known by its id, begin with."""
    return f"{SHARED}{origin}/"


def split_shared(path: str) -> tuple[int | None, str]:
    """The id of the dataset in whose folder a file is, None for the own one; its path there."""
    found = _SHARED_PATH.fullmatch(path) if path.startswith(SHARED) else None
    return (None, path) if found is None else (int(found[1]), found[2])
