"""Pure. VARIANT: the Arrow type of its columns, and the struct in which files and Spark hold them.

A column is an Arrow extension type over `struct<metadata: binary, value: binary>`. Its name is not
`arrow.parquet.variant`, the name of Arrow's own: PyArrow 26 has that type in C++ only, and its
Parquet writer takes each type of that name for its own, which ends the process. So a table of plake
that a user writes with PyArrow stays a file, and files of plake get the struct (`stored`) and their
annotation in the footer (`parquet/footer.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa

from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError

METADATA, VALUE, TYPED_VALUE = "metadata", "value", "typed_value"
# Which names below a place are columns of files, and of which types.
Tree: TypeAlias = "Mapping[str, Tree | pa.DataType]"
STORAGE = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in (METADATA, VALUE)])


class VariantScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One value of a column of VARIANT."""

    def as_py(self, **_options: Any) -> Any:
        """The Python object of the value; None for NULL, and for JSON's null."""
        from lakehouse_source.schema.variant_bytes import decode

        return None if self.value is None else decode(*_bytes(self))

    def to_json(self) -> str | None:
        """The value as JSON; None for NULL."""
        from lakehouse_source.schema.variant_bytes import decode_json

        return None if self.value is None else decode_json(*_bytes(self))


class VariantType(pa.ExtensionType):  # type: ignore[misc]
    """The type of columns of VARIANT in Arrow tables: `lake.variant` makes them."""

    def __init__(self) -> None:
        super().__init__(STORAGE, "plake.variant")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, _data: bytes) -> VariantType:
        return cls()

    def __arrow_ext_scalar_class__(self) -> type[VariantScalar]:
        return VariantScalar

    def __reduce__(self) -> tuple[Any, ...]:
        return VariantType, ()

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __str__(self) -> str:
        return "variant"


VARIANT = VariantType()
# The catalog's schemas have the type by its name. A second copy of this module finds it there.
with suppress(pa.ArrowKeyError):
    pa.register_extension_type(VARIANT)


def _bytes(scalar: VariantScalar) -> tuple[bytes, bytes]:
    stored = scalar.value
    metadata, value = stored[METADATA].as_py(), stored[VALUE].as_py()
    if metadata is None or value is None:
        raise CorruptDatasetError(path="a value of VARIANT", reason="its bytes are NULL")
    return metadata, value


def is_variant(type_: pa.DataType) -> bool:
    """Tell whether it is the type of columns of VARIANT."""
    return isinstance(type_, pa.BaseExtensionType) and type_.extension_name == "plake.variant"


def variant(values: Iterable[Any], *, json: bool = False) -> pa.Array:
    """A column of VARIANT from Python objects, or with `json` from JSON texts; None is NULL.

    Dicts with keys of str, lists, str, bool, int, float, Decimal, bytes, dates, times, datetimes
    and UUIDs have values, and what NumPy and pandas have for them (NaT and NA are None). An integer
    beyond 64 bits becomes a decimal of up to 38 digits. None inside of an object is JSON's null, as
    is the JSON text 'null'.

    Raises:
        InvalidOptionError: an object has no such value, a text is not JSON or has a key twice,
            or a value takes more than 16 MiB.

    >>> events = lake.variant(['{"user": {"id": 7}, "ts": 1.5}', "[1, null]"], json=True)
    >>> lake.write_dataset({"id": [1, 2], "event": events}, "/data/events").row_count
    2
    >>> lake.read_dataset("/data/events")["event"].to_pylist()
    [{'ts': Decimal('1.5'), 'user': {'id': 7}}, [1, None]]
    """
    from lakehouse_source.schema.variant_values import encode, encode_json, python_value

    found: list[dict[str, bytes] | None] = []
    for value in values:
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        value = python_value(value)
        if value is None:
            found.append(None)
            continue
        if json and not isinstance(value, str):
            raise InvalidOptionError(
                option="values",
                reason=f"has a {type(value).__name__} among JSON texts. Leave json=True out.",
            )
        metadata, content = encode_json(value) if json else encode(value)
        found.append({METADATA: metadata, VALUE: content})
    return of_stored(pa.array(found, STORAGE))


def of_stored(array: pa.Array) -> pa.Array:
    """A column from the struct that holds it."""
    return pa.ExtensionArray.from_storage(VARIANT, array)


def shredded_type(tree: Tree) -> pa.DataType:
    """The struct of a column of which the paths of a tree are columns."""
    parts = [STORAGE.field(METADATA), pa.field(VALUE, pa.binary()), typed_field(tree)]
    return pa.struct(parts)


def typed_field(tree: Tree | pa.DataType) -> pa.Field:
    """The field `typed_value` of one place."""
    if isinstance(tree, pa.DataType):
        return pa.field(TYPED_VALUE, tree)
    groups = {
        name: pa.struct([pa.field(VALUE, pa.binary()), typed_field(one)])
        for name, one in tree.items()
    }
    below = [pa.field(name, group, nullable=False) for name, group in groups.items()]
    return pa.field(TYPED_VALUE, pa.struct(below))


def holds_variant(type_: pa.DataType) -> bool:
    """Tell whether a type is a struct of `metadata`, `value` and perhaps `typed_value`."""
    if not pa.types.is_struct(type_):
        return False
    names = sorted(one.name for one in type_)
    return METADATA in names and names in (
        [METADATA, VALUE],
        [METADATA, TYPED_VALUE],
        [METADATA, TYPED_VALUE, VALUE],
    )


def struct_like(parts: list[pa.Array], like: pa.Array) -> pa.Array:
    """`metadata` and `value` as structs that are NULL where `like` is; no field is NULL."""
    filled = [part.fill_null(b"") if part.null_count else part for part in parts]
    mask = like.is_null() if like.null_count else None
    return pa.StructArray.from_arrays(filled, fields=list(STORAGE), mask=mask)
