"""Tests of dbt that do not pass: a part of their names, and the reason."""

_DATABASE = "asks for the database of a relation, and dbt-spark's relations have none"
_POSTGRES = "has SQL of PostgreSQL"
_OPTION = "dbt-core 1.11 has no option --empty of seed and build with seeds"
_DATE = "inserts a text into a DATE column, which Spark's ANSI assignment refuses for all formats"

NOT_PASSED = {
    "TestBaseAliases::": f"{_POSTGRES}: a cast by `::text`",
    "TestBaseSameAliasDifferentSchemas": f"{_POSTGRES}: a cast by `::text`",
    "TestBaseEphemeralMulti": f"{_POSTGRES}: names in double quotes",
    "TestBaseCachingLowercaseModel": _DATABASE,
    "TestBaseCachingSelectedSchemaOnly": _DATABASE,
    "TestBaseNoPopulateCache": _DATABASE,
    "TestBaseSeedSpecificFormats": "a seed `seed.with.dots`: dbt-spark quotes no name of a table",
    "TestSparkEmptySeedFlag::": _OPTION,
    "TestDeltaOnSchemaChange::test_run_incremental_sync_all": "expects that columns stay",
    "TestBadStrategies": "expects that merge is refused, as for Parquet: plake has it",
    **{
        f"TestUniqueKeySpark::test__{name}": _DATE
        for name in (
            "empty_unique_key_list",
            "one_unique_key",
            "no_unique_keys",
            "empty_str_unique_key",
            "unary_unique_key_list",
            "duplicated_unary_unique_key_list",
            "trinary_unique_key_list",
            "trinary_unique_key_list_no_update",
        )
    },
}
