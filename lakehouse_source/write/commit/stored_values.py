"""Verb. Checks by the catalog's statistics that a column's stored values fit another type.

A finer unit has a shorter range, so a promotion from dates to timestamps, or to a
finer unit, is exact for some values only. Files are not rewritten, so one value outside the range
would make every later read fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.model import DatasetRecord
from lakehouse_source.pruning.bounds import decode_row_group
from lakehouse_source.schema.fields import field_id, leaves
from lakehouse_source.schema.merge import StoredValuesFit
from lakehouse_source.schema.ordinal import domain
from lakehouse_source.schema.partitions import PartitionTexts, partition_ordinal


def stored_values_fit(reader: CatalogReader, record: DatasetRecord) -> StoredValuesFit:
    """The check for `merge`, over the files that are live in the newest version.

    A file without statistics of the column counts as one whose values do not fit.
    """

    def fits(field: pa.Field, type_: pa.DataType) -> bool:
        if field.name in record.properties.partition_by:
            return all(_partition_fits(reader, record, field, type_))
        return all(_row_groups_fit(reader, record, field, type_))

    return fits


def _partition_fits(
    reader: CatalogReader, record: DatasetRecord, field: pa.Field, type_: pa.DataType
) -> Iterator[bool]:
    old, new = domain(field.type), domain(type_)
    texts = PartitionTexts((field.name,), pa.schema([field]), reader.schemas(record.id))
    for file in reader.files(record.id, record.current_version):
        count = partition_ordinal(texts(file)[0], field.type)
        if isinstance(count, int):
            yield new.low <= count * old.unit_ns // new.unit_ns <= new.high


def _row_groups_fit(
    reader: CatalogReader, record: DatasetRecord, field: pa.Field, type_: pa.DataType
) -> Iterator[bool]:
    wanted = field_id(field)
    assert wanted is not None  # every field of a dataset has an id
    schemas = reader.schemas(record.id)
    files = reader.files(record.id, record.current_version)
    groups = reader.row_groups([file.id for file in files])
    for file in files:
        written = {leaf.id: leaf for leaf in leaves(schemas[file.schema_version])}.get(wanted)
        if written is None:
            continue  # the file does not have the column
        for group in groups[file.id]:
            # Bounds that do not fit the new type become unknown.
            bounds = decode_row_group(group, wanted, written.type, type_)
            known = bounds.lower is not None and bounds.upper is not None
            yield known or bounds.null_count == bounds.row_count
