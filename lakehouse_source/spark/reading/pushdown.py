"""Door. What one scan pushes down, as the planner extension sends it: conditions, keys of joins.

The forms of conditions are those of `Node` in `protocol/vocabulary.py`. Java sends Spark's type of
each part: a condition to which plake gives another type is not understood. Spark applies every
condition to the rows again, so pruning may leave out conditions that are not understood.

Spark shares one read plan among all scans of a frame. So a reader may use the needs of one query
only if its scan has a plan of its own. The planner extension gives the scan such a plan
(`planner/src/io/plake/spark/scan/Pushdown.java`) and says so in the metadata of the first column of
the schema that `DataSource.reader(schema)` receives. Only this schema differs from scan to scan:
the options belong to the pickled instance, which all scans of a frame share. A schema without an
envelope comes from a Spark without the extension: then the reader must read everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import BoundPredicate, PredicateSet, all_of
from lakehouse_source.language.bind import Binder
from lakehouse_source.language.bounds.bound import conjunction
from lakehouse_source.language.expression import scope_of
from lakehouse_source.language.nodes import (
    COMPARISONS,
    Call,
    Case,
    Cast,
    Hint,
    Interval,
    Literal,
    Name,
)
from lakehouse_source.language.nodes import Node as Tree
from lakehouse_source.language.types import INTEGERS, NAMED, is_decimal, is_moment, spark_type
from lakehouse_source.schema.fields import children, find_field, is_nested
from lakehouse_source.spark.protocol.messages import decode_request
from lakehouse_source.spark.protocol.vocabulary import Envelope, Key, Mark, Node

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# Functions whose name in Spark's plans differs from the name in SQL.
_NAMES = {
    "unaryminus": "negative",
    "timestampaddinterval": "+",
    "<>": "!=",
    "is_null": "isnull",
    "is_not_null": "isnotnull",
    "starts_with": "startswith",
    "ends_with": "endswith",
}
_NESTED = ("struct<", "array<", "map<")
_NULL_TESTS = ("isnull", "isnotnull")
# They are truth values, whatever the types of their parts are.
_TESTS = {
    *COMPARISONS,
    *_NULL_TESTS,
    "and",
    "or",
    "not",
    "in",
    "startswith",
    "endswith",
    "contains",
}
_READ: dict[pa.DataType, Callable[[str], Any]] = {
    pa.bool_(): lambda text: text == "true",
    pa.float32(): float,
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes.fromhex,
}
_NOT_UNDERSTOOD = (
    InvalidPredicateError,
    InvalidExpressionError,
    LookupError,
    ValueError,
    RecursionError,
)


def decode_supported(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> PredicateSet:
    """What the terms that are understood say about columns.

    It may be true for more rows than all terms together, but Spark applies all terms.
    """
    found: list[Tree] = []
    for term in terms:
        try:
            found.append(Hint(decode(term, schema), _zone(term)))
        except _NOT_UNDERSTOOD:
            continue
    return PredicateSet(all_of(found))


def decode_all(terms: Iterable[Mapping[str, Any]], schema: pa.Schema) -> BoundPredicate | None:
    """The conjunction of all terms; None: one is not understood."""
    try:
        bound = [PredicateSet(decode(term, schema)).bind(schema, _zone(term)) for term in terms]
    except _NOT_UNDERSTOOD:
        return None
    return BoundPredicate(conjunction([one.root for one in bound]))


def decode(term: Mapping[str, Any], schema: pa.Schema) -> Tree:
    """The node with the same meaning as a term.

    Raises:
        LookupError: there is no such type.
        InvalidExpressionError: a part is not known, or plake gives it another type.
        InvalidPredicateError: Spark sees a column as another type than the dataset has,
            because of a schema that the user gave.
    """
    return _Decoder(schema, _zone(term)).node(term)


def literal_value(text: str | None, type_: pa.DataType) -> pa.Scalar | None:
    """The value in the JSON of a literal, for a column; None: there is none, or NULL."""
    literal = {} if text is None else json.loads(text)
    if not literal.get(Key.VALUES):
        return None
    return pa.scalar(_reader(named_type(literal[Key.TYPE]))(literal[Key.VALUES][0]), type_)


def named_type(text: str) -> pa.DataType:
    """A type by the name that Spark's catalog gives it.

    Raises:
        LookupError: conditions have no such type.
    """
    match = _DECIMAL.fullmatch(text)
    if match is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    if text.startswith("interval "):
        return pa.duration("us")
    return pa.null() if text == "void" else NAMED[text.upper()]


def _zone(term: Mapping[str, Any]) -> str:
    return str(term.get(Key.ZONE, "UTC"))


def _reader(type_: pa.DataType) -> Callable[[str], Any]:
    return Decimal if is_decimal(type_) else _READ.get(type_, int)


class _Decoder:
    def __init__(self, schema: pa.Schema, zone: str) -> None:
        self._schema = schema
        self._binder = Binder(scope_of(schema, zone))

    def node(self, data: Mapping[str, Any]) -> Tree:
        """The node with its type checked."""
        (found,) = self._nodes(data)
        return found

    def _nodes(self, data: Mapping[str, Any]) -> tuple[Tree, ...]:
        kind = data[Key.OP]
        if kind == Node.COLUMN:
            return (self._column(data),)
        type_ = named_type(data[Key.TYPE])
        if kind == Node.LITERAL:
            return _literals(data, type_)
        name = _NAMES.get(data.get(Key.NAME, ""), data.get(Key.NAME, ""))
        if name in _NULL_TESTS and data[Key.TERMS][0][Key.OP] == Node.COLUMN:
            return (Call(name, (Name(tuple(data[Key.TERMS][0][Key.COLUMN])),)),)
        parts = tuple(node for term in data[Key.TERMS] for node in self._nodes(term))
        if kind == Node.CALL:
            found: Tree = Call(name, parts)
        elif kind == Node.CASE:
            otherwise = parts[-1] if len(parts) % 2 else Literal(None, pa.null())
            found = Case(tuple(zip(parts[:-1:2], parts[1::2])), otherwise)
        else:
            found = Cast(parts[0], type_, safe=kind == Node.TRY_CAST)
        if name not in _TESTS and self._binder.bind(found).type != type_:
            raise LookupError(data[Key.TYPE])
        return (found,)

    def _column(self, data: Mapping[str, Any]) -> Tree:
        path, stored = data[Key.COLUMN], pa.struct(list(self._schema))
        for name in path:
            field = find_field(name, children(stored))
            if field is None:
                raise LookupError(name)
            stored = field.type
        column, found = Name(tuple(path)), spark_type(stored)
        if is_nested(found) and data[Key.TYPE].startswith(_NESTED):
            return column
        found = pa.duration("us") if pa.types.is_duration(found) else found
        shown = named_type(data[Key.TYPE])
        # A schema that the user gave may show the column as another type: 9 < 10, but '9' > '10'.
        if found == shown:
            return column
        if {found, shown} <= {*INTEGERS} or (is_decimal(found) and is_decimal(shown)):
            return Cast(column, shown)
        raise InvalidPredicateError(
            reason=f"column {column} of the dataset is not of type {data[Key.TYPE]}"
        )


def _literals(data: Mapping[str, Any], type_: pa.DataType) -> tuple[Tree, ...]:
    null = (Literal(None, pa.null() if pa.types.is_duration(type_) else type_),)
    values: Iterable[Tree]
    if pa.types.is_duration(type_):
        values = [Interval(int(text), whole_days=False) for text in data[Key.VALUES]]
    else:
        read = _reader(type_)
        values = [Literal(read(text), type_) for text in data[Key.VALUES]]
    return (*values, *(null if data[Key.NULL] else ()))


@dataclass(frozen=True, slots=True)
class Pushdown:
    """The needs of one scan.

    `schema`: the columns to read, without the envelope.
    `isolated`: the scan has a read plan of its own and may be pruned. If it is false, no other
    field is set. `condition`: conditions, as `decode_all` reads them, that are
    true for every row that Spark needs. Spark applies them again. `join_keys`: more such
    conditions. They hold for one run of the query, so they may change which tasks are planned, but
    not how a task is read. `rows_only`: Spark counts rows and uses no value. `schema` then holds
    one column, whose values may be any of its type, or NULL if it is nullable. `unscaled`: columns
    whose decimals Spark wants as longs without their scale. `schema` has them as decimals. `limit`:
    any this many rows are enough. `aggregate`: a request, as `catalog_read` reads it, to
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
