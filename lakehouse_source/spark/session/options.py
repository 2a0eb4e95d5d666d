"""Door. The options of `spark.read.format("plake")` and `df.write.format("plake")`.

Spark passes option names in lower case. An unknown option is refused: if it were
ignored, a misspelt one would silently give a wrong result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakehouse_source.arguments import size_in_bytes, whole_number
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.properties import COLUMNS, KINDS
from lakehouse_source.spark.protocol.vocabulary import Changes, Setting
from lakehouse_source.spark.protocol.vocabulary import names as constants
from lakehouse_source.storage import split_branch, with_branch, without_transaction

READ_OPTIONS = (
    "path",
    "branch",
    "catalog",
    "version",
    "versionAsOf",
    "timestampAsOf",
    "columns",
    "where",
    "splitSize",
    "metadataColumns",
    "metadataTable",
)
# Options of the change feed, with the names and meanings of Delta and Spark.
CHANGES_OPTIONS = (
    *("path", "branch", "catalog"),
    *constants(Changes).values(),
)
WRITE_OPTIONS = (
    "path",
    "branch",
    "catalog",
    "partitionBy",
    "mergeSchema",
    "overwriteSchema",
    "promoteToString",
    "overwriteWhere",
    "replaceWhere",
    "partitionOverwriteMode",
    "targetFileSize",
    "rowGroupRows",
    "compression",
    "sortBy",
    "clusterBy",
    "bloomFilterColumns",
    "variantPaths",
    "indexColumns",
    "expectedVersion",
    "txnAppId",
    "txnVersion",
    "commitMetadata",
)
# Spark's own options, which it passes to a stream's source and sink too.
_OF_SPARK = ("checkpointLocation", "queryName")
# Not for a stream, which has its own idempotency pairs and many commits.
_OF_ONE_COMMIT = ("expectedVersion", "txnAppId", "txnVersion")
STREAM_WRITE_OPTIONS = (
    *(name for name in WRITE_OPTIONS if name not in _OF_ONE_COMMIT),
    *_OF_SPARK,
)
# Only for streams. Names and meanings are those of Delta, which has no option to wait.
STREAM_ONLY_OPTIONS = (
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "startingVersion", "startingTimestamp"),
    *("skipChangeCommits", "ignoreDeletes", "failOnDataLoss", "waitForDataset"),
)
STREAM_READ_OPTIONS = (
    *("path", "branch", "catalog", "columns", "where", "splitSize"),
    *STREAM_ONLY_OPTIONS,
    *_OF_SPARK,
)
# No change of rows ends a stream of changes.
CHANGES_STREAM_OPTIONS = (
    *(one for one in STREAM_READ_OPTIONS if one not in ("skipChangeCommits", "ignoreDeletes")),
    *(Changes.READ, Changes.STARTING_INCLUSIVE, Changes.COMPUTE_UPDATES),
)
# The options that settings `spark.plake.statement.NAME` may choose, except for streams.
SETTINGS = (
    *("isolation", "targetFileSize", "rowGroupRows", "compression"),
    *("expectedVersion", "txnAppId", "txnVersion", "commitMetadata"),
)
# For the writes of DELETE, UPDATE and MERGE. `splitSize` is for their scan.
STATEMENT_OPTIONS = ("path", "branch", "catalog", "splitSize", *SETTINGS)
# For the batches of a stream with output mode update.
STREAM_STATEMENT_OPTIONS = tuple(
    name for name in (*STATEMENT_OPTIONS, *_OF_SPARK) if name not in _OF_ONE_COMMIT
)
PARTITION_MODES = ("static", "dynamic")  # values of `partitionOverwriteMode`
TAKES = (
    "A transaction takes SELECT, INSERT, UPDATE, DELETE, MERGE, TRUNCATE, ALTER TABLE and df.write "
    "on tables that exist: do the rest before it or after it"
)
STREAM_READING = "streaming from"
STREAM_WRITING = "streaming to"


# Spark's own session catalog gives these to the source of a table that it creates.
_OF_SESSION_CATALOG = ("owner", "provider", "location", "external", "is_managed_location")
_NO_SESSION_CATALOG = (
    "CREATE TABLE ... USING plake needs plake's planner extension: make the session with "
    "lakehouse_source.spark.configure(...), or call lakehouse_source.spark.enable(spark), and set "
    "no other spark.sql.catalog.spark_catalog. Without it use CREATE TEMPORARY VIEW name USING "
    "plake OPTIONS (path '...')."
)


class Options:
    """The options of one read or write. Names match in any case."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...], kind: str) -> None:
        spelled = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for key, value in given.items():
            name = spelled.get(key.lower())
            if name is None:
                raise _unknown(key, known, kind)
            self._values[name] = value

    def text(self, name: str) -> str | None:
        """The value; None: it is absent or blank."""
        value = self._values.get(name)
        return None if value is None or not value.strip() else value.strip()

    def path(self) -> str:
        """The dataset's URI, or the URI of the branch in option `branch`.

        Raises:
            InvalidOptionError: the path is absent, or names another branch.
        """
        path = self.text("path")
        if path is None:
            raise InvalidOptionError(
                option="path",
                reason="is missing. Give the dataset's folder or URI: load('/data/flights'). "
                + _NO_SESSION_CATALOG,
            )
        return on_branch(path, self.text("branch"))

    def number(self, name: str) -> int | None:
        """A whole number.

        Raises:
            InvalidOptionError: the value is anything else.
        """
        value = self.text(name)
        if value is None:
            return None
        try:
            return whole_number(name, int(value))
        except ValueError as error:
            raise InvalidOptionError(
                option=name, value=value, reason="must be a whole number."
            ) from error

    def size(self, name: str) -> int | None:
        """Bytes, as a number or with a unit: `128m`, `128MB`, `1GiB`.

        Raises:
            InvalidOptionError: the value is anything else.
        """
        value = self.text(name)
        return None if value is None else size_in_bytes(name, value)

    def flag(self, name: str) -> bool | None:
        """True or false; None: the option is absent or blank.

        Raises:
            InvalidOptionError: the value is anything else.
        """
        value = self.text(name)
        if value is None:
            return None
        if value.lower() not in ("true", "false"):
            raise InvalidOptionError(option=name, value=value, reason="must be true or false.")
        return value.lower() == "true"

    def document(self, name: str) -> dict[str, Any]:
        """A JSON object; empty if the option is absent or blank.

        Raises:
            InvalidOptionError: the value is anything else.
        """
        text = self.text(name)
        if text is None:
            return {}
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise InvalidOptionError(option=name, value=text, reason="must be a JSON object.")
        return parsed

    def names(self, name: str) -> tuple[str, ...] | None:
        """Comma-separated column names. A name that contains a comma is in backquotes."""
        value = self.text(name)
        return None if value is None else tuple(split_names(value))

    def property_of(self, name: str, option: str) -> Any:
        """The value of an option that is the property `name` of a dataset."""
        kind = KINDS.get(name, str)
        if kind == COLUMNS:
            return self.chosen_names(option)
        if kind is float:
            return self.share(option)
        read = {int: self.number, bool: self.flag, str: self.text}[kind]
        return (self.size if name.endswith("_bytes") else read)(option)

    def share(self, name: str) -> float | None:
        """A number, which `check_layout` compares with 0 and 1."""
        value = self.text(name)
        try:
            return None if value is None else float(value)
        except ValueError as error:
            raise InvalidOptionError(
                option=name, value=value, reason="must be a number from 0 to 1."
            ) from error

    def chosen_names(self, name: str) -> tuple[str, ...] | None:
        """As `names`, but a blank value chooses no column."""
        return self.names(name) or (() if name in self._values else None)


def with_settings(options: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """The options of a write, whose names are in lower case, with the session's settings.

    `settings`: the session's, as the planner extension sends them. An option overrides a setting.

    Raises:
        InvalidOptionError: there is no such setting.
    """
    known = {name.lower(): name for name in SETTINGS}
    found = {}
    for name, value in settings.items():
        if name.lower() not in known:
            raise InvalidOptionError(
                option=Setting.STATEMENT + name, reason="is no setting.", known=SETTINGS
            )
        found[name.lower()] = value
    return {**found, **options}


def is_stream(options: Mapping[str, str]) -> bool:
    """Tell whether options of a feed are for a stream: a batch has to say where it begins."""
    begins = {"startingversion", "startingtimestamp"}
    given = {name.lower() for name in options}
    return not given & begins or bool(given & ({o.lower() for o in STREAM_ONLY_OPTIONS} - begins))


def reads_changes(options: Mapping[str, str]) -> bool:
    """Tell whether options ask for the change feed and not for rows.

    Raises:
        InvalidOptionError: the value of `readChangeFeed` is neither true nor false.
    """
    own = {name: value for name, value in options.items() if name.lower() == Changes.READ.lower()}
    return bool(Options(own, (Changes.READ,), "reading").flag(Changes.READ))


# The name of each kind of use in errors, and its options.
_KINDS = {
    "reading": READ_OPTIONS,
    "writing": WRITE_OPTIONS,
    STREAM_READING: STREAM_READ_OPTIONS,
    STREAM_WRITING: STREAM_WRITE_OPTIONS,
}


def _unknown(key: str, known: tuple[str, ...], kind: str) -> InvalidOptionError:
    for other, names in _KINDS.items():
        for name in names:
            if other != kind and name.lower() == key.lower():
                reason = f"is an option of {other} plake, not of {kind} it."
                return InvalidOptionError(option=name, reason=reason, known=known)
    if key.lower() in _OF_SESSION_CATALOG:
        return InvalidOptionError(
            option=key, reason=f"is of a table in spark_catalog. {_NO_SESSION_CATALOG}"
        )
    reason = f"is not an option of {kind} plake."
    return InvalidOptionError(option=key, reason=reason, known=known)


def on_branch(path: str, branch: str | None) -> str:
    """The URI of a dataset, or of its branch if option `branch` is not blank.

    Raises:
        InvalidOptionError: the path names another branch.
    """
    branch = (branch or "").strip()
    if not branch:
        return path
    folder, named = split_branch(path)
    if named not in (None, branch):
        raise InvalidOptionError(
            option="branch", value=branch, reason=f"is not that of the path: {named}."
        )
    return with_branch(folder, branch)


def refuse_stream(path: str) -> None:
    """Refuse a stream that was started in a transaction of the session.

    Raises:
        InvalidOptionError
    """
    if without_transaction(path) != path:
        raise InvalidOptionError(
            option="transaction", value="stream", reason=f"is no part. {TAKES}."
        )


def split_names(text: str) -> list[str]:
    """The column names of a comma-separated list, without their backquotes."""
    names: list[str] = []
    current = ""
    quoted = False
    for char in text:
        if char == "`":
            quoted = not quoted
        elif char == "," and not quoted:
            names.append(current.strip())
            current = ""
        else:
            current += char
    names.append(current.strip())
    return [name for name in names if name]
