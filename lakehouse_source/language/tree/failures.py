"""Pure. The errors of this room if there is no result.

The binder and bound nodes turn them into errors of the package, which name the expression.
"""

from __future__ import annotations


class Failure(ValueError):
    """A value that has no result; the message names the value."""


class Unsupported(Failure):
    """A value whose result is not known here; TRY_CAST does not make it NULL."""
