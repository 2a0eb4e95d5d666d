"""What dbt's suites do not ask: commits and history, partitions, constraints, seeds, clones."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.util import run_dbt, run_dbt_and_capture

DAYS = """
{{ config(materialized='incremental', incremental_strategy='insert_overwrite',
    partition_by='day') }}
select 1 as id, date'2026-01-01' as day, '{{ var("v", "first") }}' as v
{% if not is_incremental() %} union all select 2, date'2026-01-02', 'first' {% endif %}
"""
BUILT = """
{{ config(materialized='table', cluster_by=['id'], tblproperties={'team': 'x'},
    persist_docs={'relation': true, 'columns': true}) }}
select 1 as id, '{{ var("v", "first") }}' as v
"""
REPLACED = """
{{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key='k') }}
{% if is_incremental() %}
select * from values (2, 'x'), (2, 'y'), (cast(null as int), 'z') as t (k, v)
{% else %}
select * from values (1, 'a'), (2, 'b'), (2, 'c'), (cast(null as int), 'd') as t (k, v)
{% endif %}
"""
KEPT = """
{{ config(materialized='table', contract={'enforced': true}, grants={'select': ['someone']}) }}
select k, v from values (1, 5), ({{ var('k', 2) }}, {{ var('n', 6) }}) as t (k, v) where v <> -9
"""
PYTHON = """
import pandas

def model(dbt, spark):
    dbt.config(materialized="table", partition_by="p")
    built = dbt.ref("built")
    return pandas.DataFrame({"p": [1, 2], "n": [built.count()] * 2})
"""
SCHEMA = """
version: 2
models:
  - name: built
    description: "what isn't {{ var('d', 'known') }}"
    columns:
      - {name: id, description: "the key's number"}
  - name: kept
    constraints:
      - {type: check, name: small, expression: "v < 10"}
      - {type: primary_key, columns: [k]}
    columns:
      - {name: k, data_type: int, constraints: [{type: not_null}]}
      - {name: v, data_type: int, constraints: [{type: check, expression: "v > 0"}, {type: unique}]}
"""
# An integer that no DOUBLE has, a quote, a backslash, nothing.
SEED = "id,name,price\n9007199254740993,it's,1.10\n2,a\\b,\n3,,0.1\n"


class TestPlake:
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "days.sql": DAYS,
            "built.sql": BUILT,
            "seen.sql": "select * from {{ ref('built') }}",
            "replaced.sql": REPLACED,
            "kept.sql": KEPT,
            "made.py": PYTHON,
            "schema.yml": SCHEMA,
        }

    @pytest.fixture(scope="class")
    def seeds(self) -> dict[str, str]:
        return {"given.csv": SEED}

    def test_it(self, project: Any) -> None:
        def rows(sql: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in project.run_sql(sql, fetch="all")]

        def version(table: str) -> int:
            return rows(f"select max(version) from {{schema}}.{table}.history")[0][0]

        run_dbt(["seed"])
        seeded = [(2, "a\\b", None), (3, None, 0.1), (9007199254740993, "it's", 1.1)]
        assert rows("select * from {schema}.given order by id") == seeded
        assert version("given") == 1
        run_dbt(["seed"])
        assert (version("given"), rows("select * from {schema}.given order by id")) == (2, seeded)

        run_dbt(["run"])
        assert rows("select p, n from {schema}.made order by p") == [(1, 1), (2, 1)]
        before = {table: version(table) for table in ("days", "built", "replaced", "kept")}
        assert before["days"] == before["replaced"] == 1
        run_dbt(["run", "--vars", "v: second"])
        assert rows("select id, v from {schema}.days order by id") == [(1, "second"), (2, "first")]
        assert rows("select id, v from {schema}.seen") == [(1, "second")]
        assert rows("select v from {schema}.built version as of 1") == [("first",)]
        # delete+insert: one commit; NULL is no key's equal.
        assert rows("select * from {schema}.replaced order by k nulls first, v") == [
            (None, "d"),
            (None, "z"),
            (1, "a"),
            (2, "x"),
            (2, "y"),
        ]
        assert (version("days"), version("replaced")) == (2, 2)
        run_dbt(["run", "--full-refresh", "--vars", "v: third", "--select", "days"])
        assert rows("select id, v from {schema}.days order by id") == [(1, "third"), (2, "first")]
        assert version("days") == 3
        assert rows("select count(*) from {schema}.days version as of 1") == [(2,)]

        # Comments are written where they differ.
        told = rows("describe extended {schema}.built")
        assert ("id", "int", "the key's number") in told
        assert ("Comment", "what isn't known") in [row[:2] for row in told]

        # A broken constraint leaves the table as it was, and the table itself keeps it.
        kept = version("kept")
        for given, rule in (
            ("n: -1", "CHECK (v > 0)"),
            ("n: 10", "CHECK (v < 10)"),
            ("n: 5", "UNIQUE (`v`)"),
            ("k: 1", "PRIMARY KEY (`k`)"),
            ("k: 'cast(null as int)'", "NOT NULL of `k`"),
        ):
            _, said = run_dbt_and_capture(
                ["run", "--select", "kept", "--vars", given], expect_pass=False
            )
            assert f"kept: a row breaks {rule}" in said
        # A row that the model leaves out is not asked.
        assert version("kept") == kept
        _, said = run_dbt_and_capture(["run", "--select", "kept", "--vars", "n: -9"])
        assert "grants are left out, plake has none" in said
        assert rows("select * from {schema}.kept") == [(1, 5)]
        for bad in ("(null, 1)", "(3, 0)", "(3, 10)", "(1, 6)", "(3, 5)"):
            with pytest.raises(
                Exception, match=r"NOT NULL|NOT_NULL|CONSTRAINT_VIOLATION|ConstraintViolation"
            ):
                rows(f"insert into {{schema}}.kept values {bad}")

        catalog = run_dbt(["docs", "generate"])
        found = {node.metadata.name: node for node in catalog.nodes.values()}
        assert found["built"].metadata.comment == "what isn't known"
        assert found["built"].columns["id"].comment == "the key's number"
        assert found["seen"].metadata.type == "view"


class TestRefused:
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "other.sql": "{{ config(materialized='table', file_format='delta') }} select 1 as id",
            "buckets.sql": "{{ config(materialized='table', clustered_by='id') }} select 1 as id",
        }

    def test_what_is_of_another_adapter_is_refused_by_name(self, project: Any) -> None:
        _, said = run_dbt_and_capture(["run"], expect_pass=False)
        assert "file_format 'delta': the adapter plake makes tables of plake" in said
        assert "plake has no buckets. Use cluster_by" in said
