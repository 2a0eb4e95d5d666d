"""Verb. Tags and branches of a dataset: made, listed, dropped, and taken over by the dataset."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress

import pyarrow as pa
import uuid6

from lakehouse_source.arguments import name_text, text
from lakehouse_source.catalog.base import (
    Catalog,
    CatalogReader,
    CatalogTransaction,
    in_transaction,
    is_committed,
)
from lakehouse_source.catalog.sql.reader import DatasetChanges
from lakehouse_source.catalog.sql.refs import Branch
from lakehouse_source.errors import CommitConflictError, InvalidOptionError, PlakeError
from lakehouse_source.model import (
    DatasetRecord,
    DeletionVector,
    FileBounds,
    TransactionRecord,
    WriteResult,
)
from lakehouse_source.pruning import keys
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import (
    check_readable,
    existing,
    no_such_reference,
    version_number,
)
from lakehouse_source.schema.fields import leaves
from lakehouse_source.storage import is_of_transaction, with_branch
from lakehouse_source.write.commit.chosen_paths import rebuild_index
from lakehouse_source.write.commit.evolution import encoded_anew
from lakehouse_source.write.commit.stored_rows import check_older, check_unchanged
from lakehouse_source.write.commit.transaction import locked

# --- Tags: names of versions, which expiry keeps.


def tag(catalog: Catalog, address: Address, name: str, version: int) -> None:
    """Give a tag to a version."""
    if version_number(name_text("tag", name)) is not None:
        reason = "reads like the number of a version."
        raise InvalidOptionError(option="tag", value=name, reason=reason)

    def give(tx: CatalogTransaction) -> None:
        # Under the lock: no expiry removes the version at the same time.
        record = existing(tx.lock_dataset(address.key), address.uri, catalog.redacted_url)
        check_readable(record, address.uri, version, tx)
        if not tx.set_tag(record.id, name, version) and tx.tags(record.id)[name] != version:
            raise InvalidOptionError(
                option="tag",
                value=name,
                reason=f"is that of version {tx.tags(record.id)[name]}. Drop it first: "
                "dataset.drop_tag(name).",
            )

    in_transaction(catalog, address.uri, "", give, resolve=False)


def tags(catalog: Catalog, address: Address, reader: CatalogReader) -> Mapping[str, int]:
    """The versions that have a tag, by tag, the oldest version first."""
    record = existing(reader.dataset(address.key), address.uri, catalog.redacted_url)
    return reader.tags(record.id)


def drop_tag(catalog: Catalog, address: Address, name: str) -> None:
    """Remove a tag.

    Raises:
        VersionNotFoundError: the dataset has no such tag.
    """

    def drop(tx: CatalogTransaction) -> int:
        record = existing(tx.dataset(address.key), address.uri, catalog.redacted_url)
        if not tx.drop_tag(record.id, name):
            raise no_such_reference(record, address.uri, f"tag {name!r}")
        return record.id

    def is_dropped(tx: CatalogTransaction, dataset_id: int) -> bool:
        return name not in tx.tags(dataset_id)

    in_transaction(catalog, address.uri, "", drop, carried_out=is_dropped, resolve=False)


# --- Branches of a dataset: made, listed, dropped, and taken over by the dataset.
#
# A branch begins as the files of one version. The dataset does not see commits to a branch until
# `fast_forward` commits the same versions to the dataset. All this is metadata: no data file is
# read or written. The work grows with the number of files of the version.


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def make_branch(
    catalog: Catalog,
    address: Address,
    name: str,
    version: int | None,
    *,
    of_transaction: bool = False,
) -> Address:
    """Make a branch from a version, by default from the newest one; returns its address.

    Without a version, an existing branch is returned. Only a transaction makes one with the name
    that `branch_of_transaction` gives: vacuum drops it after a day.
    """
    _check(address, name)
    found = address.branch(name)
    write_id = str(uuid6.uuid7())
    checked = None if version is None else check_older(catalog, address, version)

    def make(tx: CatalogTransaction) -> int:
        record = existing(tx.lock_dataset(address.key), address.uri, catalog.redacted_url)
        base = record.current_version if version is None else version
        check_readable(record, address.uri, base, tx)
        there = tx.branches(record.id).get(name)
        if there is not None:
            if version is None:
                return there.dataset_id
            raise InvalidOptionError(
                option="branch",
                value=name,
                reason="exists already. Drop it first: dataset.drop_branch(name).",
            )
        if is_of_transaction(name) and not of_transaction:
            raise InvalidOptionError(
                option="branch",
                value=name,
                reason="is a name of transactions of Spark sessions, whose branches vacuum drops "
                "after a day. Choose another name.",
            )
        _check_same_columns(tx, record, address.uri, base)
        if checked is not None:
            check_unchanged(record, address.uri, checked)
        return _begin(tx, record, name, base, write_id)

    def is_made(tx: CatalogTransaction, made: int) -> bool:
        return _branch_id(tx, address, name) == made

    in_transaction(catalog, address.uri, "", make, carried_out=is_made, resolve=False)
    return found


def branches(catalog: Catalog, address: Address, reader: CatalogReader) -> Mapping[str, Branch]:
    """The branches of a dataset, by name."""
    record = existing(reader.dataset(address.key), address.uri, catalog.redacted_url)
    return reader.branches(record.id)


def drop_branch(catalog: Catalog, address: Address, name: str) -> None:
    """Remove a branch and its versions.

    Its files expire at this moment: a vacuum of the dataset deletes them after the retention.

    Raises:
        VersionNotFoundError: the dataset has no such branch.
    """

    def hide(tx: CatalogTransaction) -> int:
        record = existing(tx.lock_dataset(address.key), address.uri, catalog.redacted_url)
        return _hide(tx, record, _existing_branch(tx, record, address.uri, name))

    def is_hidden(tx: CatalogTransaction, hidden: int) -> bool:
        return _branch_id(tx, address, name) != hidden

    hidden = in_transaction(catalog, address.uri, "", hide, carried_out=is_hidden, resolve=False)
    _forget(catalog, address, [hidden])


def _hide(tx: CatalogTransaction, record: DatasetRecord, branch: Branch) -> int:
    """Remove a branch of a locked dataset from all readers and writers; returns its id."""
    # Under the branch's lock: a running write commits before this, or finds that the branch is
    # gone.
    tx.lock_dataset(with_branch(record.base_uri, branch.name))
    tx.expire_branch(record.id, branch.dataset_id)
    tx.drop_dataset(branch.dataset_id)
    return branch.dataset_id


def _forget(catalog: Catalog, address: Address, hidden: Iterable[int]) -> None:
    """Remove the rest of branches that are hidden, without the locks that other writers need.

    What fails here is removed by `make_branch` and `finish_drops`.
    """
    for one in hidden:

        def forget(tx: CatalogTransaction, id: int = one) -> None:
            tx.forget_dataset(id)

        with suppress(PlakeError):
            in_transaction(catalog, address.uri, "", forget, resolve=False)


def fast_forward(catalog: Catalog, address: Address, name: str) -> WriteResult:
    """Commit the versions of a branch to its dataset, one by one.

    The branch stays; it then equals the dataset.

    Raises:
        VersionNotFoundError: the dataset has no such branch, or versions of the branch were
            expired.
        CommitConflictError: something was committed to the dataset since the branch was made.
        CommitUnknownError: the catalog was lost during the commit.
    """
    write_id = str(uuid6.uuid7())

    def forward(tx: CatalogTransaction) -> WriteResult:
        record = existing(tx.lock_dataset(address.key), address.uri, catalog.redacted_url)
        branch = _existing_branch(tx, record, address.uri, name)
        version = _forward(tx, catalog, address, record, branch, write_id)
        tx.set_branch_base(branch.dataset_id, version)
        return WriteResult(version, 0, 0, tx.schema_at(record.id, version)[0])

    done = is_committed(address.key, write_id)
    return in_transaction(catalog, address.uri, write_id, forward, carried_out=done)


# --- Branches of a transaction: those of one name, of any datasets, become visible together.


def check_may_drop(catalog: Catalog, address: Address) -> None:
    """Refuse a login that could not drop a branch later.

    Raises:
        AccessDeniedError
    """
    in_transaction(catalog, address.uri, "", lambda tx: tx.drop_dataset(0), resolve=False)


def commit_branches(
    catalog: Catalog, addresses: Sequence[Address], name: str, *, serializable: bool
) -> None:
    """Commit the branches of one name of several datasets, and drop them, as one.

    A branch without a version of its own was only read: its dataset may have changed, except where
    the commit is `serializable`.

    Raises:
        CommitConflictError: something was committed to a dataset since its branch was made.
            Nothing is committed.
        VersionNotFoundError: a branch was dropped. Nothing is committed.
        CommitUnknownError: the catalog was lost during the commit.
    """
    write_ids = [str(uuid6.uuid7()) for _ in addresses]

    def work(tx: CatalogTransaction) -> list[int]:
        keys = [one.key for address in addresses for one in (address, address.branch(name))]
        locked(tx, keys)
        hidden: dict[int, int] = {}
        for address, write_id in zip(addresses, write_ids):
            record = existing(tx.dataset(address.key), address.uri, catalog.redacted_url)
            if record.id in hidden:  # under another spelling of its URI
                continue
            branch = _existing_branch(tx, record, address.uri, name)
            if serializable or branch.version > branch.base_version:
                _forward(tx, catalog, address, record, branch, write_id)
            hidden[record.id] = _hide(tx, record, branch)
        return list(hidden.values())

    def carried_out(tx: CatalogTransaction, _: object) -> bool:
        locked(tx, [address.key for address in addresses])  # a running COMMIT holds the locks
        return any(map(tx.transaction_by_write_id, write_ids))

    _forget(
        catalog,
        addresses[0],
        in_transaction(catalog, addresses[0].uri, write_ids[0], work, carried_out=carried_out),
    )


# --- a branch begins ------------------------------------------------------------------


def _begin(
    tx: CatalogTransaction, record: DatasetRecord, name: str, base: int, write_id: str
) -> int:
    """Register a branch with the files, vectors and schemas of a version, and its history.

    Returns its id.
    """
    key = with_branch(record.base_uri, name)
    for dropped in tx.dropped_datasets():
        if dropped.base_uri == key:  # a drop that was interrupted
            tx.forget_dataset(dropped.id)
    registered = tx.register_dataset(key, record.name)
    tx.insert_branch(record, Branch(name, registered.id, base, base), write_id)
    for number, schema in tx.schemas(record.id).items():
        if number <= base:
            tx.insert_schema(registered.id, number, schema)
    return registered.id


# --- a dataset takes over a branch ------------------------------------------------------


def _forward(
    tx: CatalogTransaction,
    catalog: Catalog,
    address: Address,
    record: DatasetRecord,
    branch: Branch,
    write_id: str,
) -> int:
    """Commit the versions of a branch to its locked dataset; returns the newest one."""
    uri = with_branch(address.uri, branch.name)
    locked = tx.lock_dataset(with_branch(record.base_uri, branch.name))
    theirs = existing(locked, uri, catalog.redacted_url)
    _check_unchanged(record, address.uri, branch)
    check_readable(theirs, uri, branch.base_version, tx)
    _take_over(tx, record, theirs, branch.base_version, write_id)
    return theirs.current_version


def _take_over(
    tx: CatalogTransaction,
    record: DatasetRecord,
    branch: DatasetRecord,
    base: int,
    write_id: str,
) -> None:
    """Commit the versions of a branch after its base to the dataset, which is at the base."""
    commits = tx.transactions_since(branch.id, base)
    if not commits:
        return
    _take_over_schema(tx, record, branch, base)
    changes = tx.changes_since(branch.id, base)
    ids: dict[int, int] = {}
    if changes.removed_files or changes.removed_vectors or changes.vectors:
        mine = tx.live_paths(record.id, base)
        ids = {one: mine[path] for path, one in tx.live_paths(branch.id, base).items()}
    # New identities of rows continue after those of the branch.
    new_rows = [0] * (len(commits) - 1) + [branch.next_row_id - record.next_row_id]
    added: dict[int, list[int]] = {}
    for file in changes.files:
        added.setdefault(file.version, []).append(file.id)
    for commit, rows in zip(commits, new_rows):
        is_last = commit.version == branch.current_version
        _commit_again(tx, record.id, commit, write_id if is_last else str(uuid6.uuid7()), rows)
        ids |= tx.copy_files(record.id, added.get(commit.version, ()))
        gone = set(changes.removed_files.get(commit.version, ()))
        tx.remove_files(record.id, commit.version, [ids[one] for one in gone])
        tx.set_vectors(record.id, commit.version, _vectors_of(changes, commit.version, ids, gone))


def _take_over_schema(
    tx: CatalogTransaction, record: DatasetRecord, branch: DatasetRecord, base: int
) -> None:
    """Bring the schemas, the properties and the search index of a dataset to those of a branch."""
    schemas = [tx.schema_at(record.id, base)[1]]
    for number, schema in sorted(tx.schemas(branch.id).items()):
        if number > base:
            tx.insert_schema(record.id, number, schema)
            schemas.append(schema)
    if branch.properties != record.properties:
        rebuild_index(tx, record, schemas[-1], branch.properties)
        _index_dropped(tx, record, branch, schemas[-1])
        tx.set_properties(record.id, branch.properties)
    # Versions in between are searched too, with keys in the encoding of their own schemas.
    for column_id in encoded_anew(schemas):
        tx.invalidate_bounds(record.id, column_id)


def _index_dropped(
    tx: CatalogTransaction, record: DatasetRecord, branch: DatasetRecord, schema: pa.Schema
) -> None:
    """Let every file match a search over columns that joined the index and then left the schema.

    Older versions, which have the columns, are searched by them.
    """
    joined = set(branch.properties.indexed_columns) - set(record.properties.indexed_columns)
    joined -= {leaf.id for leaf in leaves(schema)}
    if joined:
        unknown = (keys.UNBOUNDED_LOWER, keys.UNBOUNDED_UPPER, None)
        for file in tx.files_added_since(record.id, 0):
            rows = [FileBounds(one, *unknown, file.row_count, True) for one in sorted(joined)]
            tx.insert_bounds(record.id, [(file.id, row) for row in rows])


def _commit_again(
    tx: CatalogTransaction, dataset_id: int, commit: TransactionRecord, write_id: str, rows: int
) -> None:
    app_id, number = commit.txn_app_id, commit.txn_version
    # The same application may have committed the number to the dataset before.
    if (
        app_id is not None
        and number is not None
        and tx.transaction_by_txn(dataset_id, app_id, number) is not None
    ):
        app_id = number = None
    tx.insert_transaction(
        dataset_id,
        commit.version,
        commit.operation,
        commit.metadata,
        commit.summary,
        write_id,
        app_id,
        number,
        new_rows=rows,
        # The committer is whoever takes the branch over; the writer of the branch is recorded too.
        committer={"branch_by": commit.committed_by or ""},
    )


def _vectors_of(
    changes: DatasetChanges, version: int, ids: Mapping[int, int], gone: Set[int]
) -> dict[int, DeletionVector | None]:
    """The new deletion vectors of files after a commit; None: the file has no vector any more."""
    removed = changes.removed_vectors.get(version, [])
    found: dict[int, DeletionVector | None] = {ids[one]: None for one in removed if one not in gone}
    for file_id, vector in changes.vectors.get(version, {}).items():
        found[ids[file_id]] = vector
    return found


# --- checks -----------------------------------------------------------------------------


def _check(address: Address, name: str) -> None:
    reason = None
    if address.is_branch:
        reason = f"cannot be made of a branch: {address.uri} is one."
    elif not _NAME.fullmatch(text("branch", name)):
        reason = "must be 1 to 128 ASCII letters, digits, '_', '-' and '.', not '-' or '.' first."
    elif name.lower() == "main":
        reason = "is what the dataset itself is called in `refs`."
    if reason is not None:
        raise InvalidOptionError(option="branch", value=name, reason=reason)


def _check_same_columns(
    tx: CatalogTransaction, record: DatasetRecord, uri: str, version: int
) -> None:
    """Check that a version has the schema that is in force: properties name columns of that."""
    since = tx.schema_at(record.id, record.current_version)[0]
    if version < since:
        raise InvalidOptionError(
            option="version",
            value=version,
            reason=f"has another schema than {uri} has now. Make a branch of version {since} or "
            "a later one.",
        )


def _check_unchanged(record: DatasetRecord, uri: str, branch: Branch) -> None:
    if record.current_version != branch.base_version:
        raise CommitConflictError(
            dataset=uri,
            base_version=branch.base_version,
            current_version=record.current_version,
            reason=f"branch {branch.name!r} begins at version {branch.base_version}. Read the "
            "branch and write its rows to the dataset, or drop the branch and make a new one",
        )


def _existing_branch(reader: CatalogReader, record: DatasetRecord, uri: str, name: str) -> Branch:
    branch = reader.branches(record.id).get(name)
    if branch is None:
        raise no_such_reference(record, uri, f"branch {name!r}")
    return branch


def _branch_id(tx: CatalogTransaction, address: Address, name: str) -> int | None:
    """The id of a branch, or None, after every change of the dataset's branches has ended."""
    record = tx.lock_dataset(address.key)
    found = None if record is None else tx.branches(record.id).get(name)
    return None if found is None else found.dataset_id
