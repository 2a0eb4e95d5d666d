"""Pure. The committed versions of a dataset, as a list that prints as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable

from lakehouse_source.model import TransactionRecord

_HEADERS = (
    "version",
    "timestamp (UTC)",
    "operation",
    "files",
    "rows",
    "live rows",
    "by",
    "metadata",
)


class History(list[TransactionRecord]):
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

    def __str__(self) -> str:
        rows = [_HEADERS, *(_row(record, self.is_readable(record)) for record in self)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADERS))]
        lines = []
        for row in rows:
            cells = []
            for position, (cell, width) in enumerate(zip(row, widths)):
                right = position in (0, 3, 4, 5)
                cells.append(cell.rjust(width) if right else cell.ljust(width))
            lines.append("  ".join(cells).rstrip())
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(lines)


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
