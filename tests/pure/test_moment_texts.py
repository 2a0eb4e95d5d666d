"""One text for a moment: whole columns, single values, and what NumPy says of the same count."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lakehouse_source as lake
from lakehouse_source.schema.ordinal import UNIT_NS
from lakehouse_source.schema.texts import cast_to_string, date_text, moment_texts, timestamp_text


def oracle(count: int, unit: str) -> str:
    """NumPy's text, with the sign that Java writes before years that lack four digits."""
    text = str(np.datetime64(count, unit)).replace("T", " ")
    minus, year, rest = text.startswith("-"), *text.lstrip("-").split("-", 1)
    fraction = rest.partition(".")[2]
    if fraction:
        rest = rest.rstrip("0").rstrip(".")
    if minus:
        return f"-{year:0>4}-{rest}"
    return f"{'+' if len(year) > 4 else ''}{year}-{rest}"


COUNTS = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-(10**17), 10**17)


@given(st.integers(-(2**31) + 1, 2**31 - 1))
@example(2**31 - 1)
@example(2_932_897)
def test_a_date_of_any_year_has_its_own_year(days: int) -> None:
    expected = oracle(days, "D")
    assert date_text(days) == expected
    assert moment_texts(pa.chunked_array([pa.array([days, None], pa.date32())])).to_pylist() == [
        expected,
        None,
    ]


@given(
    COUNTS, st.sampled_from(("s", "ms", "us", "ns")), st.sampled_from((None, "UTC", "Asia/Tokyo"))
)
@example(2**62, "us", None)  # Arrow's text of this was `<value out of range>`
@example(1_037_000_000_000, "s", "UTC")  # the year 34830, which Arrow showed as another one
def test_a_timestamp_of_any_year_has_its_own_year(count: int, unit: str, zone: str | None) -> None:
    expected = oracle(count, unit)
    assert timestamp_text(count, UNIT_NS[unit]) == expected
    column = pa.chunked_array([pa.array([None, count], pa.timestamp(unit, zone))])
    assert moment_texts(column).to_pylist() == [None, expected + ("Z" if zone else "")]
    assert cast_to_string(column).to_pylist() == moment_texts(column).to_pylist()


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_column_promoted_to_text_keeps_the_year_of_far_timestamps(
    zone: str | None, tmp_path: object
) -> None:
    far = pa.table({"t": pa.array([1_100_000_000_000_000, 2**62], pa.timestamp("ms", zone))})
    lake.write_dataset(far, f"{tmp_path}/d")
    lake.write_dataset({"t": ["x"]}, f"{tmp_path}/d", schema_merge=True, promote_to_string=True)
    found = {row["t"] for row in lake.read_dataset(f"{tmp_path}/d").to_pylist()}
    end = "Z" if zone else ""
    assert found == {"x", *(oracle(count, "ms") + end for count in (1_100_000_000_000_000, 2**62))}
