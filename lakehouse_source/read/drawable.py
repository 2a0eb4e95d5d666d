"""Verb. Results that have a picture: as a page in a file, and directly in a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from lakehouse_source.errors import InvalidOptionError, PlakeError

if TYPE_CHECKING:
    from lakehouse_source.pictures.markup import Markup


class Drawable:
    """A dataclass whose last field `draw` reads the catalog again and draws the picture.

    A pickled result has no `draw`, which knows where the catalog is, and with which options.

    >>> dataset.health()._repr_html_().count("</svg>")  # a notebook asks for it
    7
    """

    __slots__ = ()
    draw: Callable[[], Markup] | None

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page with pictures to a file: no script, no network, light and dark.

        An existing file is replaced. The catalog is read again; no data file is opened.

        Raises:
            StorageError: the file cannot be written.
            VersionNotFoundError: the version was expired since.
            InvalidOptionError: the result was unpickled, or is one of `plan()`.

        >>> dataset.scan("month = 1").explain().to_html("/data/scan.html")
        >>> import pathlib
        >>> pathlib.Path("/data/scan.html").read_text()[:15]
        '<!DOCTYPE html>'
        """
        if self.draw is None:
            raise InvalidOptionError(
                option="to_html",
                reason="needs a result directly from explain() or health(): call the method again.",
            )
        # Every plan imports this module, and few are drawn.
        from lakehouse_source.pictures.page import page
        from lakehouse_source.read.draw import write_page

        write_page(page("plake", self.draw()), path)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        try:
            if self.draw is not None:
                return self.draw()
        except PlakeError:  # the version is gone, but the figures are still true
            pass
        from lakehouse_source.pictures.markup import element

        return element("pre", str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, one.name) for one in fields(self)[:-1]]  # type: ignore[arg-type]
        return type(self), tuple(values)
