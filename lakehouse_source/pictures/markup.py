"""Pure. Elements of HTML and SVG as text. Whatever a dataset names is escaped.

The text is well-formed XML too, so that any parser reads a page as a browser does.
"""

from __future__ import annotations

import re

# C0 and C1 controls, DEL; marks that change the direction of text; line separators; surrogates and
# characters that XML does not have.
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


class Markup(str):
    """A text that is markup already."""

    __slots__ = ()


def visible(text: str) -> str:
    """A text whose control characters are escaped, so they are shown and have no effect."""
    return UNSAFE.sub(
        lambda found: (
            repr(found.group())[1:-1]
            if ord(found.group()) < 256
            else f"\\u{ord(found.group()):04x}"
        ),
        text,
    )


def shortened(text: str, most: int) -> str:
    """A text, cut to at most `most` characters."""
    text = visible(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def number(value: float) -> str:
    """A coordinate with at most two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def element(tag: str, *children: str | None, **attributes: str | float | None) -> Markup:
    """An element. A child that is not `Markup` is escaped as text; None is left out.

    In names of attributes, `_` becomes `-`, and a final `_` is dropped (`class_`).
    """
    parts = [tag]
    for name, value in attributes.items():
        if value is not None:
            text = value if isinstance(value, str) else number(value)
            parts.append(f'{name.rstrip("_").replace("_", "-")}="{_escaped(text)}"')
    inside = "".join(_escaped(one) for one in children if one is not None)
    head = " ".join(parts)
    return Markup(f"<{head}>{inside}</{tag}>" if children else f"<{head} />")


def joined(*parts: str) -> Markup:
    """Elements one after the other."""
    return Markup("".join(map(_escaped, parts)))


def _escaped(text: str) -> str:
    if isinstance(text, Markup):
        return text
    return "\n".join(visible(line).translate(_ESCAPES) for line in text.split("\n"))
