"""Verb. Operations on the properties of a dataset."""

from __future__ import annotations

import json
from typing import Any

from lakehouse_source.arguments import column_names
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.operations.entry import (
    TABLE,
    VERSION,
    Call,
    Column,
    Operation,
    Parameter,
    Rows,
    Type,
)


def _properties(call: Call) -> Rows:
    dataset = call.dataset()
    for name, value in dataset.properties.items():
        if name != "table_properties":
            yield name, value, "plake"
    for name, text in dataset.table_properties.items():
        yield name, text, "user"


def _set_properties(call: Call) -> Rows:
    chosen = dict(_assigned(text) for text in call.arguments.get("set", ()))
    chosen |= dict.fromkeys(call.arguments.get("unset", ()))
    if not chosen:
        raise InvalidOptionError(option="set", reason="or unset must name a property.")
    dataset = call.dataset()
    if call.arguments.get("user", False):
        texts = {key: None if text is None else text for key, text in chosen.items()}
        yield (dataset.set_table_properties(texts).version,)
    else:
        values = {key: None if text is None else _value(text) for key, text in chosen.items()}
        yield (dataset.set_properties(**values).version,)


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


def _set_index_columns(call: Call) -> Rows:
    # Not read back: it is committed, and the catalog may not be there any more.
    columns = column_names("columns", call.arguments.get("columns"))
    result = call.dataset().set_properties(index_columns=columns)
    yield result.version, columns


PROPERTIES = Operation(
    "properties",
    "Lists the properties of a dataset.",
    (TABLE,),
    (
        Column("name", Type.TEXT, "the property"),
        Column("value", Type.JSON, "its value"),
        Column("kind", Type.TEXT, "'plake': its rules read it; 'user': a note of users"),
    ),
    _properties,
    is_called=False,
)
SET_PROPERTIES = Operation(
    "set_properties",
    "Sets properties of a dataset, and takes them away, as one commit.",
    (
        TABLE,
        Parameter("set", Type.TEXTS, "name=value; a value is JSON, or else a text"),
        Parameter("unset", Type.TEXTS, "names of properties to set back"),
        Parameter("user", Type.FLAG, "notes of users, not properties of plake", False),
    ),
    (VERSION,),
    _set_properties,
    is_called=False,
)
SET_INDEX_COLUMNS = Operation(
    "set_index_columns",
    "Chooses the columns of which plake keeps statistics to search by.",
    (TABLE, Parameter("columns", Type.TEXTS, "the columns; NULL: the default")),
    (VERSION, Column("index_columns", Type.TEXTS, "the columns; NULL: the default")),
    _set_index_columns,
)
