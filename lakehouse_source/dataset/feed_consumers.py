"""Verb. The consumers of an open dataset's change feed."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse_source.dataset.opened import OpenDataset
from lakehouse_source.maintenance import consumers
from lakehouse_source.model import Consumer


class FeedConsumers(OpenDataset):
    """Named readers of the change feed, which continue where they stopped."""

    def add_consumer(
        self, name: str, version: int | None = None, *, keep_seconds: int = consumers.KEEP_SECONDS
    ) -> None:
        """Note a reader of the change feed that has read up to a version, by default this one.

        `changes(consumer=name)` gives what came after it. `expire_versions` keeps the version and
        all later ones until the consumer is advanced, is dropped, or was not advanced for
        `keep_seconds`.

        Args:
            name: of the consumer; each dataset has its own.
            version: 0 means that nothing was read, and is valid while version 1 can be read.
            keep_seconds: 30 days by default.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.
            InvalidOptionError: the dataset has a consumer of that name at another version.

        >>> dataset.add_consumer("billing", version=0)
        >>> dataset.consumers()["billing"].version
        0
        """
        with self._address.open() as catalog:
            seen = self._snapshot.seen
            position = seen.version if version is None else version
            consumers.add_consumer(catalog, self._address, name, position, keep_seconds, seen)

    def advance_consumer(self, name: str, version: int) -> None:
        """Note that a consumer has processed the changes up to a version.

        Nothing else moves a consumer, so changes whose processing failed are read again. Advancing
        to the same version only restarts the consumer's time.

        Raises:
            VersionNotFoundError: there is no such consumer or version, or it was expired.
            InvalidOptionError: the consumer has read a later version.

        >>> dataset.add_consumer("billing", version=0)
        >>> through = dataset.refresh().version
        >>> changes = dataset.changes(end=through, consumer="billing")
        >>> changes.to_table().num_rows  # the work
        4
        >>> dataset.advance_consumer("billing", through)
        >>> dataset.changes(consumer="billing").to_table().num_rows
        0
        """
        self._do(consumers.advance_consumer, name, version, self._snapshot.seen)

    def consumers(self) -> Mapping[str, Consumer]:
        """The consumers by name, also those whose time has passed.

        >>> dataset.consumers()
        {}
        """
        with self._address.open() as catalog, catalog.read() as reader:
            return consumers.consumers(catalog, self._address, reader)

    def drop_consumer(self, name: str) -> None:
        """Remove a consumer; the versions that it kept stay until they are expired.

        Raises:
            VersionNotFoundError: the dataset has no such consumer.

        >>> dataset.add_consumer("billing")
        >>> dataset.drop_consumer("billing")
        """
        self._do(consumers.drop_consumer, name)
