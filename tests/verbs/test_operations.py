"""The list of operations: what every entry has to say, and that reading it is cheap."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from lakehouse_source.catalog.base import ABANDONED_SECONDS
from lakehouse_source.dataset import Dataset
from lakehouse_source.maintenance.vacuum import RETENTION_SECONDS
from lakehouse_source.operations import OPERATIONS
from lakehouse_source.operations.entry import Operation, Subject
from lakehouse_source.result_tables import Type

KINDS = {
    Type.TEXT: str,
    Type.FLAG: bool,
    Type.INT: int,
    Type.LONG: int,
    Type.DOUBLE: float,
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_entry_says_everything(operation: Operation) -> None:
    members = (*operation.parameters, *operation.columns)
    assert all(one.comment for one in (*members,)), "each has a comment"
    assert operation.description.endswith(".")
    assert operation.columns
    for group in (operation.parameters, operation.columns):
        names = [one.name for one in group]
        assert len(set(names)) == len(names)
    first = operation.parameters[:1]
    assert all(one.required and one.type is Type.TEXT for one in first) or (
        operation.subject is Subject.NONE
    )
    assert operation.subject is Subject.NONE or first
    # What may be left out comes last: CALL takes arguments by place too.
    required = [one.required for one in operation.parameters]
    assert required == sorted(required, reverse=True)
    for one in operation.parameters:
        assert one.default is None or type(one.default) is KINDS[one.type]
        assert one.default is None or not one.required


def test_defaults_are_those_of_the_verbs() -> None:
    def defaults(name: str) -> dict[str, object]:
        return {one.name: one.default for one in OPERATIONS[name].parameters}

    assert defaults("vacuum")["retention_seconds"] == RETENTION_SECONDS
    assert defaults("maintain")["retention_seconds"] == RETENTION_SECONDS
    assert defaults("vacuum")["abandoned_after_seconds"] == ABANDONED_SECONDS
    assert OPERATIONS["vacuum_catalog"].parameters == OPERATIONS["vacuum"].parameters[1:]
    for name, operation in OPERATIONS.items():
        verb = getattr(Dataset, name, None)
        taken = inspect.signature(verb).parameters if callable(verb) else {}
        for one in operation.parameters:
            if one.default is not None and one.name in taken:
                assert one.default == taken[one.name].default, (name, one)


def test_the_list_imports_nothing_that_takes_long() -> None:
    """Help is shown from it."""
    code = (
        "import sys, lakehouse_source.operations\n"
        "heavy = {'pyarrow', 'numpy', 'pandas', 'pyspark', 'duckdb', 'psycopg', 'sqlglot'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
