"""Pure. Tables that plake answers with: the columns of some, and how all of them print."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # PyArrow takes longer to import than help takes to show
    from lakehouse_source.model import TransactionRecord


class Type(Enum):
    """The types of parameters and of columns, which each door translates."""

    TEXT = "text"
    FLAG = "true or false"
    INT = "integer of 32 bits"
    LONG = "integer of 64 bits"
    DOUBLE = "number"
    TIMESTAMP = "time with a zone, in microseconds"
    TEXTS = "list of texts"
    LONGS = "list of integers of 64 bits"
    MAP = "texts by name"
    JSON = "a value that JSON holds"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the rows of an operation or of a metadata table.

    Operations leave out the columns of a metadata table that have no comment.
    """

    name: str
    type: Type
    comment: str = ""


HISTORY = (
    Column("version", Type.LONG, "the version that the commit made"),
    Column("timestamp", Type.TIMESTAMP, "when"),
    Column("operation", Type.TEXT, "what was done"),
    Column("files_added", Type.LONG, "files that it added"),
    Column("files_removed", Type.LONG, "files that it took out"),
    Column("rows_added", Type.LONG, "rows that it added"),
    Column("rows_removed", Type.LONG, "rows that it took out"),
    Column("rows_updated", Type.LONG),
    Column("rows_deleted", Type.LONG),
    Column("rows_inserted", Type.LONG),
    Column("live_rows", Type.LONG, "rows of the version"),
    Column("committed_by", Type.TEXT, "who committed"),
    Column("committer", Type.MAP),
    Column("metadata", Type.JSON, "what the writer noted"),
    Column("write_id", Type.TEXT),
    Column("txn_app_id", Type.TEXT),
    Column("txn_version", Type.LONG),
    Column("is_readable", Type.FLAG, "whether the version can be read"),
)
HEALTH = (
    Column("measure", Type.TEXT, "what is measured, or the call of upkeep"),
    Column("subject", Type.TEXT, "the column or the sizes that it is about"),
    Column("files", Type.LONG, "files"),
    Column("size_bytes", Type.LONG, "their bytes"),
    Column("value", Type.DOUBLE, "the measure; for a call of upkeep: 1 if it is worth doing"),
    Column("note", Type.TEXT, "what the value means"),
)
REFS = (
    Column("name", Type.TEXT, "the branch or tag"),
    Column("type", Type.TEXT, "BRANCH or TAG"),
    Column("version", Type.LONG, "its version"),
)
CONSTRAINTS = (
    Column("name", Type.TEXT, "the constraint"),
    Column("expression", Type.TEXT, "its condition, which is FALSE on no row, or its key"),
    Column("since", Type.LONG, "the version that added it"),
)
CONSUMERS = (
    Column("name", Type.TEXT, "the consumer"),
    Column("version", Type.LONG, "the last version whose changes it has read"),
    Column("versions_behind", Type.LONG, "versions that it has not read"),
    Column("created_at", Type.TIMESTAMP, "when it was added"),
    Column("advanced_at", Type.TIMESTAMP, "when it was last advanced"),
    Column("expires_at", Type.TIMESTAMP, "when it stops keeping versions"),
    Column("is_expired", Type.FLAG, "whether that time has come"),
)


_NO_COUNTS = dict.fromkeys(
    column.name for column in HISTORY if column.name.startswith(("files_", "rows_", "live_"))
)


def row_of(record: object, names: Iterable[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """A row with these columns: values that are `known`, and else attributes of a record."""
    return {name: known[name] if name in known else getattr(record, name) for name in names}


class History(list["TransactionRecord"]):
    """Committed versions, newest first. `str()` gives a table.

    Versions below `oldest_version` that have no tag were expired: they are marked as expired and
    can no longer be read. They stay in the history until a vacuum removes them.
    """

    def __init__(
        self,
        records: Iterable[TransactionRecord],
        oldest_version: int = 1,
        tagged: Iterable[int] = (),
    ) -> None:
        super().__init__(records)
        self.oldest_version = oldest_version
        self._tagged = frozenset(tagged)

    def is_readable(self, record: TransactionRecord) -> bool:
        """Tell whether a version can still be read."""
        return record.version >= self.oldest_version or record.version in self._tagged

    def rows(self) -> Iterator[dict[str, Any]]:
        """The commits by the names of `HISTORY`. Old commits lack some counts."""
        names = [column.name for column in HISTORY]
        for one in self:
            known = {**_NO_COUNTS, **one.summary, "is_readable": self.is_readable(one)}
            yield row_of(one, names, known)

    def __str__(self) -> str:
        titles = ("version", "timestamp (UTC)", "operation", "files", "rows", "live rows", "by")
        rows = (_row(record, self.is_readable(record)) for record in self)
        return "\n".join(laid_out((*titles, "metadata"), rows, right=(0, 3, 4, 5)))


def _row(record: TransactionRecord, readable: bool) -> tuple[str, ...]:
    count = record.summary.get
    moment = record.timestamp.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
    metadata = json.dumps(dict(record.metadata), default=str) if record.metadata else ""
    return (
        str(record.version),
        moment,
        record.operation if readable else f"{record.operation} (expired)",
        f"+{count('files_added', 0):,} -{count('files_removed', 0):,}",
        f"+{count('rows_added', 0):,} -{count('rows_removed', 0):,}",
        f"{count('live_rows', 0):,}",
        record.committed_by or "",
        metadata if len(metadata) <= 60 else metadata[:57] + "...",
    )


def laid_out(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[int] = (),
    *,
    measured: int | None = None,
    widest: int = sys.maxsize,
) -> Iterator[str]:
    """The lines of a table. The cells of the columns `right` end below each other.

    A column is as wide as its longest cell in the first `measured` rows, by default in all, and no
    wider than `widest`.
    """
    left = iter(rows)
    first = list(islice(left, measured))
    widths = [min(widest, max(map(len, cells))) for cells in zip(titles, *first)]
    for row in chain((titles, ["-" * width for width in widths]), first, left):
        fitted = (
            cell.rjust(width) if position in right else cell.ljust(width)
            for position, (cell, width) in enumerate(zip(row, widths))
        )
        yield "  ".join(fitted).rstrip()
