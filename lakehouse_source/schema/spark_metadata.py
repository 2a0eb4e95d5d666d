"""Pure. Spark's metadata of columns and nested fields: comments, and types unknown to Arrow."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from lakehouse_source.schema.fields import (
    CHAR_VARCHAR,
    SPARK_METADATA,
    SPARK_TYPE,
    with_metadata,
)
from lakehouse_source.schema.paths import walk


def comments(schema: pa.Schema) -> dict[str, str]:
    """The comments of columns and nested fields, by dotted path."""
    found = {}
    for path, field in walk(schema):
        document = json.loads((field.metadata or {}).get(SPARK_METADATA, b"{}"))
        if "comment" in document:
            found[".".join(path)] = str(document["comment"])
    return found


def commented(field: pa.Field, text: str | None) -> pa.Field:
    """A field with a comment; None removes the comment."""
    document = json.loads((field.metadata or {}).get(SPARK_METADATA, b"{}"))
    document.pop("comment", None)
    if text is not None:
        document["comment"] = text
    if document:
        return with_metadata(field, {SPARK_METADATA: json.dumps(document).encode()})
    kept = {k: v for k, v in (field.metadata or {}).items() if k != SPARK_METADATA}
    return field.with_metadata(kept)


def typed(field: pa.Field, metadata: Mapping[bytes, bytes]) -> pa.Field:
    """A field whose Spark type `metadata` gives, taken from a field made from Spark's type.

    Without such metadata, the Arrow type gives the Spark type.
    """
    kept = {key: value for key, value in (field.metadata or {}).items() if key != SPARK_TYPE}
    if SPARK_TYPE in metadata:
        kept[SPARK_TYPE] = metadata[SPARK_TYPE]
    document = json.loads(kept.pop(SPARK_METADATA, b"{}"))
    document.pop(CHAR_VARCHAR, None)
    document |= json.loads(metadata.get(SPARK_METADATA, b"{}"))
    if document:
        kept[SPARK_METADATA] = json.dumps(document).encode()
    return field.with_metadata(kept)
