{# Each makes one commit of its rows. CREATE OR REPLACE TABLE … AS keeps the table and its history. #}
{# dbt lets nothing but a materialization itself submit Python: both begin with the same lines. #}

{% materialization table, adapter='plake', supported_languages=['sql', 'python'] %}
  {%- set old = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {{ run_hooks(pre_hooks) }}
  {% do plake_run_header() %}
  {%- if model['language'] == 'python' %}
    {%- call statement('python', language='python') -%} {{ py_write_table(compiled_code, plake_python_view()) }} {%- endcall -%}
  {%- endif -%}
  {% do plake_build(old, target, plake_query()) %}
  {{ plake_finish(old, target) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% macro plake_build(old, target, query) %}
  {% if old is not none and not old.is_table %}{% do adapter.drop_relation(old) %}{% endif %}
  {%- call statement('main') -%} {{ create_table_as(False, target, query) }} {%- endcall -%}
  {% do persist_constraints(target, model) %}
{% endmacro %}

{% macro plake_finish(old, target) %}
  {% do apply_grants(target, config.get('grants'), should_revoke(old, full_refresh_mode=True)) %}
  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks) }}
{% endmacro %}

{# A Python model becomes a temporary view first: all else is one way for both languages. #}
{% macro plake_python_view() %}{% do return(make_temp_relation(this, '__dbt_python')) %}{% endmacro %}

{% macro plake_query() %}
  {% do return(compiled_code if model['language'] == 'sql' else 'select * from ' ~ plake_python_view()) %}
{% endmacro %}

{% macro py_write_table(compiled_code, target_relation) %}
{{ compiled_code }}
df = model(dbtObj(spark.table), spark)
df = df.to_spark() if hasattr(df, "to_spark") else df
df = df if hasattr(df, "createOrReplaceTempView") else spark.createDataFrame(df)
df.createOrReplaceTempView("{{ target_relation }}")
{% endmacro %}

{% materialization incremental, adapter='plake', supported_languages=['sql', 'python'] %}
  {%- set strategy = config.get('incremental_strategy') or 'default' -%}
  {%- set strategy_sql = adapter.get_incremental_strategy_macro(context, strategy) -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {%- set old = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {{ run_hooks(pre_hooks) }}
  {% do plake_run_header() %}
  {%- if model['language'] == 'python' %}
    {%- call statement('python', language='python') -%} {{ py_write_table(compiled_code, plake_python_view()) }} {%- endcall -%}
  {%- endif -%}
  {%- if old is none or not old.is_table or should_full_refresh() -%}
    {% do plake_build(old, target, plake_query()) %}
  {%- else -%}
    {%- set source = make_temp_relation(this) -%}
    {%- call statement('source') -%} {{ create_table_as(True, source, plake_query()) }} {%- endcall -%}
    {%- do process_schema_changes(on_schema_change, source, old) -%}
    {%- call statement('main') -%}
      {{ strategy_sql({
          'target_relation': target, 'temp_relation': source, 'unique_key': config.get('unique_key'),
          'dest_columns': plake_shared_columns(source, target),
          'incremental_predicates': config.get('predicates') or config.get('incremental_predicates')}) }}
    {%- endcall -%}
  {%- endif -%}
  {{ plake_finish(old, target) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{# A column that the model lacks gets its default; one that the table lacks is left out (on_schema_change: ignore). #}
{% macro plake_shared_columns(source, target) %}
  {%- set given = adapter.get_columns_in_relation(source) | map(attribute='name') | map('lower') | list %}
  {%- set shared = [] %}
  {%- for column in adapter.get_columns_in_relation(target) if column.name | lower in given %}{% do shared.append(column) %}{% endfor %}
  {% do return(shared) %}
{% endmacro %}

{% macro plake__get_incremental_default_sql(args) %}
  {{ return(get_incremental_merge_sql(args) if args.unique_key else get_incremental_append_sql(args)) }}
{% endmacro %}

{# Not dbt's own, which calls a macro that dbt-spark has with other arguments. #}
{% macro plake__get_incremental_append_sql(args) %}
  {%- set columns = get_quoted_csv(args.dest_columns | map(attribute='name')) -%}
  insert into {{ args.target_relation }} ({{ columns }}) select {{ columns }} from {{ args.temp_relation }}
{% endmacro %}

{% macro plake__get_merge_update_columns(merge_update_columns, merge_exclude_columns, dest_columns) %}
  {{ return(default__get_merge_update_columns(merge_update_columns, merge_exclude_columns, dest_columns)) }}
{% endmacro %}

{% macro plake_on(keys, predicates) %}
  {%- set terms = [] %}
  {%- for key in keys %}{% do terms.append('DBT_INTERNAL_SOURCE.' ~ key ~ ' = DBT_INTERNAL_DEST.' ~ key) %}{% endfor %}
  {% do return('(' ~ ((predicates or []) + terms) | join(') and (') ~ ')') %}
{% endmacro %}

{% macro plake__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates=none) %}
  {%- set keys = plake_as_list(unique_key) -%}
  {%- set columns = get_quoted_csv(dest_columns | map(attribute='name')) -%}
  merge into {{ target }} as DBT_INTERNAL_DEST using {{ source }} as DBT_INTERNAL_SOURCE
  on {{ plake_on(keys, incremental_predicates) if keys else 'false' }}
  {% if keys %}
  when matched then update set
    {% for column in get_merge_update_columns(config.get('merge_update_columns'), config.get('merge_exclude_columns'), dest_columns) -%}
      {{ column }} = DBT_INTERNAL_SOURCE.{{ column }}{{ ', ' if not loop.last }}
    {%- endfor %}
  {% endif %}
  when not matched then insert ({{ columns }}) values ({{ columns }})
{% endmacro %}

{# One MERGE: a row of each key deletes, and the rows themselves, which match nothing, are inserted. #}
{% macro plake__get_incremental_delete_insert_sql(args) %}
  {%- set source = args.temp_relation -%}
  {%- set keys = plake_as_list(args.unique_key) -%}
  {%- set names = args.dest_columns | map(attribute='name') | list -%}
  {%- set columns = get_quoted_csv(names) -%}
  {%- if not keys %}{% do return(get_incremental_append_sql(args)) %}{% endif -%}
  merge into {{ args.target_relation }} as DBT_INTERNAL_DEST using (
    select {% for key in keys %}{{ key }} as dbt_key_{{ loop.index }}, {% endfor %}{{ columns }}, false as dbt_deletes from {{ source }}
    union all
    select distinct {% for key in keys %}{{ key }}, {% endfor %}{% for name in names %}null, {% endfor %}true from {{ source }}
  ) as DBT_INTERNAL_SOURCE
  on DBT_INTERNAL_SOURCE.dbt_deletes
    {%- for key in keys %} and DBT_INTERNAL_SOURCE.dbt_key_{{ loop.index }} = DBT_INTERNAL_DEST.{{ key }}{% endfor %}
    {%- for predicate in args.incremental_predicates or [] %} and ({{ predicate }}){% endfor %}
  when matched then delete
  when not matched and not DBT_INTERNAL_SOURCE.dbt_deletes then insert ({{ columns }}) values ({{ columns }})
{% endmacro %}

{% macro plake__get_incremental_insert_overwrite_sql(args) %}
  {%- set columns = get_quoted_csv(args.dest_columns | map(attribute='name')) -%}
  insert overwrite {{ args.target_relation }}
    with (partitionOverwriteMode = '{{ 'dynamic' if config.get('partition_by') else 'static' }}') ({{ columns }})
  select {{ columns }} from {{ args.temp_relation }}
{% endmacro %}

{# The rows of the batch's time are replaced; no partitions are needed. #}
{% macro plake__get_incremental_microbatch_sql(args) %}
  {%- set columns = get_quoted_csv(args.dest_columns | map(attribute='name')) -%}
  insert into {{ args.target_relation }} replace where
    {{ config.get('event_time') }} >= timestamp'{{ model.batch.event_time_start }}'
    and {{ config.get('event_time') }} < timestamp'{{ model.batch.event_time_end }}'
  select {{ columns }} from {{ args.temp_relation }}
{% endmacro %}

{# --- snapshots and clones: dbt's own. dbt-spark's take the formats delta, iceberg and hudi only ---- #}

{% materialization snapshot, adapter='plake' %}
  {{ return(materialization_snapshot_default()) }}
{% endmaterialization %}

{% macro plake__post_snapshot(staging_relation) %}
  {% do run_query('drop view if exists ' ~ staging_relation) %}
{% endmacro %}

{% materialization clone, adapter='plake' %}
  {{ return(materialization_clone_default()) }}
{% endmaterialization %}

{# --- seeds: one commit, which replaces the table ------------------------------------ #}

{% macro plake__create_csv_table(model, agate_table) %}
  {%- set columns = [] %}
  {% for name, type in plake_seed_types(model, agate_table) %}{% do columns.append(name ~ ' ' ~ type) %}{% endfor %}
  {%- set sql -%} create or replace table {{ this }} ({{ columns | join(', ') }}) {{ plake_table_clauses() }} {%- endset -%}
  {% if not agate_table.rows %}{% do run_query(sql) %}{% endif %}
  {% do return(sql) %}
{% endmacro %}

{% macro plake__reset_csv_table(model, full_refresh, old_relation, agate_table) %}
  {% do return(create_csv_table(model, agate_table)) %}
{% endmacro %}

{% macro plake_seed_types(model, agate_table) %}
  {%- set chosen = model['config'].get('column_types', {}) %}
  {%- set found = [] %}
  {% for name in agate_table.column_names %}
    {% do found.append([adapter.quote_seed_column(name | string, model['config'].get('quote_columns', none)),
        chosen.get(name, adapter.convert_type(agate_table, loop.index0))]) %}
  {% endfor %}
  {% do return(found) %}
{% endmacro %}

{% macro plake__load_csv_rows(model, agate_table) %}
  {%- set casts = [] %}
  {% for name, type in plake_seed_types(model, agate_table) %}
    {% do casts.append('cast(c' ~ loop.index ~ ' as ' ~ type ~ ') as ' ~ name) %}
  {% endfor %}
  {%- set names = [] %}
  {% for _ in casts %}{% do names.append('c' ~ loop.index) %}{% endfor %}
  {%- set parts = [] %}
  {% for rows in agate_table.rows | batch(get_batch_size()) %}
    {%- set part = make_temp_relation(this, '__dbt_seed_' ~ loop.index) %}
    {%- set sql -%}
      create or replace temporary view {{ part }} as
      select {{ casts | join(', ') }} from values {{ adapter.plake_values(rows) }} as seed ({{ names | join(', ') }})
    {%- endset -%}
    {% do adapter.add_query(sql, abridge_sql_log=True) %}
    {% do parts.append('select * from ' ~ part) %}
  {% endfor %}
  {%- set sql -%} create or replace table {{ this }} {{ plake_table_clauses() }} as {{ parts | join(' union all ') }} {%- endset -%}
  {% do run_query(sql) %}
  {% for part in parts %}{% do run_query(part | replace('select * from', 'drop view')) %}{% endfor %}
  {% do return(sql) %}
{% endmacro %}
