"""Verb. Operations on the properties of a dataset."""

import json
from typing import Annotated, Any

from lakehouse_source.arguments import column_names
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.operations.entry import VERSION, Rows, Table, operation
from lakehouse_source.result_tables import CONSTRAINTS, Column, Type


@operation(
    Column("name", Type.TEXT, "the property"),
    Column("value", Type.JSON, "its value"),
    Column("kind", Type.TEXT, "'plake': its rules read it; 'user': a note of users"),
    is_called=False,
)
def properties(table: Table) -> Rows:
    """Lists the properties of a dataset."""
    dataset = table.dataset()
    for name, value in dataset.properties.items():
        if name != "table_properties":
            yield name, value, "plake"
    for name, text in dataset.table_properties.items():
        yield name, text, "user"


@operation(*CONSTRAINTS, is_called=False)
def constraints(table: Table) -> Any:
    """Lists the constraints of a dataset."""
    return table.dataset().inspect.constraints().to_pylist()


@operation(VERSION)
def add_constraint(
    table: Table,
    name: Annotated[str, "the constraint"],
    expression: Annotated[str, "a condition, FALSE on no row; or PRIMARY KEY (a, b) or UNIQUE (a)"],
) -> object:
    """Refuses rows for which a condition is FALSE, or whose key another row has, from now on. The
    rows that are there are checked first, by statistics or by reading them.
    """
    return table.dataset().add_constraint(name, expression)


@operation(VERSION)
def drop_constraint(table: Table, name: Annotated[str, "the constraint"]) -> object:
    """Takes a constraint back."""
    return table.dataset().drop_constraint(name)


@operation(VERSION, is_called=False)
def set_properties(
    table: Table,
    set: Annotated[list[str] | None, "name=value; a value is JSON, or else a text"] = None,
    unset: Annotated[list[str] | None, "names of properties to set back"] = None,
    user: Annotated[bool, "notes of users, not properties of plake"] = False,
) -> object:
    """Sets properties of a dataset, and takes them away, as one commit."""
    texts = dict(map(_assigned, set or ()))
    values = {name: text if user else _value(text) for name, text in texts.items()}
    values |= dict.fromkeys(unset or ())
    if not values:
        raise InvalidOptionError(option="set", reason="or unset must name a property.")
    dataset = table.dataset()
    return dataset.set_table_properties(values) if user else dataset.set_properties(**values)


def _assigned(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InvalidOptionError(option="set", value=text, reason="must be name=value.")
    return name.strip(), value


def _value(text: str) -> Any:
    """A value of a property: JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@operation(VERSION, Column("index_columns", Type.TEXTS, "the columns; NULL: the default"))
def set_index_columns(
    table: Table, columns: Annotated[list[str] | None, "the columns; NULL: the default"] = None
) -> Rows:
    """Chooses the columns of which plake keeps statistics to search by."""
    # Not read back: it is committed, and the catalog may not be there any more.
    names = column_names("columns", columns)
    yield table.dataset().set_properties(index_columns=names).version, names
