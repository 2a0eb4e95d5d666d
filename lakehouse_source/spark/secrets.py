"""Door. Keeps a catalog's password on the driver.

Spark pickles data source, reader and writer into every task. What is pickled
carries a token instead of a URL with a password; the URL waits on the driver in
a file that only its user can read. With `catalog = env:NAME` no password comes
near a plan at all, and nothing is kept here. Only that keeps it out of everything:
Spark prints the options of a write in the errors that it raises by itself while it
analyses one, whatever is set to be redacted.
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
    """The URL itself where it holds no secret, else a token for it."""
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
    """The URL behind a token; anything else as it is.

    Raises:
        CatalogUnavailableError: this machine is not the driver.
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
            reason="its URL is known on the driver only; use catalog 'env:NAME' to name it "
            "by an environment variable of the driver",
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
