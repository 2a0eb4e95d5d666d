"""Door. Reads the marks that the planner extension leaves in a scan's schema.

Spark shares one read plan among all scans of a frame, so a reader may act on
what one query asks only when its scan has a plan of its own. The planner
extension (`planner/src/io/plake/spark/ScanMarks.java`) gives it one and says so
in the metadata of the first column of the schema that `DataSource.reader(schema)`
receives. Nothing else differs from scan to scan: the options belong to the
pickled instance, which all scans of a frame share. No marks, no extension: the
reader must then be complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ISOLATED = "plake.isolated"
CONDITION = "plake.condition"
JOIN_KEYS = "plake.join_keys"
ROWS_ONLY = "plake.rows_only"
DECIMALS = "plake.decimals"
LIMIT = "plake.limit"
AGGREGATE = "plake.aggregate"
MARKS = (ISOLATED, CONDITION, JOIN_KEYS, ROWS_ONLY, DECIMALS, LIMIT, AGGREGATE)


@dataclass(frozen=True, slots=True)
class Isolation:
    """What one scan asks for besides columns.

    `schema`: the columns to read, without the marks.
    `isolated`: the scan has a read plan of its own and may be pruned; nothing below
    is set otherwise.
    `condition`: terms, as `filters.usable` reads them, that are true of every row
    that is wanted. Spark applies them again.
    `join_keys`: more such terms, that hold for one run of the query: tasks are planned
    by them, and reading does not depend on them.
    `rows_only`: Spark counts rows and looks at no value; `schema` then holds one
    column, and any values of its type serve, null where it may be null.
    `unscaled`: columns whose decimals Spark wants as longs without their scale;
    `schema` has them as the decimals that they are.
    `limit`: that many rows are enough, whichever.
    `aggregate`: a question, as `answers.Question` reads it, to answer from the
    catalog instead of planning a scan; `schema` then holds the columns that it is
    about.
    """

    schema: StructType
    isolated: bool = False
    condition: tuple[Mapping[str, Any], ...] = ()
    join_keys: tuple[Mapping[str, Any], ...] = ()
    rows_only: bool = False
    unscaled: tuple[str, ...] = ()
    limit: int | None = None
    aggregate: Mapping[str, Any] | None = None


def read_isolation(schema: StructType) -> Isolation:
    """Tell what the scan that asks for `schema` may rely on."""
    from pyspark.sql.types import DecimalType, StructField, StructType

    first = schema.fields[0] if schema.fields else None
    marks = (first.metadata or {}) if first is not None else {}
    if first is None or marks.get(ISOLATED) is not True:
        return Isolation(schema)
    metadata = {key: value for key, value in marks.items() if key not in MARKS}
    fields = [StructField(first.name, first.dataType, first.nullable, metadata)]
    fields += schema.fields[1:]
    decimals = marks.get(DECIMALS, {})
    for i, field in enumerate(fields):
        if field.name in decimals:
            type_ = DecimalType(*decimals[field.name])
            fields[i] = StructField(field.name, type_, field.nullable, field.metadata)
    return Isolation(
        schema=StructType(fields),
        isolated=True,
        condition=tuple(marks.get(CONDITION, ())),
        join_keys=tuple(marks.get(JOIN_KEYS, ())),
        rows_only=marks.get(ROWS_ONLY) is True,
        unscaled=tuple(decimals),
        limit=marks.get(LIMIT),
        aggregate=marks.get(AGGREGATE),
    )
