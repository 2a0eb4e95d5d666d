"""Edge. Where a dataset is, and how to reach it: a URI and storage options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from lakehouse_source.arguments import mapping
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.storage.hosts import check_uri_of_catalog
from lakehouse_source.storage.options import checked_options, may_be_secret, resolved_texts
from lakehouse_source.storage.protocols import OWN, check_protocol
from lakehouse_source.storage.uris import (
    AZURE_SCHEMES,
    GCS_SCHEMES,
    S3_SCHEMES,
    UriOfCatalog,
    canonical_uri,
    parts_of,
    redact_uri,
    scheme_of,
    split_branch,
)

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

    @classmethod
    def of(
        cls, given: str | os.PathLike[str], options: Mapping[str, Any] | None = None
    ) -> StorageLocation:
        """The location of a URI, with options by any of the names that the store knows.

        Raises:
            InvalidOptionError: a catalog names the URI, and it leads where nobody permitted.
        """
        text = split_branch(os.fspath(given).strip())[0]
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
        text = os.fspath(given).strip()
        mine, theirs = _kind(self.scheme), _kind(scheme_of(text))
        found = StorageLocation.of(text, self.options if mine == theirs else None)
        return replace(found, hidden=self.hidden)

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
