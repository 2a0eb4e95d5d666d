"""Verb. Existing files that are added: checks that they fit the dataset, and describes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.foreign import ForeignFile, ForeignSchema, Recorder
from lakehouse_source.parquet.names import copy_name
from lakehouse_source.schema.fields import find_field, find_name
from lakehouse_source.schema.hive_folders import typed_value
from lakehouse_source.schema.name_mapping import ToShow, check_reads_exactly
from lakehouse_source.schema.ordinal import to_ordinal
from lakehouse_source.schema.partitions import partition_folder
from lakehouse_source.write.adopt.added_schema import FoundFile, zoned_as
from lakehouse_source.write.commit.options import StagedWrite


class CheckedRecorder:
    """Checks files against the dataset's schema, and describes them as the catalog records them."""

    def __init__(self, staged: StagedWrite) -> None:
        self.write_id = staged.write_id
        self.schema = staged.spec.schema
        self.partition_by = staged.spec.partition_by
        # Per schema of files: how to describe the files, and what their statistics must show.
        self._known: dict[ForeignSchema, tuple[Recorder, list[ToShow]]] = {}

    def describe(self, one: FoundFile) -> FileMetadata:
        """What the catalog records of a file.

        Raises:
            SchemaMismatchError: it does not fit the dataset.
            InvalidOptionError: a folder's name is not a value of the partition column.
        """
        if one.file.described not in self._known:
            self._known[one.file.described] = self._check(one.file)
        recorder, to_show = self._known[one.file.described]
        for wanted in to_show:
            if not one.file.shows(wanted):
                raise _not_shown(one.file.schema.field(wanted.column), wanted)
        values = self._partition_values(one)
        path = one.given.path
        if one.given.is_copied:
            folder, name = partition_folder(values), copy_name(self.write_id)
            path = f"{folder}/{name}" if folder else name
        return recorder.record(one.file, path, values)

    def _check(self, file: ForeignFile) -> tuple[Recorder, list[ToShow]]:
        stored = [
            zoned_as(field, self.schema, file)
            for field in file.schema
            if find_name(field.name, self.partition_by) is None
        ]
        wanted = [field for field in self.schema if field.name not in self.partition_by]
        to_show = check_reads_exactly(stored, wanted)
        return Recorder(file.described, self.schema, self.partition_by), to_show

    def _partition_values(self, one: FoundFile) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in self.partition_by:
            field = self.schema.field(name)
            key = find_name(name, one.texts)
            assert key is not None  # the keys were compared with the partition columns
            value = typed_value(one.texts[key], field.type, key, one.given.shown)
            if value is None and not field.nullable:
                raise SchemaMismatchError(
                    column=name,
                    expected=field.type,
                    reason="is not nullable and the folder's name says NULL",
                    hint="Move the file to a folder with a value.",
                )
            _check_in_file(one.file, field, value)
            values[name] = value
        return values


def _not_shown(field: pa.Field, wanted: ToShow) -> SchemaMismatchError:
    if wanted.type is None:
        return SchemaMismatchError(
            column=field.name,
            expected=field.type,
            reason="is not nullable and the file may have NULL values",
            hint="Add it with schema_merge=True, which makes the column nullable.",
        )
    return SchemaMismatchError(
        column=field.name,
        expected=wanted.type,
        got=field.type,
        reason=f"is {wanted.type} and the file has {field.type}: its statistics do not show that "
        "each value fits",
        hint="Write the file's rows with write_dataset, which checks each value.",
    )


def _check_in_file(file: ForeignFile, field: pa.Field, value: Any) -> None:
    """Check a partition column that the file stores too: each row must have the folder's value."""
    stored = find_field(field.name, file.schema)
    if stored is None:
        return
    ordinal = None if value is None else to_ordinal(value, field.type)
    if not file.holds_only(stored.name, ordinal, field.type):
        raise SchemaMismatchError(
            column=field.name,
            expected=field.type,
            got=stored.type,
            reason=f"is in the file too, whose statistics do not show that each row has {value!r}",
            hint="With partitioning=None the folders' names do not count.",
        )
