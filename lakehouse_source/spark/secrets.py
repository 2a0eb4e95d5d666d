"""Door. Keeps a catalog's password on the driver.

Spark pickles the data source, the reader and the writer into every task. They carry a
token instead of a URL with a password. The URL is on the driver, in a file that only
its user can read.

Only `catalog = env:NAME` keeps a password out of everything, and stores nothing here:
Spark prints the options of a write in errors of its own analysis, and does not redact
them there.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import time
from pathlib import Path

from lakehouse_source.catalog import redact
from lakehouse_source.errors import CatalogUnavailableError

_PREFIX = "plake-token:"
_KEEP_SECONDS = 30 * 24 * 3600


def conceal(url: str | None) -> str | None:
    """The URL itself where it holds no password, else a token for it."""
    if url is None or url.startswith((_PREFIX, "env:")) or redact(url) == url:
        return url
    folder = _folder()
    token = hashlib.sha256(os.fsencode(folder) + url.encode()).hexdigest()[:32]
    path = folder / token
    if not path.exists():
        _forget_old(folder)
        handle = os.open(path.with_suffix(f".{os.getpid()}"), os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(url)
        os.replace(path.with_suffix(f".{os.getpid()}"), path)
    return _PREFIX + token


def reveal(url: str | None) -> str | None:
    """The URL of a token. Anything else is returned unchanged.

    Raises:
        CatalogUnavailableError: this machine does not have the URL: it is not the driver.
    """
    if url is None or not url.startswith(_PREFIX):
        return url
    path = _folder() / url[len(_PREFIX) :]
    try:
        text = path.read_text()
        os.utime(path)
    except OSError as error:
        raise CatalogUnavailableError(
            catalog="(concealed)",
            reason="its URL is known on the driver only; put the URL into an environment variable "
            "of the driver and use catalog 'env:NAME'",
        ) from error
    return text


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"plake-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise CatalogUnavailableError(
            catalog="(concealed)", reason=f"{folder} is not a folder of this user alone"
        )
    return folder


def _forget_old(folder: Path) -> None:
    """Remove URLs that no session has used for a month."""
    for path in folder.iterdir():
        try:
            if time.time() - path.stat().st_mtime > _KEEP_SECONDS:
                path.unlink()
        except OSError:
            continue
