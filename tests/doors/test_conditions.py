"""500 SQL conditions over the flights: plake finds the rows that Spark finds in plain Parquet.

What is expected was computed by Spark with push-down off, in two session time zones,
and recorded. Every row carries a random number: its count and its sum tell sets of rows
apart. Python is asked a quarter of the conditions, Spark with plake a sample. With
PLAKE_ALL_CONDITIONS=1 Spark computes the expected answers again and plake is asked all
conditions there too; PLAKE_RECORD_CONDITIONS=1 records the answers besides.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakehouse_source as lake
from integration.flights import load
from tests.versions import bloom_filters

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

COUNT = 500
ZONES = ("UTC", "America/New_York")
EVERYTHING = os.environ.get("PLAKE_ALL_CONDITIONS") == "1"
# Conditions in one Spark job: with more its generated code grows too large to be compiled.
AT_ONCE = 10
# Of each zone and door.
SAMPLE = COUNT if EVERYTHING else 5
RECORD = Path(__file__).with_name("conditions.json")

INTS = {
    "year": (2012, 2014), "month": (0, 13), "day": (0, 32), "dep_time": (1, 2400),
    "sched_dep_time": (100, 2359), "arr_time": (1, 2400), "sched_arr_time": (1, 2359),
    "flight": (1, 8500), "hour": (0, 24), "minute": (0, 60),
}  # fmt: skip
DOUBLES = {
    "dep_delay": (-43, 1301), "arr_delay": (-86, 1272), "air_time": (20, 695),
    "distance": (17, 4983),
}  # fmt: skip
TEXTS = {
    "carrier": ["UA", "AA", "B6", "9E", "EV", "OO", "ZZ", ""],
    "tailnum": ["N14228", "N24211", "N619AA", "N7", "D942DN", "Z"],
    "origin": ["EWR", "JFK", "LGA", "XXX"],
    "dest": ["IAH", "MIA", "BQN", "ATL", "LEX", "SFO", "AAA"],
}
OFFSETS = ("+00:00", "-05:00", "+05:30", "Z")


class Generator:
    """Draws conditions over all columns of the flights; one seed gives the same conditions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def condition(self, depth: int) -> str:
        kind = self.random.random()
        if depth == 0 or kind < 0.3:
            return self.leaf()
        if kind < 0.45:
            return f"NOT ({self.condition(depth - 1)})"
        word = " AND " if kind < 0.7 else " OR "
        terms = [self.condition(depth - 1) for _ in range(self.random.choice((2, 2, 2, 3)))]
        return word.join(f"({term})" for term in terms)

    def leaf(self) -> str:
        draw = self.random
        column = draw.choice([*INTS, *DOUBLES, *TEXTS, "time_hour"])
        form = draw.random()
        if form < 0.08:
            return f"{column} IS {draw.choice(('', 'NOT '))}NULL"
        if form < 0.13:
            return f"{column} <=> {draw.choice(('NULL', self.value(column)))}"
        if form < 0.28:
            values = [self.value(column) for _ in range(draw.randint(1, 6))]
            if draw.random() < 0.15:
                values.append("NULL")
            return f"{column} {draw.choice(('', 'NOT '))}IN ({', '.join(values)})"
        if form < 0.4:
            low, high = self.ends(column)
            return f"{column} {draw.choice(('', '', 'NOT '))}BETWEEN {low} AND {high}"
        if column in TEXTS and form < 0.7:
            return f"{column} {draw.choice(('', 'NOT '))}LIKE '{self.pattern(column)}'"
        op = draw.choice(("=", "<>", "<", "<=", ">", ">="))
        if draw.random() < 0.1:
            return f"{self.value(column)} {op} {column}"
        return f"{column} {op} {self.value(column)}"

    def ends(self, column: str) -> tuple[str, str]:
        """Two values, mostly the lower one first."""
        low, high = self.value(column), self.value(column)
        in_order = float(low) <= float(high) if low.isdigit() and high.isdigit() else low <= high
        return (low, high) if in_order or self.random.random() < 0.1 else (high, low)

    def value(self, column: str) -> str:
        draw = self.random
        if column in TEXTS:
            return f"'{draw.choice(TEXTS[column])}'"
        if column == "time_hour":
            month, day, hour = draw.randint(1, 12), draw.randint(1, 28), draw.randint(0, 23)
            minute = draw.choice(("00:00", "00:00", "30:00", "59:59.999999"))
            return f"TIMESTAMP '2013-{month:02}-{day:02} {hour:02}:{minute}{draw.choice(OFFSETS)}'"
        low, high = INTS.get(column) or DOUBLES[column]
        number = draw.randint(low, high)
        spelling = draw.random()
        if spelling < 0.08:
            return f"{number}.5"
        if spelling < 0.14:
            return f"{number}.0"
        if spelling < 0.2:
            return f"{number}.25D"
        if spelling < 0.22:
            return draw.choice(("3000000000", "-1", "1e300", "CAST('nan' AS DOUBLE)", "-0.0D"))
        return str(number)

    def pattern(self, column: str) -> str:
        text = self.random.choice(TEXTS[column]) or "U"
        cut = self.random.randint(1, len(text))
        forms = (f"{text[:cut]}%", f"%{text[-cut:]}", f"%{text[:cut]}%", f"_{text[1:]}",
                 f"{text[:1]}%{text[-1:]}", text, f"{text[:cut]}_%")  # fmt: skip
        return self.random.choice(forms)


@lru_cache(maxsize=1)
def conditions() -> tuple[str, ...]:
    generator = Generator(2013)
    return tuple(generator.condition(3) for _ in range(COUNT))


@contextmanager
def zone(session: Any, name: str) -> Iterator[None]:
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        session.conf.set("spark.sql.session.timeZone", before)


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    table = load()
    draw = random.Random(1)
    marks = pa.array([draw.getrandbits(40) for _ in range(table.num_rows)], pa.int64())
    return table.append_column("mark", marks)


@pytest.fixture(scope="module")
def source(flights: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("source") / "flights.parquet"
    pq.write_table(flights, path)
    return str(path)


@pytest.fixture(scope="module")
def uri(flights: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset with partitions and small row groups, so that conditions prune much."""
    uri = str(tmp_path_factory.mktemp("plake") / "flights")
    lake.write_dataset(
        flights,
        uri,
        partition_by="origin",
        row_group_rows=8192,
        **bloom_filters("tailnum", "flight"),
    )
    return uri


Answer = tuple[int, int]


def ask(frame: Any, some: list[str]) -> list[Answer]:
    """Count and sum of marks per condition, many conditions in one pass."""
    from pyspark.sql import functions as F

    marked = frame.select(
        *(F.when(F.expr(c), F.col("mark")).alias(f"c{i}") for i, c in enumerate(some))
    )
    columns = [f(f"c{i}") for i in range(len(some)) for f in (F.count, F.sum)]
    row = marked.agg(*columns).first()
    return [(row[2 * i], row[2 * i + 1] or 0) for i in range(len(some))]


def by_spark(spark: Any, source: str, zone_name: str) -> list[Answer]:
    pushdown = "spark.sql.parquet.filterPushdown"
    spark.conf.set(pushdown, "false")
    try:
        with zone(spark, zone_name):
            frame = spark.read.parquet(source).cache()
            wanted = list(conditions())
            answers = [
                answer
                for start in range(0, COUNT, AT_ONCE)
                for answer in ask(frame, wanted[start : start + AT_ONCE])
            ]
            frame.unpersist()
            return answers
    finally:
        spark.conf.unset(pushdown)


@pytest.fixture(scope="module")
def truth(request: pytest.FixtureRequest) -> list[Answer]:
    asked = hashlib.sha256("\n".join(conditions()).encode()).hexdigest()
    if EVERYTHING:
        session, source = request.getfixturevalue("spark"), request.getfixturevalue("source")
        first, second = (by_spark(session, source, name) for name in ZONES)
        assert first == second  # every zone is spelled out
        if os.environ.get("PLAKE_RECORD_CONDITIONS") == "1":
            lines = ",\n".join(json.dumps(answer) for answer in first)
            RECORD.write_text(f'{{"conditions": "{asked}", "answers": [\n{lines}\n]}}\n')
    recorded = json.loads(RECORD.read_text())
    assert recorded["conditions"] == asked, "the conditions have changed: record the truth again"
    answers = [(count, total) for count, total in recorded["answers"]]
    if EVERYTHING:
        assert answers == first
    return answers


def test_the_conditions_are_worth_asking(truth: list[Answer]) -> None:
    assert len(set(conditions())) > 480
    assert sum(0 < count < 336_776 for count, _ in truth) > 300
    text = " ".join(conditions())
    assert all(name in text for name in [*INTS, *DOUBLES, *TEXTS, "time_hour"])


@pytest.mark.long
def test_python_finds_the_rows_that_spark_finds(uri: str, truth: list[Answer]) -> None:
    dataset = lake.open_dataset(uri)
    wrong = []
    # In `make test`, one condition of four.
    for condition, expected in list(zip(conditions(), truth))[:: 1 if EVERYTHING else 4]:
        found = dataset.scan(condition, columns=["mark"]).to_table()
        if (found.num_rows, pc.sum(found["mark"]).as_py() or 0) != expected:
            wrong.append(condition)
    assert not wrong


def differences(frames: list[tuple[str, Any, Answer]]) -> list[str]:
    """The conditions whose frames hold other rows than expected; some frames per Spark job."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    wrong = []
    for start in range(0, len(frames), AT_ONCE):
        some = frames[start : start + AT_ONCE]
        asked = [
            frame.agg(F.lit(number), F.count("mark"), F.sum("mark"))
            for number, (_, frame, _) in enumerate(some)
        ]
        rows = reduce(DataFrame.unionAll, asked).collect()
        found = {row[0]: (row[1], row[2] or 0) for row in rows}
        wrong += [c for number, (c, _, expected) in enumerate(some) if found[number] != expected]
    return wrong


def sample(name: str) -> list[tuple[int, str]]:
    """Conditions evenly spread, others for each zone."""
    step = COUNT // SAMPLE
    return list(enumerate(conditions()))[ZONES.index(name) * step // 2 :: step][:SAMPLE]


@pytest.mark.long
@pytest.mark.parametrize("name", ZONES)
def test_spark_with_the_where_option(spark: Any, uri: str, truth: list[Answer], name: str) -> None:
    with zone(spark, name):
        reader = spark.read.format("plake").option("columns", "mark")
        frames = [(c, reader.option("where", c).load(uri), truth[i]) for i, c in sample(name)]
        assert not differences(frames)


@pytest.mark.parametrize("name", ZONES)
def test_spark_with_pushed_filters(
    spark_planner: Any, uri: str, truth: list[Answer], name: str
) -> None:
    with zone(spark_planner, name):
        frame = spark_planner.read.format("plake").load(uri)
        assert not differences([(c, frame.where(c), truth[i]) for i, c in sample(name)])


# The hour that comes twice, the one that never was, and plain ones.
WITHOUT_ZONE = (
    "time_hour = '2013-07-04 09:00:00'",
    "time_hour >= TIMESTAMP '2013-11-03 01:00:00' AND time_hour < '2013-11-04'",
    "time_hour BETWEEN '2013-03-10 02:00:00' AND '2013-03-10 07:00:00'",
    "time_hour < DATE '2013-01-02'",
    "time_hour IN (TIMESTAMP '2013-01-01 10:00:00', TIMESTAMP '2013-06-01 12:00:00')",
)


@pytest.mark.long
@pytest.mark.parametrize("name", [*ZONES, "Asia/Kolkata"])
def test_times_without_a_zone_are_pushed_in_the_session_zone(
    spark: Any, spark_planner: Any, uri: str, source: str, name: str
) -> None:
    with zone(spark, name), zone(spark_planner, name):
        expected = ask(spark.read.parquet(source), list(WITHOUT_ZONE))
        frame = spark_planner.read.format("plake").load(uri)
        assert any(count for count, _ in expected)
        assert not differences(
            [(c, frame.where(c), answer) for c, answer in zip(WITHOUT_ZONE, expected)]
        )
