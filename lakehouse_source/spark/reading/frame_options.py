"""Door. What a frame reads, as its options say: the version, the columns, the condition.

A stream may wait here for its dataset.

A time without a zone is in the zone of Spark's session. The planner extension knows the zone, and
hands every time over as an instant (`SessionTimes.java`). Spark itself does not tell the zone to a
data source, so without the extension such a time is refused, and never taken for another instant.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa
from pyspark.sql.types import StructType

from lakehouse_source.catalog.sql.reader import CatalogReader
from lakehouse_source.errors import DatasetNotFoundError, InvalidOptionError
from lakehouse_source.language import PredicateSet
from lakehouse_source.model import SeenVersion
from lakehouse_source.read.address import Address
from lakehouse_source.read.snapshot import (
    Snapshot,
    parse_timestamp,
    resolve_columns,
    version_number,
)
from lakehouse_source.spark.session.options import (
    READ_OPTIONS,
    STREAM_ONLY_OPTIONS,
    STREAM_READ_OPTIONS,
    STREAM_READING,
    Options,
)
from lakehouse_source.spark.session.secrets import (
    address_in,
    catalog_of_query,
    split_storage_options,
)
from lakehouse_source.spark.types import spark_schema
from lakehouse_source.storage import StorageLocation


def moment_of(given: Options, option: str) -> datetime | None:
    """The instant that an option names; None: the option is absent.

    Raises:
        InvalidOptionError: the text is no time, or has no zone.
    """
    text = given.text(option)
    if text is None:
        return None
    found = parse_timestamp(text, option, zone=None)
    if found.tzinfo is None:
        raise InvalidOptionError(
            option=option,
            value=text,
            reason="has no zone, and Spark does not tell plake here which zone its session has. "
            f"Write it, such as '{text.strip()}+00:00'. Where tables are read by name, and in "
            "sessions that lakehouse_source.spark.configure made, it is the session's zone.",
        )
    return found


# The time between two looks for a dataset that a stream waits for.
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a frame reads: a dataset, its version, and the options that narrow it."""

    path: str
    catalog: str | None
    version: int
    columns: tuple[str, ...] | None
    where: str | None
    split_size_bytes: int | None
    # The frame has the columns of `METADATA_COLUMNS` too, under names that no other column has.
    metadata_columns: bool = False
    # By name, as given: a secret is the name of an environment variable of the driver.
    storage_options: Mapping[str, str] = field(default_factory=dict)
    # The frame shows this metadata table instead of the rows.
    metadata_table: str | None = None
    # The write that made the version.
    write_id: str | None = None
    # The columns that the rows have where a write will commit them; None: those of the version.
    schema: pa.Schema | None = None

    @property
    def address(self) -> Address:
        """Where the dataset is, on the driver."""
        return Address(self.path, catalog_of_query(self.catalog), self.storage_options)

    @contextmanager
    def opened(self) -> Iterator[tuple[CatalogReader, Snapshot, StorageLocation]]:
        """A reader of the catalog, the version of the frame, and where its files are."""
        address = self.address
        with address.open() as catalog, catalog.read() as reader:
            snapshot = address.snapshot(catalog, reader, self.seen)
            if self.schema is not None:
                snapshot = replace(snapshot, schema=self.schema, history=None)
            yield reader, snapshot, address.location

    @property
    def seen(self) -> SeenVersion:
        """The version of the frame."""
        return SeenVersion(self.version, self.write_id)


def resolve(options: Mapping[str, str]) -> tuple[ReadRequest, Snapshot]:
    """The version that a frame reads, with its columns and condition."""
    others, storage = split_storage_options(options)
    streams = {name.lower() for name in STREAM_ONLY_OPTIONS}
    if any(name.lower() in streams for name in others):
        given = Options(others, STREAM_READ_OPTIONS, STREAM_READING)
    else:
        given = Options(others, READ_OPTIONS, "reading")
    snapshot = opened(given, storage, _version(given), moment_of(given, "timestampAsOf"))
    columns = given.names("columns")
    if columns is not None:
        columns = resolve_columns(snapshot.schema, columns)
    where = given.text("where")
    # Refuses a wrong condition when the frame is made.
    PredicateSet.of(where).bind(snapshot.schema)
    request = ReadRequest(
        path=given.path(),
        catalog=given.text("catalog"),
        version=snapshot.version,
        columns=columns,
        where=where,
        split_size_bytes=given.size("splitSize"),
        metadata_columns=bool(given.flag("metadataColumns")),
        storage_options=storage,
        metadata_table=_metadata_table(given),
        write_id=snapshot.write_id,
    )
    return request, snapshot


def opened(
    given: Options,
    storage: dict[str, str],
    version: int | str | None,
    timestamp: datetime | None = None,
) -> Snapshot:
    """The dataset at a version; a stream may wait for it."""
    address = address_in(given, storage)
    give_up = time.monotonic() + _wait_seconds(given)
    while True:
        try:
            with address.open() as catalog, catalog.read() as reader:
                return address.snapshot(catalog, reader, version, timestamp)
        except DatasetNotFoundError:
            if time.monotonic() >= give_up:
                raise
            time.sleep(_POLL_SECONDS)


def _wait_seconds(given: Options) -> int:
    """How long `load()` of a stream waits for a dataset that does not exist yet.

    The stream has to wait there, because without the dataset it has no columns to return.
    """
    seconds = given.number("waitForDataset") or 0
    if seconds < 0:
        raise InvalidOptionError(
            option="waitForDataset", value=seconds, reason="is in seconds, and not below 0."
        )
    return seconds


def _version(given: Options) -> int | str | None:
    """The version that the options name: a number, or a tag in `versionAsOf`."""
    number, named = given.number("version"), given.text("versionAsOf")
    if named is None:
        return number
    own = version_number(named)
    wanted = named if own is None else own
    if number is not None and number != wanted:
        raise InvalidOptionError(
            option="version", value=number, reason=f"differs from versionAsOf, {named!r}."
        )
    return wanted


def _metadata_table(given: Options) -> str | None:
    name = given.text("metadataTable")
    if name is None:
        return None
    metadata_schema(name)  # refuses a wrong name when the frame is made
    for option in ("columns", "where", "metadataColumns"):
        if given.text(option) is not None:
            raise InvalidOptionError(
                option=option, reason="is for the rows of a dataset, not for metadataTable."
            )
    return name


def metadata_schema(name: str) -> StructType:
    """The columns of a metadata table.

    Raises:
        InvalidOptionError: there is no metadata table of that name.
    """
    # Few frames need it.
    from lakehouse_source.read.inspect import SCHEMAS

    if name not in SCHEMAS:
        raise InvalidOptionError(
            option="metadataTable", value=name, reason="is not a metadata table.", known=SCHEMAS
        )
    return spark_schema(SCHEMAS[name])
