"""Pure. Why row groups are kept or left out, as a table and in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakehouse_source.pictures.markup import visible

PARTITION, STATISTICS = "partition", "statistics"
# What is known of columns, by name; the bounds are texts.
BOUNDS = pa.map_(
    pa.string(),
    pa.struct(
        [
            ("lower", pa.string()),
            ("upper", pa.string()),
            ("null_count", pa.int64()),
            ("may_contain_nan", pa.bool_()),
        ]
    ),
)
DECISIONS = pa.schema(
    [
        ("file_path", pa.string()),
        ("row_group", pa.int32()),
        ("row_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("is_kept", pa.bool_()),
        ("decided_by", pa.string()),
        ("condition", pa.string()),
        ("bounds", BOUNDS),
        ("rows_left", pa.int64()),
    ]
)
_MOST = 10
_EXAMPLE = 44  # characters of a path


@dataclass(frozen=True, slots=True)
class Kind:
    """Row groups for which the same part of a condition decided in the same way."""

    is_kept: bool
    decided_by: str | None
    condition: str | None
    files: int
    row_groups: int
    rows: int
    example: str

    def __str__(self) -> str:
        what = "kept" if self.is_kept else "pruned"
        how = f" by {self.decided_by}" if self.decided_by else ""
        condition = f" {self.condition}" if self.condition else ""
        groups = f"{self.row_groups:,} row group{'' if self.row_groups == 1 else 's'}"
        files = f"{self.files:,} file{'' if self.files == 1 else 's'}"
        return f"{what}{how}{condition}: {groups} of {files}, {self.rows:,} rows; {self.example}"


@dataclass(frozen=True, slots=True)
class Details:
    """Why each row group is kept or left out. `table` has a row for each, in the files' order.

    `decided_by` is `partition`, `statistics`, `bloom filter`, `page index` or `deletion vector`.
    For a row group that is kept, `decided_by` is `statistics` if all of its rows match, and NULL if
    the rows have to be tested. `condition` is the part of the condition that rules a row group out,
    or what is left for its rows to decide; `bounds` are those of its columns. `rows_left` counts
    the rows that may match.
    """

    table: pa.Table
    kinds: tuple[Kind, ...] = field(repr=False)

    @classmethod
    def of(cls, portions: Iterable[Sequence[dict[str, Any]]]) -> Details:
        """The details with these rows of the table; those of a file are in one portion."""
        kinds: dict[tuple[Any, ...], Kind] = {}
        tables = [DECISIONS.empty_table()]
        for rows in portions:
            _gather(rows, kinds)
            tables.append(pa.Table.from_pylist(rows, DECISIONS))
        ordered = sorted(kinds.values(), key=lambda one: (-one.rows, str(one)))
        return cls(pa.concat_tables(tables), tuple(ordered))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows of the table with the bounds in words, for people."""
        for row in (row for batch in self.table.to_batches() for row in batch.to_pylist()):
            yield (
                row["is_kept"],
                row["decided_by"],
                row["condition"],
                _in_words(row),
                row["row_count"],
                row["rows_left"],
                row["size_bytes"],
                row["row_group"],
                row["file_path"],
            )

    def __str__(self) -> str:
        """The ten kinds of decisions that most rows have."""
        lines = [str(one) for one in self.kinds[:_MOST]]
        more = len(self.kinds) - _MOST
        return "\n".join(lines + ([f"and {more:,} kinds more"] if more > 0 else []))


def _gather(rows: Sequence[dict[str, Any]], kinds: dict[tuple[Any, ...], Kind]) -> None:
    """Add decisions to those of their kind."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = (row["is_kept"], row["decided_by"], row["condition"])
        found.setdefault(key, []).append(row)
    for key, some in found.items():
        before = kinds.get(key) or Kind(*key, 0, 0, 0, _example(some[0]))
        kinds[key] = replace(
            before,
            files=before.files + len({row["file_path"] for row in some}),
            row_groups=before.row_groups + len(some),
            rows=before.rows + sum(row["row_count"] for row in some),
        )


def _example(row: dict[str, Any]) -> str:
    """Where one of these row groups is, and what is known of its columns."""
    path = visible(row["file_path"])
    path = path if len(path) <= _EXAMPLE else f"…{path[1 - _EXAMPLE :]}"
    known = _in_words(row)
    return f"{path}[{row['row_group']}]" + (f" has {known}" if known else "")


def _in_words(row: dict[str, Any]) -> str | None:
    """What is known of the columns of a row group."""
    known = [_spelled(name, one, row["row_count"]) for name, one in row["bounds"]]
    return ", ".join(known) or None


def _spelled(name: str, bounds: dict[str, Any], rows: int) -> str:
    """The bounds of a column in words."""
    low, high, nulls = bounds["lower"], bounds["upper"], bounds["null_count"]
    if nulls == rows:
        return f"{visible(name)} NULL"
    if low is None and high is None:
        text = "without known bounds"
    elif low == high:
        text = visible(str(low))
    else:
        low, high = ("?" if one is None else visible(str(one)) for one in (low, high))
        text = f"from {low} to {high}"
    nan = " or NaN" if bounds["may_contain_nan"] else ""
    return f"{visible(name)} {text}{nan}" + (f" and {nulls:,} NULL" if nulls else "")
