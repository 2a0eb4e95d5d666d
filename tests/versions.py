"""What installed libraries can do: tests of what an older version lacks are skipped."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PYARROW = int(pa.__version__.split(".")[0])

writes_bloom_filters = pytest.mark.skipif(
    PYARROW < 24, reason="PyArrow 24 is the first that writes bloom filters"
)
tells_bloom_filters = pytest.mark.skipif(
    not hasattr(pq.ColumnChunkMetaData, "bloom_filter_offset"),
    reason="this PyArrow does not tell where bloom filters are",
)

has_null_arrays = pytest.mark.skipif(
    PYARROW < 26, reason="PyArrow 26 is the first that writes and reads NULL arrays of one length"
)


def bloom_filters(*columns: str) -> dict[str, list[str]]:
    """The keyword that asks for bloom filters, where they are not what a test is about."""
    return {"bloom_filter_columns": list(columns)} if PYARROW >= 24 else {}
