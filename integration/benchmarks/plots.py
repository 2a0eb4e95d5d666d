"""One picture for each family of a report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from integration.benchmarks.measure import Result

# A question that is asked again and again of something that grows: "batches to 1,000".
_GROWING = re.compile(r"(.+) to ([\d,]+)")


def plot(title: str, results: Sequence[Result], path: Path) -> bool:
    """Draw the medians in a family's most frequent unit; False where there is nothing to draw.

    Questions like "batches to 1,000" become lines over those numbers. More than two sizes become
    lines over them, of the first question. All others become bars.
    """
    growing = [r for r in results if _GROWING.fullmatch(r.question)]
    units = Counter(r.unit for r in growing or results if r.values)
    if not units:
        return False
    unit = units.most_common(1)[0][0]
    drawn = [r for r in growing or results if r.values and r.unit == unit]
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    sizes = list(dict.fromkeys(r.size for r in drawn))
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    if growing:
        _grown(axes, drawn)
        axes.set(title=title, ylabel=unit)
        axes.set_ylim(bottom=0)
    elif len(sizes) > 2:
        drawn = [r for r in drawn if r.question == drawn[0].question]
        _lines(axes, drawn, sizes)
        axes.set(title=f"{title}: {drawn[0].question}", ylabel=unit, yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        figure.set_figheight(1.5 + 0.2 * len(drawn))
        _bars(axes, drawn)
        axes.set(title=title, xlabel=unit)
        medians = [r.median for r in drawn]
        # Bars of about the same length begin at zero, which a logarithmic axis does not have.
        if max(medians) > 10 * min(medians):
            axes.set(xscale="log")
            axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80, metadata={"Software": None})
    pyplot.close(figure)
    return True


def _lines(axes: Any, results: Sequence[Result], sizes: Sequence[str]) -> None:
    for system in dict.fromkeys(r.system for r in results):
        points = [(sizes.index(r.size), r.median) for r in results if r.system == system]
        axes.plot(*zip(*points), marker="o", label=system)
    axes.set_xticks(range(len(sizes)), sizes)


def _grown(axes: Any, results: Sequence[Result]) -> None:
    axes.xaxis.set_major_formatter("{x:,.0f}")
    for system in dict.fromkeys(r.system for r in results):
        found = [(_GROWING.fullmatch(r.question), r) for r in results if r.system == system]
        points = [(int(match[2].replace(",", "")), r.median) for match, r in found if match]
        axes.plot(*zip(*points), marker=".", label=system)
        axes.set_xlabel(next(match[1] for match, _ in found if match))


def _bars(axes: Any, results: Sequence[Result]) -> None:
    """Questions from top to bottom, a bar for each system; the whiskers are the rounds."""
    several = len({r.size for r in results}) > 1
    labels = {r: f"{r.question}, {r.size}" if several else r.question for r in results}
    questions = list(dict.fromkeys(labels.values()))
    systems = list(dict.fromkeys(r.system for r in results))
    height = 0.8 / len(systems)
    for place, system in enumerate(systems):
        own = [r for r in results if r.system == system]
        rows = [questions.index(labels[r]) + place * height for r in own]
        low = [r.median - min(r.values) for r in own]
        high = [max(r.values) - r.median for r in own]
        axes.barh(rows, [r.median for r in own], height, xerr=[low, high], label=system)
    axes.set_yticks([i + 0.4 - height / 2 for i in range(len(questions))], questions)
    axes.invert_yaxis()
