"""Verb. A write begins: its folder is this catalog's, it is registered, and its layout is fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.fs as pafs
import uuid6

from lakehouse_source.catalog.base import (
    Catalog,
    CatalogReader,
    CatalogTransaction,
    check_not_foreign,
    check_owner,
    in_transaction,
)
from lakehouse_source.catalog.committer import claims
from lakehouse_source.catalog.sql.history_reader import Current
from lakehouse_source.catalog.sql.write_states import WriteState
from lakehouse_source.constraints import Constraint, bound, of_new, retyped
from lakehouse_source.errors import (
    DatasetNotFoundError,
    ForeignFolderError,
    InvalidOptionError,
    PlakeError,
    SchemaMismatchError,
    VersionNotFoundError,
    constraint_sql,
)
from lakehouse_source.failpoints import reach
from lakehouse_source.generated import (
    Numbers,
    check_sources,
    checked_new,
    defaults_of,
    generated,
    lanes,
)
from lakehouse_source.model import DatasetRecord, SeenVersion
from lakehouse_source.parquet.names import own_name
from lakehouse_source.parquet.read_write_specs import (
    ROW_GROUP_ROWS,
    TARGET_FILE_SIZE_BYTES,
    WriteSpec,
)
from lakehouse_source.parquet.writer import CAN_WRITE_BLOOM_FILTERS, check_can_write
from lakehouse_source.properties import DatasetProperties, Layout
from lakehouse_source.pruning.keys import check_index_columns
from lakehouse_source.read.address import Address, refuse_what_reads_like_a_name
from lakehouse_source.read.snapshot import Snapshot, open_snapshot
from lakehouse_source.schema.defaults import Identity, carried, computed_columns, with_sequences
from lakehouse_source.schema.fields import max_id
from lakehouse_source.schema.merge import initial, storage_schema
from lakehouse_source.schema.partitions import check_partition_columns
from lakehouse_source.schema.paths import order_paths
from lakehouse_source.schema.variant_paths import Choice, texts_of
from lakehouse_source.storage import Storage, StorageLocation, redact_uri
from lakehouse_source.write.commit import prerecord
from lakehouse_source.write.commit.apply import check_may_commit, committed_before
from lakehouse_source.write.commit.conflicts import PUT_BACK, Change, conflict, schema_changed
from lakehouse_source.write.commit.evolution import (
    evolve_properties,
    first_properties,
    merge_schema,
    replaced_properties,
    with_paths_of,
)
from lakehouse_source.write.commit.options import (
    AUTO_COMPACT_MIN_FILES,
    StagedWrite,
    WriteOptions,
    can_be_hashed,
    fitted,
)
from lakehouse_source.write.commit.transaction import TransactionCatalog

# --- Before the first write to a folder: this catalog takes it, or refuses the write.


def claim(catalog: Catalog, location: StorageLocation, *, is_new: bool) -> None:
    """Make the folder of a dataset this catalog's own. `is_new`: the catalog has no data there.

    Raises:
        InvalidOptionError: a new dataset would be made at `sales.orders`.
        ForeignFolderError: the folder belongs to another catalog, or has data of plake that this
            catalog does not know: the URL of the catalog is probably wrong.
    """
    storage = Storage(location)
    if is_new:
        refuse_what_reads_like_a_name(location.given)
        _refuse_unknown_data(catalog, storage)
    check_owner(catalog, storage)


def _refuse_unknown_data(catalog: Catalog, storage: Storage) -> None:
    found: dict[str, str] = {}
    for path in _data_files(storage, ""):
        ids = own_name(path)
        if ids is not None:
            found[str(ids[0])] = path
    if not found:
        return
    with catalog.read() as reader:
        # Other first writes may be running, or have crashed.
        known = reader.write_states(found)
    unknown = sorted(path for write_id, path in found.items() if write_id not in known)
    if unknown:
        check_not_foreign(catalog, storage)
        raise ForeignFolderError(
            folder=redact_uri(storage.uri),
            reason=f"plake wrote {unknown[0]} there for a dataset that catalog "
            f"{catalog.redacted_url} does not have. Check the catalog (option 'catalog', "
            "environment variable PLAKE_CATALOG), or choose another folder",
        )


def _data_files(storage: Storage, folder: str) -> Iterator[str]:
    """The files in a folder and in its partition folders, with their paths in the dataset.

    Files elsewhere may belong to datasets in folders of their own.
    """
    for name, type_, _size_bytes in storage.names_in(folder.rstrip("/")):
        if type_ == pafs.FileType.File:
            yield folder + name
        elif type_ == pafs.FileType.Directory and "=" in name:
            yield from _data_files(storage, f"{folder}{name}/")


# --- The write itself.


@dataclass(frozen=True, slots=True)
class _Unclaimed:
    """No catalog owns the folder of the write yet; `is_new`: nothing was committed there."""

    is_new: bool


def begin(
    catalog: Catalog,
    address: Address,
    incoming: pa.Schema,
    options: WriteOptions,
    *,
    base: SeenVersion | None = None,
    ahead: bool = False,
) -> StagedWrite:
    """Register a write to a dataset and fix the schema and layout of its files.

    `catalog` is the open catalog of `address`; `incoming` is the schema of the rows. The dataset is
    registered if it is new. `base` is the version that the caller has read; the commit checks all
    later versions. `ahead`: another process commits, so that begins register those that follow.

    Raises:
        CommitConflictError: the dataset is not at `expected_version`, or does not have `base`.
        ForeignFolderError: the folder belongs to another catalog, or has data of plake that no
            dataset of this catalog has.
    """
    options.check()
    if isinstance(catalog, TransactionCatalog) and not catalog.has_changed(address.is_at):
        catalog = catalog.database  # for this dataset nothing waits
    # Spark commits in another process.
    options = replace(options, committer={**claims(), **options.committer})
    incoming = storage_schema(incoming)
    # Checked before the catalog changes, so that a wrong argument registers no dataset.
    check_partition_columns(incoming, options.partition_by or ())
    # In a transaction the write is registered for all to see, and staged for what waits.
    waits = isinstance(catalog, TransactionCatalog)
    ahead = ahead and not waits
    reserved, stale = prerecord.take(catalog, address.key, ahead)
    following = prerecord.begins_ahead(catalog, address.key) if ahead else []
    if reserved is not None:
        begun = _begin_reserved(catalog, address, incoming, options, reserved, base, ahead)
        if begun is not None:
            return begun
    write_id = str(uuid6.uuid7())
    claimed = False

    def register(tx: CatalogTransaction) -> StagedWrite | _Unclaimed | None:
        current = tx.current(address.key)
        if current is None and (address.is_branch or options.must_exist):
            raise DatasetNotFoundError(dataset=address.uri, catalog=catalog.redacted_url)
        if not claimed and (current is None or not current.is_claimed):
            return _Unclaimed(current is None or current.dataset.current_version == 0)
        if current is None:
            tx.register_dataset(address.key, address.uri.rstrip("/").rsplit("/", 1)[-1])
            current = tx.current(address.key)
            assert current is not None  # `register_dataset` inserts it or waits for who does
        address.share(catalog, tx, current.dataset)
        staged = None if waits else _stage(tx, current, address, incoming, options, write_id, base)
        if staged is not None:
            staged = _with_numbers(tx, staged)
        if not current.is_claimed:
            tx.set_claimed(current.dataset.id)
        for one in (write_id, *following):
            tx.register_pending(one, current.dataset.id)
        for unused in stale:
            tx.finish_pending(unused)
        reach("pending written")
        return staged

    reach("begin")
    database = catalog.database
    staged = in_transaction(database, address.uri, write_id, register, resolve=False)
    if isinstance(staged, _Unclaimed):
        # This comes before the catalog knows the dataset, and outside a transaction: a store may be
        # slow.
        claim(database, address.location, is_new=staged.is_new)
        claimed = True
        staged = in_transaction(database, address.uri, write_id, register, resolve=False)
    assert not isinstance(staged, _Unclaimed)
    reach("pending committed")
    prerecord.registered_ahead(catalog, address.key, following)
    return staged or _waiting(catalog, address, incoming, options, write_id, base)


def _waiting(
    catalog: Catalog,
    address: Address,
    incoming: pa.Schema,
    options: WriteOptions,
    write_id: str,
    base: SeenVersion | None,
) -> StagedWrite:
    """Stage a registered write after what waits in its transaction."""
    try:
        with catalog.read() as reader:
            current = reader.current(address.key)
            assert current is not None  # it was registered
            staged = _stage(reader, current, address, incoming, options, write_id, base)
        if not _identities(staged):
            return staged
        with catalog.database.write() as tx:
            return _with_numbers(tx, staged)
    except BaseException:
        with suppress(PlakeError), catalog.database.write() as tx:
            tx.finish_pending(write_id)
        raise


def _begin_reserved(
    catalog: Catalog,
    address: Address,
    incoming: pa.Schema,
    options: WriteOptions,
    write_id: str,
    base: SeenVersion | None,
    ahead: bool,
) -> StagedWrite | None:
    """Begin a write whose id is registered already, which needs no transaction that writes.

    None if the registration is gone or the catalog cannot be read now.
    """
    try:
        with catalog.read_autocommit() as reader:
            current = reader.current(address.key, write_id)
            if current is None or current.write_state is not WriteState.PENDING:
                return None
            address.share(catalog, reader, current.dataset)
            staged = _stage(reader, current, address, incoming, options, write_id, base)
        if _identities(staged):
            # The numbers need a transaction.
            prerecord.give_back(catalog, address.key, write_id, ahead)
            return None
        return staged
    except PlakeError as error:
        if error.retryable:
            return None
        prerecord.give_back(catalog, address.key, write_id, ahead)
        raise


def _identities(staged: StagedWrite) -> dict[str, Identity]:
    """The columns whose numbers the write needs; a commit that adds no row needs none."""
    if staged.options.change in (Change.REWRITE, Change.DELETE):
        return {}
    found = computed_columns(staged.spec.schema).items()
    return {name: how for name, how in found if isinstance(how, Identity)}


def _with_numbers(tx: CatalogTransaction, staged: StagedWrite) -> StagedWrite:
    """The write with numbers for its identity columns, which no other write gets."""
    numbers = []
    for name, how in _identities(staged).items():
        size, most = lanes(how)
        lane, first = tx.take_lane(how.sequence, size, staged.write_id)
        if lane >= most:
            raise SchemaMismatchError(
                column=name,
                dataset=staged.uri,
                reason=f"is {how.sql}, and all numbers of 64 bits were given out",
                hint="Replace the dataset, with a smaller step.",
            )
        numbers.append(Numbers(name, how, lane, lane * size + first, (lane + 1) * size))
    return replace(staged, spec=replace(staged.spec, numbers=tuple(numbers)))


def _stage(
    reader: CatalogReader,
    current: Current,
    address: Address,
    incoming: pa.Schema,
    options: WriteOptions,
    write_id: str,
    base: SeenVersion | None,
) -> StagedWrite:
    """The schema and layout of the files of a write, for the dataset as it is now."""
    uri, record = address.uri, current.dataset
    base = _checked_base(reader, current, base, uri)
    # A repetition gets the result of the first commit, whatever was committed after it.
    if committed_before(reader, record, options) is None:
        check_may_commit(uri, record, options)
    if current.schema is None or options.overwrite_schema:
        schema, properties = _new_schema(record, current.schema, incoming, options, uri)
        schema = with_sequences(schema, write_id, current.schema)
    else:
        schema, properties = _next_schema(reader, record, current.schema, incoming, options, uri)
    must_match = None
    if options.overwrite_where is not None:
        must_match = options.overwrite_where.bind(schema)
    if options.dynamic_partitions and not properties.partition_by:
        raise InvalidOptionError(
            option="partitionOverwriteMode",
            value="dynamic",
            reason=f"needs a partitioned dataset, and {uri} has no partition columns.",
        )
    constraints = (
        bound(record.properties.constraints, schema)
        if options.constraints is None
        else of_new(options.constraints, schema)
    )
    layout = fitted(options.layout.over(properties.layout), schema)
    spec = WriteSpec(
        uri=address.location,
        write_id=write_id,
        schema=schema,
        partition_by=properties.partition_by,
        row_group_rows=layout.row_group_rows or ROW_GROUP_ROWS,
        target_file_size_bytes=layout.target_file_size_bytes or TARGET_FILE_SIZE_BYTES,
        compression=layout.compression,
        sort_by=layout.sort_by or (),
        cluster_by=tuple(
            path
            for path in order_paths(layout.cluster_by or (), schema)
            if path[0] not in properties.partition_by
        ),
        bloom_filter_columns=_with_filters(layout, options.writer, constraints, schema, properties),
        must_match=must_match,
        constraints=constraints,
        choice=_choice(layout),
        generated=generated(schema),
        defaults=defaults_of(schema),
    )
    check_can_write(spec)
    return StagedWrite(
        uri=uri,
        key=record.base_uri,
        dataset_id=record.id,
        base=base,
        incoming=incoming,
        options=options,
        spec=spec,
        indexed=properties.indexed_columns,
        compact_min_files=(
            (layout.auto_compact_min_files or AUTO_COMPACT_MIN_FILES)
            if layout.auto_compact
            else None
        ),
        iceberg_metadata=bool(layout.iceberg_metadata),
    )


def _with_filters(
    layout: Layout,
    writer: str,
    constraints: Sequence[Constraint],
    schema: pa.Schema,
    properties: DatasetProperties,
) -> tuple[str, ...]:
    """The columns that get bloom filters: those that were chosen, and those of keys.

    DuckDB writes none of chosen columns.
    """
    chosen = dict.fromkeys(layout.bloom_filter_columns or ())
    if CAN_WRITE_BLOOM_FILTERS and writer == "pyarrow":
        for name in (name for one in constraints for name in one.unique):
            if name not in properties.partition_by and can_be_hashed(schema.field(name).type):
                chosen[name] = None
    return tuple(chosen)


def _choice(layout: Layout) -> Choice | None:
    """How files choose paths of VARIANT, unless the user named paths, or none."""
    if layout.variant_paths is not None:
        return None
    given = {
        "most": layout.variant_paths_most,
        "share": layout.variant_paths_share,
        "depth": layout.variant_paths_depth,
    }
    chosen = {name: one for name, one in given.items() if one is not None}
    return replace(Choice(), **chosen)  # type: ignore[arg-type]


def _checked_base(
    reader: CatalogReader, current: Current, given: SeenVersion | None, uri: str
) -> SeenVersion:
    """The version that a write is based on; the newest if the caller has read none."""
    record = current.dataset
    now = SeenVersion(record.current_version, current.write_id)
    if given is None:
        return now
    write_id = now.write_id
    if given.version < now.version:
        write_id = reader.write_id_of(record.id, given.version)
    if given.is_gone(now.version, write_id):
        raise conflict(uri, given.version, now.version, PUT_BACK)
    return SeenVersion(given.version, write_id)


def _new_schema(
    record: DatasetRecord,
    current: pa.Schema | None,
    incoming: pa.Schema,
    options: WriteOptions,
    uri: str,
) -> tuple[pa.Schema, DatasetProperties]:
    """The schema and properties after the first write, or after one that replaces the schema."""
    if current is None:
        schema, given = initial(incoming), first_properties
    else:
        schema = initial(incoming, max(record.properties.last_field_id, max_id(current)) + 1)
        schema = schema if options.constraints is not None else carried(current, schema)
        given = replaced_properties
    schema = checked_new(schema)
    partition_by = check_partition_columns(schema, options.partition_by or ())
    check_index_columns(schema, options.index_columns, None, partition_by, uri)
    properties = given(record.properties, schema, partition_by, options)
    schema = with_paths_of(schema, properties)
    return schema, given(record.properties, schema, partition_by, options)


def _next_schema(
    reader: CatalogReader,
    record: DatasetRecord,
    current: pa.Schema,
    incoming: pa.Schema,
    options: WriteOptions,
    uri: str,
) -> tuple[pa.Schema, DatasetProperties]:
    """The schema and properties of a dataset after a later write."""
    schema = merge_schema(reader, record, current, incoming, options, uri)
    properties = record.properties
    if schema is not current:
        check_sources(current, schema)
    for one in retyped(properties.constraints, current, schema) if schema is not current else ():
        raise SchemaMismatchError(
            column=", ".join(one.unique or one.broken.columns),
            dataset=uri,
            reason=f"would get another type, under which the rows of the dataset may break the "
            f"constraint {one.name!r}, {constraint_sql(one.expression)}",
            hint="Change the type first, which checks them: dataset.promote_column(name, type).",
        )
    partition_by = properties.partition_by
    _check_same_partitioning(current, partition_by, options, uri)
    _check_same_paths(current, options, properties)
    check_index_columns(schema, options.index_columns, properties, partition_by, uri)
    if schema is not current:
        properties = evolve_properties(properties, schema, current, partition_by)[0]
    return schema, properties


def _check_same_paths(
    schema: pa.Schema, options: WriteOptions, properties: DatasetProperties
) -> None:
    """Check that a later write names no other paths of VARIANT, which have ids in the schema."""
    given = fitted(Layout(variant_paths=options.layout.variant_paths), schema).variant_paths
    if given and {*given} != {*(properties.layout.variant_paths or texts_of(schema))}:
        raise InvalidOptionError(
            option="variantPaths",
            value=", ".join(given),
            reason="differs from the paths that the dataset has. Leave the option out, or change "
            "them: dataset.set_properties(variant_paths=[...]).",
        )


def _check_same_partitioning(
    schema: pa.Schema, existing: tuple[str, ...], options: WriteOptions, uri: str
) -> None:
    if options.partition_by is None:
        return
    if check_partition_columns(schema, options.partition_by) != existing:
        has = ", ".join(existing) if existing else "none"
        raise InvalidOptionError(
            option="partitionBy",
            value=", ".join(options.partition_by),
            reason=f"does not match the partition columns of {uri} ({has}). Leave the option out.",
        )


# --- The version that a write is based on.


def begin_after(
    catalog: Catalog,
    address: Address,
    snapshot: Snapshot,
    incoming: pa.Schema,
    options: WriteOptions,
) -> StagedWrite:
    """Begin a write whose caller has read a version.

    Its base is the version that is the newest now.
    """
    try:
        return begin(catalog, address, incoming, options)
    except SchemaMismatchError as error:
        with catalog.read() as reader:
            newest = address.snapshot(catalog, reader)
        if newest.version == snapshot.version:
            raise
        changed = schema_changed(error, error.column)
        raise conflict(address.uri, snapshot.version, newest.version, changed) from error


def base_snapshot(reader: CatalogReader, staged: StagedWrite) -> Snapshot:
    """The dataset at the version that a write is based on."""
    try:
        return open_snapshot(reader, staged.key, staged.uri, "", version=staged.base)
    except VersionNotFoundError as error:
        why = PUT_BACK if error.replaced else "the version it is based on was expired"
        raise staged.conflict(error.last, why) from error
