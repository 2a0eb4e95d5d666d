"""What readers and writers of the catalog ask of one open database transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from lakehouse_source.catalog.sql.dialect import Dialect

Row = tuple[Any, ...]
# Text with `?`, and its values.
Statement = tuple[str, Sequence[Any]]


class Session(Protocol):
    """One database transaction. Statements use `?` and the fragments of `dialect`.

    Every failure is raised as a `PlakeError` that says by its fields whether to try again.
    """

    dialect: Dialect
    redacted_url: str
    # The path of a catalog that may be in the folder of a dataset.
    catalog_path: str | None

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows that a statement gives."""

    def query_all(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """The rows of each of several statements, which are run one after the other."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement; return how many rows it changed."""

    def send(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Run a statement whose result is not needed, now or later.

        It is run before any later statement and before COMMIT; its error is raised there.
        """

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows, few or many, as `send` does."""

    def flush(self) -> None:
        """Run what was sent and not run yet."""

    def id_list(self, ids: Iterable[int]) -> Any:
        """A list of ids as one bound value, for `Dialect.among` and `Dialect.ids`."""
