"""Door. What one scan pushes down, as the planner extension sends it, and keys of its joins.

Spark shares one read plan among all scans of a frame. So a reader may use the needs of one query
only if its scan has a plan of its own. The planner extension gives the scan such a plan
(`planner/src/io/plake/spark/scan/Pushdown.java`) and says so in the metadata of the first column of
the schema that `DataSource.reader(schema)` receives. Only this schema differs from scan to scan:
the options belong to the pickled instance, which all scans of a frame share. A schema without an
envelope comes from a Spark without the extension: then the reader must read everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from lakehouse_source.language.types import INTEGERS, is_moment
from lakehouse_source.spark.protocol.envelope import decode_request
from lakehouse_source.spark.protocol.vocabulary import Envelope, Key, Mark, Node
from lakehouse_source.spark.reading.decode_conditions import named_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Pushdown:
    """The needs of one scan.

    `schema`: the columns to read, without the envelope.
    `isolated`: the scan has a read plan of its own and may be pruned. If it is false, no other
    field is set. `condition`: conditions, as `decode_conditions` reads them, that are
    true for every row that Spark needs. Spark applies them again. `join_keys`: more such
    conditions. They hold for one run of the query, so they may change which tasks are planned, but
    not how a task is read. `rows_only`: Spark counts rows and uses no value. `schema` then holds
    one column, whose values may be any of its type, or NULL if it is nullable. `unscaled`: columns
    whose decimals Spark wants as longs without their scale. `schema` has them as decimals. `limit`:
    any this many rows are enough. `aggregate`: a request, as `aggregate_pushdown` reads it, to
    answer from the catalog instead of planning a scan. `schema` then holds the columns in the
    request. `parallelism`: how many tasks Spark runs at a time, by its default parallelism.
    `metadata`: for columns of `schema` that tell where a row is stored, their names in
    `schema/fields.py`. `reader`: a value of `vocabulary.Reader`. The scan is then planned
    either for Python or as `spark_files.SparkFiles`; None: for Python. `changed_files`: Spark's
    reader can also read files with deleted rows or changed columns. `joined`: a join may give keys
    of columns while the query runs. Then the answer names the columns by which keys may prune.
    """

    schema: StructType
    isolated: bool = False
    condition: tuple[Mapping[str, Any], ...] = ()
    join_keys: tuple[Mapping[str, Any], ...] = ()
    rows_only: bool = False
    unscaled: tuple[str, ...] = ()
    limit: int | None = None
    aggregate: Mapping[str, Any] | None = None
    parallelism: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    reader: str | None = None
    changed_files: bool = False
    joined: bool = False


def read_pushdown(schema: StructType) -> Pushdown:
    """Read the needs of the scan that requests `schema`.

    Raises:
        InvalidOptionError: the planner extension is of another release.
    """
    from pyspark.sql.types import DecimalType, StructField, StructType

    first = schema.fields[0] if schema.fields else None
    if first is None or Envelope.NAME not in (first.metadata or {}):
        return Pushdown(schema)
    metadata = dict(first.metadata)
    marks = decode_request(metadata.pop(Envelope.NAME))
    fields = [StructField(first.name, first.dataType, first.nullable, metadata)]
    fields += schema.fields[1:]
    decimals = marks.get(Mark.DECIMALS, {})
    for i, one in enumerate(fields):
        if one.name in decimals:
            type_ = DecimalType(*decimals[one.name])
            fields[i] = StructField(one.name, type_, one.nullable, one.metadata)
    return Pushdown(
        schema=StructType(fields),
        isolated=True,
        condition=tuple(marks.get(Mark.CONDITION, ())),
        join_keys=tuple(marks.get(Mark.JOIN_KEYS, ())),
        rows_only=marks.get(Mark.ROWS_ONLY) is True,
        unscaled=tuple(decimals),
        limit=marks.get(Mark.LIMIT),
        aggregate=marks.get(Mark.AGGREGATE),
        parallelism=marks.get(Mark.PARALLELISM),
        metadata=marks.get(Mark.METADATA, {}),
        reader=marks.get(Mark.READER),
        changed_files=marks.get(Mark.CHANGED_FILES) is True,
        joined=marks.get(Mark.JOINED) is True,
    )


# --- Keys of a join that arrive while a query runs: many keys become few ranges.


# Ranges for each row group. Planning with 29,000 keys takes 0.4 s, and with 100 ranges 0.01 s.
_RANGES_OF_ROW_GROUP = 2
_FEWEST_RANGES = 64


def coarsened(terms: Sequence[Mapping[str, Any]], row_groups: int) -> list[Mapping[str, Any]]:
    """The terms, with ranges in place of an IN that has many more values than row groups.

    They are true for the same rows and for others: keys only choose what is read.
    """
    most = max(_FEWEST_RANGES, _RANGES_OF_ROW_GROUP * row_groups)
    return [_ranges(term, most) if _is_long(term, most) else term for term in terms]


def _is_long(term: Mapping[str, Any], most: int) -> bool:
    if term.get(Key.NAME) != "in" or len(term[Key.TERMS]) < 2:  # a list without keys
        return False
    _, listed = term[Key.TERMS]
    type_ = named_type(listed[Key.TYPE])
    whole = type_ in INTEGERS or is_moment(type_)  # their values travel as whole numbers
    return whole and len(listed[Key.VALUES]) > most and not listed[Key.NULL]


def _ranges(term: Mapping[str, Any], most: int) -> Mapping[str, Any]:
    """At most `most` ranges that hold all values, with the largest gaps between them."""
    column, listed = term[Key.TERMS]
    values = sorted({int(text) for text in listed[Key.VALUES]})
    gaps = range(1, len(values))
    ends = sorted(nlargest(most - 1, gaps, key=lambda place: values[place] - values[place - 1]))
    firsts, lasts = [0, *ends], [*(place - 1 for place in ends), len(values) - 1]

    def call(name: str, *terms: Mapping[str, Any]) -> dict[str, Any]:
        return {Key.OP: Node.CALL, Key.TYPE: "boolean", Key.NAME: name, Key.TERMS: terms}

    def end(place: int) -> Mapping[str, Any]:
        return {**listed, Key.VALUES: [str(values[place])]}

    ranges = (
        call("and", call(">=", column, end(first)), call("<=", column, end(last)))
        for first, last in zip(firsts, lasts)
    )
    return call("or", *ranges)
