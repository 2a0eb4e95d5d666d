"""Verb. What Delta's OPTIMIZE does to a dataset: clusters it by its columns, or compacts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakehouse_source.arguments import column_names, flag
from lakehouse_source.catalog.base import Catalog
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.read.address import Address
from lakehouse_source.write.metadata.set_properties import set_properties


def clustering(
    catalog: Catalog, address: Address, where: Any, *, full: bool, zorder_by: Sequence[str] | None
) -> bool | None:
    """The argument `full` of a clustering; None: the dataset has no columns, and is compacted.

    A dataset without clustering columns gets `zorder_by`. All files are sorted where these are
    named, as in Delta: the answer is the same before and after the dataset has them.

    Raises:
        InvalidOptionError: the dataset has other clustering columns, or an argument does not fit.
        CommitConflictError: another commit changed the properties first.
    """
    with catalog.read() as reader:
        snapshot = address.snapshot(catalog, reader)
    own = snapshot.dataset.properties.layout.cluster_by
    wanted = column_names("zorder_by", zorder_by)
    partitions = snapshot.partition_by
    for name in wanted or ():
        if name.casefold() in map(str.casefold, partitions):
            raise InvalidOptionError(
                option="zorder_by",
                reason=f"{name} is a partition column. Z-Ordering can only be performed on data "
                "columns: the files of a partition have one value of it.",
            )
    for name in PredicateSet.of(where).bind(snapshot.schema).columns:
        if name not in partitions:
            raise InvalidOptionError(
                option="where",
                reason=f"Predicate references non-partition column '{name}'. Only the partition "
                f"columns may be referenced: [{', '.join(partitions)}]. compact(where) takes "
                "other conditions too.",
            )
    if own and wanted and [one.casefold() for one in wanted] != [one.casefold() for one in own]:
        raise InvalidOptionError(
            option="zorder_by",
            value=", ".join(wanted),
            reason=f"are not the clustering columns of {snapshot.uri}, which are {', '.join(own)}. "
            "Change those first: ALTER TABLE … CLUSTER BY (…), or "
            "dataset.set_properties(cluster_by=[…]).",
        )
    if flag("full", full) and not (own or wanted):
        raise InvalidOptionError(
            option="full",
            reason=f"sorts by clustering columns, which {snapshot.uri} does not have: name them by "
            "ZORDER BY (…), or leave it out.",
        )
    if wanted and not own:
        set_properties(catalog, address, snapshot, {"cluster_by": list(wanted)})
    return full or bool(wanted) if own or wanted else None
