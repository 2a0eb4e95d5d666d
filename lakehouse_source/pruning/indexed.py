"""Pure. Which columns the search index covers.

By default: the first 32 leaf columns whose values can be made into keys. The first write
of a dataset, or `set_properties` later, can name other columns; a struct stands for all its fields.
Partition columns are always covered. A column that is added joins the index or does not;
every file that holds a covered column has keys of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.properties import DatasetProperties
from lakehouse_source.pruning.keys import encoding
from lakehouse_source.schema.fields import Leaf, find_field, leaves

DEFAULT_COUNT = 32


def can_be_indexed(leaf: Leaf) -> bool:
    """Tell whether keys can be made of a column: it has one ordered value per row."""
    return encoding(leaf.type) is not None and not leaf.in_list


def is_wanted(
    leaf: Leaf, names: Sequence[str] | None, indexed: int, partition_by: Sequence[str]
) -> bool:
    """Tell whether a new column joins the index, which already covers `indexed` columns."""
    if not can_be_indexed(leaf):
        return False
    if leaf.path[0] in partition_by:
        return True
    return indexed < DEFAULT_COUNT if names is None else any(_is_named(leaf, n) for n in names)


def _is_named(leaf: Leaf, name: str) -> bool:
    path, name = ".".join(leaf.path).lower(), name.lower()
    return path == name or path.startswith(name + ".")


def check_index_columns(
    schema: pa.Schema,
    names: Sequence[str] | None,
    properties: DatasetProperties | None,
    partition_by: Sequence[str],
    dataset: str,
) -> None:
    """Check that columns can be indexed, and that the dataset indexes them.

    `properties` is None for a new dataset.
    """
    if names is None:
        return
    every = list(leaves(schema))
    for name in names:
        named = [leaf for leaf in every if _is_named(leaf, name)]
        if named and any(can_be_indexed(leaf) for leaf in named):
            continue
        reason = "has no values that can be ordered." if named else "is not a column."
        if find_field(name, schema) is not None:
            reason = "has no values that can be ordered."
        known = [".".join(leaf.path) for leaf in every if can_be_indexed(leaf)]
        raise InvalidOptionError(option="indexColumns", value=name, reason=reason, known=known)
    if properties is None or same_index_columns(schema, names, properties, partition_by):
        return
    own = {leaf.id: ".".join(leaf.path) for leaf in every}
    has = [own[id] for id in properties.indexed_columns if id in own]
    raise InvalidOptionError(
        option="indexColumns",
        value=", ".join(names),
        reason=f"does not match the indexed columns of {dataset} ({', '.join(has) or 'none'}), "
        "which set_properties changes. Leave the option out.",
    )


def same_index_columns(
    schema: pa.Schema,
    names: Sequence[str],
    properties: DatasetProperties,
    partition_by: Sequence[str],
) -> bool:
    """Tell whether the index of a dataset covers exactly the columns in `names`."""
    first = properties.index_columns
    if first is not None and {n.lower() for n in first} == {n.lower() for n in names}:
        return True
    every = list(leaves(schema))
    wanted = {leaf.id for leaf in every if is_wanted(leaf, names, 0, partition_by)}
    return wanted == {leaf.id for leaf in every}.intersection(properties.indexed_columns)
