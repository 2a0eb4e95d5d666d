"""Door. Keeps a catalog's password on the driver.

Spark pickles the data source, the reader and the writer into every task. They carry a
token instead of a URL with a password. The URL is on the driver, in a file of the session's private
folder, which is deleted with the session.

Only `catalog = env:NAME` hides a password completely, and stores nothing here: Spark prints the
options of a write in errors of its own analysis, without redaction.
"""

from __future__ import annotations

import hmac
import re

from lakehouse_source.catalog import redact
from lakehouse_source.errors import CatalogUnavailableError
from lakehouse_source.spark.session.session_folder import (
    KEY,
    NotPrivateError,
    keep,
    kept,
    session_folder,
)

_PREFIX = "plake-token:"
_TOKEN = re.compile(r"[0-9a-f]{32}")


def conceal(url: str | None) -> str | None:
    """The URL itself if it holds no password, else a token for it.

    One URL has one token in a session, because Spark compares options. The token is a MAC by a
    random key of the session, so that nobody finds the password by trying.

    Raises:
        CatalogUnavailableError: there is no private place for the URL.
    """
    if url is None or url.startswith((_PREFIX, "env:")) or redact(url) == url:
        return url
    try:
        folder = session_folder()
        token = hmac.digest((folder / KEY).read_bytes(), url.encode(), "sha256").hex()[:32]
        if not (folder / token).exists():
            keep(folder, token, url.encode())
    except (NotPrivateError, OSError) as error:
        raise CatalogUnavailableError(catalog="(concealed)", reason=str(error)) from error
    return _PREFIX + token


def reveal(url: str | None) -> str | None:
    """The URL of a token. Anything else is returned unchanged.

    Raises:
        CatalogUnavailableError: this machine does not have the URL: it is not the driver, or the
            session has ended.
    """
    if url is None or not url.startswith(_PREFIX):
        return url
    token = url[len(_PREFIX) :]
    try:
        found = kept(token) if _TOKEN.fullmatch(token) else None
    except (NotPrivateError, OSError) as error:
        raise CatalogUnavailableError(catalog="(concealed)", reason=str(error)) from error
    if found is None:
        raise CatalogUnavailableError(
            catalog="(concealed)",
            reason="its URL is known on the driver only, while the session lasts; put the URL into "
            "an environment variable of the driver and use catalog 'env:NAME'",
        )
    return found.decode()
