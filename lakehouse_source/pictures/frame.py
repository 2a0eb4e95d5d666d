"""Pure. A figure with its axes, its legend and a table of the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse_source.pictures.markup import Markup, element, joined
from lakehouse_source.pictures.scale import CHARACTER, Scale, Tick

# The width of a drawing, which grows or shrinks with the page.
WIDTH = 960.0
LEFT, RIGHT = 72.0, 36.0
TOP, BOTTOM = 10.0, 40.0  # the room above and below the drawing
INNER = WIDTH - LEFT - RIGHT
# The most rows that a table shows.
_MOST_ROWS = 300
_SHORT = 30  # a text that fits in one line


@dataclass(frozen=True, slots=True)
class Group:
    """The text for some files, and the name of their colour."""

    colour: str
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing, and a table with the figures that it shows."""

    title: str
    caption: str
    legend: Sequence[Group]
    drawing: Markup
    headers: Sequence[str]
    rows: Sequence[Sequence[str | int | None]]

    def markup(self) -> Markup:
        """The figure on a page."""
        keys = [
            element("li", element("span", "", class_=f"key {one.colour}"), one.text)
            for one in self.legend
        ]
        return element(
            "figure",
            element("h2", self.title),
            element("figcaption", self.caption),
            element("ul", *keys, class_="legend") if keys else None,
            self.drawing,
            element(
                "details",
                element("summary", "The same figures as a table"),
                table(self.headers, self.rows),
            ),
        )


def table(headers: Sequence[str], rows: Sequence[Sequence[str | int | None]]) -> Markup:
    """A table. Numbers are on the right, with commas."""
    first = rows[0] if rows else [""] * len(headers)
    names = [
        element("th", one, scope="col", class_="number" if isinstance(cell, int) else None)
        for one, cell in zip(headers, first)
    ]
    body = [element("tr", *map(_cell, row)) for row in rows[:_MOST_ROWS]]
    more = len(rows) - _MOST_ROWS
    return element(
        "div",
        element("table", element("thead", element("tr", *names)), element("tbody", *body)),
        element("p", f"and {more:,} rows more") if more > 0 else None,
        class_="wide",
    )


def _cell(value: str | int | None) -> Markup:
    if isinstance(value, int):
        return element("td", f"{value:,}", class_="number")
    text = "" if value is None else value
    return element("td", text, class_="short" if len(text) <= _SHORT else None)


def drawing(title: str, height: float, *parts: str) -> Markup:
    """A drawing with this height between its axes; `title` is for screen readers."""
    whole = height + TOP + BOTTOM
    return element(
        "svg",
        element("title", title),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:g} {whole:g}",
        role="img",
        aria_label=title,
    )


def across(at: float) -> float:
    """The x of a place between 0 and 1."""
    return LEFT + at * INNER


def bottom_axis(ticks: Sequence[Tick], height: float, name: str) -> Markup:
    """The axis below: lines at its ticks, their texts, and the axis' title."""
    parts = []
    for tick in ticks:
        x, half = across(tick.at), len(tick.text) * CHARACTER / 2
        inside = min(max(x, half + 2), WIDTH - half - 2)
        parts += [
            element("line", x1=x, x2=x, y1=TOP, y2=TOP + height + 4, class_="grid"),
            element("text", tick.text, x=inside, y=TOP + height + 17, text_anchor="middle"),
        ]
    base = TOP + height
    return joined(
        *parts,
        element("line", x1=LEFT, x2=LEFT + INNER, y1=base, y2=base, class_="axis"),
        element("text", name, x=LEFT + INNER / 2, y=base + 34, text_anchor="middle", class_="name"),
    )


def left_axis(scale: Scale, height: float, *, top: float = TOP) -> Markup:
    """The axis on the left: lines at its ticks and their texts."""
    parts = []
    for tick in scale.ticks(height):
        y = top + height - tick.at * height
        parts += [
            element("line", x1=LEFT, x2=LEFT + INNER, y1=y, y2=y, class_="grid"),
            element("text", tick.text, x=LEFT - 8, y=y + 4, text_anchor="end"),
        ]
    return joined(*parts)


def bar(
    x: float, y: float, width: float, height: float, colour: str, title: str | None = None
) -> Markup:
    """A rectangle with the text that is shown under the pointer."""
    return element(
        "rect",
        *(() if title is None else (element("title", title),)),
        x=x,
        y=y,
        width=max(width, 0.0),
        height=max(height, 0.0),
        class_=colour,
    )
