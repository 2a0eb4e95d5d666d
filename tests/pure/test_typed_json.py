"""Messages of tasks as JSON: every value comes back exactly, and no text is run."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.errors import PlakeError
from lakehouse_source.model import ColumnBounds, FileMetadata, RowGroupMetadata
from lakehouse_source.spark.protocol.messages import ErrorMessage, from_json, to_json

TEXTS = st.text() | st.just("\ud800 lone surrogate") | st.just("nul \0")
FLOATS = st.floats() | st.just(-0.0) | st.just(math.nan) | st.just(5e-324)
WHOLE = st.integers() | st.sampled_from([2**63, -(2**200), 0])
ZONES = st.none() | st.just(timezone.utc) | st.just(timezone(timedelta(hours=-5, seconds=1)))
SCALARS = (
    st.none()
    | st.booleans()
    | TEXTS
    | WHOLE
    | FLOATS
    | st.binary()
    | st.decimals()
    | st.decimals(places=18, allow_nan=False)
    | st.datetimes(timezones=ZONES)
    | st.dates()
    | st.times()
    | st.timedeltas()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)


class Colour(Enum):
    RED = 1
    BLUE = "b"


@dataclass(frozen=True)
class Point:
    x: float
    y: int | None


@dataclass(frozen=True, slots=True)
class Everything:
    anything: Any
    ordinal: int | float | bytes | None
    amount: Decimal | None
    moment: datetime
    place: str | Point
    colour: Colour | None
    kind: pa.DataType | None
    points: tuple[Point, ...]
    pair: tuple[str, int]
    names: frozenset[str]
    by_id: Mapping[int, Point]
    flag: bool
    blob: bytes
    more: Mapping[str, Any] = field(default_factory=dict)


TYPES = st.sampled_from(
    [pa.int8(), pa.decimal128(38, 10), pa.timestamp("ns", "Europe/Berlin"), pa.list_(pa.float16())]
)
POINTS = st.builds(Point, FLOATS, st.none() | WHOLE)
EVERYTHING = st.builds(
    Everything,
    anything=VALUES,
    ordinal=st.none() | WHOLE | FLOATS | st.binary(),
    amount=st.none() | st.decimals(),
    moment=st.datetimes(timezones=ZONES),
    place=TEXTS | POINTS,
    colour=st.none() | st.sampled_from(Colour),
    kind=st.none() | TYPES,
    points=st.lists(POINTS).map(tuple),
    pair=st.tuples(TEXTS, WHOLE),
    names=st.frozensets(TEXTS),
    by_id=st.dictionaries(WHOLE, POINTS),
    flag=st.booleans(),
    blob=st.binary(),
    more=st.dictionaries(TEXTS, SCALARS),
)


def exact(value: Any) -> Any:
    """A form in which NaN equals itself, and -0.0, 0 and False differ."""
    if isinstance(value, float):
        return "float", struct.pack(">d", value) if not math.isnan(value) else b"nan"
    if isinstance(value, Decimal):
        return "decimal", value.as_tuple()
    if isinstance(value, datetime):
        return "datetime", value.replace(tzinfo=None), value.utcoffset()
    if isinstance(value, date | time | timedelta | pa.DataType | pa.Schema | Enum | None):
        return type(value).__name__, value
    if isinstance(value, dict):
        return "dict", [(exact(key), exact(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [exact(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return type(value).__name__, [exact(getattr(value, f)) for f in value.__dataclass_fields__]
    return type(value).__name__, value


@given(EVERYTHING)
def test_every_value_comes_back_exactly(value: Everything) -> None:
    assert exact(from_json(to_json(value), Everything)) == exact(value)


@given(
    st.builds(
        ColumnBounds,
        lower=st.none() | WHOLE | FLOATS | st.binary(),
        upper=st.none() | WHOLE | FLOATS | st.binary(),
        null_count=st.none() | WHOLE,
        row_count=WHOLE,
        may_contain_nan=st.booleans(),
    )
)
def test_bounds_come_back_exactly(bounds: ColumnBounds) -> None:
    assert exact(from_json(to_json(bounds), ColumnBounds)) == exact(bounds)


def test_a_files_metadata_and_schema_come_back_exactly() -> None:
    nested = pa.struct([pa.field("y", pa.float64(), False, {"PARQUET:field_id": "7"})])
    schema = pa.schema(
        [pa.field("x", pa.int32(), False, {b"PARQUET:field_id": b"1"}), pa.field("s", nested)],
        metadata={b"k": b"\xff"},
    )
    group = RowGroupMetadata(0, 3, '{"1": NaN}', "{}", "{}", "{}", 1, 2)
    file = FileMetadata("a b/ü.parquet", 3, 9, schema, (group,), {"p": 1.5, "q": None}, None, False)
    again = from_json(to_json(file), FileMetadata)
    assert again == file
    assert again.schema.equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    "error",
    [
        lake.CorruptDatasetError(path="/a", reason="no"),
        lake.SchemaMismatchError(column="c", expected=pa.int32(), got=pa.string()),
        lake.InvalidOptionError(option="o", reason="r.", value=b"\0", known=("a", "b")),
    ],
)
def test_errors_come_back_with_their_facts(error: PlakeError) -> None:
    again = from_json(to_json(ErrorMessage.of(error)), ErrorMessage).error()
    assert type(again) is type(error)
    assert (str(again), again.facts) == (str(error), error.facts)


GOOD = json.loads(to_json(Point(1.0, 2)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        json.dumps({**GOOD, "more": 1}),
        json.dumps({"x": GOOD["x"]}),
        json.dumps({**GOOD, "x": ["text", "1"]}),
        json.dumps({**GOOD, "x": ["pickle", "gASVAAAA"]}),
        json.dumps({**GOOD, "y": True}),
        json.dumps({**GOOD, "y": ["flag", "true"]}),
        json.dumps({**GOOD, "y": {"0": 1}}),
        json.dumps({**GOOD, "y": {"5": 1}}),
        "[" * 100_000,
    ],
)
def test_a_text_that_is_no_such_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|are not|has no|cannot|JSON|char"):
        from_json(text, Point)


def test_a_value_without_a_form_is_not_told() -> None:
    with pytest.raises(TypeError, match="no form in JSON"):
        to_json(Point(object(), 1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no error of plake"):
        ErrorMessage("PLAKE_NOPE", ()).error()
