"""Verb. A Delta table is taken over where it stands: its files of one version become a dataset.

The log says which files, partition values and deletion vectors a version has. What the log says is
checked like any text from outside: nothing is read that is not below the table's folder. plake
writes nothing to the log, and never deletes a file of the table.

`deltalake` replays the log. It gets a copy of the log in a folder of its own, so that only plake's
storage opens files of the table, by its rules for hosts, keys, links and paths.

A file may have other names for the columns than the table (column mapping). The catalog records it
with a schema that has these names, under a number before the first version. So the file is read as
one that was written before its columns were renamed.

Source: Delta Transaction Log Protocol.
"""

from __future__ import annotations

import base64
import json
import re
import string
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse_source.catalog import Catalog
from lakehouse_source.catalog.base import CatalogTransaction, in_transaction, is_committed
from lakehouse_source.deletion import Positions, VectorError, decode
from lakehouse_source.errors import CorruptDatasetError, InvalidOptionError, needs_package
from lakehouse_source.model import DeletionVector, FileMetadata, WriteResult
from lakehouse_source.parquet.foreign import ForeignFile, ForeignSchema
from lakehouse_source.parquet.names import own_name
from lakehouse_source.progress import COMMIT, counted
from lakehouse_source.read.address import Address
from lakehouse_source.schema.fields import (
    CHAR_VARCHAR,
    SPARK_METADATA,
    children,
    field_id,
    find_field,
    leaves,
    map_children,
    rebuild,
    unused_names,
)
from lakehouse_source.schema.merge import dataframe_schema
from lakehouse_source.schema.paths import walk
from lakehouse_source.storage import Storage, canonical_uri, check_relative, redact_uri
from lakehouse_source.storage.files import ByteRanges, OutsideFile
from lakehouse_source.write.add_files import ReadFooters, read_footers_here
from lakehouse_source.write.commit.apply import check_may_commit, summary, write_result
from lakehouse_source.write.commit.begin import begin
from lakehouse_source.write.commit.commit import abort
from lakehouse_source.write.commit.evolution import record_schema
from lakehouse_source.write.commit.options import StagedWrite, WriteOptions
from lakehouse_source.write.commit.prerecord import (
    compute_index_rows,
    encode_partitions,
    removed_from_catalog,
)
from lakehouse_source.write.commit.row_changes import write_vectors
from lakehouse_source.write.found_files import (
    CheckedRecorder,
    FoundFile,
    GivenFile,
    below,
    named_in_errors,
)

LOG = "_delta_log"
_LOGGED = re.compile(r"([0-9]{20})\.(json|checkpoint\.(?:[0-9.]+)?parquet|checkpoint\.[\w.-]+)")
_PART = re.compile(r"checkpoint\.[0-9]{10}\.([0-9]{10})\.parquet")
_CHECKPOINT = re.compile(r"/[0-9]{20}\.checkpoint\.[^/]+\Z")
_SIDECAR = re.compile(r"[\w-][\w.-]*\.parquet")
_COPIED_BYTES = 8 << 20
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
# What a reader has to know, and plake reads. `typeWidening-preview` was the name while it was new.
_READ = frozenset(
    ("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview")
) | {"v2Checkpoint", "vacuumProtocolCheck"}
_PHYSICAL, _ID = b"delta.columnMapping.physicalName", b"delta.columnMapping.id"
_CHECK = "delta.constraints."
_RULES = {
    "delta.constraints": "CHECK constraints",
    "delta.invariants": "invariants",
    "delta.generationExpression": "generated columns",
    "delta.identity.start": "identity columns",
    "CURRENT_DEFAULT": "defaults",
}
# The digits of Z85, and those of Python's decoder.
_DIGITS = string.digits + string.ascii_lowercase + string.ascii_uppercase
_Z85 = str.maketrans(
    f"{_DIGITS}.-:+=^!/*?&<>()[]{{}}@%$#",
    f"{string.digits}{string.ascii_uppercase}{string.ascii_lowercase}!#$%&()*+-;<=>?@^_`{{|}}~",
)
_UUID_DIGITS = 20

# --- What the log says of a version.


@dataclass(frozen=True, slots=True)
class DeltaVersion:
    """A version of a Delta table. `schema` has the metadata of its columns; `mapping` is the mode
    of column mapping. `files` are the `add` actions of the log.
    """

    number: int
    schema: pa.Schema
    partition_by: tuple[str, ...]
    mapping: str
    files: Sequence[Mapping[str, Any]]


def is_meant(root: Storage, format: str | None, version: int | None) -> bool:
    """Tell whether a folder is to be taken over as a Delta table."""
    if format not in (None, "parquet", "delta"):
        raise InvalidOptionError(
            option="format", value=format, reason="is none.", known=("parquet", "delta")
        )
    is_delta = any(_LOGGED.fullmatch(name) for name, *_ in root.names_in(LOG))
    if format == "delta" and not is_delta:
        reason = f"has no folder {LOG}: it is no Delta table."
        raise InvalidOptionError(option="folder", value=redact_uri(root.uri), reason=reason)
    if version is not None and (format == "parquet" or not is_delta):
        reason = "is for Delta tables: Parquet files have no versions."
        raise InvalidOptionError(option="version", value=version, reason=reason)
    return is_delta and format != "parquet"


def read_version(root: Storage, version: int | None) -> DeltaVersion:
    """Read the log up to a version, by default the newest.

    Raises:
        DeltaUnsupportedError: who reads the table has to know a feature that plake does not.
        CorruptDatasetError: the log is damaged, or lacks what the version needs.
        StorageError: the log cannot be read.
    """
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise needs_package("format", "delta", "deltalake", "delta") from None
    with TemporaryDirectory(prefix="plake-delta-") as copy:
        number = _copy_log(root, Path(copy), version)
        try:
            table = DeltaTable(copy)
            mapping = _check_features(root, table)
            schema = pa.schema(table.schema().to_arrow())
            names = tuple(table.metadata().partition_columns)
            # The checkpoint has the actions that count, as the log has them.
            table.create_checkpoint()
            path = Path(copy, LOG, f"{number + 1:020d}.checkpoint.parquet")
            columns = [f"add.{name}" for name in ("path", "partitionValues", "deletionVector")]
            adds = pq.ParquetFile(path).read(columns=columns).column("add")
        except (DeltaError, pa.ArrowException, OSError, ValueError, LookupError) as error:
            # Errors of the parser have a trace of its stack.
            reason = str(error).partition("\n")[0].replace(copy, root.display("").rstrip("/"))
            raise CorruptDatasetError(path=root.display(LOG), reason=reason) from error
    files = [one for one in adds.drop_null().to_pylist() if one["path"] is not None]
    return DeltaVersion(number, schema, names, mapping, files)


def _copy_log(root: Storage, folder: Path, version: int | None) -> int:
    """Copy what a version needs of the log, and an empty commit that comes after it.

    deltalake makes a checkpoint only of a version that has none.
    """
    entries = root.names_in(LOG)
    found = [match for name, *_ in entries if (match := _LOGGED.fullmatch(name)) is not None]
    numbers = {int(match[1]) for match in found}
    newest = max(numbers, default=-1)
    number = newest if version is None else version
    if not 0 <= number <= newest:
        reason = f"is not a version of {root.uri}: its newest is {newest}."
        raise InvalidOptionError(option="version", value=version, reason=reason)
    # Of a checkpoint in parts, some may be missing.
    parts = Counter((int(m[1]), int(p[1])) for m in found if (p := _PART.fullmatch(m[2])))
    whole = {int(m[1]) for m in found if m[2] != "json" and not _PART.fullmatch(m[2])}
    whole |= {one for (one, wanted), there in parts.items() if there == wanted}
    first = max((one for one in whole if one <= number), default=-1)
    commits = {int(m[1]) for m in found if m[2] == "json"}
    # deltalake takes the first commit that is there for the first one of the table.
    gone = next((one for one in range(first + 1, number + 1) if one not in commits), None)
    if gone is not None:
        reason = f"commit {gone} is missing, and no checkpoint up to version {number} has it"
        raise CorruptDatasetError(path=root.display(LOG), reason=reason)
    paths = [f"{LOG}/{match[0]}" for match in found if first <= int(match[1]) <= number]
    sidecars = f"{LOG}/_sidecars"
    listed = root.names_in(sidecars)
    paths += [f"{sidecars}/{name}" for name, *_ in listed if _SIDECAR.fullmatch(name)]
    Path(folder, sidecars).mkdir(parents=True)
    for path in paths:
        with root.open_input(path) as source, root.errors(path), open(folder / path, "wb") as sink:
            while chunk := source.read(_COPIED_BYTES):
                sink.write(chunk)
        if _CHECKPOINT.search(path):
            _check_sidecars(root, path, folder / path)
    # The largest time: those of commits ascend.
    last = {"commitInfo": {"timestamp": 0, "inCommitTimestamp": (1 << 53) - 1}}
    Path(folder, LOG, f"{number + 1:020d}.json").write_text(json.dumps(last) + "\n")
    return number


def _check_sidecars(root: Storage, name: str, path: Path) -> None:
    """Refuse a checkpoint whose parts are elsewhere: deltalake would open what it names."""
    try:
        if path.suffix == ".json":
            lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
            found = [line["sidecar"]["path"] for line in lines if line.get("sidecar")]
        else:
            file = pq.ParquetFile(path)
            known = "sidecar" in file.schema_arrow.names
            parts = file.read(columns=["sidecar"]).column(0).to_pylist() if known else []
            found = [part["path"] for part in parts if part]
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        raise CorruptDatasetError(path=root.display(name), reason=str(error)) from error
    for one in found:
        if not _SIDECAR.fullmatch(str(one)):
            raise CorruptDatasetError(
                path=root.display(name),
                reason=f"it names {redact_uri(str(one))!r}, and a part of a checkpoint is a file "
                f"in {LOG}/_sidecars, named without a folder",
            )


def _check_features(root: Storage, table: Any) -> str:
    """Refuse what plake does not read; the mode of column mapping."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    features = set(protocol.reader_features or ())
    unknown = sorted(features - _READ)
    if protocol.min_reader_version > 3:
        unknown.append(f"version {protocol.min_reader_version} of the protocol")
    if unknown:
        raise _unsupported(root, ", ".join(unknown))
    names = [_RULES["delta.constraints"] for key in configuration if key.startswith(_CHECK)]
    for _, field in walk(pa.schema(table.schema().to_arrow())):
        names += [_RULES[key.decode()] for key in field.metadata or () if key.decode() in _RULES]
    if names:
        COMMIT.warning(
            "%s: what Delta demands of new rows, or computes for them, stays behind: %s",
            root.uri,
            ", ".join(sorted(set(names))),
        )
    maps = protocol.min_reader_version == 2 or "columnMapping" in features
    return configuration.get("delta.columnMapping.mode", "none") if maps else "none"


def _unsupported(root: Storage, feature: str) -> InvalidOptionError:
    return InvalidOptionError(
        option="folder",
        value=redact_uri(root.uri),
        reason=f"is a Delta table with {feature}, which plake does not read. Write its rows anew: "
        "docs/python.md, From Delta and Iceberg.",
    )


# --- Where files and deletion vectors are: texts of the log, which lead nowhere else.


def _path(root: Storage, text: str) -> str:
    """The path, below the folder, of a file that the log names by a relative or an absolute URI."""
    path = unquote(text)
    if path.startswith("/") or _ABSOLUTE.match(path):
        inside = below(canonical_uri(path if path.startswith("/") else text), root)
        if not inside:
            raise _unsupported(root, f"files outside of its folder, such as {redact_uri(text)}")
        path = inside if root.is_local else unquote(inside)
    if own_name(check_relative(path)) is not None:
        raise CorruptDatasetError(path=root.display(path), reason="only plake gives such names")
    return path


def _deleted(root: Storage, vector: Mapping[str, Any], rows: int, path: str) -> Positions:
    """The rows of a file that its deletion vector marks."""
    kind, text = vector["storageType"], str(vector["pathOrInlineDv"])
    size, cardinality = int(vector["sizeInBytes"]), int(vector["cardinality"])
    try:
        if kind == "i":
            body = _decoded(text)[:size]
            blob = struct.pack(">I", size) + body + struct.pack(">I", zlib.crc32(body))
        elif kind in ("u", "p"):
            path = _path(root, text) if kind == "p" else _vector_path(text)
            at = (int(vector["offset"] or 0), size + 8)  # with its length and its checksum
            with root.open_input(path) as file, root.errors(path):
                blob = ByteRanges(file, is_local=root.is_local).read([at])[at]
        else:
            raise _unsupported(root, f"deletion vectors of the kind {kind!r}")
        return decode(blob, cardinality, rows)
    except (VectorError, OutsideFile, struct.error) as error:
        raise CorruptDatasetError(
            path=root.display(path), reason=f"its deletion vector is damaged: {error}"
        ) from error


def _decoded(text: str) -> bytes:
    try:
        return base64.b85decode(text.translate(_Z85))
    except ValueError as error:
        raise VectorError("it is not in base 85") from error


def _vector_path(text: str) -> str:
    prefix, digits = text[:-_UUID_DIGITS], text[-_UUID_DIGITS:]
    found = _decoded(digits)
    if len(found) != 16:
        raise VectorError("it has no UUID")
    name = f"deletion_vector_{UUID(bytes=found)}.bin"
    return check_relative(f"{prefix}/{name}" if prefix else name)


# --- Which names the columns have in a file.


def _schema_of(version: DeltaVersion) -> pa.Schema:
    """The columns, with those of their metadata that Spark has too, such as comments."""

    def plain(field: pa.Field) -> pa.Field:
        texts = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        kept = {key: texts[key] for key in ("comment", CHAR_VARCHAR) if key in texts}
        document = {SPARK_METADATA: json.dumps(kept).encode()} if kept else None
        return field.with_type(map_children(field.type, plain)).with_metadata(document)

    return pa.schema([plain(field) for field in version.schema])


def _as_stored(
    mine: Sequence[pa.Field],
    theirs: Sequence[pa.Field],
    stored: Sequence[pa.Field],
    mapping: str,
) -> list[pa.Field]:
    """The columns of the dataset, under the names that a file with the columns `stored` has.

    `theirs` are the same columns as Delta's. By id, a column that the file lacks gets a name that
    the file lacks too.
    """
    found = []
    for field, delta in zip(mine, theirs):
        metadata = delta.metadata or {}
        name = field.name if mapping == "none" else metadata[_PHYSICAL].decode()
        there = find_field(name, stored)
        if mapping == "id":
            there = next((one for one in stored if field_id(one) == int(metadata[_ID])), None)
            other = unused_names([field.with_name(name)], [one.name for one in stored])
            name = (other[0] if there is None else there).name
        found.append(_inside(field.with_name(name), delta, there, mapping))
    return found


def _inside(field: pa.Field, delta: pa.Field, there: pa.Field | None, mapping: str) -> pa.Field:
    mine, theirs = children(field.type), children(delta.type)
    stored = [] if there is None else children(there.type)
    if not mine:
        return field
    if pa.types.is_struct(field.type):
        below_ = _as_stored(mine, theirs, stored, mapping)
    else:
        pairs = zip_longest(mine, theirs, stored[: len(mine)])
        below_ = [_inside(one, other, inner, mapping) for one, other, inner in pairs]
    return field.with_type(rebuild(field.type, below_))


# --- One commit: the files, their vectors and the names of their columns.


@dataclass(frozen=True, slots=True)
class _Taken:
    """A file of the table, and the place in the list of schemas of the one it was recorded with."""

    file: FileMetadata
    naming: int
    deleted: Positions


def take_over(
    catalog: Catalog,
    address: Address,
    options: WriteOptions,
    *,
    version: int | None,
    partition_types: Mapping[str, pa.DataType] | None,
    progress: bool | None,
    read_footers: ReadFooters | None,
) -> WriteResult:
    """Make a dataset of a version of the Delta table in its folder.

    Types of partition columns are those of the table; `partition_types` must not say otherwise.

    Raises:
        DatasetExistsError: there is a dataset already.
        InvalidOptionError: the table has not this version, or it has what plake does not read.
        CorruptDatasetError, StorageError: the log or a file is damaged, or cannot be read.
        SchemaMismatchError: plake cannot have such a column, or a file does not fit the table.
    """
    root = Storage(address.location)
    found = read_version(root, version)
    _check_partitions(found, partition_types or {})
    given = [GivenFile(root, _path(root, one["path"]), (), False) for one in found.files]
    twice = next((one for one, times in Counter(given).items() if times > 1), None)
    if twice is not None:
        raise CorruptDatasetError(path=twice.shown, reason="the log has the file twice")
    reading = (read_footers or read_footers_here)(given) if given else ()
    footers = list(
        counted(reading, progress, label="reading footers", unit="files", total=len(given))
    )
    deleted = [
        _deleted(root, vector, footer.row_count, one.path)
        if (vector := action["deletionVector"]) is not None and vector["storageType"] is not None
        else Positions()
        for one, action, footer in zip(given, found.files, footers)
    ]
    options = replace(
        options,
        partition_by=found.partition_by,
        commit_metadata={"delta_version": found.number, **options.commit_metadata},
    )
    staged = begin(catalog, address, dataframe_schema(_schema_of(found)), options)
    try:
        namings, taken = _described(staged, found, given, footers, deleted)
        vectors = write_vectors(
            {at: (one.file, one.deleted) for at, one in enumerate(taken) if one.deleted},
            staged.write_id,
            root,
        )
        return in_transaction(
            catalog,
            address.uri,
            staged.write_id,
            partial(_commit, staged=staged, namings=namings, taken=taken, vectors=vectors),
            carried_out=is_committed(address.key, staged.write_id),
        )
    except BaseException as failure:
        abort(catalog, staged, (), failure=failure)
        raise


def _described(
    staged: StagedWrite,
    version: DeltaVersion,
    given: Sequence[GivenFile],
    footers: Sequence[ForeignFile],
    deleted: Sequence[Positions],
) -> tuple[list[pa.Schema], list[_Taken]]:
    """The schemas that files are recorded with, and the files that have a row left."""
    schema, names = staged.spec.schema, [field.name for field in version.schema]
    places = [names.index(name) for name in version.partition_by]
    by_text: dict[bytes, int] = {}
    recorders: list[CheckedRecorder] = []
    known: dict[ForeignSchema, int] = {}
    taken: list[_Taken] = []
    for one, action, file, gone in zip(given, version.files, footers, deleted):
        if len(gone) == file.row_count:
            continue
        if file.described not in known:
            stored = list(file.schema)
            if version.mapping == "id" and all(field_id(field) is None for field in stored):
                raise CorruptDatasetError(
                    path=one.shown, reason="its columns have no ids, and the table goes by ids"
                )
            named = pa.schema(
                _as_stored(list(schema), list(version.schema), stored, version.mapping)
            )
            key = named.serialize().to_pybytes()
            if key not in by_text:
                by_text[key] = len(recorders)
                partitions = tuple(named.field(place).name for place in places)
                recorders.append(
                    CheckedRecorder(staged.write_id, named, partitions, is_listed=True)
                )
            known[file.described] = by_text[key]
        recorder = recorders[known[file.described]]
        values = dict(action["partitionValues"] or ())
        texts = {
            name: values.get(_physical(version, place)) or None  # an empty text is NULL
            for name, place in zip(recorder.partition_by, places)
        }
        with named_in_errors(one):
            described = recorder.describe(FoundFile(one, file, texts))
        taken.append(_Taken(described, known[file.described], gone))
    return [one.schema for one in recorders], taken


def _check_partitions(version: DeltaVersion, types: Mapping[str, pa.DataType]) -> None:
    mine = {name.lower(): version.schema.field(name).type for name in version.partition_by}
    if types and {name.lower(): type_ for name, type_ in types.items()} != mine:
        shown = ", ".join(f"{name} {type_}" for name, type_ in mine.items()) or "none"
        raise InvalidOptionError(
            option="partition_types", reason=f"are those of the Delta table: {shown}."
        )


def _physical(version: DeltaVersion, place: int) -> str:
    field = version.schema.field(place)
    return str(field.name if version.mapping == "none" else field.metadata[_PHYSICAL].decode())


def _commit(
    tx: CatalogTransaction,
    *,
    staged: StagedWrite,
    namings: Sequence[pa.Schema],
    taken: Sequence[_Taken],
    vectors: Mapping[int, DeletionVector],
) -> WriteResult:
    schema, options = staged.spec.schema, staged.options
    record = tx.lock_dataset(staged.key)
    if record is None or record.id != staged.dataset_id:
        raise removed_from_catalog(staged)
    check_may_commit(staged.uri, record, options)
    record = record_schema(tx, record, 1, schema, None, staged)
    files = [one.file for one in taken]
    gone = sum(len(one.deleted) for one in taken)
    counts = summary(tx, record, files, (), returned_by_vectors=-gone)
    tx.insert_transaction(
        record.id,
        1,
        options.operation,
        options.commit_metadata,
        counts,
        staged.write_id,
        new_rows=sum(file.row_count for file in files),
        committer=options.committer,
    )
    firsts = list(accumulate((file.row_count for file in files), initial=0))
    types = {leaf.id: leaf.type for leaf in leaves(schema)}
    indexed = frozenset(record.properties.indexed_columns)
    ids: dict[int, int] = {}
    for number, named in enumerate(namings):
        schema_version = 1 if named.equals(schema, check_metadata=True) else -1 - number
        if schema_version != 1:
            tx.insert_schema(record.id, schema_version, named)
        places = [at for at, one in enumerate(taken) if one.naming == number]
        some = [replace(files[at], partitions=encode_partitions(files[at], named)) for at in places]
        own_keys = tuple(some[0].partitions)
        rows = compute_index_rows(some, named, indexed, own_keys, types)
        new = tx.record_file_metadata(
            record,
            1,
            some,
            schema_version=schema_version,
            bounds=lambda file, rows=rows: rows[file.path],  # type: ignore[misc]
            first_row_ids=[firsts[at] for at in places],
        )
        ids |= dict(zip(places, new))
    tx.set_vectors(record.id, 1, {ids[at]: vector for at, vector in vectors.items()})
    # The caller knows the table's names.
    keys = staged.spec.partition_by
    told = [replace(one, partitions=dict(zip(keys, one.partitions.values()))) for one in files]
    return write_result(1, 1, told, staged.write_id, counts)
