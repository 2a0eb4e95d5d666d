"""Pure. How a column gets the values that data lacks, in the metadata of the schema's field.

A field has up to two defaults, as in Iceberg (table specification, "Default values"):

    initial   the value of rows in files that lack the field. It is given when the field is
              added and never changes, because no file is rewritten.
    write     the value of rows that are written later from data that lacks the field.

A file lacks a field if no column of it has the field's id. The time at which the file was added
does not matter: a foreign file that was added after the field gives the initial default too.
Without an initial default such rows have NULL.

A write default may also be the SQL text of an expression over no column, such as
`current_timestamp()`, which a write evaluates once when it begins (`generated.py`). Only
top-level columns have one.

Only leaf fields have defaults. They are stored as the JSON of `json_values`, in the type that
the field has in the same schema; a promotion converts them.

The text that computes a column belongs to it like its type:
older versions, branches and clones have it too.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.model import Ordinal
from lakehouse_source.schema.fields import COMPUTED, children, field_id, is_nested, with_metadata
from lakehouse_source.schema.json_values import json_of, ordinal_of, plain
from lakehouse_source.schema.ordinal import PYTHON_TYPES, domain, to_ordinal, to_scalar
from lakehouse_source.schema.types import Fit, fit

_INITIAL = b"plake:initial_default"
_WRITE = b"plake:write_default"
_SQL = b"plake:write_default_sql"
_KEYS = (_INITIAL, _WRITE)


def initial_default(field: pa.Field) -> pa.Scalar | None:
    """The value of rows in files that lack the field; None: they have NULL."""
    return _read(field, _INITIAL)


def write_default(field: pa.Field) -> pa.Scalar | None:
    """The value of rows that are written from data that lacks the field; None: NULL."""
    return _read(field, _WRITE)


def default_sql(field: pa.Field) -> str | None:
    """The SQL text of the write default; None: it is a value, or there is none."""
    raw: bytes | None = (field.metadata or {}).get(_SQL)
    return None if raw is None else raw.decode()


def has_write_default(field: pa.Field) -> bool:
    """Tell whether data may lack the field and its rows get a value."""
    return default_sql(field) is not None or write_default(field) is not None


def with_defaults(field: pa.Field, value: pa.Scalar) -> pa.Field:
    """A new field with a value as its initial and its write default."""
    text = _encoded(value)
    return with_metadata(field, {_INITIAL: text, _WRITE: text})


def with_write_default(
    field: pa.Field, value: pa.Scalar | None, sql: str | None = None
) -> pa.Field:
    """The field with another write default, a value or the text of one; None: without one."""
    kept = {key: text for key, text in (field.metadata or {}).items() if key not in (_WRITE, _SQL)}
    field = field.with_metadata(kept)
    if sql is not None:
        return with_metadata(field, {_SQL: sql.encode()})
    return field if value is None else with_metadata(field, {_WRITE: _encoded(value)})


def without_default(field: pa.Field) -> pa.Field:
    """The field without an initial default: rows in files that lack the field have NULL."""
    kept = {key: text for key, text in (field.metadata or {}).items() if key not in (*_KEYS, _SQL)}
    return field.with_metadata(kept)


def promoted(field: pa.Field, type_: pa.DataType) -> pa.Field:
    """The field with another type; its defaults are converted like its stored values.

    Raises:
        SchemaMismatchError: a default does not fit the type.
    """
    # Imported here: every reading of a catalog uses this module, and PyArrow's kernels take long to
    # import.
    from lakehouse_source.schema.align import by_name, convert

    result = field.with_type(type_)
    for key in _KEYS:
        value = _read(field, key)
        if value is not None:
            column = pa.chunked_array([pa.array([value], field.type)])
            result = with_metadata(
                result, {key: _encoded(convert(column, field, result, by_name)[0])}
            )
    return result


def column_without_data(field: pa.Field, row_count: int) -> pa.ChunkedArray:
    """A column for the rows of files that lack it: its initial default, or NULL."""
    value = initial_default(field)
    if value is None:
        return pa.chunked_array([pa.nulls(row_count, field.type)])
    return pa.chunked_array([pa.repeat(value, row_count)])


# --- values as ordinals -------------------------------------------------------------


def initial_ordinal(field: pa.Field) -> Ordinal | None:
    """The initial default of a field as an ordinal; -0.0 keeps its sign."""
    value = initial_default(field)
    return None if value is None else _ordinal(value)


def initial_ordinals(schema: pa.Schema) -> dict[int, Ordinal]:
    """The initial defaults of all leaves that have one, by field id."""
    return {id: _ordinal(value) for id, value in _initial(schema)}


def _initial(fields: Iterable[pa.Field]) -> Iterator[tuple[int, pa.Scalar]]:
    for field in fields:
        value = initial_default(field)
        identity = field_id(field)
        if value is not None and identity is not None:
            yield identity, value
        yield from _initial(children(field.type))


def _ordinal(value: pa.Scalar) -> Ordinal:
    if not pa.types.is_floating(value.type):
        return to_ordinal(value, value.type)
    found = float(value.as_py())
    return math.nan if math.isnan(found) else found  # one object, which is equal to itself


# --- as JSON ------------------------------------------------------------------------


def _encoded(value: pa.Scalar) -> bytes:
    kind, ordinal = domain(value.type), _ordinal(value)
    document = json_of(ordinal, kind, False, None)
    if kind.kind == "float" and ordinal == 0:
        document = float(ordinal)  # statistics have no -0.0, defaults have
    return json.dumps(document).encode()


def _read(field: pa.Field, key: bytes) -> pa.Scalar | None:
    raw = (field.metadata or {}).get(key)
    if raw is None:
        return None
    value = _decoded(raw, field.type)
    if value is None:
        raise SchemaMismatchError(
            column=field.name,
            expected=field.type,
            reason=f"is {field.type} and its recorded default {raw!r} is no such value",
            hint="The catalog was damaged, or written by something else than plake.",
        )
    return value


@lru_cache(maxsize=1024)
def _decoded(raw: bytes, type_: pa.DataType) -> pa.Scalar | None:
    kind = domain(type_)
    try:
        document = json.loads(raw)
        if kind.kind == "float":
            return pa.scalar(float(document), type_)
        ordinal = ordinal_of(document, kind)
        return None if ordinal is None else to_scalar(ordinal, type_)
    except (ValueError, TypeError, pa.ArrowException):
        return None


def cut_repr(value: Any) -> str:
    """A value as Python shows it, for messages: at most 80 characters."""
    if isinstance(value, pa.Scalar):
        try:
            value = value.as_py()
        except (OverflowError, ValueError):  # Python has no name for the year
            value = value.value
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# --- from what the caller gives -----------------------------------------------------

_FLOAT_FORMATS = {16: "<e", 32: "<f", 64: "<d"}


def checked_default(value: Any, type_: pa.DataType, column: str) -> pa.Scalar:
    """A default as a scalar of the column's storage type, exactly the value that was given.

    `value` is a Python value of the type, or an Arrow scalar.

    Raises:
        SchemaMismatchError: the value is of another type or does not fit, or the column is
            nested.
    """

    def refused(reason: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            column=column,
            expected=type_,
            reason=f"is {type_} and cannot have the default {cut_repr(value)}: {reason}",
            hint="Give a value of the column's type, or an Arrow scalar (pa.scalar).",
        )

    if is_nested(type_):
        raise refused("only columns that are not nested have defaults")
    if not domain(type_).ordered:
        raise refused("the type has no values")
    try:
        if isinstance(value, pa.Scalar):
            return _from_scalar(value, type_)
        return _from_python(value, type_)
    except (ValueError, OverflowError, ArithmeticError, pa.ArrowException, struct.error) as error:
        raise refused(str(error)) from error


def _from_scalar(value: pa.Scalar, type_: pa.DataType) -> pa.Scalar:
    if not value.is_valid:
        raise ValueError("NULL is no default")
    if isinstance(value, pa.DictionaryScalar):
        value = value.value
    if isinstance(value, pa.ExtensionScalar):
        value = value.value
    if value.type.equals(type_):
        return value
    own, wanted = domain(value.type), domain(type_)
    same_kind = own.kind == wanted.kind and own.zoned == wanted.zoned
    if fit(value.type, type_) is Fit.NONE and not same_kind:
        raise ValueError(f"it is {value.type}")
    result = value.cast(type_)
    if not _is_same(value, result.cast(value.type)):
        raise ValueError("it would be rounded")
    return result


def _is_same(one: pa.Scalar, other: pa.Scalar) -> bool:
    if pa.types.is_floating(one.type):
        return repr(float(one.as_py())) == repr(float(other.as_py()))
    return bool(one.equals(other))


def _from_python(value: Any, type_: pa.DataType) -> pa.Scalar:
    try:
        value = plain(value)
    except ValueError as error:
        raise ValueError(f"it {error}") from None
    kind = domain(type_)
    is_bool = type(value) is bool and kind.kind != "bool"
    is_datetime = issubclass(type(value), datetime) and kind.kind == "date"
    if is_bool or is_datetime or not issubclass(type(value), PYTHON_TYPES[kind.kind]):
        raise ValueError(f"it is of Python's type {type(value).__name__}")
    if kind.kind == "float":
        return pa.scalar(_as_float(value, type_), type_)
    if hasattr(value, "tzinfo"):
        zoned = value.tzinfo is not None
        if zoned != kind.zoned:
            raise ValueError("it has a time zone" if zoned else "it has no time zone")
    if kind.kind == "decimal":
        value = Decimal(value)
    ordinal = to_ordinal(value, type_)
    if isinstance(ordinal, int) and not kind.low <= ordinal <= kind.high:
        raise ValueError("it is out of range")
    return to_scalar(ordinal, type_)


def _as_float(value: float | int, type_: pa.DataType) -> float:
    found = float(value)
    if not math.isfinite(found):
        return found
    code = _FLOAT_FORMATS[type_.bit_width]
    (stored,) = struct.unpack(code, struct.pack(code, found))
    if stored != value:
        raise ValueError(f"it would be rounded to {stored}")
    return found


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
