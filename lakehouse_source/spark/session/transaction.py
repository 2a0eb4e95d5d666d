"""Door. A transaction of a Spark session: until it ends, its tables are branches of themselves.

The first statement on a table makes a branch `transaction-<id>` of the version that is the newest
then. From then on the statements of the session read and write the branch, whether they ask for the
table by its name (`place_of`) or by its path (`source.py`). A setting of the session has the id;
the planner extension tells it to every instance of the data source (`PlakeSource.java`).

The private folder of the session notes the begin, and each table after its branch is made and
before the statement goes on. So no write is missed: where the note of the begin is gone at the end,
all of them may be, and nothing is committed. A process that dies leaves branches, which nobody
reads and vacuum drops.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lakehouse_source.errors import (
    CatalogUnavailableError,
    DatasetNotFoundError,
    InvalidOptionError,
    PlakeError,
)
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import version_number
from lakehouse_source.spark.session.options import TAKES
from lakehouse_source.spark.session.secrets import (
    NotPrivateError,
    catalog_of_query,
    check_no_secrets,
    keep,
    session_folder,
)
from lakehouse_source.storage import branch_of_transaction, split_branch, with_branch
from lakehouse_source.write.metadata.refs import (
    branches,
    check_may_drop,
    commit_branches,
    drop_branch,
    make_branch,
)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a transaction.

    `base`: the version of which its branch is. `owner`: a hash of the URL of its catalog, which
    may hold a password.
    """

    path: str
    catalog: str | None
    storage: Mapping[str, str]
    base: int = 0
    owner: str = ""

    def address(self) -> Address:
        check_no_secrets(self.path, self.storage)
        return Address(self.path, catalog_of_query(self.catalog), self.storage)

    def check_owner(self, other: _Table) -> None:
        if self.owner != other.owner:
            raise InvalidOptionError(
                option="transaction",
                value=self.path,
                reason=f"is in another catalog than {other.path}, and a transaction is of one. A "
                "folder without the option 'catalog' has a catalog of its own.",
            )


def routed(
    id: str,
    path: str,
    catalog: str | None,
    storage: Mapping[str, str],
    *,
    version: str | None = None,
    time: object = None,
) -> str:
    """The path of a table's branch in a transaction.

    A version from before the branch, a tag and a time are those of the table itself.

    Raises:
        DatasetNotFoundError: there is no such dataset: a transaction makes none.
        InvalidOptionError: it is a branch, or in another catalog than the tables before.
        AccessDeniedError: the login may not drop the branch at the end.
    """
    name, number = branch_of_transaction(id), version_number(version or "")
    folder, branch = split_branch(path)
    if branch == name or time is not None or (version is not None and number is None):
        return path
    if branch is not None:
        raise InvalidOptionError(option="branch", value=branch, reason=f"is a branch. {TAKES}.")
    base = _joined(name, _Table(folder, catalog, storage)).base
    return path if number is not None and number < base else with_branch(folder, name)


def _joined(name: str, table: _Table) -> _Table:
    """The table with its branch, which is made by the first statement on it."""
    address = table.address()
    where = json.dumps([address.uri, address.key, table.catalog])
    file = f"{name}.{hashlib.sha256(where.encode()).hexdigest()[:32]}"
    tables = _tables(name)
    if file in tables:
        return tables[file]
    try:
        with address.open() as catalog:
            owner = hashlib.sha256(catalog.url.encode()).hexdigest()
            for other in tables.values():
                replace(table, owner=owner).check_owner(other)
            check_may_drop(catalog, address)
            make_branch(catalog, address, name, None, of_transaction=True)
            with catalog.read() as reader:
                base = branches(catalog, address, reader)[name].base_version
    except DatasetNotFoundError as error:
        raise DatasetNotFoundError(
            dataset=error.dataset, catalog=error.catalog, hint=TAKES
        ) from error
    made = replace(table, storage=dict(table.storage), base=base, owner=owner)
    keep(_folder(), file, json.dumps(asdict(made)).encode())
    return made


def _tables(name: str) -> dict[str, _Table]:
    return {
        file.name: _Table(**json.loads(file.read_bytes())) for file in _folder().glob(f"{name}.*")
    }


def _folder() -> Path:
    try:
        return session_folder()
    except (NotPrivateError, OSError) as error:
        raise CatalogUnavailableError(catalog="(of the session)", reason=str(error)) from error


def begin(id: str) -> None:
    """Note that a transaction has begun."""
    keep(_folder(), branch_of_transaction(id), b"")


def end(id: str, commit: bool, serializable: bool = False) -> list[str]:
    """Commit what a transaction did, or drop it; returns the paths of its tables.

    Raises:
        CatalogUnavailableError: the notes of its tables are gone. Nothing is committed.
        CommitConflictError: another writer committed to a table. Nothing is committed.
        CommitUnknownError: the catalog was lost during the commit.
    """
    name = branch_of_transaction(id)
    if commit and not (_folder() / name).exists():
        raise CatalogUnavailableError(
            catalog="(of the session)",
            reason=f"the notes of transaction {id} are gone from the session's temporary folder "
            f"{_folder()}. Nothing was committed: run the block again",
        )
    tables = _tables(name)
    addresses = [one.address() for one in tables.values()]
    stay = False
    try:
        if commit and addresses:
            first, *others = tables.values()
            for one in others:  # two that joined at once did not see each other
                one.check_owner(first)
            with addresses[0].open() as catalog:
                commit_branches(catalog, addresses, name, serializable=serializable)
            stay = True  # they are dropped already
    except PlakeError as error:
        stay = error.outcome_unknown
        raise
    finally:
        for address in () if stay else addresses:
            with suppress(PlakeError), address.open() as catalog:  # vacuum drops the others
                drop_branch(catalog, address, name)
        for file in (name, *tables):
            (_folder() / file).unlink(missing_ok=True)
    return sorted(one.path for one in tables.values())
