"""What installed libraries can do: tests of what an older version lacks are skipped."""

from __future__ import annotations

import pyarrow as pa
import pytest

PYARROW = int(pa.__version__.split(".")[0])

writes_bloom_filters = pytest.mark.skipif(
    PYARROW < 24, reason="PyArrow 24 is the first that writes bloom filters"
)


def bloom_filters(*columns: str) -> dict[str, list[str]]:
    """The keyword that asks for bloom filters, where they are not what a test is about."""
    return {"bloom_filter_columns": list(columns)} if PYARROW >= 24 else {}
