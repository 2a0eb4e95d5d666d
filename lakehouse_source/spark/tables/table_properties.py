"""Door. TBLPROPERTIES of Spark: properties of plake, by their names, and properties of the user.

`'compression' = 'zstd'` sets the property `compression` of the dataset, as
`Dataset.set_properties` does; other names are texts that no rule of plake reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.properties import COLUMNS, KINDS, DatasetProperties
from lakehouse_source.spark.session.options import Options
from lakehouse_source.spark.types import quoted
from lakehouse_source.write.commit.options import LAYOUT_KEYWORDS, PROPERTIES, layout_of

# Spark's own keys among the properties of a table.
LOCATION = "location"
PROVIDER = "provider"
RESERVED = {LOCATION, PROVIDER, "external", "is_managed_location", "table_type", "owner"}
_LISTS = ("index_columns", *(name for name, kind in KINDS.items() if kind == COLUMNS))
OWN = tuple(name for name in PROPERTIES if name != "partition_by")
# Names that a table property cannot set.
_REFUSED = {
    "partition_by": "is not set by TBLPROPERTIES: use PARTITIONED BY.",
}


def check_provider(texts: Mapping[str, str | None], catalog: str) -> None:
    """Refuse a table of another format, which would silently become one of plake."""
    provider = texts.get(PROVIDER) or "plake"
    if provider.lower() != "plake":
        raise InvalidOptionError(
            option="USING",
            value=provider,
            reason=f"is not for the catalog {catalog}: its tables are "
            "plake's. Leave USING out, or create the table in another catalog of Spark.",
        )


def divided(
    texts: Mapping[str, str | None],
) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Plake's own properties with their values, and the user's properties; None removes one.

    Raises:
        InvalidOptionError: a text is not a value of its property.
    """
    own: dict[str, Any] = {}
    others: dict[str, str | None] = {}
    for name, text in texts.items():
        key = name.lower()
        if key in _REFUSED:
            raise InvalidOptionError(option=name, value=text, reason=_REFUSED[key])
        if key in OWN:
            own[key] = None if text is None else _value(key, text)
        else:
            others[name] = text
    layout_of({name: value for name, value in own.items() if name in LAYOUT_KEYWORDS})
    return own, others


def _value(name: str, text: str) -> Any:
    given = Options({name: text}, (name,), "the properties of")
    if name in _LISTS:
        return given.names(name) or ()
    if given.text(name) is None:
        raise InvalidOptionError(option=name, value=text, reason="is blank: UNSET takes it back.")
    return given.property_of(name, name)


def shown(properties: DatasetProperties) -> dict[str, str]:
    """The result of SHOW TBLPROPERTIES: the user's properties, and plake's chosen ones."""
    own: dict[str, Any] = properties.layout.to_json()
    others = ((name, getattr(properties, name)) for name in OWN if name not in KINDS)
    own.update((name, value) for name, value in others if value is not None)
    return {**properties.table_properties, **{name: _text(value) for name, value in own.items()}}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(quoted(name) if "," in name else name for name in value)
    return str(value)
