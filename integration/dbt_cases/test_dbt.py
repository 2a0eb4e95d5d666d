"""Suites of dbt-tests-adapter that dbt-spark does not run, or leaves out for its session method."""

from __future__ import annotations

import re
from typing import Any

import pytest
from dbt.tests.adapter.aliases.test_aliases import BaseAliases, BaseSameAliasDifferentSchemas
from dbt.tests.adapter.basic.test_incremental import (
    BaseIncrementalBadStrategy,
    BaseIncrementalNotSchemaChange,
)
from dbt.tests.adapter.basic.test_table_materialization import BaseTableMaterialization
from dbt.tests.adapter.basic.test_validate_connection import BaseValidateConnection
from dbt.tests.adapter.caching.test_caching import (
    BaseCachingLowercaseModel,
    BaseCachingSelectedSchemaOnly,
    BaseNoPopulateCache,
)
from dbt.tests.adapter.constraints import fixtures
from dbt.tests.adapter.constraints.test_constraints import (
    BaseConstraintsRollback,
    BaseIncrementalConstraintsColumnsEqual,
    BaseIncrementalConstraintsRollback,
    BaseIncrementalContractSqlHeader,
    BaseTableConstraintsColumnsEqual,
    BaseTableContractSqlHeader,
    BaseViewConstraintsColumnsEqual,
)
from dbt.tests.adapter.dbt_show.test_dbt_show import BaseShowLimit
from dbt.tests.adapter.empty.test_empty import BaseTestEmpty, BaseTestEmptyInlineSourceRef
from dbt.tests.adapter.ephemeral.test_ephemeral import BaseEphemeralMulti
from dbt.tests.adapter.hooks.test_model_hooks import (
    BaseDuplicateHooksInConfigs,
    BasePrePostModelHooksOnSeeds,
)
from dbt.tests.adapter.incremental import test_incremental_unique_id as unique
from dbt.tests.adapter.incremental.test_incremental_microbatch import BaseMicrobatch
from dbt.tests.adapter.incremental.test_incremental_on_schema_change import (
    BaseIncrementalOnSchemaChange,
)
from dbt.tests.adapter.incremental.test_incremental_predicates import BaseIncrementalPredicates
from dbt.tests.adapter.incremental.test_incremental_unique_id import BaseIncrementalUniqueKey
from dbt.tests.adapter.python_model.test_python_model import (
    BasePythonIncrementalTests,
    BasePythonModelTests,
)
from dbt.tests.adapter.query_comment.test_query_comment import (
    BaseEmptyQueryComments,
    BaseQueryComments,
)
from dbt.tests.adapter.relations.test_changing_relation_type import BaseChangeRelationTypeValidator
from dbt.tests.adapter.simple_seed.test_seed import (
    BaseSeedSpecificFormats,
    BaseTestEmptySeed,
)
from dbt.tests.adapter.store_test_failures_tests.basic import StoreTestFailuresAsInteractions
from dbt.tests.adapter.unit_testing.test_case_insensitivity import BaseUnitTestCaseInsensivity
from dbt.tests.adapter.unit_testing.test_invalid_input import BaseUnitTestInvalidInput

AS_THEY_ARE = (
    BaseAliases,
    BaseCachingLowercaseModel,
    BaseCachingSelectedSchemaOnly,
    BaseChangeRelationTypeValidator,
    BaseDuplicateHooksInConfigs,
    BaseEmptyQueryComments,
    BaseEphemeralMulti,
    BaseIncrementalBadStrategy,
    BaseIncrementalNotSchemaChange,
    BaseIncrementalOnSchemaChange,
    BaseMicrobatch,
    BaseNoPopulateCache,
    BasePrePostModelHooksOnSeeds,
    BasePythonIncrementalTests,
    BasePythonModelTests,
    BaseQueryComments,
    BaseSameAliasDifferentSchemas,
    BaseSeedSpecificFormats,
    BaseShowLimit,
    BaseTableMaterialization,
    BaseTestEmpty,
    BaseTestEmptyInlineSourceRef,
    BaseTestEmptySeed,
    BaseUnitTestCaseInsensivity,
    BaseUnitTestInvalidInput,
    BaseValidateConnection,
    StoreTestFailuresAsInteractions,
)
globals().update(
    {f"Test{suite.__name__}": type(f"Test{suite.__name__}", (suite,), {}) for suite in AS_THEY_ARE}
)


def strategy(name: str) -> Any:
    @pytest.fixture(scope="class")
    def project_config_update(self: Any) -> dict[str, Any]:
        predicates = ["dbt_internal_dest.id != 2"]
        return {
            "models": {"+incremental_strategy": name, "+incremental_predicates": predicates},
        }

    return project_config_update


class TestPredicatesMerge(BaseIncrementalPredicates):
    project_config_update = strategy("merge")


class TestPredicatesDeleteInsert(BaseIncrementalPredicates):
    project_config_update = strategy("delete+insert")


class TestUniqueKey(BaseIncrementalUniqueKey):
    """With dates instead of texts, which Spark does not insert into a DATE column."""

    @pytest.fixture(scope="class")
    def seeds(self) -> dict[str, str]:
        texts = {
            f"{name}.sql": re.sub(
                r"'(\d{4}-\d\d-\d\d)'", r"DATE'\1'", getattr(unique, f"seeds__{name}_sql")
            )
            for name in ("duplicate_insert", "add_new_rows")
        }
        return {"seed.csv": unique.seeds__seed_csv, **texts}


class TestUniqueKeyDeleteInsert(TestUniqueKey):
    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, Any]:
        return {"models": {"+incremental_strategy": "delete+insert"}}


class Types:
    """The types of dbt's tests, by Spark's names."""

    @pytest.fixture
    def string_type(self) -> str:
        return "string"

    schema_string_type = string_type

    @pytest.fixture
    def int_type(self) -> str:
        return "int"

    schema_int_type = int_type

    @pytest.fixture
    def data_types(self) -> list[list[str]]:
        return [
            ["1", "int", "int"],
            ["'1'", "string", "string"],
            ["cast('2019-01-01' as date)", "date", "date"],
            ["true", "boolean", "boolean"],
            ["cast('2013-11-03 00:00:00-07' as timestamp)", "timestamp", "timestamp"],
            ["cast(1 as decimal(10,2))", "decimal(10,2)", "decimal(10,2)"],
        ]


SCHEMA = fixtures.model_schema_yml.replace("text", "string")


def wrong(kind: str) -> Any:
    @pytest.fixture(scope="class")
    def models(self: Any) -> dict[str, str]:
        return {
            "my_model_wrong_order.sql": getattr(fixtures, f"my_model_{kind}wrong_order_sql"),
            "my_model_wrong_name.sql": getattr(fixtures, f"my_model_{kind}wrong_name_sql"),
            "constraints_schema.yml": SCHEMA,
        }

    return models


class TestTableColumns(Types, BaseTableConstraintsColumnsEqual):
    models = wrong("")


class TestViewColumns(Types, BaseViewConstraintsColumnsEqual):
    models = wrong("view_")


class TestIncrementalColumns(Types, BaseIncrementalConstraintsColumnsEqual):
    models = wrong("incremental_")


class Enforced:
    """The suite expects the rows of before: dbt-spark has to expect the wrong ones."""

    text = fixtures.my_model_sql

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"my_model.sql": self.text, "constraints_schema.yml": SCHEMA}

    @pytest.fixture(scope="class")
    def expected_error_messages(self) -> list[str]:
        return ["a row breaks NOT NULL of `id`", "NOT_NULL_ASSERT_VIOLATION", "is not nullable"]

    def assert_expected_error_messages(
        self, error_message: str, expected_error_messages: list[str]
    ) -> None:
        assert any(text in error_message for text in expected_error_messages), error_message


class TestRollback(Enforced, BaseConstraintsRollback):
    pass


class TestIncrementalRollback(Enforced, BaseIncrementalConstraintsRollback):
    text = fixtures.my_incremental_model_sql


class Zone:
    """The header of the suites, in Spark's words."""

    text = ""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "my_model_contract_sql_header.sql": self.text.replace(
                "set session time zone", "set time zone"
            ).replace("current_setting('timezone')", "current_timezone()"),
            "constraints_schema.yml": fixtures.model_contract_header_schema_yml.replace(
                "text", "string"
            ),
        }


class TestHeader(Zone, BaseTableContractSqlHeader):
    text = fixtures.my_model_contract_sql_header_sql


class TestIncrementalHeader(Zone, BaseIncrementalContractSqlHeader):
    text = fixtures.my_model_incremental_contract_sql_header_sql
