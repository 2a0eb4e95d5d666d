"""Delta tables for tests: logs written by the Delta protocol, and what Delta says of a table."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from pyroaring import BitMap64

_NAMES = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
}
# RFC of Z85: https://rfc.zeromq.org/spec/32/
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(data: bytes) -> str:
    """Four bytes are a number of five digits, the first of which counts most."""
    data += bytes(-len(data) % 4)
    found = ""
    for at in range(0, len(data), 4):
        number = int.from_bytes(data[at : at + 4], "big")
        found += "".join(Z85[number // 85**place % 85] for place in (4, 3, 2, 1, 0))
    return found


def bitmap(*rows: int) -> bytes:
    """Protocol, "Deletion Vector Format"."""
    return struct.pack("<I", 1681511377) + BitMap64(rows).serialize()


def vector_file(*bitmaps: bytes) -> bytes:
    """Protocol, "Deletion Vector File Storage Format"."""
    parts = [struct.pack(">I", len(b)) + b + struct.pack(">I", zlib.crc32(b)) for b in bitmaps]
    return b"\x01" + b"".join(parts)


def inline(*rows: int) -> dict[str, Any]:
    data = bitmap(*rows)
    return {
        "storageType": "i",
        "pathOrInlineDv": z85(data),
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


def named(type_: pa.DataType) -> str:
    """Delta's name of a type."""
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return _NAMES[type_]


def field(name: str, type_: Any, *, number: int | None = None, physical: str = "") -> Any:
    """A column of a Delta schema; with a `number` it is mapped to a physical name."""
    written = named(type_) if isinstance(type_, pa.DataType) else type_
    mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    mapping = {} if number is None else mapped
    return {"name": name, "type": written, "nullable": True, "metadata": mapping}


def struct_of(*fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def metadata(
    fields: Sequence[Mapping[str, Any]], partition_by: Sequence[str] = (), **configuration: str
) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(struct_of(*fields)),
            "partitionColumns": list(partition_by),
            "configuration": {key.replace("_", "."): value for key, value in configuration.items()},
            "createdTime": 1,
        }
    }


def protocol(*features: str, reader: int = 3, writer: Sequence[str] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": 7 if reader > 2 else 5}
    if reader > 2:
        found |= {"readerFeatures": [*features], "writerFeatures": [*features, *writer]}
    return {"protocol": found}


def add(path: str, vector: Mapping[str, Any] | None = None, **partitions: str | None) -> Any:
    """`path` is taken as it is: the log has URIs."""
    found = {
        "path": path,
        "partitionValues": partitions,
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
        "stats": '{"numRecords":6}',
    }
    return {"add": found | ({} if vector is None else {"deletionVector": dict(vector)})}


def log(folder: Path, *actions: Any, number: int = 0) -> None:
    """Write one commit. The sizes of files are those on the disk."""
    (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
    for action in actions:
        path = folder / unquote(action.get("add", {}).get("path", ""))
        if "add" in action and "\0" not in str(path) and path.is_file():
            action["add"]["size"] = path.stat().st_size
    text = "".join(json.dumps(one) + "\n" for one in actions)
    (folder / "_delta_log" / f"{number:020d}.json").write_text(text)


def parquet(folder: Path, name: str, **columns: Any) -> str:
    """Write a file; its name as the log has it."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / name)
    return quote(name)


def said_by_delta(folder: Path | str, version: int | None = None) -> pa.Table:
    """The rows of a table, by delta-rs."""
    table = DeltaTable(str(folder), version=version)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
