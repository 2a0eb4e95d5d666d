"""Names of nested fields: the longest names count, whichever part has the dots."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.schema.paths import find_path

NAMES = ("a", "A", "b", "a.b", "A.b", "b.a", "a.b.a")


def structs() -> st.SearchStrategy[pa.DataType]:
    return st.recursive(
        st.just(pa.int64()),
        lambda inner: st.dictionaries(
            st.sampled_from(NAMES).filter(lambda name: name == name.lower()), inner, min_size=1
        ).map(lambda fields: pa.struct(list(fields.items()))),
        max_leaves=12,
    ).filter(pa.types.is_struct)


def paths(type_: pa.DataType) -> Iterator[tuple[str, ...]]:
    """All paths to fields of a struct."""
    for field in type_ if pa.types.is_struct(type_) else ():
        yield (field.name,)
        yield from ((field.name, *rest) for rest in paths(field.type))


@given(type_=structs(), parts=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3))
def test_the_longest_names_are_taken_first(type_: pa.DataType, parts: list[str]) -> None:
    """The oracle lists all paths, and takes the one whose first names have the most dots."""
    name = ".".join(parts)
    meant = [path for path in paths(type_) if ".".join(path).lower() == name.lower()]
    expected = max(meant, key=lambda path: [one.count(".") for one in path], default=None)
    found = find_path(list(type_), (name,), dotted=True)
    assert (None if found is None else tuple(one.name for one in found)) == expected


def test_a_name_that_means_two_fields_is_refused() -> None:
    type_ = pa.struct([("s", pa.struct([("City", pa.string()), ("CITY", pa.string())]))])
    found = find_path(list(type_), ("s", "City"), dotted=False)
    assert found is not None
    assert [one.name for one in found] == ["s", "City"]
    with pytest.raises(InvalidPredicateError, match="may mean City or CITY"):
        find_path(list(type_), ("s.city",), dotted=True)
