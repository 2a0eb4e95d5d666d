"""Writes the table of functions in docs/conditions.md from the functions that expressions know."""

from __future__ import annotations

from pathlib import Path

from lakehouse_source.language.functions import FUNCTIONS
from lakehouse_source.language.functions.entry import Function

PAGE = Path(__file__).parents[1] / "docs" / "conditions.md"
BEGIN = "| Function | Takes | Result | NULL | What a comparison with a constant prunes by |"
END = "<!-- end of the table -->"


def table() -> str:
    """The rows, functions of several names in one."""
    found: dict[Function, list[str]] = {}
    for name, function in FUNCTIONS.items():
        found.setdefault(function, []).append(name)
    rows = [BEGIN, "|---|---|---|---|---|"]
    for function, names in found.items():
        written = ", ".join(f"`{name}({_arguments(function)})`" for name in names)
        cells = (written, function.takes, function.result, function.nulls, _prunes(function))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _arguments(function: Function) -> str:
    letters = "abcdefg"
    least = list(letters[: function.least])
    if function.most is None:
        return ", ".join([*least, "…"])
    more = list(letters[function.least : function.most])
    return ", ".join(least) + "".join(f"[, {one}]" for one in more)


def _prunes(function: Function) -> str:
    if function.order is not None:
        return "a range of the column"
    if function.prunes:
        return function.prunes
    return "columns that are not NULL" if function.is_strict else "nothing"


def page(text: str) -> str:
    """The page with the table of today."""
    begin, end = text.index("| Function | "), text.index(END)
    return text[:begin] + table() + "\n\n" + text[end:]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
