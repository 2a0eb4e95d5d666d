"""Door. The names that the planner extension (Java) and the data source (Python) share.

This is the one table of them. `build.py` writes `Vocabulary.java` from it and Java uses no
name that is not there; a test holds both. The forms of values are told beside the types.
"""

from __future__ import annotations


class Mark:
    """Keys in the metadata of the first column of a scan's schema."""

    ISOLATED = "plake.isolated"  # true: the scan has a read plan of its own
    CONDITION = "plake.condition"  # conditions, as `Key` tells
    JOIN_KEYS = "plake.join_keys"  # conditions that hold for one run of the query
    ROWS_ONLY = "plake.rows_only"  # true: Spark counts rows and uses no value
    DECIMALS = "plake.decimals"  # {column: [precision, scale]} of decimals wanted as longs
    LIMIT = "plake.limit"  # so many rows are enough
    AGGREGATE = "plake.aggregate"  # a question, as `Key` tells
    PARALLELISM = "plake.parallelism"  # Spark's default parallelism
    METADATA = "plake.metadata"  # {column: name} of columns that tell where a row is stored


class Key:
    """Keys of conditions and of questions.

    A condition is `{op, terms}` (AND, OR, NOT), `{op}` (TRUE, FALSE), `{op, column}` (IS_NULL) or
    `{op, column, type, values, null}`. `column` is a list of names from the top, `values` are
    texts in the form of the type, and `null: true` puts NULL among the values.
    A question is `{group, functions, columns}`: functions and columns go in pairs, and
    the column of `count(*)` is the empty text.
    """

    OP = "op"
    TERMS = "terms"
    COLUMN = "column"
    TYPE = "type"
    VALUES = "values"
    NULL = "null"
    GROUP = "group"
    FUNCTIONS = "functions"
    COLUMNS = "columns"


class Operator:
    """Values of `Key.OP`."""

    TRUE = "true"
    FALSE = "false"
    AND = "and"
    OR = "or"
    NOT = "not"
    IS_NULL = "is_null"
    EQUAL = "="
    NULL_SAFE_EQUAL = "<=>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    IN = "in"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    CONTAINS = "contains"


class Type:
    """Values of `Key.TYPE`, each with the text that a value has."""

    BOOLEAN = "boolean"  # true or false
    LONG = "long"  # decimal digits, of integers of every width
    FLOAT = "float"  # as Java prints the double of the same value
    DOUBLE = "double"  # as Java prints it
    DECIMAL = "decimal"  # digits without an exponent
    STRING = "string"  # itself
    BINARY = "binary"  # hexadecimal
    DATE = "date"  # days since 1970-01-01
    TIMESTAMP = "timestamp"  # microseconds since 1970-01-01 00:00 UTC
    TIMESTAMP_NTZ = "timestamp_ntz"  # microseconds since 1970-01-01 00:00 of the wall clock
    DURATION = "duration"  # microseconds


class Function:
    """Aggregates that the catalog may answer."""

    COUNT = "count"
    MIN = "min"
    MAX = "max"


class Pickle:
    """Keys in pickles of partitions, which Java reads."""

    ROW_COUNT = "row_count"  # of `batch.ScanPartition`: at most so many rows
    VALUE = "value"  # of Spark's `InputPartition`: the rows of an answer, or None
    VERSION = "frame_version"  # of `source.PlakeDataSource`: the version that a frame reads


class MetadataColumn:
    """Columns that tell where a row is stored, as `schema/metadata_columns.py` describes them."""

    FILE = "_file"
    POSITION = "_pos"
    ROW = "_row_id"


class Statement:
    """Keys of the JSON in `Option.STATEMENT`.

    The rows of a write that does a statement have the columns `Row.OPERATION`, those of the
    dataset (a DELETE has none), and `_file`, `_pos` and `_row_id` under names that no column
    has. With `ADDED` true they are all new, and have the columns of the dataset only.
    """

    COMMAND = "command"  # a value of `Command`
    VERSION = "base_version"  # the version that the statement read
    ADDED = "added"  # true: every row is new
    CONDITION = "condition"  # conditions, as `Key` tells, of the rows that it may change


class Command:
    """Values of `Statement.COMMAND`."""

    DELETE = "delete"
    UPDATE = "update"
    MERGE = "merge"


class Row:
    """Columns of a statement's rows."""

    OPERATION = "__row_operation"  # 1: deleted, 2: updated, 3: inserted


class Part:
    """What of the extension works or does not work on its own."""

    PUSHDOWN = "pushdown"
    AGGREGATES = "aggregates"
    FUNCTIONS = "functions"
    JOIN_KEYS = "join keys"
    BATCHES = "batches"
    DECIMALS = "decimals"
    VIEWS = "views"
    STATEMENTS = "statements"


class Setting:
    """Settings of a session. false turns the extension, or a part of it, off."""

    PLANNER = "spark.plake.planner.enabled"
    BATCHES = "spark.plake.planner.batches.enabled"
    # Before the name of an option: of all DELETE, UPDATE and MERGE statements of the session.
    STATEMENT = "spark.plake.statement."


class Option:
    """Options of the data source that the extension sets."""

    # Of a temporary view without a version: Schema.STORED, or Schema.GIVEN by the user.
    VIEW = "plake.view"
    # Of a write: what a DELETE, UPDATE or MERGE does, as `Statement` tells.
    STATEMENT = "plake.statement"


class Schema:
    """Values of `Option.VIEW`."""

    STORED = "stored"
    GIVEN = "given"


GROUPS = (
    *(Mark, Key, Operator, Type, Function, Pickle, MetadataColumn, Statement, Command, Row),
    *(Part, Setting, Option, Schema),
)


def names(group: type) -> dict[str, str]:
    """The constants of one group, by their names."""
    return {name: value for name, value in vars(group).items() if name.isupper()}
