"""Door. The names that the planner extension (Java) and the data source (Python) share.

This is the only table of these names. `planner/build.py` makes `Vocabulary.java` from it: Java uses
no other name. The comments beside the types give the forms of values.
"""

from __future__ import annotations


class Envelope:
    """The envelope of every message: `{PROTOCOL: NUMBER, kind: body}`, with one of the kinds."""

    NAME = "plake.envelope"  # the option, and the key of a column's metadata, that holds it
    PROTOCOL = "protocol"
    NUMBER = "3"  # increased with each change that the other side would not understand
    REQUEST = "request"
    RESPONSE = "response"
    ERROR = "error"  # as `Failed` tells
    # In front of an envelope in a pickle, with its length in bytes as 12 digits and a ">".
    BEGIN = "<plake-envelope "


class Failed:
    """Keys of an error."""

    CODE = "code"  # such as PLAKE_COMMIT_CONFLICT
    KIND = "kind"  # a value of `Failure`
    MESSAGE = "message"
    FACTS = "facts"  # {name: value}: the attributes of the error


class Mark:
    """Keys of the request of a scan, in the metadata of the first column of its schema."""

    CONDITION = "where"  # conditions, as `Key` tells
    JOIN_KEYS = "join_keys"  # conditions that hold for one run of the query
    ROWS_ONLY = "rows_only"  # true: Spark counts rows and uses no value
    DECIMALS = "decimals"  # {column: [precision, scale]} of decimals wanted as longs
    LIMIT = "row_limit"  # this many rows are enough
    AGGREGATE = "aggregate"  # a request, as `Key` tells
    PARALLELISM = "parallelism"  # Spark's default parallelism
    METADATA = "metadata_columns"  # {column: name} of columns that tell where a row is stored
    READER = "wanted_reader"  # a value of `Reader`: answer files where Spark's may read them
    CHANGED_FILES = "changed_files"  # true: files with LAYOUTS or DELETED may be answered
    JOINED = "joined"  # true: answer also `ScanResponse.KEY_COLUMNS`


class Key:
    """Keys of conditions and of requests.

    A condition is a node, see `Node`, with its text for people and the time zone of its wall
    clocks: UTC if it is absent. A request is `{group, functions, columns}`: functions and columns
    go in pairs, and the column of `count(*)` is the empty text.
    """

    OP = "op"
    TERMS = "terms"
    COLUMN = "column"
    TYPE = "type"
    VALUES = "values"
    NULL = "null"
    NAME = "name"
    ZONE = "zone"
    TEXT = "text"
    WHOLE = "whole"  # in `Option.CONDITIONS`: no condition was left out
    GROUP = "group"
    FUNCTIONS = "functions"
    COLUMNS = "columns"


class Node:
    """Values of `Key.OP`.

    A node is `{op, type, column}`, `{op, type, values, null}` (LITERAL), `{op, type, name, terms}`
    (CALL) or `{op, type, terms}`. `type` is a type as Spark's catalog spells it, `column` a list of
    names from the top. The name of a CALL is a function or an operator, in lower case, as Spark's
    plans or its connectors name it. The terms of CASE are conditions and values in turn, with the
    value of ELSE at the end. A LITERAL has one text or, in the list of an IN, any number; `null:
    true` puts NULL after them.

    The texts are digits of integers and of decimals, without an exponent; true or false; doubles as
    Java prints them, a FLOAT as the double of the same value; hexadecimal digits of bytes; days
    since 1970-01-01; microseconds of timestamps (since 1970-01-01 00:00, UTC or of the wall clock)
    and of intervals.
    """

    COLUMN = "column"
    LITERAL = "literal"
    CALL = "call"
    CAST = "cast"
    TRY_CAST = "try_cast"
    CASE = "case"


class Function:
    """Aggregates that the catalog may answer."""

    COUNT = "count"
    MIN = "min"
    MAX = "max"


class ScanResponse:
    """Keys of an answer in the pickle of a scan's first partition, or of the data source."""

    ROW_COUNT = "row_count"  # the most rows
    BYTE_COUNT = "byte_count"  # the bytes of the row groups that are read
    COUNTS = "counts"  # {name: number}, with the names of `Count`
    NOTE = "note"  # why this reader was chosen
    KEY_COLUMNS = "key_columns"  # columns by which keys of a join may prune the scan
    ROWS = "answered_rows"  # of an aggregate: rows of texts, or null: Spark has to scan
    VERSION = "frame_version"  # of the data source: the version that a frame reads
    LOCATION = "frame_location"  # of the data source: the URI of the dataset, null for other frames
    COMPUTED = "computed"  # of the data source: {name: object}, as `Computed` tells
    PRIMARY_KEY = "primary_key"  # of the data source: names of columns
    PARTITION_BY = "partitioned_by"  # of the data source: names of columns, null if not known
    REPEATS = "repeats"  # of the data source: the same request has the same answer at any time


class Count:
    """Keys in `ScanResponse.COUNTS`. Metrics of scans in Spark's plans have these names too."""

    FILES = "filesOfTable"
    FILES_BY_PARTITION = "filesPrunedByPartition"
    FILES_BY_STATISTICS = "filesPrunedByStatistics"
    FILES_BY_JOIN_KEYS = "filesPrunedByJoinKeys"  # Java counts them: keys come at run time
    FILES_READ = "filesToRead"
    ROW_GROUPS = "rowGroupsOfTable"
    ROW_GROUPS_PRUNED = "rowGroupsPruned"
    ROW_GROUPS_READ = "rowGroupsToRead"


class Files:
    """More keys of the answer of `spark_files.SparkFiles`: files for Spark's own Parquet reader."""

    ROOT = "root"  # the dataset's folder as Hadoop names it
    PATHS = "paths"  # of files, relative to the folder
    ORIGINS = "origins"  # other folders, by what the paths of a clone's files in them begin with
    SIZES = "sizes"  # in bytes, in the order of the paths
    PARTITIONED = "partitioned"  # columns that are not in the files
    VALUES = "partition_values"  # rows of texts, as in answers: the values of these columns
    VALUES_OF = "values_of"  # for each file the place of its values
    # Ways to store columns: {column: [name in the files, None] or [None, value as text]} of those
    # that the files do not store as they are now. Of a column in PLACES: [name under which files
    # store it for moved rows, None], or [None, None] where no file stores it
    LAYOUTS = "layouts"
    LAYOUT_OF = "layout_of"  # for each file the place of its layout
    # For each file None, or of its deletion vector: the number of deleted rows, that of all rows
    # of the file, the Puffin file relative to the folder, offset and length in bytes, a copy in
    # hexadecimal or None
    DELETED = "deleted"
    UNPUSHED = "unpushed"  # columns whose conditions Spark must not push into Parquet
    PLACES = "places"  # {column: its name in MetadataColumn} of those that tell where a row is
    # With PLACES: for each file its first row id, its version, and its URI or None
    IDENTITIES = "identities"


class MetadataColumn:
    """Columns that tell where a row is stored, as `schema/fields.py` describes them."""

    FILE = "_file"
    POSITION = "_pos"
    ROW = "_row_id"
    COMMIT = "_commit_version"
    LAST_CHANGED = "_last_changed_version"  # the same in the change feed
    FILE_URI = "_file_uri"
    FILE_SIZE = "_file_size"


class Statement:
    """Keys of `Message.STATEMENT`.

    The rows of a statement's write have the columns `Row.OPERATION`, those of the dataset (a DELETE
    has none), and `_file`, `_pos` and `_row_id` under names that no column has. With `ADDED` true,
    all rows are new, and have only the columns of the dataset.
    """

    # No option of a write begins with `plake.`: a user's option cannot stand for one of these.
    COMMAND = "plake.command"  # a value of `Command`
    VERSION = "base_version"  # the version that the statement read
    ADDED = "added"  # true: every row is new
    CONDITION = "condition"  # conditions, as `Key` tells, of the rows that it may change
    RESCANS = "rescans"  # false: no other rows of plake's datasets are read, as by a subquery
    ID = "statement"  # by which the history tells a statement from others; null: it has none
    QUERY = "query"  # of a stream's batch: the id of its query; null: the statement is of no stream
    BATCH = "batch"  # of a stream's batch: its number, as text


class Built:
    """The hint around the source of `DataFrame.mergeInto` in a statement of `spark.PlakeTable`.

    Its one parameter is JSON: these keys, `Statement.ID`, and options of the write.
    """

    HINT = "plake_statement"
    # No option of a write begins with `plake.`: a user's option cannot stand for one of these.
    COMMAND = "plake.command"  # a value of `Command`
    ALIAS = "plake.alias"  # the name of the target in conditions; without it, its own


class Command:
    """Values of `Statement.COMMAND`."""

    DELETE = "delete"
    UPDATE = "update"
    MERGE = "merge"


class Row:
    """Columns of a statement's rows."""

    OPERATION = "__row_operation"  # 1: deleted, 2: updated, 3: inserted


class RequestKey:
    """Keys of `Message.REQUEST`: what Spark's catalog asks `spark/tables/commands.py`.

    Types and schemas are Spark's JSON. A value is `{FIELD, VALUE}` as text: the name of a column,
    and a condition (see `Key`) that the column equals the value; or null. A default may be
    `{FIELD, Computed.EXPRESSION}` instead: its SQL text.
    """

    COMMAND = "ask"  # a value of `RequestKind`
    CATALOG = "asking_catalog"  # its name in Spark
    IDENTIFIER = "identifier"  # the parts of a table's name, the namespace first
    SHOWN = "shown"  # the parts of the table's name to show, where IDENTIFIER is a path
    NAMESPACE = "namespace"  # its parts
    VERSION = "at_version"  # the text after VERSION AS OF
    MICROSECONDS = "at_microseconds"  # TIMESTAMP AS OF, since 1970-01-01 00:00 UTC
    MUST_BE_NEW = "must_be_new"  # of EXISTS: true fails where there is a dataset
    SCHEMA = "schema"  # of CREATE and STAGE
    DEFAULTS = "defaults"  # of CREATE and STAGE: values
    CONSTRAINTS = "checks"  # of CREATE and STAGE: {name: SQL of a condition, or of a key}
    COMPUTED = "computed_columns"  # of CREATE and STAGE: {name: object}, as `Computed` tells
    PARTITION_BY = "partition_columns"
    CLUSTER_BY = "cluster_columns"
    PROPERTIES = "texts"  # {name: text}
    STAGE = "stage"  # of STAGE: a value of `Stage`
    PURGE = "purge"  # of DROP: delete the files
    SETTINGS = "settings"  # of TRUNCATE: as `Message.SETTINGS`
    ROWS = "deleted_rows"  # of TRUNCATE: terms of a condition; without it all rows
    CASCADE = "cascade"  # of DROP_NAMESPACE
    RENAMED = "renamed"  # of RENAME: the new identifier
    CHANGES = "changes"  # of ALTER: a list of {CHANGE, FIELD, ...}
    CHANGE = "change"  # a value of `Change`
    FIELD = "field"  # the path of a column; the name of a property or of a value's column
    VALUE = "new"  # the new name, property, default value or list of columns
    NULLABLE = "nullable"
    COMMENT = "note"
    TYPE = "data_type"
    IF_EXISTS = "if_exists"  # of DROP_CONSTRAINT
    AFTER = "after"  # the column before; null for the first place; absent for the last
    PROCEDURE = "procedure"  # of LOAD_PROCEDURE and CALL: its name
    ARGUMENTS = "arguments"  # of CALL: {name: value}, null where it is NULL
    CURRENT = "current_namespace"  # of CALL: the session's, quoted; null: it is in another catalog
    VIEW = "view"  # of PUT_VIEW: an object, as `View` tells
    MESSAGES = "messages"  # of CALL: what its tasks told; absent before they have run


class Place:
    """Options that say where a table is. Spark's catalog sets them; a query must not."""

    PATH = "path"
    CATALOG = "catalog"
    WAREHOUSE = "warehouse"


class RequestKind:
    """Values of `RequestKey.COMMAND`."""

    LOAD = "load_table"  # the frame at one version; the columns come with the answer
    LOAD_CHANGES = "load_changes"  # a frame of the change feed, as options in `Changes` tell
    TRUNCATE = "truncate_table"
    EXISTS = "exists"  # is there a dataset at the path that the identifier is?
    LIST_TABLES = "list_tables"
    LIST_RELATIONS = "list_relations"  # tables as NAMES, and VIEWS
    CREATE = "create_table"
    STAGE = "stage_table"  # the options of a write that creates or replaces the table
    ALTER = "alter_table"
    EVOLVE = "evolve_table"  # the frame with CHANGES, which the write commits with its rows
    DROP = "drop_table"
    RENAME = "rename_table"
    LIST_NAMESPACES = "list_namespaces"
    LOAD_NAMESPACE = "load_namespace"
    CREATE_NAMESPACE = "create_namespace"
    ALTER_NAMESPACE = "alter_namespace"
    DROP_NAMESPACE = "drop_namespace"
    LIST_PARTITIONS = "list_partitions"  # of the table at VERSION
    LIST_PROCEDURES = "list_procedures"
    LOAD_PROCEDURE = "load_procedure"
    CALL = "call"
    LIST_VIEWS = "list_views"
    LOAD_VIEW = "load_view"
    PUT_VIEW = "put_view"
    DROP_VIEW = "drop_view"
    RENAME_VIEW = "rename_view"


class Changes:
    """Options of a frame of the change feed, with Spark's names."""

    READ = "readChangeFeed"
    STARTING_VERSION = "startingVersion"
    ENDING_VERSION = "endingVersion"
    STARTING_TIMESTAMP = "startingTimestamp"
    ENDING_TIMESTAMP = "endingTimestamp"
    STARTING_INCLUSIVE = "startingBoundInclusive"
    ENDING_INCLUSIVE = "endingBoundInclusive"
    DEDUPLICATION = "deduplicationMode"
    COMPUTE_UPDATES = "computeUpdates"
    COLUMNS = "columns"
    WHERE = "where"
    SPLIT_SIZE = "splitSize"


class Stage:
    """Values of `RequestKey.STAGE`."""

    CREATE = "must_create"
    REPLACE = "must_replace"
    EITHER = "create_or_replace"


class Change:
    """Values of `RequestKey.CHANGE`."""

    PROPERTY = "set_property"  # VALUE null: removed
    CLUSTER = "cluster_by"
    ADD = "add_column"
    RENAME = "rename_column"
    DELETE = "delete_column"
    WIDEN = "change_type"
    NULLABILITY = "set_nullable"
    COMMENT = "set_comment"
    MOVE = "move_column"
    DEFAULT = "set_default"
    ADD_CONSTRAINT = "add_check"
    DROP_CONSTRAINT = "drop_check"


class Namespace:
    """Namespaces that are always there."""

    DEFAULT = "default"
    SYSTEM = "system"  # of procedures; no table is in it by itself


class ResponseKey:
    """Keys of an answer to Spark's catalog, in the metadata of the last column of a schema."""

    OPTIONS = "options"  # of a table: the options by which the data source finds it
    STAGED = "staged"  # of STAGE: what `Message.STAGED` is to be
    TABLE = "table"  # its name
    AT = "at"  # the version that was read
    PARTITION_BY = "partition_by"  # names of columns
    CLUSTER_BY = "cluster_by"  # the same, of the property
    IS_METADATA = "is_metadata"  # true: rows about a table, such as its files; nothing is written
    PROPERTIES = "properties"  # {name: text}
    CONSTRAINTS = "constraints"  # of a table: {name: SQL, as in CHECK (a > 0)}
    PRIMARY_KEY = "primary_key"  # names of columns
    COMPUTED = "computed"  # of a table, as in a request, with "sql": the clause of CREATE TABLE
    DEFAULTS = "defaults"  # {name: SQL}: what defaults that are expressions are in this statement
    EXISTS = "found"  # of EXISTS, DROP and LOAD_PROCEDURE: true or false
    NAMES = "names"  # of tables, namespaces or procedures
    VIEWS = "views"  # of LIST_RELATIONS: names
    DESCRIPTION = "description"  # of a procedure
    PARAMETERS = "parameters"  # a schema as Spark's JSON; `Parameter` tells of its metadata
    COLUMNS = "columns"  # of a procedure's rows: a schema as Spark's JSON
    ROWS = "rows"  # lists of values
    VIEW = "view"  # of LOAD_VIEW: an object, as `View` tells; absent where there is none
    IS_FOREIGN = "is_foreign"  # of LOAD_VIEW: true where the catalog is somebody else's
    CHANGED = "changed"  # of CALL: the table that may show other rows now, as SQL
    TASKS = "tasks"  # of CALL: true where tasks must do the work first, see `Message.TASKS`


class Computed:
    """Keys of how a column is computed, in `RequestKey.COMPUTED` and `ResponseKey.COMPUTED`."""

    EXPRESSION = "expression"  # SQL over other columns
    IDENTITY = "identity"  # of numbers: an object with the three keys below
    START = "start"
    STEP = "step"
    ALWAYS = "always"  # whether rows that bring a number are refused
    SQL = "sql"  # the clause of CREATE TABLE
    NULLABLE = "nullable"  # whether it is, which Spark is not told


class View:
    """Keys of a view: what Spark needs to read its text."""

    SQL = "sql"
    COLUMNS = "columns"  # a schema as Spark's JSON
    QUERY_COLUMNS = "query_columns"  # the names that the query gives to them
    CATALOG = "catalog"  # the current one when it was made; names in the text are found from there
    NAMESPACE = "namespace"
    CONFIGS = "configs"  # {name: text} of SQL settings
    SCHEMA_MODE = "schema_mode"
    PROPERTIES = "properties"  # {name: text}


class Parameter:
    """Keys of the metadata of a procedure's parameter."""

    DEFAULT = "default"  # SQL text; absent where an argument must be given


class Failure:
    """Values of `Failed.KIND`, which choose the class of Spark's exception."""

    NO_TABLE = "no_table"
    TABLE_EXISTS = "table_exists"
    NO_NAMESPACE = "no_namespace"
    NAMESPACE_EXISTS = "namespace_exists"
    NAMESPACE_NOT_EMPTY = "namespace_not_empty"
    OTHER = "other"


class Part:
    """The parts of the extension that work or fail separately."""

    PUSHDOWN = "pushdown"
    AGGREGATES = "aggregates"
    FUNCTIONS = "functions"
    JOIN_KEYS = "join keys"
    BATCHES = "batches"
    DECIMALS = "decimals"
    VIEWS = "views"
    STATEMENTS = "statements"
    CATALOG = "catalog"
    CATALOG_VIEWS = "catalog views"
    PROVIDER = "save modes"
    READER = "reader"
    METRICS = "metrics"


class Setting:
    """Settings of a session. The value false turns the extension, or a part of it, off."""

    PLANNER = "spark.plake.planner.enabled"
    BATCHES = "spark.plake.planner.batches.enabled"
    # Prefix of an option's name: for all writes of the session, except streams.
    STATEMENT = "spark.plake.statement."
    # The id of the session's open transaction.
    TRANSACTION = "spark.plake.transaction"
    # A value of `Reader`: who reads Parquet files.
    READER = "spark.plake.planner.reader"
    # Names of Spark's catalogs, with commas: views of these run although the catalog is somebody
    # else's.
    VIEWS_ALLOWED = "spark.plake.views.allowed"
    # Only in the application's own configuration, never in a session: the environment variables
    # that `env:NAME` may read besides PLAKE_*, and the hosts that may get secrets if a query names
    # them.
    ENV_ALLOWED = "spark.plake.env.allowed"
    HOSTS_ALLOWED = "spark.plake.hosts.allowed"
    # An environment variable of planning workers: these two settings and the hosts of catalogs, as
    # JSON.
    STATIC = "PLAKE_STATIC_CONFIGURATION"


class Reader:
    """Values of `Setting.READER`."""

    AUTO = "auto"  # Spark if it is exact and faster, else Python
    PYTHON = "python"
    SPARK = "spark"  # Spark if it is exact, else Python


class Entry:
    """How the extension makes the data source, with its own options, in a worker that plans."""

    MODULE = "lakehouse_source.spark.source"
    CLASS = "FromExtension"
    MAKER = "Maker"
    OPTIONS = "options"
    SEALED = "sealed"
    SCHEMA = "schema"
    INSTANCE = "instance"


class Option:
    """Options of the data source that only the extension sets (`SealedOptions.java`).

    Its message to Python is in the envelope, `Envelope.NAME`.
    """

    OWN = "plake."  # the prefix of all their names
    SEAL = "plake.seal"  # beside them while Spark has them: that the extension set them
    # Of a temporary view without a version: Schema.STORED, or Schema.GIVEN by the user. Only rules
    # in Java read it.
    VIEW = "plake.view"
    # Of a relation below a filter: conditions for planning, `{terms, whole}`. Read in Java too.
    CONDITIONS = "plake.conditions"


class Message:
    """Keys of the request in the option `Envelope.NAME`."""

    # Of a write: what a DELETE, UPDATE or MERGE does, as `Statement` tells.
    STATEMENT = "statement"
    # Of a frame: what Spark's catalog asks, as `RequestKey` tells.
    REQUEST = "catalog_request"
    # Of a frame: the same, for a statement that may change stored data.
    COMMAND = "catalog_command"
    # Of a frame: a CALL, as in `RequestKey`, whose work the tasks of the frame do. The frame's rows
    # are the messages for `RequestKey.MESSAGES`.
    TASKS = "call_tasks"
    # Of an overwrite: conditions, as `Key` tells, of the rows that are replaced.
    OVERWRITE = "replaced_rows"
    # Of a write that replaces rows: the datasets of plake that its query reads, as pairs of a path
    # and a version, without versions that the user named.
    READS = "read_versions"
    # Of a write that creates or replaces a table: what `ResponseKey.STAGED` told.
    STAGED = "staged_table"
    # Of every write but those of streams: the session's settings `Setting.STATEMENT`, as {name:
    # value}.
    SETTINGS = "session_settings"
    # Of the same writes: the session's `spark.sql.sources.partitionOverwriteMode`.
    PARTITION_MODE = "partition_mode"
    # Of a write to a table that EVOLVE told: the same `RequestKey.CHANGES`.
    EVOLUTION = "evolution"
    # Of a write: a value of `Mode`.
    MODE = "write_mode"
    # Of a write or a request: who asks, as `Claim` tells, for the history.
    CLAIMS = "claims"
    # Of all of these: the session's setting `Setting.TRANSACTION`, where it is set.
    TRANSACTION = "transaction"


class Claim:
    """Keys of `Message.CLAIMS`, and of `committer` in the history. A blank text tells nothing."""

    APPLICATION = "application"  # Spark's id of it
    # Settings of the session, which OpenLineage documents after `spark.openlineage.`: the job and
    # the run of a scheduler that this application is for.
    JOB_NAMESPACE = "parentJobNamespace"
    JOB = "parentJobName"
    RUN = "parentRunId"
    ROOT_JOB_NAMESPACE = "rootParentJobNamespace"
    ROOT_JOB = "rootParentJobName"
    ROOT_RUN = "rootParentRunId"


class Mode:
    """Values of `Message.MODE`."""

    CREATE = "create"  # the dataset must be new
    EXISTING = "existing"  # the dataset must be there: it is a table that was found by its name


class Schema:
    """Values of `Option.VIEW`."""

    STORED = "stored"
    GIVEN = "given"


GROUPS: tuple[type, ...] = tuple(one for one in vars().values() if isinstance(one, type))


def names(group: type) -> dict[str, str]:
    """The constants of one group, by their names."""
    return {name: value for name, value in vars(group).items() if name.isupper()}
