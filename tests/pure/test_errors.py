"""The tree of errors: what is drawn is what there is, and what it says survives."""

from __future__ import annotations

import pickle
import re

import pyarrow as pa
import pytest

import lakehouse_source as lake
from lakehouse_source import errors
from lakehouse_source.errors import PlakeError

# Frozen: users compare and log these.
CODES = {
    "PlakeError": "PLAKE_ERROR",
    "InvalidOptionError": "PLAKE_INVALID_OPTION",
    "InvalidPredicateError": "PLAKE_INVALID_PREDICATE",
    "InvalidExpressionError": "PLAKE_INVALID_EXPRESSION",
    "AmbiguousMergeError": "PLAKE_AMBIGUOUS_MERGE",
    "SchemaMismatchError": "PLAKE_SCHEMA_MISMATCH",
    "ConstraintViolationError": "PLAKE_CONSTRAINT_VIOLATION",
    "GeneratedColumnError": "PLAKE_GENERATED_COLUMN",
    "IcebergUnsupportedError": "PLAKE_ICEBERG_UNSUPPORTED",
    "DatasetNotFoundError": "PLAKE_DATASET_NOT_FOUND",
    "DatasetExistsError": "PLAKE_DATASET_EXISTS",
    "ForeignFolderError": "PLAKE_FOREIGN_FOLDER",
    "VersionNotFoundError": "PLAKE_VERSION_NOT_FOUND",
    "NamespaceNotFoundError": "PLAKE_NAMESPACE_NOT_FOUND",
    "NamespaceExistsError": "PLAKE_NAMESPACE_EXISTS",
    "NamespaceNotEmptyError": "PLAKE_NAMESPACE_NOT_EMPTY",
    "StreamChangeError": "PLAKE_STREAM_CHANGE",
    "StreamCheckpointError": "PLAKE_STREAM_CHECKPOINT",
    "StreamDataLossError": "PLAKE_STREAM_DATA_LOSS",
    "StreamSchemaError": "PLAKE_STREAM_SCHEMA",
    "CommitConflictError": "PLAKE_COMMIT_CONFLICT",
    "CatalogUnavailableError": "PLAKE_CATALOG_UNAVAILABLE",
    "AccessDeniedError": "PLAKE_ACCESS_DENIED",
    "CommitUnknownError": "PLAKE_COMMIT_UNKNOWN",
    "CommitAcknowledgementLostError": "PLAKE_COMMIT_ACKNOWLEDGEMENT_LOST",
    "StorageError": "PLAKE_STORAGE",
    "ErasureIncompleteError": "PLAKE_ERASURE_INCOMPLETE",
    "CorruptDatasetError": "PLAKE_CORRUPT_DATASET",
}
EXAMPLES: list[PlakeError] = [
    errors.InvalidOptionError(option="mode", value="x", reason="is no mode.", known=("append",)),
    errors.InvalidPredicateError(reason="is odd", text="a = ", position=4),
    errors.InvalidExpressionError(reason="is odd", text="a + ", position=4),
    errors.AmbiguousMergeError(key="id = 3"),
    errors.SchemaMismatchError(column="c", expected=pa.int32(), got=pa.string(), dataset="d"),
    errors.ConstraintViolationError(constraint="n", expression="a > 0", row="a = 0"),
    errors.ConstraintViolationError(constraint="n", expression="a > 0", reason="overflow"),
    errors.GeneratedColumnError(column="b", expression="a + 1", row="b = 3", expected="b = 2"),
    errors.GeneratedColumnError(column="b", expression="a + 1", reason="overflow"),
    errors.IcebergUnsupportedError(dataset="d", column="c", reason="is odd", hint="Cast it."),
    errors.DatasetNotFoundError(dataset="d", catalog="c"),
    errors.DatasetExistsError(dataset="d"),
    errors.ForeignFolderError(folder="d", reason="r"),
    errors.VersionNotFoundError(dataset="d", requested="version 9", first=1, last=2, expired=True),
    errors.NamespaceNotFoundError(namespace="n", catalog="c"),
    errors.NamespaceExistsError(namespace="n"),
    errors.NamespaceNotEmptyError(namespace="n", datasets=2),
    errors.StreamChangeError(dataset="d", version=2, operation="delete", option="ignoreDeletes"),
    errors.StreamCheckpointError(dataset="d", reason="r"),
    errors.StreamDataLossError(dataset="d", version=2, oldest=4),
    errors.StreamSchemaError(dataset="d", version=2),
    errors.StreamSchemaError(dataset="d", version=2, replaced=True),
    errors.CommitConflictError(dataset="d", base_version=1, current_version=2, reason="r"),
    errors.CatalogUnavailableError(catalog="c", reason="r", retryable=True),
    errors.CatalogUnavailableError(catalog="c", reason="r", attempts=4),
    errors.AccessDeniedError(catalog="c", reason="r", login="ann", roles=("plake_reader",)),
    errors.CommitUnknownError(dataset="d", write_id="w"),
    errors.CommitAcknowledgementLostError(catalog="c", reason="r"),
    errors.StorageError(path="p", reason="r"),
    errors.ErasureIncompleteError(dataset="d", left=("p",)),
    errors.CorruptDatasetError(path="p", reason="r"),
]


def subclasses(kind: type[PlakeError]) -> list[type[PlakeError]]:
    below = (one for child in kind.__subclasses__() for one in subclasses(child))
    return [kind, *(one for one in below if one.__module__.startswith("lakehouse_source"))]


def test_the_drawing_shows_every_class_with_its_code_in_the_order_of_the_file() -> None:
    drawn = re.findall(r"^\W*?(\w+Error) +(PLAKE_\w+)$", errors.__doc__ or "", re.MULTILINE)
    assert drawn == [(one.__name__, one.code) for one in subclasses(PlakeError)]


def test_codes_are_unique_and_never_change() -> None:
    assert {one.__name__: one.__dict__["code"] for one in subclasses(PlakeError)} == CODES
    assert len(set(CODES.values())) == len(CODES)


def test_every_class_has_an_example() -> None:
    assert {type(one) for one in EXAMPLES} == set(subclasses(PlakeError)) - {PlakeError}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_every_attribute(error: PlakeError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))
    for name in ("code", "retryable", "later", "outcome_unknown"):
        assert getattr(again, name) == getattr(error, name)


def test_what_to_do_is_told_by_fields() -> None:
    """Retries were decided by an exception's cause, which pickling and `from None` lose."""

    unknown = (errors.CommitUnknownError, errors.CommitAcknowledgementLostError)
    for error in EXAMPLES:
        assert error.outcome_unknown is isinstance(error, unknown)
    assert [error.retryable for error in EXAMPLES] == [
        isinstance(error, errors.CatalogUnavailableError) and error.attempts == 1
        for error in EXAMPLES
    ]


@pytest.mark.parametrize("reason", ["[Errno 28] No space left on device", "Disk quota exceeded"])
def test_a_full_disk_is_waited_for(reason: str) -> None:
    """A handler that knew `retryable` alone gave up."""
    for error in (
        errors.StorageError(path="f", reason=reason),
        errors.CatalogUnavailableError(catalog="c", reason=reason),
    ):
        assert (error.later, error.retryable) == (errors.DISK_HAS_SPACE, False)
    assert errors.StorageError(path="f", reason="Permission denied").later == ""


def test_errors_that_users_catch_are_public_names() -> None:
    # One is raised only inside an open catalog's own transactions.
    inner = {"CommitAcknowledgementLostError"}
    public = {name for name in CODES if name in lake.__all__ and hasattr(lake, name)}
    assert public == set(CODES) - inner


def test_a_code_follows_from_the_name_of_its_class() -> None:
    """`Refusal.java` reads the name in a Python traceback and shows the code."""
    for name in CODES.keys() - {"PlakeError"}:
        kind = getattr(errors, name)
        words = re.findall("[A-Z][a-z]+", name.removesuffix("Error"))
        assert kind.code == "_".join(["PLAKE", *words]).upper()
        assert kind.__module__ == "lakehouse_source.errors"


def test_a_message_repeats_a_part_of_a_long_text() -> None:
    text = "a = " + "1 + " * 100_000 + "= 1"
    for error in (
        lake.InvalidPredicateError(reason="'=' is found", text=text, position=400_004),
        lake.InvalidExpressionError(reason=f"the text {text!r} is no number"),
    ):
        assert len(str(error)) < 1200
        assert str(error).count("+ = 1") == 1
    assert "a part of 400,007 characters, at character 400004" in str(
        lake.InvalidPredicateError(reason="'=' is found", text=text, position=400_004)
    )
    short = lake.InvalidPredicateError(reason="no", text="a = ", position=4)
    assert str(short) == "invalid predicate: no, in 'a = ' at character 4"
