"""Door. Decides which reader is faster for a scan that Spark's and Python's readers read alike.

Spark's reader decodes whole row groups faster, and starts faster. Python's reader reads the columns
of a condition first and then only matching rows, and prunes by the keys of joins: this pays if much
would be decoded otherwise. The catalog knows how many rows are left and how they are clustered. A
wrong estimate costs only time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.language import (
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundIn,
    BoundNode,
    BoundOr,
    BoundPredicate,
    PredicateSet,
)
from lakehouse_source.model import ColumnBounds, Ordinal
from lakehouse_source.read.candidates import candidates
from lakehouse_source.read.plan import ScanPlan
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import field_id
from lakehouse_source.spark.reading.pushdown import Pushdown
from lakehouse_source.spark.reading.spark_files import Unsuited

# Rows times columns. Spark decodes this many values in the extra time that Python's reader needs to
# start. Measured on TPC-H at scale 1: queries over tables with fewer values took 1.1 to 1.6 x the
# time of native Parquet with Python's reader and 0.8 to 1.2 x with Spark's.
FEW_VALUES = 8_000_000
# If at most this share of the rows matches, Python's reader does not decode most rows.
FEW_MATCHES = 0.01
# Keys of a join are worth planning for if a value is in at most this part of the rows.
CLUSTERED = 0.5
# Reading this many takes less time than planning the scan again with keys of a join.
FEW_ROW_GROUPS = 3
# The statistics of row groups are used if there are at most this many.
MOST_ROW_GROUPS = 10_000
_SAMPLED_GROUPS = 16

LookUp = Callable[[int], ColumnBounds]


def is_small(pushdown: Pushdown, plan: ScanPlan) -> bool:
    """Tell whether Spark's reader is faster for every condition and every join.

    With a limit Spark stops within the first rows.
    """
    values = plan.pruning.rows_read * len(plan.spec.columns)
    return pushdown.limit is not None or values <= FEW_VALUES


def check_matches(reader: CatalogReader, snapshot: Snapshot, plan: ScanPlan) -> None:
    """Check that many rows match.

    Raises:
        Unsuited: Python's reader is likely to be faster.
    """
    bound = plan.spec.predicate
    if bound is None or plan.pruning.row_groups_read > MOST_ROW_GROUPS:
        return
    if share_of_matches(bound.root, _row_groups(reader, snapshot, bound)) < FEW_MATCHES:
        raise Unsuited("few rows match")


def needs_statistics(plan: ScanPlan) -> bool:
    """Tell whether `check_matches` may refuse, so that it has to read the catalog."""
    return plan.spec.predicate is not None and has_points(plan.spec.predicate.root)


def key_columns(
    reader: CatalogReader, snapshot: Snapshot, plan: ScanPlan, names: Sequence[str]
) -> tuple[str, ...] | None:
    """The columns of `names` by which rows are clustered; None: this is not known.

    Keys of a join that Spark finds while a query runs can prune much of the scan by these columns.
    Spark spends time on every column that may have such keys.
    """
    if plan.pruning.row_groups_read < FEW_ROW_GROUPS:
        return ()
    if plan.pruning.row_groups_read > MOST_ROW_GROUPS:
        return None
    bound = plan.spec.predicate or PredicateSet.of(None).bind(snapshot.schema)
    groups = _row_groups(reader, snapshot, bound)

    def share(name: str) -> float:
        id = field_id(snapshot.schema.field(name))
        return 0 if id is None else share_of_a_value([(n, of(id)) for n, of in groups])

    known = [name for name in names if name in snapshot.schema.names]
    return tuple(
        name for name in known if name in snapshot.partition_by or share(name) <= CLUSTERED
    )


def _row_groups(
    reader: CatalogReader, snapshot: Snapshot, bound: BoundPredicate
) -> list[tuple[int, LookUp]]:
    """The row groups that may hold matches: their rows, and the bounds of columns by id."""
    statistics = snapshot.statistics()
    return [
        (group.row_count, statistics.of(one.file, group))
        for one in candidates(reader, snapshot, bound, statistics=True)
        for group in one.row_groups
    ]


def has_points(node: BoundNode) -> bool:
    """Tell whether a condition names single values of a column whose values can be counted."""
    if isinstance(node, (BoundAnd, BoundOr)):
        return any(map(has_points, node.terms))
    if isinstance(node, BoundCompare):
        return node.op in ("=", "<=>") and isinstance(node.value, int)
    return isinstance(node, BoundIn) and all(isinstance(value, int) for value in node.values)


def share_of_matches(node: BoundNode, groups: Sequence[tuple[int, LookUp]]) -> float:
    """The largest expected share of matching rows; 1 if nothing is known."""
    total = sum(rows for rows, _ in groups)
    matches = sum(rows * _share(node, look_up) for rows, look_up in groups)
    return matches / total if total else 1.0


def _share(node: BoundNode, look_up: LookUp) -> float:
    """The matching share of a row group, if all values between the bounds are equally frequent."""
    if isinstance(node, BoundAnd):
        return min(_share(term, look_up) for term in node.terms)
    if isinstance(node, BoundOr):
        return min(1.0, sum(_share(term, look_up) for term in node.terms))
    if isinstance(node, BoundIn) and not node.has_nan:
        return _points(node.column, node.values, look_up)
    if isinstance(node, BoundCompare) and node.op in ("=", "<=>"):
        return _points(node.column, (node.value,), look_up)
    return 1.0


def _points(column: BoundColumn, values: Sequence[Ordinal], look_up: LookUp) -> float:
    bounds = look_up(column.id)
    lower, upper = bounds.lower, bounds.upper
    if not isinstance(lower, int) or not isinstance(upper, int):
        return 1.0
    inside = sum(isinstance(value, int) and lower <= value <= upper for value in values)
    return min(1.0, inside / (upper - lower + 1))


def share_of_a_value(groups: Sequence[tuple[int, ColumnBounds]]) -> float:
    """The average share of rows that are in row groups which may hold a value.

    It is small if rows are clustered by the column. The values are lower bounds of a sample of the
    row groups.

    Args:
        groups: the rows of each row group, and the bounds of the column over them.
    """
    total = sum(rows for rows, _ in groups)
    shares = [
        sum(rows for rows, bounds in groups if _may_hold(bounds, sampled.lower)) / total
        for _, sampled in groups[:: max(1, len(groups) // _SAMPLED_GROUPS)]
    ]
    return sum(shares) / len(shares) if shares else 1.0


def _may_hold(bounds: ColumnBounds, value: Ordinal | None) -> bool:
    if value is None or bounds.lower is None or bounds.upper is None:
        return True
    return bounds.lower <= value <= bounds.upper  # type: ignore[operator]
