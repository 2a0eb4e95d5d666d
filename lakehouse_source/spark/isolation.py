"""Door. Reads the marks that the planner extension leaves in a scan's schema.

Spark shares one read plan among all scans of a frame, so a reader may act on
pushed filters only when its scan has a plan of its own. The planner extension
(`planner/src/io/plake/spark/ScanMarks.java`) gives it one and says so in the
metadata of the first column of the schema that `DataSource.reader(schema)`
receives. Nothing else differs from scan to scan: the options belong to the
pickled instance, which all scans of a frame share. No marks, no extension: the
reader must then be complete and must not implement `pushFilters`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ISOLATED = "plake.isolated"
FILTERS_FOLLOW = "plake.filters_follow"
ROWS_ONLY = "plake.rows_only"
MARKS = (ISOLATED, FILTERS_FOLLOW, ROWS_ONLY)


@dataclass(frozen=True, slots=True)
class Isolation:
    """What one scan may rely on.

    `isolated`: the scan has a read plan of its own and may be pruned.
    `filters_follow`: Spark calls `pushFilters` of the reader before `partitions`;
    only then may the reader's class have that method.
    `rows_only`: Spark counts rows and looks at no value; `schema` then holds one
    column, and any values of its type serve, null where it may be null.
    `schema`: the columns to read, without the marks.
    """

    isolated: bool
    filters_follow: bool
    rows_only: bool
    schema: StructType


def read_isolation(schema: StructType) -> Isolation:
    """Tell what the scan that asks for `schema` may rely on."""
    from pyspark.sql.types import StructField, StructType

    first = schema.fields[0] if schema.fields else None
    marks = (first.metadata or {}) if first is not None else {}
    isolated = marks.get(ISOLATED) is True
    if first is not None and isolated:
        metadata = {key: value for key, value in marks.items() if key not in MARKS}
        bare = StructField(first.name, first.dataType, first.nullable, metadata)
        schema = StructType([bare, *schema.fields[1:]])
    return Isolation(
        isolated=isolated,
        filters_follow=isolated and marks.get(FILTERS_FOLLOW) is True,
        rows_only=isolated and marks.get(ROWS_ONLY) is True,
        schema=schema,
    )
