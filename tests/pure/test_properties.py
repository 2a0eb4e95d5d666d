"""A dataset's properties survive the way into the catalog's JSON and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_source.properties import DatasetProperties

NAMES = st.lists(st.text())
KNOWN = {
    "partition_by": NAMES,
    "indexed_columns": st.lists(st.integers()),
    "last_field_id": st.integers(min_value=0),
}
CHOSEN = {
    "index_columns": NAMES,
    "sort_by": NAMES,
    "bloom_filter_columns": NAMES,
    "target_file_size_bytes": st.integers(1, 2**63 - 1),
    "row_group_rows": st.integers(1, 2**63 - 1),
    "compression": st.text(),
    "promote_to_string": st.booleans(),
}
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)
DOCUMENTS = st.builds(
    lambda later, known: {**later, **known},
    # Hypothesis draws words of the code too: a key of this release would not be a later one's.
    st.dictionaries(st.text().map("later {}".format), JSON),
    st.fixed_dictionaries(KNOWN, optional=CHOSEN),
)


@given(document=DOCUMENTS)
def test_every_key_comes_back_those_of_later_releases_too(document: dict[str, Any]) -> None:
    properties = DatasetProperties.from_json(json.loads(json.dumps(document)))
    assert json.loads(json.dumps(properties.to_json())) == document


def test_a_dataset_without_a_version_has_no_properties_yet() -> None:
    assert DatasetProperties.from_json({}) == DatasetProperties()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("partition_by", "k"),
        ("partition_by", [1]),
        ("index_columns", {"a": 1}),
        ("indexed_columns", ["1"]),
        ("indexed_columns", None),
        ("last_field_id", "7"),
        ("last_field_id", [7]),
        ("sort_by", "a"),
        ("bloom_filter_columns", [1]),
        ("row_group_rows", True),
        ("compression", 7),
        ("promote_to_string", 1),
    ],
)
def test_a_value_of_another_type_is_named(key: str, value: object) -> None:
    with pytest.raises(TypeError, match=key):
        DatasetProperties.from_json({key: value})
