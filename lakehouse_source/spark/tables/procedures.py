"""Door. The procedures of Spark's catalog: `CALL plake.system.vacuum(table => 'sales.orders')`.

They are the operations of `operations/` that CALL offers. This module only has their Spark types,
and the procedures whose work is done by tasks of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader

from lakehouse_source.catalog.qualified_names import QualifiedName
from lakehouse_source.datasets import DatasetCatalog
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import CompactionResult
from lakehouse_source.operations.entry import Operation, Parameter
from lakehouse_source.operations.listing import OPERATIONS
from lakehouse_source.read.address import Address
from lakehouse_source.spark.session.catalog_request import Place, Request, names_of, place_of
from lakehouse_source.spark.tables.cluster_tasks import ClusterReader, commit_pieces
from lakehouse_source.spark.tables.compact_tasks import CompactionReader, commit_messages
from lakehouse_source.write.metadata.optimize import clustering

PROCEDURES: Mapping[str, Operation] = {
    name: one for name, one in OPERATIONS.items() if one.is_called
}


@dataclass(frozen=True, slots=True)
class ByTasks:
    """How tasks of Spark do the work of a procedure.

    `reader` reads the frame whose tasks do the work; `commit` gets their messages and the
    arguments.
    """

    reader: Callable[[Place, Mapping[str, Any]], DataSourceReader]
    commit: Callable[[Place, Sequence[str], Mapping[str, Any]], CompactionResult]


def _optimized(
    place: Place, arguments: Mapping[str, Any]
) -> tuple[type[CompactionReader], dict[str, Any]]:
    """Whether tasks cluster or compact, and the arguments for it."""
    where, full = arguments.get("where"), arguments.get("full", False)
    address = place.address()
    with address.open() as catalog:
        columns = arguments.get("zorder_by")
        sort = clustering(catalog, address, where, full=full, zorder_by=columns)
    if sort is None:
        return CompactionReader, {"where": where}
    return ClusterReader, {"full": sort}


def _optimize(place: Place, arguments: Mapping[str, Any]) -> DataSourceReader:
    kind, given = _optimized(place, arguments)
    return kind(place, given)


def _commit_optimized(
    place: Place, messages: Sequence[str], arguments: Mapping[str, Any]
) -> CompactionResult:
    kind, given = _optimized(place, arguments)
    commit = commit_pieces if kind is ClusterReader else commit_messages
    return commit(place, messages, given)


BY_TASKS: Mapping[str, ByTasks] = {
    "cluster": ByTasks(ClusterReader, commit_pieces),
    "compact": ByTasks(CompactionReader, commit_messages),
    "optimize": ByTasks(_optimize, _commit_optimized),
}


@dataclass(frozen=True, slots=True)
class CalledTable:
    """The table that a procedure is called for."""

    about: Request

    @property
    def is_path(self) -> bool:
        return self.about.is_path

    def address(self) -> Address:
        return place_of(self.about).address()

    def name(self) -> QualifiedName:
        if self.is_path or self.about.branch is not None:
            raise InvalidOptionError(
                option="table", value=self.about.shown, reason="is not the name that a table had."
            )
        return self.about.name

    @contextmanager
    def names(self) -> Iterator[DatasetCatalog]:
        with names_of(self.about) as catalog:
            yield catalog

    def storage_options(self) -> Mapping[str, Any] | None:
        return self.about.storage or None


def default_in_sql(parameter: Parameter) -> str | None:
    """The default of a parameter as SQL; None: an argument must be given."""
    if parameter.required:
        return None
    value = parameter.default
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else f"{value:.1f}D"
