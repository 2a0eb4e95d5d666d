{# Statements for tables of plake, where dbt-spark has them for Delta, Iceberg or Hive only. #}

{% macro plake_show(kind, schema) %}
  {% call statement('plake_show', fetch_result=True) -%} show {{ kind }}s in {{ schema }} {%- endcall %}
  {% do return(load_result('plake_show').table) %}
{% endmacro %}

{% macro plake__file_format_clause() %}
  {%- if config.get('file_format', 'plake') not in ['plake', none] %}
    {% do exceptions.raise_compiler_error("file_format '" ~ config.get('file_format') ~ "': the adapter plake makes tables of plake. Leave file_format out.") %}
  {%- elif config.get('buckets') or config.get('clustered_by') %}
    {% do exceptions.raise_compiler_error("clustered_by and buckets: plake has no buckets. Use cluster_by.") %}
  {%- endif -%}
  using plake
{% endmacro %}

{% macro plake_as_list(given) %}
  {% do return(([given] if given is string else given or []) | select | list) %}
{% endmacro %}

{% macro plake__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- if temporary -%}
    {{ create_temporary_view(relation, compiled_code) }}
  {%- else -%}
    create or replace table {{ relation }}
    {% if config.get('contract').enforced %}
      {{ get_assert_columns_equivalent(compiled_code) }}
      {%- set compiled_code = plake_checked(get_select_subquery(compiled_code)) %}
    {% endif %}
    {{ plake_table_clauses() }}
    as {{ compiled_code }}
  {%- endif -%}
{%- endmacro %}

{% macro plake_table_clauses() %}
  {{ file_format_clause() }} {{ options_clause() }} {{ partition_cols(label="partitioned by") }}
  {%- set cluster_by = plake_as_list(config.get('cluster_by')) %}
  {% if cluster_by %}cluster by ({{ cluster_by | join(', ') }}){% endif %}
  {{ location_clause() }} {{ comment_clause() }} {{ tblproperties_clause() }}
{% endmacro %}

{# The header of a model is a statement of its own: Spark takes one at a time. #}
{% macro plake_run_header() %}
  {% if config.get('sql_header') %}{% do run_query(config.get('sql_header')) %}{% endif %}
{% endmacro %}

{% macro plake__get_empty_subquery_sql(select_sql, select_sql_header=none) %}
  {{ default__get_empty_subquery_sql(select_sql) }}
{% endmacro %}

{# Threads share one session, and models of two schemas may have one name. #}
{% macro plake__make_temp_relation(base_relation, suffix='__dbt_tmp') %}
  {% do return(api.Relation.create(identifier=base_relation.schema ~ '__' ~ base_relation.identifier ~ suffix, type='view')
      .include(database=false, schema=false).quote(identifier=true)) %}
{% endmacro %}

{# --- constraints: a query that breaks one fails, so nothing is committed ---------- #}

{% macro plake_constraints() %}
  {%- set found = [] %}
  {% for column in model.columns.values() %}
    {% for constraint in column.constraints %}{% do found.append([constraint, [column.name]]) %}{% endfor %}
  {% endfor %}
  {% for constraint in model.constraints %}{% do found.append([constraint, constraint.columns or []]) %}{% endfor %}
  {%- set told = [] %}
  {% for constraint, names in found %}
    {%- set columns = [] %}
    {% for name in names %}{% do columns.append(adapter.quote(name)) %}{% endfor %}
    {%- set rule = {
        'check': 'CHECK (' ~ constraint.expression ~ ')',
        'not_null': 'NOT NULL of ' ~ columns | join(', '),
        'primary_key': 'PRIMARY KEY (' ~ columns | join(', ') ~ ')',
        'unique': 'UNIQUE (' ~ columns | join(', ') ~ ')'}.get(constraint.type) %}
    {% if rule %}
      {% do told.append({'type': constraint.type, 'columns': columns, 'rule': rule, 'expression': constraint.expression,
          'name': adapter.quote(constraint.name or 'dbt_' ~ local_md5(rule))}) %}
    {% else %}
      {% do exceptions.warn(model.name ~ ': dbt\'s adapter for plake leaves the constraint ' ~ constraint.type ~ ' out') %}
    {% endif %}
  {% endfor %}
  {% do return(told) %}
{% endmacro %}

{# In the select list: Spark may push a filter below a join or a filter of the model, where rows are that go later. #}
{% macro plake_checked(sql) %}
  {%- set tests = [] %}
  {% for constraint in plake_constraints() %}
    {%- set columns = constraint.columns | join(', ') %}
    {% if constraint.type == 'check' %}
      {% do tests.append(['(' ~ constraint.expression ~ ') is false', constraint.rule]) %}
    {% elif constraint.type != 'unique' %}
      {% do tests.append([constraint.columns | join(' is null or ') ~ ' is null', constraint.rule]) %}
    {% endif %}
    {% if constraint.type in ['primary_key', 'unique'] %}
      {% do tests.append([constraint.columns | join(' is not null and ') ~ ' is not null and count(*) over (partition by ' ~ columns ~ ') > 1', constraint.rule]) %}
    {% endif %}
  {% endfor %}
  {%- if not tests %}{% do return(sql) %}{% endif -%}
  {%- set columns = model.columns.values() | map(attribute='name') | map('lower') | list %}
  select case
    {% for test, name in tests %}
      when {{ test }} then raise_error({{ adapter.plake_literal(this ~ ': a row breaks ' ~ name) }})
    {% endfor %}
    else {{ adapter.quote(columns[0]) }} end as {{ adapter.quote(columns[0]) }}
    {%- for column in columns[1:] %}, {{ adapter.quote(column) }}{% endfor %}
  from ({{ sql }})
{% endmacro %}

{# The table keeps the constraints from here on: plake refuses every write that breaks one. #}
{% macro plake__persist_constraints(relation, model) %}
  {% if config.get('contract').enforced %}
    {%- set required = [] %}
    {% for constraint in plake_constraints() %}
      {% if constraint.type == 'not_null' %}
        {% for column in constraint.columns %}{% do required.append(column ~ ' set not null') %}{% endfor %}
      {% else %}
        {% do run_query('alter table ' ~ relation ~ ' add constraint ' ~ constraint.name ~ ' ' ~ constraint.rule) %}
      {% endif %}
    {% endfor %}
    {% if required %}{% do run_query('alter table ' ~ relation ~ ' alter column ' ~ required | unique | join(', ')) %}{% endif %}
  {% endif %}
{% endmacro %}

{# --- comments, columns, grants ----------------------------------------------------- #}

{# What differs, in one statement each: each is a version of the table. #}
{% macro plake__persist_docs(relation, model, for_relation, for_columns) %}
  {% if relation.type != 'view' and (config.persist_relation_docs() or config.persist_column_docs()) %}
    {%- set told = {} %}
    {% for row in get_columns_in_relation_raw(relation) %}
      {% do told.setdefault(row[0], row[2] if row[2] else row[1]) %}
    {% endfor %}
    {%- set changes = [] %}
    {% if for_columns and config.persist_column_docs() and model.columns %}
      {%- set columns = adapter.get_columns_in_relation(relation) | map(attribute='name') | list %}
      {% for name, column in validate_doc_columns(relation, model.columns, columns).items() %}
        {% if column.description and told[name] != column.description %}
          {% do changes.append((adapter.quote(name) if column.quote else name) ~ ' comment ' ~ adapter.plake_literal(column.description)) %}
        {% endif %}
      {% endfor %}
    {% endif %}
    {% if changes %}{% do run_query('alter table ' ~ relation ~ ' alter column ' ~ changes | join(', ')) %}{% endif %}
    {% if for_relation and config.persist_relation_docs() and model.description and told.get('Comment') != model.description %}
      {% do run_query('comment on table ' ~ relation ~ ' is ' ~ adapter.plake_literal(model.description)) %}
    {% endif %}
  {% endif %}
{% endmacro %}

{% macro plake__comment_clause() %}
  {% if config.persist_relation_docs() and model.description %}comment {{ adapter.plake_literal(model.description) }}{% endif %}
{% endmacro %}

{% macro plake__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
  {% if add_columns %}
    {%- set added = [] %}
    {% for column in add_columns %}{% do added.append(column.quoted ~ ' ' ~ column.data_type) %}{% endfor %}
    {% do run_query('alter table ' ~ relation ~ ' add columns (' ~ added | join(', ') ~ ')') %}
  {% endif %}
  {% if remove_columns %}
    {% do run_query('alter table ' ~ relation ~ ' drop columns (' ~ remove_columns | map(attribute='quoted') | join(', ') ~ ')') %}
  {% endif %}
{% endmacro %}

{% macro plake__apply_grants(relation, grant_config, should_revoke=True) %}
  {% if grant_config %}
    {% do exceptions.warn(relation ~ ': grants are left out, plake has none. Who may read the files may read all rows.') %}
  {% endif %}
{% endmacro %}

{% macro plake__get_or_create_relation(database, schema, identifier, type) %}
  {%- set found = adapter.get_relation(database=none, schema=schema, identifier=identifier) %}
  {% do return([found is not none, found or api.Relation.create(schema=schema, identifier=identifier, type=type)]) %}
{% endmacro %}
