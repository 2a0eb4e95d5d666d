"""Pure. The structs that files and Spark have for VARIANT: columns of VARIANT as such, and back.

A shredded column has some paths of its values as columns of their own types (`typed_value`), and
what does not fit them as bytes (`value`). A whole number gets the narrowest type when it is put
together, as when Spark reads it; a whole number that is shredded as a decimal stays one.

Source: Parquet format, VariantShredding.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_source.errors import SchemaMismatchError
from lakehouse_source.schema.ordinal import EXACT
from lakehouse_source.schema.variant import (
    METADATA,
    TYPED_VALUE,
    VALUE,
    VARIANT,
    Tree,
    holds_variant,
    of_stored,
    shredded_type,
    struct_like,
    typed_field,
)
from lakehouse_source.schema.variant_arrays import (
    Bytes,
    Dictionaries,
    Fields,
    Numbers,
    Parts,
    Truths,
    containers,
    gathered,
    masked,
    truths,
    unsigned,
)
from lakehouse_source.schema.variant_bytes import BrokenValue, checked, leaf_of
from lakehouse_source.schema.variant_paths import KINDS, Choice, Path, can_be_named, kind_of
from lakehouse_source.schema.variant_values import (
    DATE,
    DECIMAL4,
    DECIMAL8,
    DECIMAL16,
    DOUBLE,
    EMPTY_METADATA,
    FALSE,
    INT8,
    INT16,
    INT32,
    INT64,
    INTEGERS,
    NULL,
    OBJECT,
    SHORT_TEXT,
    TEXT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TRUE,
    leaf_bytes,
    primitive,
)

t = pa.types


# --- from the structs of files ---------------------------------------------------------


def from_struct(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray | None:
    """A column from the struct that files or Spark have for it; None: it is another type.

    Raises:
        SchemaMismatchError: a value lacks one of them.
    """
    type_ = column.type
    if not holds_variant(type_):
        return None
    if any(one.name == TYPED_VALUE for one in type_):
        return pa.chunked_array([whole(chunk) for chunk in column.chunks], VARIANT)
    places = {one.name: at for at, one in enumerate(type_)}
    chunks = []
    for chunk in column.chunks:
        # `flatten` makes a field NULL where the struct is NULL.
        given = chunk.flatten()
        parts = [given[places[part]].cast(pa.binary()) for part in (METADATA, VALUE)]
        if any(part.null_count > chunk.null_count for part in parts):
            raise SchemaMismatchError(
                column=name,
                expected=VARIANT,
                reason="has a value of VARIANT without its bytes",
                hint="Make the column with lake.variant.",
            )
        chunks.append(of_stored(struct_like(parts, chunk)))
    return pa.chunked_array(chunks, VARIANT)


def whole(array: pa.Array) -> pa.Array:
    """A shredded column, a struct of `metadata`, `value` and `typed_value`, as VARIANT.

    Raises:
        CorruptDatasetError: the parts are no values of VARIANT.
    """
    with checked():
        given = dict(zip((field.name for field in array.type), array.flatten()))
        names = Dictionaries(given[METADATA].cast(pa.binary()))
        parts = _group(given.get(VALUE), given[TYPED_VALUE], names, names.codes)
        value = parts.or_json_null().array()
        metadata = names.metadata()
    return of_stored(struct_like([metadata, value], array))


def _group(
    value: pa.Array | None, typed: pa.Array | None, names: Dictionaries, codes: Numbers
) -> Parts:
    """The values of one place: `value`, `typed_value`, or an object with fields in both."""
    rest = Parts.none(len(codes)) if value is None else Parts.of(value.cast(pa.binary()))
    if typed is None:
        return rest
    if isinstance(typed.type, pa.BaseExtensionType):
        typed = typed.storage
    if t.is_struct(typed.type):
        return _objects(rest, typed, names, codes)
    if t.is_list(typed.type) or t.is_large_list(typed.type):
        own = _arrays(typed, names, codes)
    else:
        own = _leaves(typed)
    if (rest.present & own.present).any():
        raise BrokenValue("a value is there twice, shredded and not")
    return own.where(own.present, rest)


def _objects(rest: Parts, typed: pa.Array, names: Dictionaries, codes: Numbers) -> Parts:
    valid = truths(typed.is_valid())
    shredded = [
        (field.name, _of_field(part, names, codes).only(valid))
        for field, part in zip(typed.type, typed.flatten())
    ]
    left, *columns = Parts.together([rest, *(part for _, part in shredded)])
    left = left.only(valid)
    if (left.heads()[left.present] & 3 != OBJECT).any():
        raise BrokenValue("what is left of a shredded object is no object")
    found = [names.fields(left, codes)]
    for (name, _), part in zip(shredded, columns):
        rows = np.flatnonzero(part.present)
        numbers = np.full(len(rows), names.number(name))
        ids = names.ids(name, codes[rows])
        found.append(Fields(rows, numbers, ids, part.starts[rows], part.sizes[rows]))
    fields = Fields.joined(found)
    fields = fields.taken(np.lexsort((names.ranks()[fields.names], fields.rows)))
    twice = (np.diff(fields.rows) == 0) & (np.diff(fields.names) == 0)
    if twice.any():
        name = names.text(int(fields.names[twice.argmax()]))
        raise BrokenValue(f"its field {name!r} is there twice, shredded and not")
    made = containers(left.data, len(codes), fields, is_object=True)
    return made.where(valid, rest)


def _of_field(group: pa.Array, names: Dictionaries, codes: Numbers) -> Parts:
    """The values of a field or an element, which is a group of its own."""
    if not t.is_struct(group.type):
        raise BrokenValue(f"a shredded field is {group.type}, not a group")
    given = dict(zip((field.name for field in group.type), group.flatten()))
    return _group(given.get(VALUE), given.get(TYPED_VALUE), names, codes)


def _arrays(typed: pa.Array, names: Dictionaries, codes: Numbers) -> Parts:
    lengths = pc.list_value_length(typed).fill_null(0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(typed)), lengths)
    elements = _of_field(typed.flatten(), names, codes[rows])
    null = Parts(
        np.zeros(1, np.uint8), elements.starts * 0, elements.sizes * 0 + 1, elements.present
    )
    elements = elements.where(elements.present, null)
    nothing = np.zeros(len(rows), np.int64)
    fields = Fields(rows, nothing, nothing, elements.starts, elements.sizes)
    made = containers(elements.data, len(typed), fields, is_object=False)
    return made.only(truths(typed.is_valid()))


_FIXED = {
    pa.float32(): (14, 4),
    pa.float64(): (DOUBLE, 8),
    pa.date32(): (DATE, 4),
    pa.time64("us"): (17, 8),
    pa.binary(16): (20, 16),
}


def _leaves(typed: pa.Array) -> Parts:
    """The values of a shredded leaf, each of the narrowest type, as Spark puts them together."""
    type_, present = typed.type, truths(typed.is_valid())
    fixed = _FIXED.get(type_)
    if t.is_timestamp(type_) and type_.unit in ("us", "ns"):
        zoned = type_.tz is not None
        fixed = ((12 if zoned else 13) if type_.unit == "us" else 18 if zoned else 19), 8
    if fixed is not None:
        return _in_slots(primitive(fixed[0]), _memory(typed, fixed[1]), present)
    if t.is_boolean(type_):
        heads = np.where(truths(typed.fill_null(False)), TRUE << 2, FALSE << 2)
        return Parts.in_slots(heads.astype(np.uint8)[:, None], present.astype(np.int64), present)
    if t.is_signed_integer(type_):
        numbers = typed.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        width = _width_of(numbers)
        heads = np.select([width == 1, width == 2, width == 4], [INT8, INT16, INT32], INT64) << 2
        slots = np.empty((len(typed), 9), np.uint8)
        slots[:, 0], slots[:, 1:] = heads, numbers.astype("<i8").view(np.uint8).reshape(-1, 8)
        return Parts.in_slots(slots, 1 + width, present)
    if t.is_decimal(type_) and type_.precision <= 18 and type_.scale >= 0:
        unscaled = _memory(typed.cast(pa.decimal128(type_.precision, type_.scale)), 16)[:, :8]
        numbers = np.ascontiguousarray(unscaled).view("<i8")[:, 0]
        small = (np.abs(numbers) < 10**9) | ~present
        slots = np.empty((len(typed), 10), np.uint8)
        slots[:, 0] = np.where(small, DECIMAL4, DECIMAL8) << 2
        slots[:, 1], slots[:, 2:] = type_.scale, unscaled
        return Parts.in_slots(slots, np.where(small, 6, 10), present)
    if type_ in (pa.string(), pa.large_string()):
        return _texts(Parts.of(typed))
    if t.is_decimal(type_) or type_ in (pa.binary(), pa.large_binary()):
        rows = [None if one is None else leaf_bytes(one) for one in typed.to_pylist()]
        return Parts.of(pa.array(rows, pa.binary()))
    raise BrokenValue(f"it is shredded as {type_}, which the format does not have")


def _memory(array: pa.Array, width: int) -> Bytes:
    """The bytes of values of a fixed width, one line for each row."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((len(array), width), np.uint8)
    data = np.frombuffer(buffer, np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def _in_slots(head: bytes, memory: Bytes, present: Truths) -> Parts:
    count, width = memory.shape
    slots = np.empty((count, 1 + width), np.uint8)
    slots[:, 0], slots[:, 1:] = head[0], memory
    return Parts.in_slots(slots, np.full(count, 1 + width), present)


def _width_of(numbers: Numbers) -> Numbers:
    size = np.where(numbers < 0, ~numbers, numbers)
    return np.select([size < 1 << 7, size < 1 << 15, size < 1 << 31], [1, 2, 4], 8)


def _texts(content: Parts) -> Parts:
    count, sizes = len(content.starts), np.where(content.present, content.sizes, 0)
    short = sizes < 64
    heads = np.zeros((count, 5), np.uint8)
    heads[:, 0] = np.where(short, sizes << 2 | SHORT_TEXT, TEXT << 2)
    heads[:, 1:] = sizes.astype("<u4").view(np.uint8).reshape(-1, 4)
    before = np.where(short, 1, 5)
    head = Parts.in_slots(heads, before, content.present)
    one, two = Parts.together([head, content])
    pieces = [np.stack(pair, 1).reshape(-1) for pair in ((one.starts, two.starts), (before, sizes))]
    total = before + sizes
    data = gathered(one.data, pieces[0], pieces[1])
    return Parts(data, np.cumsum(total) - total, total, content.present)


# --- to the structs of files -----------------------------------------------------------


def shredded(storage: pa.StructArray, tree: Tree) -> pa.StructArray:
    """A column of VARIANT, as `metadata` and `value`, shredded.

    Raises:
        CorruptDatasetError: the bytes are no values of VARIANT.
    """
    with checked():
        metadata, value = storage.flatten()
        names = Dictionaries(metadata)
        rest, typed = _split(Parts.of(value), tree, names)
    type_ = shredded_type(tree)
    metadata = metadata.fill_null(EMPTY_METADATA)
    mask = storage.is_null() if storage.null_count else None
    return pa.StructArray.from_arrays([metadata, rest, typed], fields=list(type_), mask=mask)


def _split(parts: Parts, tree: Tree | pa.DataType, names: Dictionaries) -> list[pa.Array]:
    """`value` and `typed_value` of one place."""
    if isinstance(tree, pa.DataType):
        typed, fits = leaf_array(parts, tree)
        return [parts.only(~fits).array(), typed]
    count, fields = len(parts.starts), names.fields(parts, names.codes)
    is_object = parts.present & (parts.heads() & 3 == OBJECT)
    left = np.ones(len(fields.rows), np.bool_)
    below = []
    for name, one in tree.items():
        places = np.flatnonzero(fields.names == names.number(name))
        left[places] = False
        inner = parts.of_fields(fields, places)
        group = pa.struct([pa.field(VALUE, pa.binary()), typed_field(one)])
        below.append(pa.StructArray.from_arrays(_split(inner, one, names), fields=list(group)))
    fields = fields.taken(np.flatnonzero(left))
    fields = fields.taken(np.argsort(fields.rows, kind="stable"))
    has_rest = np.bincount(fields.rows, minlength=count) > 0
    made = containers(parts.data, count, fields, is_object=True).only(has_rest)
    rest = made.where(is_object, parts)
    typed = pa.StructArray.from_arrays(
        below, fields=list(typed_field(tree).type), mask=pa.array(~is_object)
    )
    return [rest.array(), typed]


# --- leaves ----------------------------------------------------------------------------

_KIND_OF_TYPE = {
    **dict.fromkeys(INTEGERS, "BIGINT"),
    **dict.fromkeys((DECIMAL4, DECIMAL8, DECIMAL16), "DECIMAL"),
    **dict.fromkeys((TRUE, FALSE), "BOOLEAN"),
    DOUBLE: "DOUBLE",
    TEXT: "STRING",
    DATE: "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
}
NUMBER_OF = {kind: number for number, kind in enumerate(KINDS)}
_OTHER = len(KINDS)


def _kind_of_head(head: int) -> int:
    if head & 3 == SHORT_TEXT:
        return NUMBER_OF["STRING"]
    kind = _KIND_OF_TYPE.get(head >> 2) if head & 3 == 0 else None
    return _OTHER if kind is None else NUMBER_OF[kind]


KIND_OF_HEAD = np.array([_kind_of_head(head) for head in range(256)], np.int64)


def leaf_array(parts: Parts, type_: pa.DataType) -> tuple[pa.Array, Truths]:
    """The values of one type, NULL elsewhere, and where they are."""
    kinds = KIND_OF_HEAD[parts.heads()]
    fits = kinds == NUMBER_OF[kind_of(type_) or ""]
    if t.is_string(type_):
        return _text_leaves(parts, fits), fits
    if t.is_decimal(type_):
        return _decimal_leaves(parts, fits, kinds == NUMBER_OF["BIGINT"], type_)
    heads, data = parts.heads(), parts.data
    if t.is_boolean(type_):
        return pa.array(heads == TRUE << 2, mask=~fits), fits
    if t.is_int64(type_):
        return masked(type_, _integers(parts, fits), fits), fits
    width = type_.bit_width // 8
    values = np.zeros((len(fits), width), np.uint8)
    rows = np.flatnonzero(fits)
    values[rows] = data[parts.starts[rows][:, None] + 1 + np.arange(width)]
    return masked(type_, values, fits), fits


def _integers(parts: Parts, rows: Truths) -> Numbers:
    found, heads = np.zeros(len(rows), np.int64), parts.heads()
    for type_, width in INTEGERS.items():
        some = np.flatnonzero(rows & (heads == type_ << 2))
        number = unsigned(parts.data, parts.starts[some] + 1, width)
        shift = 64 - 8 * width
        found[some] = number << shift >> shift
    return found


def _text_leaves(parts: Parts, fits: Truths) -> pa.Array:
    starts, sizes = parts.starts + 1, parts.sizes - 1
    long = fits & (parts.heads() == TEXT << 2)
    starts, sizes = np.where(long, starts + 4, starts), np.where(long, sizes - 4, sizes)
    return Parts(parts.data, starts, sizes, fits).array(pa.string())


def _decimal_leaves(
    parts: Parts, decimals: Truths, whole_: Truths, type_: pa.DataType
) -> tuple[pa.Array, Truths]:
    """Numbers that a decimal type has without rounding."""
    heads, data, most = parts.heads(), parts.data, 10**type_.precision - 1
    if type_.precision > 18:
        rows: list[Decimal | None] = [None] * len(heads)
        for at in np.flatnonzero(decimals | whole_):
            start = parts.starts[at]
            one = Decimal(
                leaf_of(EMPTY_METADATA, data[start : start + parts.sizes[at]].tobytes())[1]
            )
            scaled = one.scaleb(type_.scale, EXACT)
            if abs(scaled) <= most and scaled == scaled.to_integral_value():
                rows[at] = one
        found = pa.array(rows, type_)
        return found, truths(found.is_valid())
    numbers, scales = _integers(parts, whole_), np.zeros(len(heads), np.int64)
    for number, width in ((DECIMAL4, 4), (DECIMAL8, 8)):
        some = np.flatnonzero(decimals & (heads == number << 2))
        scales[some] = data[parts.starts[some] + 1]
        shift = 64 - 8 * width
        numbers[some] = unsigned(data, parts.starts[some] + 2, width) << shift >> shift
    fits = (decimals & (heads != DECIMAL16 << 2) | whole_) & (scales <= type_.scale)
    factors = np.power(10, np.where(fits, type_.scale - scales, 0), dtype=np.int64)
    # Not `abs`: the least of 64 bits has none.
    fits &= (numbers <= most // factors) & (numbers >= -(most // factors))
    numbers = np.where(fits, numbers * np.where(fits, factors, 0), 0)
    return masked(type_, np.stack([numbers, numbers >> 63], 1), fits), fits


# --- which paths are chosen ------------------------------------------------------------


def chosen_paths(storage: pa.StructArray, choice: Choice) -> list[Path]:
    """The paths that most rows have, in one type each, in the order of their names.

    Whole numbers and decimals are one type. Names that differ by case only are left out: some
    readers know one field of such a name.

    Raises:
        CorruptDatasetError: the bytes are no values of VARIANT.
    """
    least = max(1, choice.share * len(storage))
    found: list[tuple[int, Path]] = []

    def walk(parts: Parts, path: Path) -> None:
        fields = names.fields(parts, names.codes)
        counts = np.bincount(fields.names)
        texts = {number: names.text(int(number)) for number in np.flatnonzero(counts >= least)}
        lowered = [text.lower() for text in texts.values()]
        for number, text in texts.items():
            if not can_be_named(text) or lowered.count(text.lower()) > 1:
                continue
            inner = parts.of_fields(fields, np.flatnonzero(fields.names == number))
            heads, below = inner.heads(), (*path, text)
            kinds = np.bincount(KIND_OF_HEAD[heads[inner.present]], minlength=_OTHER + 1)
            kinds[_OTHER] -= np.count_nonzero(inner.present & (heads == NULL << 2))
            kinds[NUMBER_OF["DECIMAL"]] += kinds[NUMBER_OF["BIGINT"]]
            kinds[NUMBER_OF["BIGINT"]] = 0
            if np.count_nonzero(kinds) == 1 and not kinds[_OTHER]:
                found.append((int(kinds.sum()), below))
            elif len(below) < choice.depth:
                walk(inner, below)

    with checked():
        metadata, value = storage.flatten()
        names = Dictionaries(metadata)
        walk(Parts.of(value), ())
    most = sorted((one for one in found if one[0] >= least), key=lambda one: (-one[0], one[1]))
    return sorted(path for _, path in most[: choice.most])


# --- which types fit -------------------------------------------------------------------

_DIGITS_OF_64_BITS = 18


def tree_of(storage: pa.StructArray, paths: Sequence[Path]) -> Tree:
    """The paths with the types that most of their values have; texts where there is none.

    Raises:
        CorruptDatasetError: the bytes are no values of VARIANT.
    """
    with checked():
        metadata, value = storage.flatten()
        names = Dictionaries(metadata)
        tree: Tree = _typed_tree(Parts.of(value), paths, names)
    return tree


def _typed_tree(parts: Parts, paths: Sequence[Path], names: Dictionaries) -> Any:
    if not paths[0]:
        return _most_frequent(parts)
    fields, found = names.fields(parts, names.codes), {}
    for name in dict.fromkeys(path[0] for path in paths):
        places = np.flatnonzero(fields.names == names.number(name))
        inner = parts.of_fields(fields, places)
        below = [path[1:] for path in paths if path[0] == name]
        found[name] = _typed_tree(inner, below, names)
    return found


def _most_frequent(parts: Parts) -> pa.DataType:
    heads = parts.heads()
    counts = np.bincount(KIND_OF_HEAD[heads], minlength=_OTHER + 1)[:_OTHER]
    whole_, decimal = NUMBER_OF["BIGINT"], NUMBER_OF["DECIMAL"]
    if counts[decimal]:
        counts[decimal] += counts[whole_]
    if not counts.any():
        return pa.string()
    kind = list(KINDS)[int(counts.argmax())]
    if counts[decimal] and kind == "BIGINT":
        kind = "DECIMAL"
    return _decimal_type(parts, heads) if kind == "DECIMAL" else KINDS[kind]


def _decimal_type(parts: Parts, heads: Bytes) -> pa.DataType:
    """A decimal type of all whole numbers and decimals; that of 64 bits, if they fit it."""
    rows = np.flatnonzero(KIND_OF_HEAD[heads] == NUMBER_OF["DECIMAL"])
    scale = int(parts.data[parts.starts[rows] + 1].max())
    if scale <= _DIGITS_OF_64_BITS:
        every = KIND_OF_HEAD[heads]
        numbers = (every == NUMBER_OF["DECIMAL"]) | (every == NUMBER_OF["BIGINT"])
        type_ = pa.decimal128(_DIGITS_OF_64_BITS, scale)
        if leaf_array(parts, type_)[1][numbers].all():
            return type_
    return pa.decimal128(38, min(scale, 38))
