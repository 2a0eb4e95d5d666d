"""Edge. The positions of the deleted rows of a data file, from its deletion vector."""

from __future__ import annotations

from lakehouse_source.deletion.vector import Positions, VectorError, decode
from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.model import DeletionVector
from lakehouse_source.storage import Storage


def deleted_rows(
    vector: DeletionVector | None, path: str, row_count: int, storage: Storage
) -> Positions:
    """The positions of the deleted rows of the data file at a path.

    The Puffin file is opened only where the catalog has no copy of the vector.

    Raises:
        StorageError: the Puffin file cannot be read.
        CorruptDatasetError: it has no vector of this file, or a damaged one.
    """
    if vector is None:
        return Positions()
    blob = vector.blob
    if blob is None:
        with storage.open_input(vector.path) as source, storage.errors(vector.path):
            blob = source.read_at(vector.length, vector.offset)
    try:
        return decode(blob, vector.cardinality, row_count)
    except VectorError as error:
        raise CorruptDatasetError(
            path=storage.display(vector.path),
            reason=f"its deletion vector of {path} cannot be read: {error}",
        ) from error
