"""Door. Which table a path or a name means, as SQL names it, and what Spark tells about it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from lakehouse_source.catalog.qualified_names import split_name
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.spark.protocol.vocabulary import Part
from lakehouse_source.spark.session.planner_status import is_classic, status
from lakehouse_source.spark.session.secrets import PREFIX, check_no_secrets, conceal
from lakehouse_source.spark.types import quoted
from lakehouse_source.spark.writing.statements import Target

_CATALOGS = "spark.sql.catalog."
_CLASS = "io.plake.spark.PlakeCatalog"
_CLASSES = (_CLASS, "io.plake.spark.PlakeViewCatalog")
_DETAILS = "# Detailed Table Information"


def is_path(text: str) -> bool:
    """Tell whether a text is a path; else it is the name of a table."""
    if "`" in text:
        return False
    return "/" in text or ":" in text or "." not in text.strip(".")


def path_name(
    spark: Any, path: str, catalog: str | None = None, storage: Mapping[str, str] | None = None
) -> str:
    """A path as the name of a table. `storage`: options of the store, without their prefix."""
    place = catalog_for(spark, path, catalog, storage or {})
    return f"{quoted(place)}.{quoted(path if '/' in path else f'./{path}')}"


def catalog_for(spark: Any, path: str, catalog: str | None, storage: Mapping[str, str]) -> str:
    """The catalog of Spark that finds a path: the session's own, or one with these options.

    Raises:
        InvalidOptionError: an option may be a secret and is not `env:NAME`, or the session has no
            planner extension.
    """
    require_extension(spark)
    if catalog is None and not storage:
        known = sorted(
            key.removeprefix(_CATALOGS)
            for key, kind in spark.conf.getAll.items()
            if key.startswith(_CATALOGS) and kind in _CLASSES
        )
        if known:
            return "plake" if "plake" in known else known[0]
    check_no_secrets(path, storage)
    given = {f"storage.{name}": str(value) for name, value in sorted(storage.items())}
    if catalog is not None:
        given["catalog"] = conceal(catalog) or ""
    name = "plake_" + hashlib.sha256(json.dumps(given).encode()).hexdigest()[:12]
    for key, value in given.items():
        spark.conf.set(f"{_CATALOGS}{name}.{key}", value)
    spark.conf.set(f"{_CATALOGS}{name}", _CLASS)
    return name


def require_extension(spark: Any) -> None:
    """Refuse a session that cannot change rows.

    Raises:
        InvalidOptionError: it has no planner extension; the text has the line to add.
    """
    if is_classic(spark):
        part = status(spark)[Part.STATEMENTS]
        if not part.works:
            raise InvalidOptionError(
                option="spark",
                reason="PlakeTable needs the planner extension, by which Spark changes rows of "
                f"plake; {part.reason}.",
            )


def requoted(spark: Any, name: str) -> str:
    """A name as SQL has it, whatever a user wrote into it.

    Raises:
        InvalidOptionError: it has an open backtick.
    """
    parts = split_name(name)
    if len(parts) == 2 and parts[0].lower() == "plake" and "/" in parts[1]:
        return path_name(spark, parts[1])
    return ".".join(map(quoted, parts))


def described(spark: Any, name: str) -> dict[str, str]:
    """What Spark tells of a table besides its columns. Views have no `Provider`.

    Raises:
        AnalysisException: there is none.
        InvalidOptionError: a Connect server lacks the planner extension.
    """
    from pyspark.errors import PySparkException

    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except PySparkException as error:
        if (error.getCondition() or "").startswith("CANNOT_LOAD_CATALOG"):
            raise InvalidOptionError(
                option="spark",
                reason="the server has no planner extension: put plake-planner.jar into its "
                "spark.jars, as spark_conf/README.md says.",
            ) from error
        raise
    names = [row.col_name for row in rows]
    first = len(names) - 1 - names[::-1].index(_DETAILS) if _DETAILS in names else len(names)
    # An empty row ends them; constraints follow, by any names.
    told = takewhile(lambda row: row.col_name, rows[first + 1 :])
    return {row.col_name: row.data_type for row in told}


def target_of(spark: Any, name: str, options: Mapping[str, Any], alias: str | None) -> Target:
    """The table of plake that SQL knows by a name.

    Raises:
        InvalidOptionError: it is a table of another format, or a view.
    """
    facts = described(spark, name)
    if facts.get("Provider") != "plake":
        raise InvalidOptionError(
            option="name", value=name, reason="is no table of plake, or is a view."
        )
    if "Catalog" in facts:
        namespace = split_name(facts["Namespace"]) if facts.get("Namespace") else []
        catalog, *rest = (facts["Catalog"], *namespace, facts["Table"])
    else:  # Spark 4.1 and 4.2
        catalog, *rest = split_name(facts["Name"])
    whole = ".".join(map(quoted, (catalog, *rest)))
    if spark.conf.get(_CATALOGS + catalog, None) in _CLASSES:
        name = whole
    given = {key: str(value) for key, value in options.items()}
    return Target(spark, name, whole, alias, given)


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Options of the store, without their prefix, and those of writes."""
    storage = {k[len(PREFIX) :]: str(v) for k, v in options.items() if k.startswith(PREFIX)}
    return storage, {k: v for k, v in options.items() if not k.startswith(PREFIX)}


def literal(spark: Any, text: str) -> str:
    """A text as a literal of SQL, as the session reads literals.

    Raises:
        InvalidOptionError: the session has no literal for it.
    """
    if "'" not in text and "\\" not in text:
        return f"'{text}'"
    if str(spark.conf.get("spark.sql.parser.escapedStringLiterals", "false")).lower() != "true":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if '"' in text or text.endswith("\\"):
        raise InvalidOptionError(
            option="spark.sql.parser.escapedStringLiterals",
            reason=f"is set, and with it SQL has no literal for {text!r}.",
        )
    return f'"{text}"'
