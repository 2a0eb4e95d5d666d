"""Pure. Figures with axes, legends and tables, on a page that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse_source.pictures.markup import Markup, element, joined, visible
from lakehouse_source.pictures.scale import CHARACTER, Scale, Tick

# --- A figure with its axes, its legend and a table of the same figures.


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


def left_axis(scale: Scale, height: float) -> Markup:
    """The axis on the left: lines at its ticks and their texts."""
    parts = []
    for tick in scale.ticks(height):
        y = TOP + height - tick.at * height
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


# Colours that colour-blind people can tell apart; `first` is what is read or changed.
_STYLE = """
.plake{--ink:#1c2733;--soft:#5b6875;--line:#dfe4ea;--paper:#ffffff;--card:#f6f8fa;
--read:#1769c2;--part:#6db1ee;--partition:#c3cad3;--statistics:#a9cbb0;--rest:#d5dbe2;
--asked:#f2b632;--added:#2c8a57;--removed:#c9483b;--small:#d98a1f;--p0:#1769c2;--p1:#c9483b;
--p2:#2c8a57;--p3:#8a55c4;--p4:#d98a1f;--p5:#16889b;
color:var(--ink);background:var(--paper);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;max-width:1040px;margin:0 auto;padding:24px;box-sizing:border-box}
@media (prefers-color-scheme:dark){.plake{--ink:#e4e9ee;--soft:#9aa7b3;--line:#303b46;
--paper:#12181e;--card:#1a222a;--read:#5aa9f5;--part:#2f6ea8;--partition:#4a5561;
--statistics:#3f6a4e;--rest:#39444f;--asked:#b98a1c;--added:#4cb37d;--removed:#e0695c;
--small:#dfa045;--p0:#5aa9f5;--p1:#e0695c;--p2:#4cb37d;--p3:#b083e6;--p4:#dfa045;--p5:#41b5c8}}
.plake h1{font-size:22px;line-height:1.3;margin:0 0 4px;overflow-wrap:anywhere}
.plake h2{font-size:17px;margin:0 0 2px;overflow-wrap:anywhere}
.plake p,.plake figcaption{margin:0 0 8px;color:var(--soft);overflow-wrap:anywhere}
.plake figure{margin:20px 0 0;padding:18px 20px 12px;background:var(--card);border-radius:10px;
border:1px solid var(--line)}
.plake .notes{margin:8px 0 0;padding:0;list-style:none}
.plake .notes li{margin:2px 0;overflow-wrap:anywhere}
.plake code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.plake .legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 6px;padding:0;list-style:none;
font-size:13px}
.plake .key{display:inline-block;width:13px;height:13px;border-radius:3px;margin-right:6px;
vertical-align:-2px;background:currentColor}
.plake svg{display:block;width:100%;height:auto}
.plake svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;
fill:var(--soft)}
.plake svg .strong{fill:var(--ink);font-weight:600}
.plake svg .name{fill:var(--ink)}
.plake svg .grid{stroke:var(--line);stroke-width:1}
.plake svg .axis{stroke:var(--soft);stroke-width:1}
.plake rect:hover{filter:brightness(1.15);stroke:var(--ink);stroke-width:1}
.plake details{margin:8px 0 0;font-size:13px}
.plake summary{cursor:pointer;color:var(--soft)}
.plake .wide{overflow-x:auto;max-height:420px;overflow-y:auto}
.plake table{border-collapse:collapse;margin:6px 0;font-size:13px}
.plake th,.plake td{text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid var(--line);
vertical-align:top}
.plake td{overflow-wrap:break-word;max-width:520px}
.plake td.short{white-space:nowrap}
.plake td.number,.plake th.number{text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}
.plake .box{fill-opacity:.25;stroke-width:1}
.plake .level0{fill-opacity:.4}.plake .level1{fill-opacity:.6}.plake .level2{fill-opacity:.8}
.plake .asked{fill-opacity:.3}
"""
_COLOURS = (
    *("read", "part", "partition", "statistics", "rest", "asked", "added", "removed", "small"),
    *(f"p{number}" for number in range(6)),
)
# Names for a group that is drawn as an area, and for all files behind it.
_ALIASES = {"first": "read", "all": "rest"}
PIECES = 6  # colours `p0` to `p5`


def _colours() -> str:
    pairs = [*((one, one) for one in _COLOURS), *_ALIASES.items()]
    return "".join(
        f".plake .{name}{{fill:var(--{colour});stroke:none;color:var(--{colour})}}"
        f".plake .box.{name}{{stroke:var(--{colour})}}\n"
        for name, colour in pairs
    )


@dataclass(frozen=True, slots=True)
class Listing:
    """A table without a drawing."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str | int | None]]

    def markup(self) -> Markup:
        """The table on a page."""
        return element("figure", element("h2", self.title), table(self.headers, self.rows))


def fragment(
    title: str, lead: str, parts: Sequence[Figure | Listing], *, notes: Sequence[str] = ()
) -> Markup:
    """Figures for a page or for the cell of a notebook, whose own style does not change."""
    return element(
        "div",
        element("style", Markup(_STYLE + _colours())),
        element("h1", title),
        element("p", lead),
        element("ul", *(element("li", one) for one in notes), class_="notes") if notes else None,
        *(one.markup() for one in parts),
        class_="plake",
    )


def page(title: str, body: Markup) -> str:
    """A whole page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'; img-src data:",
        ),
        element("link", rel="icon", href="data:,"),
        element("title", visible(title)),
        element("style", Markup("@media (prefers-color-scheme:dark){html{background:#12181e}}")),
    )
    whole = element(
        "html",
        head,
        element("body", body, style="margin:0"),
        lang="en",
        xmlns="http://www.w3.org/1999/xhtml",
    )
    return f"<!DOCTYPE html>\n{whole}\n"
