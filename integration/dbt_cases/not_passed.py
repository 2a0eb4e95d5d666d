"""Tests of dbt that do not pass: a part of their names, and the reason."""

_DATABASE = "asks for the database of a relation, and dbt-spark's relations have none"
_POSTGRES = "has SQL of PostgreSQL"

NOT_PASSED = {
    "TestBaseAliases::": f"{_POSTGRES}: a cast by `::text`",
    "TestBaseSameAliasDifferentSchemas": f"{_POSTGRES}: a cast by `::text`",
    "TestBaseCachingLowercaseModel": _DATABASE,
    "TestBaseCachingSelectedSchemaOnly": _DATABASE,
    "TestBaseNoPopulateCache": _DATABASE,
    "TestBaseSeedSpecificFormats": "a seed `seed.with.dots`: dbt-spark quotes no name of a table",
    "TestBaseEphemeralMulti": f"{_POSTGRES}: names in double quotes",
}
