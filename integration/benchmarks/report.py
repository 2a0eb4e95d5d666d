"""Results as Markdown: targets first, then a table and a plot for each family."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

from integration.benchmarks.measure import Result, from_fields, ratio
from integration.benchmarks.targets import TARGETS, Target, judge

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Section:
    """A family of the report: what was asked, and what came of it.

    `failure` is its error. `run` says when, of which commit and with how many rounds.
    """

    name: str
    title: str
    about: str
    results: tuple[Result, ...]
    took_seconds: float
    failure: str = ""
    run: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Section:
        fields = json.loads(text)
        return cls(**{**fields, "results": tuple(map(from_fields, fields["results"]))})


def markdown(
    sections: Sequence[Section],
    head: Mapping[str, str],
    plots: Mapping[str, str],
    targets: Sequence[Target] = TARGETS,
) -> str:
    """The whole report. `plots` are paths of pictures by family."""
    results = [result for section in sections for result in section.results]
    parts = ["# Benchmarks", *_head(head), "## Targets", _verdicts(results, targets)]
    failed = [section for section in sections if section.failure]
    parts += [
        f"**The family {section.name} failed and is incomplete:** `{_one_line(section.failure)}`"
        for section in failed
    ]
    for section in sections:
        parts += [f"## {section.title}", section.about, *tables(section.results)]
        parts += notes(section.results)
        if section.name in plots:
            parts.append(f"![{section.title}]({plots[section.name]})")
        run = f" {section.run}" if section.run else ""
        parts.append(f"Took {section.took_seconds:.0f} s.{run}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("`", "'")[-400:]


def _head(head: Mapping[str, str]) -> list[str]:
    rows = [f"| {name} | {value} |" for name, value in head.items()]
    return ["\n".join(["| | |", "|---|---|", *rows])]


def _verdicts(results: Sequence[Result], targets: Sequence[Target]) -> str:
    words = {True: "met", False: "**not met**", None: "not measured"}
    rows = [
        f"| {verdict.target.text} | {verdict.figure} | {words[verdict.met]} |"
        for verdict in judge(results, targets)
    ]
    return "\n".join(["| target | figure | |", "|---|---|---|", *rows])


# --- tables -----------------------------------------------------------------------


def tables(results: Sequence[Result]) -> list[str]:
    """One table for each size and unit: questions down, systems across."""
    found: list[str] = []
    for size, unit in _distinct((r.size, r.unit) for r in results):
        some = [r for r in results if (r.size, r.unit) == (size, unit)]
        found.append(_caption(size, unit, some))
        found.append(_table(some))
    return found


def _caption(size: str, unit: str, results: Sequence[Result]) -> str:
    bases = _distinct(r.base for r in results if r.base)
    single = not bases and all(len(r.values) <= 1 for r in results)
    words = f"{'figures' if single else 'medians'} in {unit}"
    words = f"{size}, {words}" if size else words
    if bases:
        words += f"; after them the ratio to {' or '.join(bases)} (smallest–largest of a round)"
    return f"{words[0].upper()}{words[1:]}."


def _table(results: Sequence[Result]) -> str:
    systems = _distinct(r.system for r in results)
    cells = {(r.question, r.system): r for r in results}
    lines = [f"| | {' | '.join(systems)} |", "|---|" + "--:|" * len(systems)]
    for question in _distinct(r.question for r in results):
        row = [_cell(cells.get((question, system)), results) for system in systems]
        lines.append(f"| {question} | {' | '.join(row)} |")
    return "\n".join(lines)


def _cell(result: Result | None, results: Sequence[Result]) -> str:
    if result is None or not result.values:
        return "–"
    text = number(result.median)
    if result.base is None or result.base == result.system:
        return text
    for other in results:
        if (other.question, other.system) == (result.question, result.base):
            found = ratio(result.values, other.values)
            if found is not None:
                low, high = number(found.low), number(found.high)
                text += f" · {number(found.median)} ({low}–{high})"
    return text


def number(value: float) -> str:
    """Three digits that say something, no exponent; whole numbers as they are."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    for limit, digits in ((10, 1), (1, 2), (0.1, 3), (0.01, 4), (0.001, 5)):
        if abs(value) >= limit:
            return f"{value:.{digits}f}"
    return f"{value:.6f}"


def notes(results: Sequence[Result]) -> list[str]:
    """What the families had to say about single figures, each once."""
    lines = []
    for result in results:
        if result.note:
            where = ", ".join(part for part in (result.size, result.question) if part)
            lines.append(f"- {result.system} ({where}): {result.note}")
    return ["\n".join(_distinct(lines))] if lines else []


def _distinct(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))
