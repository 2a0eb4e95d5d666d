"""Pure. A page of figures: one text that needs no network and no script, light or dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse_source.pictures.frame import Figure, table
from lakehouse_source.pictures.markup import Markup, element, visible

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
