"""Verb. Manifests and lists of manifests as Avro files: their schemas, and their bytes.

Source: Apache Iceberg, table specification, "Manifests" and "Manifest Lists": the numbers are the
field ids that it gives.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from lakehouse_source.errors import InvalidOptionError

# Compressed little, because a reader waits for the first version's manifests.
_CODEC, _LEVEL = "deflate", 1


def _field(name: str, type_: Any, id: int, *, optional: bool = False) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name, "type": type_, "field-id": id}
    if optional:
        field |= {"type": ["null", type_], "default": None}
    return field


def _map(name: str, value: str, id: int, key_id: int) -> dict[str, Any]:
    """A map from field ids: Avro's own maps have texts as keys."""
    record = {
        "type": "record",
        "name": f"k{key_id}_v{key_id + 1}",
        "fields": [_field("key", "int", key_id), _field("value", value, key_id + 1)],
    }
    pairs = {"type": "array", "items": record, "logicalType": "map"}
    return _field(name, pairs, id, optional=True)


def avro_name(name: str) -> str:
    """A name that Avro allows. Readers find fields by their ids."""
    safe = re.sub(r"[^A-Za-z0-9_]", lambda found: f"_x{ord(found[0]):X}", name)
    return f"_{safe}" if safe[:1].isdigit() else safe


def entry_schema(partition_types: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The schema of a manifest's entries; `partition_types` are names and Avro types."""
    partition = {
        "type": "record",
        "name": "r102",
        "fields": [
            _field(avro_name(name), type_, 1000 + position, optional=True)
            for position, (name, type_) in enumerate(partition_types)
        ],
    }
    data_file = {
        "type": "record",
        "name": "r2",
        "fields": [
            _field("content", "int", 134),
            _field("file_path", "string", 100),
            _field("file_format", "string", 101),
            _field("partition", partition, 102),
            _field("record_count", "long", 103),
            _field("file_size_in_bytes", "long", 104),
            _map("value_counts", "long", 109, 119),
            _map("null_value_counts", "long", 110, 121),
            _map("nan_value_counts", "long", 137, 138),
            _map("lower_bounds", "bytes", 125, 126),
            _map("upper_bounds", "bytes", 128, 129),
            _field("sort_order_id", "int", 140, optional=True),
            _field("first_row_id", "long", 142, optional=True),
            _field("referenced_data_file", "string", 143, optional=True),
            _field("content_offset", "long", 144, optional=True),
            _field("content_size_in_bytes", "long", 145, optional=True),
        ],
    }
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field("status", "int", 0),
            _field("snapshot_id", "long", 1, optional=True),
            _field("sequence_number", "long", 3, optional=True),
            _field("file_sequence_number", "long", 4, optional=True),
            _field("data_file", data_file, 2),
        ],
    }


_LIST_SCHEMA = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field("manifest_path", "string", 500),
        _field("manifest_length", "long", 501),
        _field("partition_spec_id", "int", 502),
        _field("content", "int", 517),
        _field("sequence_number", "long", 515),
        _field("min_sequence_number", "long", 516),
        _field("added_snapshot_id", "long", 503),
        _field("added_files_count", "int", 504),
        _field("existing_files_count", "int", 505),
        _field("deleted_files_count", "int", 506),
        _field("added_rows_count", "long", 512),
        _field("existing_rows_count", "long", 513),
        _field("deleted_rows_count", "long", 514),
        _field("first_row_id", "long", 520, optional=True),
    ],
}


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as exc:
        raise InvalidOptionError(
            option="iceberg",
            reason="needs fastavro, which is not installed: pip install 'plake[server]'.",
        ) from exc
    return fastavro


@lru_cache(maxsize=1)
def _parsed_list_schema() -> Any:
    return _fastavro().parse_schema(_LIST_SCHEMA)


def manifest_bytes(
    entries: Iterable[Mapping[str, Any]], schema: Mapping[str, Any], metadata: Mapping[str, str]
) -> bytes:
    """The bytes of a manifest. `metadata` are the texts that its header has."""
    fastavro = _fastavro()
    return _written(fastavro, fastavro.parse_schema(dict(schema)), entries, metadata)


def list_bytes(manifests: Iterable[Mapping[str, Any]], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a list of manifests."""
    return _written(_fastavro(), _parsed_list_schema(), manifests, metadata)


def entries_of(content: bytes) -> list[Any]:
    """The entries in the bytes of a manifest, in a form that takes bytes for each value.

    Avro takes the schema from the file, and by a schema of somebody else 193 bytes hold a list of
    30 million NULLs.

    Raises:
        ValueError: it has another schema than a manifest of plake.
    """
    fastavro = _fastavro()
    reader = fastavro.reader(io.BytesIO(content))
    found = reader.writer_schema
    (data_file,) = [one["type"] for one in found["fields"] if one["name"] == "data_file"]
    (partition,) = [one["type"] for one in data_file["fields"] if one["name"] == "partition"]
    types = [(one["name"], one["type"][1]) for one in partition["fields"]]
    if any(_kind(type_) in ("array", "map", "record") for _, type_ in types):
        raise ValueError("a partition value is nested")
    form = fastavro.schema.to_parsing_canonical_form
    if form(found) != form(entry_schema(types)):
        raise ValueError("it has another schema")
    return list(reader)


def _kind(type_: Any) -> Any:
    return type_["type"] if isinstance(type_, dict) else type_


def _written(
    fastavro: Any, schema: Any, records: Iterable[Mapping[str, Any]], metadata: Mapping[str, str]
) -> bytes:
    output = io.BytesIO()
    fastavro.writer(
        output,
        schema,
        records,
        codec=_CODEC,
        codec_compression_level=_LEVEL,
        metadata=dict(metadata),
    )
    return output.getvalue()
