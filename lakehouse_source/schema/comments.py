"""Pure. Comments of columns and nested fields, in the metadata that Spark keeps of a field."""

from __future__ import annotations

import json

import pyarrow as pa

from lakehouse_source.schema.fields import SPARK_METADATA, with_metadata
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
