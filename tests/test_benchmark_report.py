"""The arithmetic of the benchmarks' report, against values worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from integration.benchmarks import measure, planning_rivals, promises, report
from integration.benchmarks.measure import Ratio, Result, ratio
from integration.benchmarks.report import Section, markdown, number
from integration.benchmarks.targets import TARGETS, Target, judge


def result(system: str, *values: float, base: str | None = "theirs") -> Result:
    return Result("family", "question", system, "ms", values, base=base)


OURS = result("ours", 2.0, 9.0, 4.0)
THEIRS = result("theirs", 4.0, 6.0, 16.0)


def test_a_ratio_is_taken_round_by_round() -> None:
    # 2/4, 9/6, 4/16; the ratio of the medians would be 4/6.
    assert ratio(OURS.values, THEIRS.values) == Ratio(0.5, 0.25, 1.5)


def test_with_unequal_rounds_the_limits_are_the_widest() -> None:
    assert ratio((2.0, 4.0, 6.0), (8.0,)) == Ratio(0.5, 0.25, 0.75)


@pytest.mark.parametrize("theirs", [(), (0.0,)])
def test_there_is_no_ratio_to_nothing(theirs: tuple[float, ...]) -> None:
    assert ratio((1.0,), theirs) is None
    assert ratio((), (1.0,)) is None


def target(limit: float, against: str | None = None, question: str = "question") -> Target:
    return Target("text", limit, "family", question, "ours", "ms", "", against)


@pytest.mark.parametrize(
    ("wanted", "figure", "met"),
    [
        (target(4.0), "4 ms", True),  # the median of 2, 9, 4
        (target(3.9), "4 ms", False),
        (target(0.5, "theirs"), "0.50 (0.25 to 1.50)", True),
        (target(0.49, "theirs"), "0.50 (0.25 to 1.50)", False),
        (target(1.0, "nobody"), "nobody: not measured", None),
        (target(1.0, question="another"), "not measured", None),
    ],
)
def test_a_target_is_met_up_to_its_limit(wanted: Target, figure: str, met: bool | None) -> None:
    (verdict,) = judge([OURS, THEIRS], [wanted])
    assert (verdict.figure, verdict.met) == (figure, met)


def test_small_ratios_are_told_as_fractions() -> None:
    fast = [result("ours", 1.0, 1.0, 2.0), result("theirs", 500.0, 1000.0, 3000.0)]
    (verdict,) = judge(fast, [target(1 / 500, "theirs")])
    # 1/500, 1/1000, 2/3000
    assert verdict.figure == "1/1,000 (1/1,500 to 1/500)"
    assert verdict.met is True


def test_a_result_without_values_is_not_measured() -> None:
    (verdict,) = judge([result("ours")], [target(1.0)])
    assert (verdict.figure, verdict.met) == ("not measured", None)


def test_a_result_survives_its_file() -> None:
    assert measure.from_json(measure.to_json(OURS)) == OURS


def test_a_section_survives_its_file() -> None:
    section = Section("family", "A family", "How.", (OURS, THEIRS), 61.6, run="Run then.")
    assert Section.from_json(section.to_json()) == section


def test_rounds_are_interleaved_and_start_with_another_work_each_time() -> None:
    calls: list[str] = []
    works = {name: lambda name=name: calls.append(name) for name in "abc"}
    times = measure.interleaved(works, 4)
    assert "".join(calls) == "abc" + "bca" + "cab" + "abc"
    assert {name: len(values) for name, values in times.items()} == {"a": 4, "b": 4, "c": 4}


def test_works_that_answer_differently_are_not_timed() -> None:
    assert measure.agree("q", {"a": lambda: 1, "b": lambda: 1}) == 1
    with pytest.raises(AssertionError, match="'b': '2'"):
        measure.agree("q", {"a": lambda: 1, "b": lambda: 2})


def test_the_report_names_targets_failures_and_figures() -> None:
    missing = Result("family", "question", "slow", "ms", (), note="needs more than 60 s")
    sections = [
        Section("family", "A family", "How.", (OURS, THEIRS, missing), 61.6, run="Run then."),
        Section("other", "Another", "", (), 1.0, failure="exit code 1: no\n`disk`"),
    ]
    text = markdown(sections, {"processor": "one"}, {"family": "plots/family.png"}, [target(5)])
    for line in (
        "| processor | one |",
        "| text | 4 ms | met |",
        "**The family other failed and is incomplete:** `exit code 1: no 'disk'`",
        "| | ours | theirs | slow |",
        "| question | 4 · 0.500 (0.250–1.50) | 6 | – |",
        "- slow (question): needs more than 60 s",
        "![A family](plots/family.png)",
        "Took 62 s. Run then.",
    ):
        assert line in text.splitlines(), line
    assert text.index("## Targets") < text.index("## A family") < text.index("## Another")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123"), (0.0, "0")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_every_target_names_a_family_of_the_suite() -> None:
    from integration.benchmarks.__main__ import FAMILIES

    assert {one.family for one in TARGETS} <= set(FAMILIES)
    # The sizes that targets name are those of a full run.
    full = {f"{files:,} files" for files in measure.FULL.planning}
    full |= {f"engines, TPC-H scale {measure.FULL.tpch:g}"}
    full.add(f"engines, {measure.FULL.small_files:,} files")
    full |= {f"TPC-H scale {measure.FULL.tpch:g}", f"{measure.FULL.write_rows:,} rows", ""}
    full |= {f"{measure.FULL.memory_stream_gib:g} GiB", "5,000,000 events", "1,000,000 rows"}
    full.add(f"{10 * measure.FULL.write_rows:,} rows, {promises.FILES:,} files")
    assert {one.size for one in TARGETS} <= full
    assert report.tables([]) == []


def test_the_files_that_can_match_are_those_whose_bounds_hold_a_value() -> None:
    # File n holds the ids from n to n + 1 million, and one second.
    table = planning_rivals.file_table(20)
    numbers = sorted(int(path[-20:-8]) for path in table["path"].to_pylist())
    assert numbers == list(range(20))

    def found(*condition: tuple[str, str, Any]) -> list[int]:
        paths = planning_rivals.matching(table, list(condition))
        return sorted(int(path[-20:-8]) for path in paths)

    assert found(("id", "=", 5_000_000)) == [5]
    assert found(("id", "=", 4_999_999)) == [4]
    assert found(("id", "IN", [0, 19_999_999, 20_000_000])) == [0, 19]
    assert found(("id", "<", 2_000_000)) == [0, 1]
    second = 1_577_836_800_000_000 + 7_000_000
    assert found(("at", ">=", second), ("at", "<=", second + 2_000_000)) == [7, 8, 9]
    assert found(("region", "=", "r003"), ("id", "<", 10**12)) == [3]


def test_a_rival_stops_where_it_would_take_too_long() -> None:
    rival = planning_rivals.Rival("python", "delta")
    assert rival.hopeless(1_000_000) == ""
    rival.files, rival.plan_seconds = 1_000, 6.0
    assert rival.hopeless(10_000) == ""
    assert "about 61 s" in rival.hopeless(10_100)
