"""Door. The partitions of a table, as `SHOW PARTITIONS` shows them."""

from __future__ import annotations

from typing import Any

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.schema.partitions import partition_ordinal
from lakehouse_source.schema.types import card
from lakehouse_source.spark.protocol.vocabulary import RequestKey, ResponseKey
from lakehouse_source.spark.session.catalog_request import Request, place_of
from lakehouse_source.spark.types import as_text


def list_partitions(request: Request) -> dict[str, Any]:
    """The values of the partition columns of all files of a version, each combination once.

    Raises:
        InvalidOptionError: Spark has no exact values for a column.
    """
    address = place_of(request).address()
    with address.open() as catalog, catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader, int(request.body[RequestKey.VERSION]))
        texts = snapshot.partition_texts()
        files = reader.files(snapshot.dataset.id, snapshot.version)
        found = dict.fromkeys(tuple(texts(file)) for file in files)
    types = [snapshot.schema.field(name).type for name in snapshot.partition_by]
    for name, type_ in zip(snapshot.partition_by, types):
        if not card(type_).text:
            raise InvalidOptionError(
                option="SHOW PARTITIONS",
                value=name,
                reason=f"cannot show values of type {type_}: query the table {request.shown}"
                ".partitions.",
            )
    return {
        ResponseKey.ROWS: [
            [as_text(partition_ordinal(text, type_), type_) for text, type_ in zip(values, types)]
            for values in found
        ]
    }
