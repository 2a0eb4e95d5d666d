"""Pictures: well-formed, small, escaped, and with the figures that they were given."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.model import Ordinal
from lakehouse_source.pictures.figures import Share, Version, boxes, shares, sizes, versions
from lakehouse_source.pictures.markup import UNSAFE, Markup, element, visible
from lakehouse_source.pictures.page import INNER, Figure, Group, Listing, fragment, page
from lakehouse_source.pictures.ranges import MOST_EACH, Column, Files, intervals, overlap
from lakehouse_source.pictures.scale import CHARACTER, scale_of, value_text
from lakehouse_source.schema.ordinal import to_ordinal

GROUPS = (Group("read", "read"), Group("partition", "left out by its partition"))
HOSTILE = "</title></svg><script>alert(1)</script>\"'&<!--]]>\x00\x1b[31m\u202e\ud800\n\ufffe"


def parsed(text: str) -> ET.Element:
    """The root of a page, read by a parser that refuses what is not well-formed."""
    return ET.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def texts(root: ET.Element, tag: str) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter() if one.tag.endswith("}" + tag)]


def files(count: int, read: int, names: Sequence[str] | None = None) -> Files:
    return Files(GROUPS, [0 if number < read else 1 for number in range(count)], names)


def column(
    name: str, low: Sequence[Ordinal | None], high: Sequence[Ordinal | None], type_: pa.DataType
) -> Column:
    return Column(name, type_, range(len(low)), low, high)


def drawn(*figures: Figure) -> ET.Element:
    return parsed(page("plake", fragment("title", "lead", figures)))


@given(st.text(), st.text())
def test_any_text_is_read_back_as_it_is_shown(text: str, value: str) -> None:
    found = ET.fromstring(element("p", text, title=value))
    assert (found.text or "") == "\n".join(visible(line) for line in text.split("\n"))
    assert not UNSAFE.search((found.text or "").replace("\n", ""))
    assert not UNSAFE.search(found.attrib["title"].replace("\n", ""))


def test_names_and_values_of_strangers_are_escaped_everywhere() -> None:
    low: list[Ordinal | None] = [HOSTILE.encode(errors="surrogatepass"), b"\xff\xfe", b"a"]
    high: list[Ordinal | None] = [None, b"\xff\xff<script>", b"</svg>"]
    mine = column(HOSTILE, low, high, pa.string())
    hostile = Files((Group("read", HOSTILE), GROUPS[1]), [0, 0, 1], [HOSTILE] * 3)
    commits = [Version(1, datetime.now(timezone.utc), HOSTILE, 3, 1, None)]
    figures = [
        intervals(hostile, mine),
        overlap(HOSTILE, HOSTILE, [(Group("read", HOSTILE), mine)]),
        boxes(hostile, mine, mine),
        versions(commits),
        sizes([1, 2, 3], [True, False, False], Group("read", HOSTILE), GROUPS[1]),
        shares(HOSTILE, HOSTILE, [Share(HOSTILE, 3, 2)]),
    ]
    table = Listing(HOSTILE, [HOSTILE], [[HOSTILE]])
    text = page(HOSTILE, fragment(HOSTILE, HOSTILE, [*figures, table], notes=[HOSTILE]))
    root = parsed(text)
    assert "<script" not in text
    assert not texts(root, "script")
    assert not UNSAFE.search(text.replace("\n", ""))
    assert "alert(1)" in "".join(root.itertext())
    # Nothing but the namespaces of SVG and XHTML looks like an address, and nothing is fetched.
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {
        "http://www.w3.org/1999/xhtml",
        "http://www.w3.org/2000/svg",
    }
    assert not re.search(r"@import|\burl\(|\bsrc=|\bon[a-z]+=", text)


@pytest.mark.long
@pytest.mark.slow
def test_a_page_of_100_000_files_is_small() -> None:
    """The worst case too: ranges of any width, groups mixed, all pictures."""
    rng = random.Random(5)
    count = 100_000
    groups = tuple(Group(name, name) for name in ("read", "part", "partition", "statistics"))
    many = Files(groups, [rng.randrange(4) for _ in range(count)])

    def anywhere(name: str) -> Column:
        low = [rng.randrange(10**9) for _ in range(count)]
        return column(name, low, [at + rng.randrange(1, 10**8) for at in low], pa.int64())

    columns = [anywhere(name) for name in ("a", "b", "c")]
    start = datetime(2024, 1, 1, tzinfo=timezone.utc)
    commits = [
        Version(n, start + timedelta(minutes=n), "append", n, n // 2, n) for n in range(1, 5001)
    ]
    figures = [
        *(intervals(many, one) for one in columns),
        *(overlap(one.name, "", [(groups[0], one)]) for one in columns),
        boxes(many, columns[0], columns[1]),
        sizes([rng.randrange(10**9) for _ in range(count)], [True] * count, *groups[:2]),
        versions(commits),
    ]
    text = page("plake", fragment("", "", figures))
    assert len(text.encode()) <= 2_000_000
    root = parsed(text)
    assert sum(int(one.rpartition(": ")[2].split()[0].replace(",", ""))
               for one in texts(root, "li")[:4]) == count  # fmt: skip


@pytest.mark.parametrize("count", [1, 7, MOST_EACH])
def test_each_of_few_files_is_a_line_with_its_range(count: int) -> None:
    low = [10 * number for number in range(count)]
    names = [f"f{number}.parquet" for number in range(count)]
    mine = column("v", low, [at + 3 for at in low], pa.int64())
    root = drawn(intervals(files(count, 1, names), mine))
    shown = [one for one in texts(root, "title") if one.startswith("f")]
    assert shown[0] == "f0.parquet\nread\nv: 0 to 3"
    assert len(shown) == count
    rows = [one for one in root.iter() if one.tag.endswith("}tr")][1:]
    assert ["".join(cell.itertext()) for cell in rows[-1]][:3] == [
        names[-1], str(low[-1]), str(low[-1] + 3),
    ]  # fmt: skip


@pytest.mark.parametrize("unit", [1, 1000])  # few values have a width on the axis, many have none
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 30)), min_size=1, max_size=40))
def test_overlap_is_that_of_counting(unit: int, ranges: list[tuple[int, int]]) -> None:
    ranges = [(at * unit, wide * unit) for at, wide in ranges]
    low: list[Ordinal | None] = [at for at, _ in ranges]
    high: list[Ordinal | None] = [at + wide for at, wide in ranges]
    figure = overlap("", "", [(GROUPS[0], column("v", low, high, pa.int32()))])
    for value, holding in figure.rows:
        at = int(str(value))
        assert holding == sum(first <= at <= first + wide for first, wide in ranges)
    most = max(sum(a <= at <= a + w for a, w in ranges) for at, _ in ranges)
    assert figure.legend[0].text == f"read: at most {most}"


@pytest.mark.parametrize(
    ("type_", "low", "high", "expected"),
    [
        (pa.date32(), "2013-01-01", "2013-12-31", {"2013-03", "2013-11"}),
        (pa.date32(), "2013-01-01", "2013-01-09", {"2013-01-03", "2013-01-05"}),
        (pa.date32(), "1960-01-01", "2013-12-31", {"1970", "2000"}),
        (pa.timestamp("us", "UTC"), "2013-07-04T00:00", "2013-07-04T11:00",
         {"2013-07-04 00:00", "02:00"}),
        (pa.timestamp("ns"), "2013-07-04T10:00:00", "2013-07-04T10:00:09",
         {"2013-07-04 10:00:00", "10:00:04"}),
        (pa.int32(), 1, 12, {"1", "7", "12"}),
        (pa.int64(), 0, 10**11, {"20 G", "100 G"}),
        (pa.int32(), 1950, 2300, {"2000", "2200"}),
        (pa.float64(), 0.25, 1.5, {"0.4", "1.4"}),
        (pa.decimal128(9, 2), Decimal("-1.00"), Decimal("3.00"), {"-1.0", "2.0"}),
        (pa.string(), "AA", "UA", {"AA", "UA"}),
        (pa.bool_(), False, True, {"0", "1"}),
    ],
)  # fmt: skip
def test_an_axis_shows_values_of_its_column(
    type_: pa.DataType, low: object, high: object, expected: set[str]
) -> None:
    if pa.types.is_temporal(type_):
        low, high = (datetime.fromisoformat(str(one)) for one in (low, high))
        if pa.types.is_date(type_):
            low, high = low.date(), high.date()
    scale = scale_of(type_, [to_ordinal(one, type_) for one in (low, high)])
    ticks = scale.ticks(INNER)
    assert expected <= {one.text for one in ticks}, [one.text for one in ticks]
    assert all(0 <= one.at <= 1 for one in ticks)
    ends = [(one.at * INNER, len(one.text) * CHARACTER / 2) for one in ticks]
    assert all(a + u < b - v for (a, u), (b, v) in pairwise(ends)), "labels overlap"


@given(
    st.lists(st.one_of(st.floats(), st.integers(-(10**40), 10**40)), max_size=5),
    st.sampled_from([pa.float64(), pa.decimal128(38, 2)]),
)
def test_an_axis_stands_any_number(values: list[Ordinal], type_: pa.DataType) -> None:
    scale = scale_of(type_, values)
    assert all(0 <= scale.place(one) <= 1 for one in values if one == one)
    assert all(0 <= one.at <= 1 for one in scale.ticks(INNER))


@pytest.mark.parametrize("days", [-(2**31), 2**31 - 1, 0])
def test_dates_in_any_year_are_shown(days: int) -> None:
    scale = scale_of(pa.date32(), [days, 0])
    assert scale.ticks(INNER)
    assert value_text(days, pa.date32())


def test_files_without_a_value_are_told_and_unknown_ends_reach_the_edge() -> None:
    mine = Column("v", pa.int64(), [0, 2], [None, 1], [5, None])
    figure = intervals(files(4, 1), mine)
    assert "2 files hold no value" in figure.caption
    assert [row[1:3] for row in figure.rows] == [("?", "5"), ("1", "?")]
    drawn(figure)


def test_nothing_at_all_is_drawn_too() -> None:
    empty = column("v", [], [], pa.string())
    none = Files(GROUPS, [])
    drawn(
        intervals(none, empty),
        overlap("", "", [(GROUPS[0], empty)]),
        boxes(none, empty, empty),
        sizes([], [], *GROUPS),
        versions([]),
        shares("", "", [Share("files", 0, 0)]),
    )


def test_versions_are_those_of_the_history() -> None:
    start = datetime(2026, 3, 1, tzinfo=timezone.utc)
    commits = [
        Version(n, start + timedelta(days=n), "append", 10 * n, n, 100 * n) for n in range(1, 201)
    ]
    figure = versions(commits)
    legend = [one.text for one in figure.legend]
    assert legend[:2] == [f"rows added: {10 * 20_100:,}", f"rows removed: {20_100:,}"]
    assert len(figure.rows) == 200
    assert figure.rows[0] == ("200", "2026-09-17 00:00:00", "append", 2000, 200, 20_000)
    titles = [one for one in texts(drawn(figure), "title") if one.startswith("version")]
    bars = dict.fromkeys(one for one in titles if "rows\n" not in one)
    added = re.findall(r"\+([\d,]+)", "".join(bars))
    assert sum(int(one.replace(",", "")) for one in added) == 10 * 20_100


def test_markup_is_not_escaped_twice() -> None:
    assert element("b", Markup("<i>x</i>"), "<") == "<b><i>x</i>&lt;</b>"
