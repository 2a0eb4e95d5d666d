"""Pure. The one tree of errors that plake raises; knows no other room.

Grouped by what a handler does:

    PlakeError                          PLAKE_ERROR
      correct the call
    ├── InvalidOptionError              PLAKE_INVALID_OPTION
    ├── InvalidPredicateError           PLAKE_INVALID_PREDICATE
    ├── InvalidExpressionError          PLAKE_INVALID_EXPRESSION
    ├── AmbiguousMergeError             PLAKE_AMBIGUOUS_MERGE
    ├── SchemaMismatchError             PLAKE_SCHEMA_MISMATCH
    ├── ConstraintViolationError        PLAKE_CONSTRAINT_VIOLATION
    ├── GeneratedColumnError            PLAKE_GENERATED_COLUMN
    ├── IcebergUnsupportedError         PLAKE_ICEBERG_UNSUPPORTED
      check what exists, then correct the path, catalog, mode or version
    ├── DatasetNotFoundError            PLAKE_DATASET_NOT_FOUND
    ├── DatasetExistsError              PLAKE_DATASET_EXISTS
    ├── ForeignFolderError              PLAKE_FOREIGN_FOLDER
    ├── VersionNotFoundError            PLAKE_VERSION_NOT_FOUND
    ├── NamespaceNotFoundError          PLAKE_NAMESPACE_NOT_FOUND
    ├── NamespaceExistsError            PLAKE_NAMESPACE_EXISTS
    ├── NamespaceNotEmptyError          PLAKE_NAMESPACE_NOT_EMPTY
      choose an option, or begin the stream anew
    ├── StreamChangeError               PLAKE_STREAM_CHANGE
    ├── StreamCheckpointError           PLAKE_STREAM_CHECKPOINT
    ├── StreamDataLossError             PLAKE_STREAM_DATA_LOSS
      start the query again
    ├── StreamSchemaError               PLAKE_STREAM_SCHEMA
      read again, then write again
    ├── CommitConflictError             PLAKE_COMMIT_CONFLICT
      make the same call again, at once if `retryable`, or after what `later` names
    ├── CatalogUnavailableError         PLAKE_CATALOG_UNAVAILABLE
      ask for the right that is missing; nothing was committed
    ├── AccessDeniedError               PLAKE_ACCESS_DENIED
      look the write up in the catalog: it may be committed
    ├── CommitUnknownError              PLAKE_COMMIT_UNKNOWN
    ├── CommitAcknowledgementLostError  PLAKE_COMMIT_ACKNOWLEDGEMENT_LOST
      check the disk, the object store and the permissions; `later` names what to wait for
    ├── StorageError                    PLAKE_STORAGE
    ├── ErasureIncompleteError          PLAKE_ERASURE_INCOMPLETE
      repair from a backup, or report a bug
    └── CorruptDatasetError             PLAKE_CORRUPT_DATASET

Every error keeps its facts as attributes, named like the keywords of its constructor,
so that no handler parses text. `code` is stable. Errors survive pickling between
Spark's processes. No message and no attribute holds a password: whoever raises an
error redacts the URL first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, cast

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # only in Python 3.11 and later

    def dataclass_transform(**_rules: bool) -> Callable[[type], type]:
        return lambda kind: kind


# Roles of `catalog/backends/postgres/roles.sql`, from the least to the most, and what each may do.
CATALOG_ROLES = {
    "plake_reader": "reads",
    "plake_appender": "adds rows",
    "plake_writer": "every statement but these",
    "plake_maintainer": "expires versions, vacuums, purges and drops branches",
}


def _rebuild(cls: type[PlakeError], facts: dict[str, Any]) -> PlakeError:
    return cls(**facts)


# What an error of a call waits for that succeeds later.
DATABASE_ANSWERS = "the database of the catalog answers"
LOCK_IS_FREE = "the transaction that holds the lock has ended"
DISK_HAS_SPACE = "the disk has free space"
# Of the operating system, in texts of drivers whose errors have no number, such as DuckDB's.
_FULL = ("No space left on device", "Disk quota exceeded")


def _later(reason: str) -> str:
    return DISK_HAS_SPACE if any(text in reason for text in _FULL) else ""


# Characters of a text of the user's that a message repeats; the error's fields have all of it.
_LONGEST_SHOWN = 1000


def _where(text: str | None, position: int | None) -> str:
    if text is None:
        return ""
    at = "" if position is None else f" at character {position}"
    if len(text) <= _LONGEST_SHOWN:
        return f", in {text!r}{at}"
    begin = max(0, (position or 0) - _LONGEST_SHOWN // 2)
    part = text[begin : begin + _LONGEST_SHOWN]
    return f", in {part!r}, a part of {len(text):,} characters{at and ','}{at}"


def _shown(reason: str) -> str:
    """The begin and the end of a reason, which may repeat a value of any length."""
    half = _LONGEST_SHOWN // 2
    return reason if len(reason) <= _LONGEST_SHOWN else f"{reason[:half]} … {reason[-half:]}"


@dataclass_transform(kw_only_default=True, eq_default=False)
class PlakeError(Exception):
    """Root of all errors of this package.

    A subclass names its fields, which its constructor takes as keywords, and the template of the
    message that shows them. Its code is made of its name.

    `retryable`: the cause passes by itself (a deadlock, a lost connection), nothing was
    committed, and the same work may succeed when it is done again at once. False where
    plake has waited or tried again already. `later`: what to wait for where the same call may
    succeed then and nothing was committed ("the disk has free space"); empty where waiting does not
    help, or need not be. `outcome_unknown`: a commit was sent, and it is not known whether it was
    carried out; it must be looked up before it is repeated.

    >>> try:
    ...     lake.read_dataset("/data/nothing")
    ... except lake.PlakeError as error:
    ...     error.code, error.retryable, error.outcome_unknown
    ('PLAKE_DATASET_NOT_FOUND', False, False)
    """

    code: ClassVar[str] = "PLAKE_ERROR"
    template: ClassVar[str] = ""
    retryable: bool = False
    later: str = ""
    outcome_unknown: bool = False

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        cls.code = "PLAKE" + re.sub("[A-Z]", r"_\g<0>", cls.__name__.removesuffix("Error")).upper()

    def __post_init__(self) -> None:
        self.args = (self._message(),)

    def _message(self) -> str:
        return self.template.format_map(self.facts)

    @property
    def facts(self) -> dict[str, Any]:
        """The keywords of which the constructor makes this error again."""
        return {one.name: getattr(self, one.name) for one in fields(cast(Any, self))}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.facts))


class InvalidOptionError(PlakeError):
    """An option or argument that is unknown or cannot have the value given.

    >>> lake.write_dataset(flights, "/data/flights", mode="add")
    Traceback (most recent call last):
    lakehouse_source.errors.InvalidOptionError: option 'mode' (given: 'add'): is not a way ...
    """

    option: str
    value: Any = None
    reason: str
    known: Iterable[str] | None = None

    def __post_init__(self) -> None:
        self.known = None if self.known is None else tuple(self.known)
        super().__post_init__()

    def _message(self) -> str:
        given = "" if self.value is None else f" (given: {self.value!r})"
        known = "" if self.known is None else f" Known: {', '.join(map(str, self.known))}."
        return f"option {self.option!r}{given}: {self.reason}{known}"


class InvalidPredicateError(PlakeError):
    """A condition that cannot be parsed, or that does not fit the schema.

    `position` is the 0-based character offset in `text`, where known.

    >>> try:
    ...     dataset.scan("month = = 3")
    ... except lake.InvalidPredicateError as error:
    ...     error.text, error.position
    ('month = = 3', 8)
    """

    reason: str
    text: str | None = None
    position: int | None = None

    def _message(self) -> str:
        return f"invalid predicate: {_shown(self.reason)}{_where(self.text, self.position)}"


class InvalidExpressionError(PlakeError):
    """An expression that cannot be parsed, does not fit the schema, or fails on a row's values.

    `position` is the 0-based character offset in `text`, where known. Where values have no
    result, as in an overflow, `reason` names them and `text` is the part that fails.

    >>> try:
    ...     dataset.update({"miles": "miles div (month - 1)"})
    ... except lake.InvalidExpressionError as error:
    ...     error.text
    'miles DIV (month - 1)'
    """

    reason: str
    text: str | None = None
    position: int | None = None

    def _message(self) -> str:
        return f"invalid expression: {_shown(self.reason)}{_where(self.text, self.position)}"


class AmbiguousMergeError(PlakeError):
    """A row of a MERGE's target that several rows of the source match; nothing was changed.

    `key` shows the row by the columns that the condition compares.

    >>> merge = dataset.merge({"m": [2, 2]}, "target.month = source.m")
    >>> try:
    ...     merge.when_matched_update({"miles": 0}).execute()
    ... except lake.AmbiguousMergeError as error:
    ...     error.key
    'month = 2'
    """

    key: str

    template = (
        "the row of the target with {key} matches several rows of the source. Make the "
        "rows of the source unique, or make the condition narrower."
    )


class SchemaMismatchError(PlakeError):
    """Data that does not fit the dataset's schema, or a schema change that cannot be made.

    `expected` and `got` are Arrow types, or None where the column itself is
    missing or unknown; `reason` and `hint` are sentences.

    >>> try:
    ...     lake.write_dataset({"month": ["May"]}, "/data/flights")
    ... except lake.SchemaMismatchError as error:
    ...     error.column, error.expected, error.got
    ('month', DataType(int64), DataType(string))
    """

    column: str
    expected: Any = None
    got: Any = None
    dataset: str | None = None
    reason: str | None = None
    hint: str | None = None

    def __post_init__(self) -> None:
        if self.reason is None:
            self.reason = f"is {self.expected} and the data has {self.got}"
        if self.hint is None:
            self.hint = "Cast it, or write with promote_to_string=True."
        super().__post_init__()

    def _message(self) -> str:
        of = f" of {self.dataset}" if self.dataset else ""
        return f"column {self.column!r}{of} {self.reason}. {self.hint}"


def needs_package(option: str, value: Any, package: str, extra: str) -> InvalidOptionError:
    """The error of what needs a package that is not installed."""
    reason = f"needs the package {package}: pip install 'plake[{extra}]'."
    return InvalidOptionError(option=option, value=value, reason=reason)


def constraint_sql(expression: str) -> str:
    """A constraint as SQL: a key stands as it is, a condition is a CHECK."""
    is_key = expression.startswith(("PRIMARY KEY (", "UNIQUE ("))
    return expression if is_key else f"CHECK ({expression})"


class ConstraintViolationError(PlakeError):
    """Rows break a constraint of the dataset; nothing was committed.

    `expression` is the constraint's condition or key, `row` the first row that breaks it: the
    columns of the condition first. `reason`: why the condition has no value on a row, as in an
    overflow. `twin`: where the other row with the key is.

    >>> dataset.add_constraint("flies", "miles > 0").version
    2
    >>> try:
    ...     lake.write_dataset({"month": [4], "miles": [0]}, "/data/flights")
    ... except lake.ConstraintViolationError as error:
    ...     error.constraint, error.row
    ('flies', 'miles = 0, month = 4, carrier = None')
    """

    constraint: str
    expression: str
    row: str | None = None
    reason: str | None = None
    twin: str | None = None

    def _message(self) -> str:
        what = f"constraint {self.constraint!r}, {constraint_sql(_shown(self.expression))},"
        if self.reason is not None:
            return f"{what} has no value on a row: {_shown(self.reason)}. Nothing was committed."
        return (
            f"{what} is broken by a row with {self.row}"
            f"{'' if self.twin is None else f': {self.twin} has this key too'}. Nothing was "
            "committed: correct the rows, or drop the constraint."
        )


class GeneratedColumnError(PlakeError):
    """Rows have another value in a generated column than its expression gives; nothing was written.

    `row` is the first such row, the generated column and those of the expression first, and
    `expected` what the column had to be. `reason`: why the expression has no value on a row.

    >>> flights = pa.schema({"month": pa.int64(), "quarter": pa.int64()})
    >>> quarter = {"quarter": "(month + 2) div 3"}
    >>> dataset = catalog.create_dataset("by_quarter", flights, generated=quarter)
    >>> try:
    ...     lake.write_dataset({"month": [4], "quarter": [1]}, dataset.uri, catalog=catalog.url)
    ... except lake.GeneratedColumnError as error:
    ...     error.column, error.row, error.expected
    ('quarter', 'quarter = 1, month = 4', 'quarter = 2')
    """

    column: str
    expression: str
    row: str | None = None
    expected: str | None = None
    reason: str | None = None

    def _message(self) -> str:
        what = f"column {self.column!r}, GENERATED ALWAYS AS ({_shown(self.expression)}),"
        if self.reason is not None:
            return f"{what} has no value on a row: {_shown(self.reason)}. Nothing was written."
        return (
            f"{what} has another value on a row with {self.row}: the expression gives "
            f"{self.expected}. Nothing was written: correct the value, or leave the column out."
        )


class IcebergUnsupportedError(PlakeError):
    """A dataset that readers of Iceberg would read wrongly, or not at all: it is not shown to them.

    `column` is the dotted path of the column, or None where it is none's fault. `reason` and
    `hint` are sentences.

    >>> times = pa.table({"took": pa.array([1], pa.duration("s"))})
    >>> result = lake.write_dataset(times, "/data/times")
    >>> lake.open_dataset("/data/times").export_iceberg()
    Traceback (most recent call last):
    lakehouse_source.errors.IcebergUnsupportedError: column 'took' of ... has type duration[s], ...
    """

    dataset: str
    column: str | None = None
    reason: str
    hint: str

    def _message(self) -> str:
        column = "" if self.column is None else f"column {self.column!r} of "
        return f"{column}{self.dataset} {self.reason}. {self.hint}"


class DatasetNotFoundError(PlakeError):
    """There is no dataset at `dataset` in `catalog` (both redacted strings).

    `name` is the text that was given, where it may have been a name. `hint` says what to do.

    >>> lake.open_dataset("/data/nothing")
    Traceback (most recent call last):
    lakehouse_source.errors.DatasetNotFoundError: no dataset at file:///data/nothing in catalog ...
    """

    dataset: str
    catalog: str
    name: str | None = None
    hint: str | None = None

    def _message(self) -> str:
        first = self.hint or "Write to it first"
        if "#branch=" in self.dataset:
            first = "Make the branch first, by branch(name) of the open dataset"
        if "#branch=transaction-" in self.dataset:
            first = "The transaction of the Spark session has ended: make its frames again"
        what, check = f"no dataset at {self.dataset} in catalog {self.catalog}", "path"
        if self.name is not None:
            what = f"no dataset has the name {self.name!r} in catalog {self.catalog}"
            what += f", and there is none in the folder {self.dataset}"
            check = "name"
        return (
            f"{what}. {first}, or check the {check} and the catalog (option 'catalog', "
            "environment variable PLAKE_CATALOG)."
        )


class DatasetExistsError(PlakeError):
    """A dataset was to be created and exists already; `dataset` is its URI or its name.

    >>> lake.write_dataset(flights, "/data/flights", mode="error")
    Traceback (most recent call last):
    lakehouse_source.errors.DatasetExistsError: dataset file:///data/flights exists already. ...
    """

    dataset: str
    hint: str | None = None

    def _message(self) -> str:
        hint = self.hint or "Use mode='append' or mode='overwrite', or another place."
        return f"dataset {self.dataset} exists already. {hint}"


class ForeignFolderError(PlakeError):
    """The folder of a dataset belongs to another catalog, or has data that no dataset here has.

    `folder` is its URI, without secrets. Nothing was written to it or deleted.

    >>> lake.write_dataset(flights, "/data/flights", catalog="sqlite:////data/catalog.db")
    Traceback (most recent call last):
    lakehouse_source.errors.ForeignFolderError: file:///data/flights is not this catalog's: ...
    """

    folder: str
    reason: str

    template = "{folder} is not this catalog's: {reason}."


class VersionNotFoundError(PlakeError):
    """A version or timestamp outside of what can be read.

    `first` and `last` give the inclusive range of versions that can be read;
    `first_timestamp` the time of the first one (ISO 8601, UTC). `expired`: there
    was such a version, and `expire_versions` gave it up. `replaced`: the version that was read
    before is not the one that has its number now, or there is none: the catalog was put back to a
    backup, or the dataset was made anew.

    >>> lake.read_dataset("/data/flights", version=7)
    Traceback (most recent call last):
    lakehouse_source.errors.VersionNotFoundError: file:///data/flights has no version 7: it has ...
    """

    dataset: str
    requested: str
    first: int
    last: int
    first_timestamp: str | None = None
    expired: bool = False
    replaced: bool = False

    def _message(self) -> str:
        versions = f"versions {self.first} to {self.last}"
        text = f"{self.dataset} has no {self.requested}: it has {versions}"
        if self.replaced:
            return (
                f"{self.requested} of {self.dataset} is not the one that was read before: the "
                "catalog was put back to a backup, or the dataset was made anew, and numbers of "
                f"versions were given again. It has {versions}. Open the dataset again: load() or "
                "table() in Spark, refresh() or open_dataset() in Python."
            )
        if self.expired:
            left = versions if self.first <= self.last else "only what comes later"
            text = f"{self.requested} of {self.dataset} was expired: {left} can be read"
        if self.first_timestamp is not None:
            text += f", the first committed at {self.first_timestamp}"
        return f"{text}."


class NamespaceNotFoundError(PlakeError):
    """There is no namespace `namespace` in `catalog` (a redacted URL).

    >>> catalog.datasets("sales")
    Traceback (most recent call last):
    lakehouse_source.errors.NamespaceNotFoundError: no namespace 'sales' in catalog ...
    """

    namespace: str
    catalog: str

    template = (
        "no namespace {namespace!r} in catalog {catalog}. Create it first: "
        "catalog.create_namespace(name), or CREATE NAMESPACE in Spark."
    )


class NamespaceExistsError(PlakeError):
    """A namespace was to be created and exists already.

    >>> catalog.create_namespace("default")
    Traceback (most recent call last):
    lakehouse_source.errors.NamespaceExistsError: namespace 'default' exists already. ...
    """

    namespace: str

    template = (
        "namespace {namespace!r} exists already. Pass exist_ok=True, or IF NOT EXISTS "
        "in Spark, where that is no error."
    )


class NamespaceNotEmptyError(PlakeError):
    """A namespace was to be dropped and `datasets` datasets have a name in it.

    >>> catalog.create_namespace("sales")
    >>> catalog.rename("orders", "sales.orders")
    >>> catalog.drop_namespace("sales")
    Traceback (most recent call last):
    lakehouse_source.errors.NamespaceNotEmptyError: namespace 'sales' has 1 dataset. Drop ...
    """

    namespace: str
    datasets: int

    def _message(self) -> str:
        return (
            f"namespace {self.namespace!r} has {self.datasets} dataset{'s'[: self.datasets != 1]}. "
            "Drop them first, or pass cascade=True (CASCADE in Spark)."
        )


class StreamChangeError(PlakeError):
    """A commit in the way of a stream did not only add rows.

    `version` and `operation` are those of the commit. `option` is the name of the option that
    skips commits of this kind, as Spark spells it.

    >>> changed = dataset.delete("month = 2")
    >>> for version, rows in dataset.read_changes(0):
    ...     print(version, rows.num_rows)
    Traceback (most recent call last):
    lakehouse_source.errors.StreamChangeError: version 2 of file:///data/flights did 'delete', ...
    """

    dataset: str
    version: int
    operation: str
    option: str

    template = (
        "version {version} of {dataset} did {operation!r}, and a stream can "
        "only show rows that are added. Set the option {option} to skip such commits, "
        "or start a new stream, which begins with the rows as they are now."
    )


class StreamCheckpointError(PlakeError):
    """The checkpoint of a stream does not belong to the dataset.

    >>> str(lake.StreamCheckpointError(dataset="file:///data/flights", reason="it is another's"))
    "the checkpoint does not fit file:///data/flights: it is another's. Use the dataset that ..."
    """

    dataset: str
    reason: str

    template = (
        "the checkpoint does not fit {dataset}: {reason}. Use the dataset that the "
        "checkpoint was made for, or a new checkpoint location."
    )


class StreamDataLossError(PlakeError):
    """Versions were expired before a stream read them: files that they added may be deleted.

    `version` is the first of them, `oldest` the oldest version that is kept.

    >>> error = lake.StreamDataLossError(dataset="file:///data/flights", version=3, oldest=7)
    >>> error.version, error.oldest
    (3, 7)
    """

    dataset: str
    version: int
    oldest: int

    template = (
        "version {version} of {dataset} was expired before the stream read all of "
        "its rows: the oldest version is {oldest}. Set the option failOnDataLoss to "
        "false to go on with what is left, or start a new stream with a new checkpoint "
        "location."
    )


class StreamSchemaError(PlakeError):
    """The schema of the dataset changed while a stream was running.

    The stream keeps the columns that it was loaded with. Loaded and started again, it has those
    of the newest version, and goes on at the same place. `version` is that of the change. `gone`
    are the columns of that version or of the stream that the newest version lacks: rows that were
    not read yet then come without them.

    `replaced`: `version` added rows, and none of its columns is there any more.

    >>> error = lake.StreamSchemaError(dataset="file:///data/flights", version=4)
    >>> error.version
    4
    """

    dataset: str
    version: int
    replaced: bool = False
    gone: tuple[str, ...] = ()

    def _message(self) -> str:
        what = f"version {self.version} of {self.dataset}"
        if self.replaced:
            return (
                f"{what} added rows that were not read before the schema was replaced: none of "
                "their columns is there any more. Begin after that: start a new stream with a new "
                f"checkpoint location and startingVersion {self.version + 1} or later, or give "
                "read_changes a later version."
            )
        lost = f", which has no {', '.join(self.gone)} any more: rows that were not read yet come "
        return (
            f"{what} changed the columns that the stream reads. Load the stream again and start "
            "its query with the same checkpoint: it goes on where it stopped, with the columns of "
            f"the newest version{lost + 'without' if self.gone else ''}."
        )


class CommitConflictError(PlakeError):
    """Another commit came first and collides with this one; nothing was committed.

    `base_version` is what this write read, `current_version` what it found. What it collides with,
    where that is known: `version` and `operation` of the other commit, `path` of the file,
    `columns`, and in how many `rows` of the file both differ. `reason` says the same as text.

    >>> lake.write_dataset(flights, "/data/flights", expected_version=0)
    Traceback (most recent call last):
    lakehouse_source.errors.CommitConflictError: commit to file:///data/flights conflicts: ...
    """

    dataset: str
    base_version: int
    current_version: int
    reason: str
    version: int | None = None
    operation: str | None = None
    path: str | None = None
    columns: tuple[str, ...] = ()
    rows: int | None = None

    template = (
        "commit to {dataset} conflicts: {reason} (this write is based on version "
        "{base_version}, the dataset is at {current_version}). Nothing was "
        "committed; read again and retry."
    )


class CatalogUnavailableError(PlakeError):
    """The catalog cannot be reached, opened or locked; nothing was committed.

    `catalog` is a redacted URL; `attempts` says how many times plake tried to reach it
    before it gave up.

    >>> lake.open_dataset("/data/flights", catalog="postgresql://nobody@127.0.0.1:1/none")
    Traceback (most recent call last):
    lakehouse_source.errors.CatalogUnavailableError: catalog postgresql://nobody@127.0.0.1:1/...
    """

    catalog: str
    reason: str
    retryable: bool = False
    attempts: int = 1
    later: str = ""

    def __post_init__(self) -> None:
        self.later = self.later or _later(self.reason)
        super().__post_init__()

    def _message(self) -> str:
        tried = f" ({self.attempts} attempts)" if self.attempts > 1 else ""
        return f"catalog {self.catalog} is unavailable: {self.reason}{tried}"


class AccessDeniedError(PlakeError):
    """The database of the catalog does not let its login do this; nothing was committed.

    `login` is who the database says that the client is, `roles` are plake's roles that it has,
    from the least to the most (see `catalog/backends/postgres/roles.sql`).

    >>> print(lake.AccessDeniedError(catalog="c", reason="permission denied for table files"))
    catalog c refuses this: permission denied for table files. ...
    """

    catalog: str
    reason: str
    login: str = ""
    roles: tuple[str, ...] = ()

    def _message(self) -> str:
        needed = list(CATALOG_ROLES)
        if self.roles:
            needed = needed[max(needed.index(role) for role in self.roles) + 1 :]
        who = f"The login {self.login!r}" if self.login else "Its login"
        has = f"has the role {self.roles[-1]}" if self.roles else "has none of plake's roles"
        wanted = ", ".join(f"{role} ({CATALOG_ROLES[role]})" for role in needed)
        ask = f"needs one of these: {wanted}" if needed else "needs the rights of the owner"
        return f"catalog {self.catalog} refuses this: {self.reason}. {who} {has}, and {ask}."


class CommitUnknownError(PlakeError):
    """The connection was lost after COMMIT was sent and the outcome could not be learned.

    Look `write_id` up in the catalog's `transactions` table, or write again
    with the same idempotency pair: it commits once.

    >>> error = lake.CommitUnknownError(dataset="file:///data/flights", write_id="0197f3c2")
    >>> error.outcome_unknown, error.retryable, error.write_id
    (True, False, '0197f3c2')
    """

    outcome_unknown = True
    dataset: str
    write_id: str

    template = (
        "the outcome of the commit {write_id} to {dataset} is unknown: the catalog "
        "connection was lost and could not be made again. No file was deleted."
    )


class CommitAcknowledgementLostError(PlakeError):
    """The connection to the catalog was lost while it was answering COMMIT.

    Raised by a transaction of an open catalog. Writes of datasets look the commit up
    themselves, and raise `CommitUnknownError` only where the catalog cannot be asked.
    """

    outcome_unknown = True
    catalog: str
    reason: str

    template = (
        "the connection to catalog {catalog} was lost during COMMIT, which may have been "
        "carried out: {reason}"
    )


class StorageError(PlakeError):
    """A file or folder could not be read, written or deleted.

    >>> import os
    >>> os.remove(f"/data/flights/{dataset.files()[0].path}")
    >>> dataset.scan("month = 1").to_table()
    Traceback (most recent call last):
    lakehouse_source.errors.StorageError: ...
    """

    path: str
    reason: str
    later: str = ""

    def __post_init__(self) -> None:
        self.later = self.later or _later(self.reason)
        super().__post_init__()

    template = "{path}: {reason}"


class ErasureIncompleteError(PlakeError):
    """Erased rows are gone from every version, and bytes of them are left: erase them again.

    `left` says where. No version names these files any more.

    >>> error = lake.ErasureIncompleteError(dataset="file:///data/flights", left=("a.parquet",))
    >>> error.left
    ('a.parquet',)
    """

    dataset: str
    left: tuple[str, ...]

    def _message(self) -> str:
        return (
            f"the rows are erased from every version of {self.dataset}, and what held them could "
            f"not be removed: {', '.join(self.left)}. Mend the cause and call erase again: it "
            "finishes."
        )


class CorruptDatasetError(PlakeError):
    """A file or a catalog row contradicts what was committed.

    >>> with open(f"/data/flights/{dataset.files()[0].path}", "ab") as file:
    ...     written = file.write(b"more")
    >>> dataset.scan("month = 1").to_table()
    Traceback (most recent call last):
    lakehouse_source.errors.CorruptDatasetError: ... is not what was committed: ...
    """

    path: str
    reason: str

    template = "{path} is not what was committed: {reason}"
