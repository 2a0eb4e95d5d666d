"""Verb. The schema of existing files that are to be added to a dataset, all together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError, SchemaMismatchError
from lakehouse_source.parquet.foreign import ForeignFile, ForeignSchema
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.fields import find_field, find_name, storage_type, without_metadata
from lakehouse_source.schema.given_schema import dataframe_schema, initial
from lakehouse_source.schema.hive_folders import inferred_type
from lakehouse_source.schema.merge import merge
from lakehouse_source.write.adopt.find_files import GivenFile
from lakehouse_source.write.commit.options import WriteOptions


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to add: where it is, its footer, and its partition values as folders name them."""

    given: GivenFile
    file: ForeignFile
    texts: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class AddedSchema:
    """The schema of all files together (without ids), partition columns included."""

    schema: pa.Schema
    partition_by: tuple[str, ...]


@contextmanager
def named_in_errors(given: GivenFile) -> Iterator[None]:
    """A block whose errors about columns name the file."""
    try:
        yield
    except SchemaMismatchError as error:
        if given.shown in str(error):
            raise
        facts = error.facts | {"dataset": f"file {given.shown}"}
        raise SchemaMismatchError(**facts) from error


def schema_of_new(found: Sequence[FoundFile], types: Mapping[str, pa.DataType]) -> AddedSchema:
    """The schema of a new dataset that has these files, with `types` for partition columns.

    Raises:
        SchemaMismatchError: the schemas of the files cannot be merged.
    """
    keys = tuple(found[0].texts)
    for name in types:
        if find_name(name, keys) is None:
            raise InvalidOptionError(
                option="partition_types", value=name, reason="is no partition key.", known=keys
            )
    partitions = []
    for key in keys:
        given = find_name(key, types)
        in_file = find_field(key, found[0].file.schema)
        if given is not None:
            type_ = types[given]
        elif in_file is not None:
            type_ = storage_type(in_file.type, key)
        else:
            type_ = inferred_type(_text_of(one, key) for one in found)
        partitions.append(pa.field(key, type_))
    schema: pa.Schema | None = None
    for one in _one_per_schema(found):
        data = _nullable([f for f in one.file.schema if find_name(f.name, keys) is None])
        with named_in_errors(one.given):
            schema = initial(data) if schema is None else _merged(schema, data, True)
    assert schema is not None  # `find_files` finds at least one file
    return AddedSchema(_bare([*schema, *partitions]), keys)


def schema_in(
    snapshot: Snapshot,
    found: Sequence[FoundFile],
    options: WriteOptions,
    types: Mapping[str, pa.DataType] | None,
) -> AddedSchema:
    """The schema of a dataset after these files were added to it.

    Raises:
        SchemaMismatchError: a file's schema cannot be merged with the dataset's.
    """
    if types:
        raise InvalidOptionError(
            option="partition_types", reason="is for new datasets: this one has its types."
        )
    names = snapshot.partition_by
    keys = tuple(found[0].texts)
    if {key.lower() for key in keys} != {name.lower() for name in names}:
        have, need = (", ".join(some) or "none" for some in (keys, names))
        raise InvalidOptionError(
            option="partitioning",
            value=found[0].given.shown,
            reason=f"the folders have the keys ({have}) and the dataset has the partition "
            f"columns ({need})."
            + ("" if names else " With partitioning=None the folders' names do not count."),
        )
    schema = snapshot.schema
    partitions = [schema.field(name) for name in names]
    for one in _one_per_schema(found):
        fields = [f for f in one.file.schema if find_name(f.name, names) is None]
        data = _nullable([zoned_as(f, schema, one.file) for f in fields] + partitions)
        with named_in_errors(one.given):
            schema = _merged(schema, data, options.schema_merge, snapshot.uri)
    # Others may drop or rename a column meanwhile, so only the files' own columns are used.
    given = [field.name for one in _one_per_schema(found) for field in one.file.schema]
    fields = [f for f in schema if f.name in names or find_name(f.name, given) is not None]
    return AddedSchema(_bare(fields), names)


def _merged(
    schema: pa.Schema, data: pa.Schema, add_columns: bool, dataset: str | None = None
) -> pa.Schema:
    # Whether values fit is checked later: `begin` checks the dataset's files, and `CheckedRecorder`
    # checks the added files.
    return merge(
        schema,
        data,
        add_columns=add_columns,
        dataset=dataset,
        stored_values_fit=lambda _field, _type: True,
    )


def zoned_as(field: pa.Field, schema: pa.Schema, file: ForeignFile) -> pa.Field:
    """The field; an INT96 timestamp, which has no zone, gets the type of the dataset's column."""
    now = find_field(field.name, schema)
    if field.name in file.described.int96 and now is not None and pa.types.is_timestamp(now.type):
        return file.described.physical.field(field.name) if now.type.tz is None else field
    return field


def _nullable(fields: Sequence[pa.Field]) -> pa.Schema:
    """The fields as a schema whose new columns are nullable; NOT NULL is checked per file."""
    return dataframe_schema(pa.schema(fields))


def _bare(fields: Sequence[pa.Field]) -> pa.Schema:
    return without_metadata(pa.schema(fields))


def _text_of(one: FoundFile, key: str) -> str | None:
    return one.texts[key]


def _one_per_schema(found: Sequence[FoundFile]) -> Iterator[FoundFile]:
    """The first file of each schema, because many files have few schemas."""
    seen: set[ForeignSchema] = set()
    for one in found:
        if one.file.described not in seen:
            seen.add(one.file.described)
            yield one
