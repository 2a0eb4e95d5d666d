"""Verb. The tags, branches and consumers of an open dataset."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lakehouse_source.arguments import flag
from lakehouse_source.dataset.opened import OpenDataset, Opened
from lakehouse_source.errors import DatasetExistsError
from lakehouse_source.maintenance import expiry
from lakehouse_source.model import Consumer, WriteResult
from lakehouse_source.read.address import Address, PathLike
from lakehouse_source.write.metadata import refs
from lakehouse_source.write.metadata.clone import clone as make_clone
from lakehouse_source.write.metadata.clone import target_of as clone_target


class Refs(OpenDataset):
    """Tags, which name versions, and branches, which have versions of their own."""

    def tag(self, name: str, version: int | None = None) -> None:
        """Give a name to a version, by default to this one; `expire_versions` keeps it.

        Spark reads it by `VERSION AS OF 'name'`, and every read by `version="name"`.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.
            InvalidOptionError: the dataset has the tag, or the tag looks like a number.

        >>> dataset.tag("spring", version=1)
        >>> dataset.tags()
        {'spring': 1}
        """
        self._do(refs.tag, name, self.version if version is None else version)

    def tags(self) -> Mapping[str, int]:
        """The versions that have a tag, by tag, the oldest version first.

        >>> dataset.tags()
        {}
        """
        with self._address.open() as catalog, catalog.read() as reader:
            return refs.tags(catalog, self._address, reader)

    def drop_tag(self, name: str) -> None:
        """Remove a tag; the version stays until it is expired.

        Raises:
            VersionNotFoundError: the dataset has no such tag.

        >>> dataset.tag("spring")
        >>> dataset.drop_tag("spring")
        """
        self._do(refs.drop_tag, name)

    def branch(self: Opened, name: str, version: int | None = None) -> Opened:
        """A branch of the dataset; it is made if there is none of that name.

        The dataset does not show what is written to a branch until `fast_forward`. A branch begins
        as the newest version, or as `version`. The branch is opened by its URI too, which ends with
        `#branch=` and the name, and by the option `branch` of Spark.

        Making a branch copies no file, only the catalog's rows about the files of the version. The
        oldest version that can be read of a branch is the version that it began as; its history has
        older ones too. A branch has its own tags and expires its own versions. `vacuum` of the
        dataset vacuums its branches too.

        Raises:
            VersionNotFoundError: there is no such version, or it was expired.
            InvalidOptionError: the name is not valid; or `version` is given and the branch exists,
                or the dataset had another schema at that version.

        >>> audit = dataset.branch("audit")
        >>> audit.delete("miles = 1400").rows_deleted
        1
        >>> audit.refresh().scan().count_rows(), dataset.refresh().scan().count_rows()
        (3, 4)
        >>> dataset.fast_forward("audit").version
        2
        >>> dataset.scan().count_rows()
        3
        """
        with self._address.open() as catalog:
            address = refs.make_branch(catalog, self._address, name, version)
        return type(self)(address, committed=True)

    def branches(self) -> Mapping[str, int]:
        """The newest version of each branch, by name.

        >>> dataset.branches()
        {}
        """
        with self._address.open() as catalog, catalog.read() as reader:
            found = refs.branches(catalog, self._address, reader)
        return {name: branch.version for name, branch in found.items()}

    def fast_forward(self, branch: str) -> WriteResult:
        """Commit to the dataset what was committed to a branch; moves to the newest version.

        Each version of the branch becomes one of the dataset, with the same number. All of
        them become visible at once. The branch stays.

        Raises:
            CommitConflictError: something was committed to the dataset since the branch began.
            VersionNotFoundError: there is no such branch, or versions of it were expired.
            CommitUnknownError: the catalog was lost during the commit.

        >>> spring = dataset.branch("spring")
        >>> lake.write_dataset({"month": [5], "carrier": ["UA"], "miles": [1]}, spring.uri).version
        2
        >>> dataset.fast_forward("spring").version
        2
        """
        return self._commit(refs.fast_forward, branch)

    def drop_branch(self, name: str) -> None:
        """Remove a branch, with the versions that the dataset did not take over.

        Queries that read the branch go on: a vacuum deletes the branch's files only when its
        retention has passed since this call. Writes to the branch fail.

        Raises:
            VersionNotFoundError: there is no such branch.

        >>> spring = dataset.branch("spring")
        >>> dataset.drop_branch("spring")
        >>> dataset.branches()
        {}
        """
        self._do(refs.drop_branch, name)


class Clones(OpenDataset):
    """Datasets that begin as a version of this one."""

    def clone(
        self: Opened,
        to: PathLike | tuple[str, str],
        *,
        version: int | str | None = None,
        timestamp: datetime | str | None = None,
        deep: bool = False,
        replace: bool = False,
        exist_ok: bool = False,
        location: PathLike | None = None,
        commit_metadata: Mapping[str, Any] | None = None,
        progress: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Opened:
        """Let a version begin a dataset of its own, in the same catalog; the dataset that is made.

        No file is written or read: the clone names the files where they are. What is written to
        either of the two later is not in the other one, and no vacuum, expiry or drop takes a file
        that the other one has. The clone's first version has the number of the version that it
        began as. It has its own history, tags, branches and properties, which begin as those of
        this dataset.

        Args:
            to: a name in the catalog, or a folder or URI in a store of the same kind.
            version: the version, by its number or tag; by default this one.
            timestamp: or a time: the version that was the newest then.
            deep: copy the files, byte by byte. Then nothing is shared.
            replace: take the name away from the dataset that has it, as `DatasetCatalog.drop` does.
            exist_ok: answer the dataset that is there, where one is.
            location: the folder of a clone with a name. By default one in the warehouse.
            commit_metadata: a mapping that JSON can hold, stored in the history.
            progress: show progress of copying, as in `write_dataset`.
            storage_options: as in `write_dataset`; by default those of this dataset.

        Raises:
            DatasetExistsError: there is a dataset of this name or at this place.
            VersionNotFoundError: there is no such version, or it was expired.
            InvalidOptionError: the store is another one, or this dataset's catalog is the one in
                its own folder and nobody named it.

        >>> trial = catalog.dataset("orders").clone("trial")
        >>> trial.version, trial.history()[0].operation
        (1, 'clone')
        """
        if version is None and timestamp is None:
            version = self._snapshot.version
        with self._address.open() as catalog:
            target = clone_target(catalog, self._address, to, location, storage_options)
            try:
                make_clone(
                    catalog,
                    self._address,
                    target,
                    version=version,
                    timestamp=timestamp,
                    deep=deep,
                    replace_name=flag("replace", replace),
                    commit_metadata=commit_metadata,
                    progress=progress,
                )
            except DatasetExistsError:
                if not flag("exist_ok", exist_ok):
                    raise
        address = target.address
        if target.name is not None and exist_ok:
            name = ".".join(f"`{part}`" for part in target.name)
            address = Address.named(name, self._address.catalog, storage_options)
        else:
            address.catalog = self._address.catalog
        return type(self)(address, committed=True)


# --- The consumers of an open dataset's change feed.


class FeedConsumers(OpenDataset):
    """Named readers of the change feed, which continue where they stopped."""

    def add_consumer(
        self, name: str, version: int | None = None, *, keep_seconds: int = expiry.KEEP_SECONDS
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
            expiry.add_consumer(catalog, self._address, name, position, keep_seconds, seen)

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
        self._do(expiry.advance_consumer, name, version, self._snapshot.seen)

    def consumers(self) -> Mapping[str, Consumer]:
        """The consumers by name, also those whose time has passed.

        >>> dataset.consumers()
        {}
        """
        with self._address.open() as catalog, catalog.read() as reader:
            return expiry.consumers(catalog, self._address, reader)

    def drop_consumer(self, name: str) -> None:
        """Remove a consumer; the versions that it kept stay until they are expired.

        Raises:
            VersionNotFoundError: the dataset has no such consumer.

        >>> dataset.add_consumer("billing")
        >>> dataset.drop_consumer("billing")
        """
        self._do(expiry.drop_consumer, name)
