"""Pure. What is raised inside this room where there is no result.

The binder and bound nodes make it an error of the package, which names the expression.
"""

from __future__ import annotations


class Failure(ValueError):
    """A value that has no result; the message names the value."""


class Unsupported(Failure):
    """A value whose result is not known here; TRY_CAST does not make it NULL."""
