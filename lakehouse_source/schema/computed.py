"""Pure. How a column gets the values that data lacks, in the metadata of the schema's field.

The text belongs to the column like its type: older versions, branches and clones have it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.fields import COMPUTED, field_id, with_metadata


@dataclass(frozen=True, slots=True)
class Identity:
    """A column whose numbers the catalog gives out: unique, with gaps, in no order of commits.

    `always`: rows that bring a number are refused; else only rows without one get one. `sequence`
    names what the numbers are counted by: versions, branches and clones of a dataset share it, and
    plake chooses it when the column is made.

    >>> lake.Identity(start=1000, step=10).sql
    'GENERATED ALWAYS AS IDENTITY (START WITH 1000 INCREMENT BY 10)'
    """

    start: int = 1
    step: int = 1
    always: bool = True
    sequence: str = ""

    def __post_init__(self) -> None:
        for number in (self.start, self.step):
            if type(number) is not int or not -(1 << 63) <= number < 1 << 63:
                raise TypeError(f"{number!r} is not a number of 64 bits")
        if self.step == 0:
            raise ValueError("the step is 0")
        if type(self.always) is not bool or not isinstance(self.sequence, str):
            raise TypeError("always is a bool, and sequence a text")

    @property
    def sql(self) -> str:
        """The clause of CREATE TABLE."""
        kind = "ALWAYS" if self.always else "BY DEFAULT"
        counted = f"START WITH {self.start} INCREMENT BY {self.step}"
        return f"GENERATED {kind} AS IDENTITY ({counted})"


# How a column is computed: by the SQL text of an expression over others of its row, or as numbers.
Computed: TypeAlias = "str | Identity"


def clause(how: Computed) -> str:
    """The clause of CREATE TABLE."""
    return f"GENERATED ALWAYS AS ({how})" if isinstance(how, str) else how.sql


def document_of(how: Computed) -> dict[str, Any]:
    """As JSON holds it."""
    return {"expression": how} if isinstance(how, str) else {"identity": asdict(how)}


def of_document(document: Any) -> Computed:
    """What `document` says.

    Raises:
        ValueError, TypeError, LookupError: it says nothing that plake computes.
    """
    if "identity" in document:
        return Identity(**document["identity"])
    if not isinstance(document["expression"], str):
        raise TypeError(document)
    return str(document["expression"])


def computed(field: pa.Field) -> Computed | None:
    """How a column is computed; None: its values come from data alone.

    Raises:
        SchemaMismatchError: the catalog says it in no form that plake writes.
    """
    raw = (field.metadata or {}).get(COMPUTED)
    if raw is None:
        return None
    try:
        return of_document(json.loads(raw))
    except (ValueError, TypeError, LookupError) as error:
        raise SchemaMismatchError(
            column=field.name,
            reason=f"is computed as {raw!r}, which is nothing that plake computes",
            hint="The catalog was damaged, or written by something else than plake.",
        ) from error


def with_computed(field: pa.Field, how: Computed) -> pa.Field:
    """The field of a column that is computed."""
    return with_metadata(field, {COMPUTED: json.dumps(document_of(how)).encode()})


def computed_columns(schema: pa.Schema) -> dict[str, Computed]:
    """The columns of a schema that are computed, by name."""
    found = ((field.name, computed(field)) for field in schema)
    return {name: how for name, how in found if how is not None}


def carried(before: pa.Schema, after: pa.Schema) -> pa.Schema:
    """A schema that replaces another one; columns that have their names and types stay computed."""
    for name, how in computed_columns(before).items():
        at = after.get_field_index(name)
        if at >= 0 and after.field(at).type.equals(before.field(name).type):
            after = after.set(at, with_computed(after.field(at), how))
    return after


def declared(schema: pa.Schema, given: Mapping[str, Any]) -> pa.Schema:
    """The schema of a new dataset with columns that are computed: `given` says how, by name.

    Raises:
        SchemaMismatchError: there is no such column, or it is computed in no such way.
    """
    for name, how in given.items():
        at = schema.get_field_index(name)
        if at < 0:
            raise SchemaMismatchError(
                column=name, reason="is generated and not in the schema", hint="Add it there."
            )
        try:
            found = how if isinstance(how, str | Identity) else of_document(how)
        except (ValueError, TypeError, LookupError) as error:
            raise SchemaMismatchError(
                column=name,
                reason=f"is to be generated as {how!r}",
                hint="Give the SQL text of an expression, or lake.Identity().",
            ) from error
        if isinstance(found, Identity) and found.sequence:
            raise SchemaMismatchError(
                column=name,
                reason=f"is to count by the sequence {found.sequence!r}",
                hint="Leave sequence out: the dataset gets one of its own.",
            )
        schema = schema.set(at, with_computed(schema.field(at), found))
    return schema


def with_sequences(schema: pa.Schema, name: str, before: pa.Schema | None = None) -> pa.Schema:
    """A new schema whose numbers are counted by sequences of its own, which `name` tells apart.

    Those of the schema `before` of the dataset stay. A schema that was taken from another dataset
    would use up the numbers of that one.
    """
    own = () if before is None else computed_columns(before).values()
    kept = {how.sequence for how in own if isinstance(how, Identity)}
    for column, how in computed_columns(schema).items():
        if isinstance(how, Identity) and how.sequence not in kept:
            at = schema.get_field_index(column)
            mine = replace(how, sequence=f"{name}.{field_id(schema.field(at))}")
            schema = schema.set(at, with_computed(schema.field(at), mine))
    return schema
