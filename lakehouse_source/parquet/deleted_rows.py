"""Edge. The positions of the deleted rows of a data file, from its deletion vector."""

from __future__ import annotations

from lakehouse_source.deletion.vector import Positions, VectorError, decode
from lakehouse_source.errors import CorruptDatasetError
from lakehouse_source.model import DeletionVector
from lakehouse_source.storage import Storage, verified


def deleted_rows(
    vector: DeletionVector | None,
    path: str,
    row_count: int,
    storage: Storage,
    *,
    verify_file: bool = False,
) -> Positions:
    """The positions of the deleted rows of the data file at a path.

    The Puffin file is opened only if the catalog has no copy of the vector. With `verify_file` the
    whole Puffin file is compared with its checksum, if the catalog has one.

    Raises:
        StorageError: the Puffin file cannot be read.
    """
    if vector is None:
        return Positions()
    blob = vector.blob
    if blob is None:
        with storage.open_input(vector.path) as source, storage.errors(vector.path):
            shown = storage.display(vector.path)
            whole = verified(source, vector.sha256, shown) if verify_file else source
            blob = whole.read_at(vector.length, vector.offset)
    try:
        return decode(blob, vector.cardinality, row_count)
    except VectorError as error:
        raise CorruptDatasetError(
            path=storage.display(vector.path),
            reason=f"its deletion vector of {path} cannot be read: {error}",
        ) from error
