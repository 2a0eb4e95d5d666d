"""Verb. An open dataset: its scans, its versions, and what changes it in place."""

from __future__ import annotations

from lakehouse_source.dataset.changes import ColumnChanges, RowChanges, TableChanges
from lakehouse_source.dataset.maintenance import Maintenance
from lakehouse_source.dataset.refs import Clones, FeedConsumers, Refs


class Dataset(RowChanges, ColumnChanges, Refs, Clones, FeedConsumers, TableChanges, Maintenance):
    """A dataset at the version that was the newest when it was opened; see `refresh()`.

    It can be used as a context manager and needs no closing: between calls only a
    connection to a catalog on a server stays open, until the dataset and its scans are no
    longer referenced. Every method may raise CatalogUnavailableError; a method that commits raises
    it only if nothing was committed. A commit moves the dataset to the newest version; if the
    catalog cannot be read then, the next use does so.

    >>> dataset.uri, dataset.name, dataset.version, dataset.partition_by
    ('file:///data/flights', 'flights', 1, ('month',))
    >>> dataset.schema.names
    ['month', 'carrier', 'miles']
    >>> dataset.properties["last_field_id"], dataset.comments
    (3, {})
    >>> dataset.inspect.refs().num_rows
    1
    """
