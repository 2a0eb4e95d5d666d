package io.plake.spark;

/**
 * The names that Java and Python share. Generated from {@code protocol/vocabulary.py} by
 * {@code planner/build.py}: change them there.
 */
final class Vocabulary {
  private Vocabulary() {}

  static final class Mark {
    static final String ISOLATED = "plake.isolated";
    static final String CONDITION = "plake.condition";
    static final String JOIN_KEYS = "plake.join_keys";
    static final String ROWS_ONLY = "plake.rows_only";
    static final String DECIMALS = "plake.decimals";
    static final String LIMIT = "plake.limit";
    static final String AGGREGATE = "plake.aggregate";
    static final String PARALLELISM = "plake.parallelism";
    static final String METADATA = "plake.metadata";
    static final String READER = "plake.reader";
    static final String CHANGED_FILES = "plake.changed_files";
    static final String JOINED = "plake.joined";

    private Mark() {}
  }

  static final class Key {
    static final String OP = "op";
    static final String TERMS = "terms";
    static final String COLUMN = "column";
    static final String TYPE = "type";
    static final String VALUES = "values";
    static final String NULL = "null";
    static final String GROUP = "group";
    static final String FUNCTIONS = "functions";
    static final String COLUMNS = "columns";

    private Key() {}
  }

  static final class Operator {
    static final String TRUE = "true";
    static final String FALSE = "false";
    static final String AND = "and";
    static final String OR = "or";
    static final String NOT = "not";
    static final String IS_NULL = "is_null";
    static final String EQUAL = "=";
    static final String NULL_SAFE_EQUAL = "<=>";
    static final String LESS = "<";
    static final String LESS_OR_EQUAL = "<=";
    static final String GREATER = ">";
    static final String GREATER_OR_EQUAL = ">=";
    static final String IN = "in";
    static final String STARTS_WITH = "starts_with";
    static final String ENDS_WITH = "ends_with";
    static final String CONTAINS = "contains";

    private Operator() {}
  }

  static final class Type {
    static final String BOOLEAN = "boolean";
    static final String LONG = "long";
    static final String FLOAT = "float";
    static final String DOUBLE = "double";
    static final String DECIMAL = "decimal";
    static final String STRING = "string";
    static final String BINARY = "binary";
    static final String DATE = "date";
    static final String TIMESTAMP = "timestamp";
    static final String TIMESTAMP_NTZ = "timestamp_ntz";
    static final String DURATION = "duration";

    private Type() {}
  }

  static final class Function {
    static final String COUNT = "count";
    static final String MIN = "min";
    static final String MAX = "max";

    private Function() {}
  }

  static final class Pickle {
    static final String ROW_COUNT = "row_count";
    static final String BYTE_COUNT = "byte_count";
    static final String COUNTS = "counts";
    static final String VALUE = "value";
    static final String VERSION = "frame_version";
    static final String NOTE = "note";
    static final String KEY_COLUMNS = "key_columns";

    private Pickle() {}
  }

  static final class MetadataColumn {
    static final String FILE = "_file";
    static final String POSITION = "_pos";
    static final String ROW = "_row_id";
    static final String COMMIT = "_commit_version";
    static final String LAST_CHANGED = "_last_changed_version";

    private MetadataColumn() {}
  }

  static final class Statement {
    static final String COMMAND = "command";
    static final String VERSION = "base_version";
    static final String ADDED = "added";
    static final String CONDITION = "condition";
    static final String RESCANS = "rescans";

    private Statement() {}
  }

  static final class Command {
    static final String DELETE = "delete";
    static final String UPDATE = "update";
    static final String MERGE = "merge";

    private Command() {}
  }

  static final class Row {
    static final String OPERATION = "__row_operation";

    private Row() {}
  }

  static final class Question {
    static final String COMMAND = "ask";
    static final String CATALOG = "spark_catalog";
    static final String IDENTIFIER = "identifier";
    static final String SHOWN = "shown";
    static final String NAMESPACE = "namespace";
    static final String VERSION = "at_version";
    static final String MICROSECONDS = "at_microseconds";
    static final String MUST_BE_NEW = "must_be_new";
    static final String SCHEMA = "schema";
    static final String DEFAULTS = "defaults";
    static final String PARTITION_BY = "partition_columns";
    static final String CLUSTER_BY = "cluster_columns";
    static final String PROPERTIES = "texts";
    static final String STAGE = "stage";
    static final String PURGE = "purge";
    static final String CASCADE = "cascade";
    static final String RENAMED = "renamed";
    static final String CHANGES = "changes";
    static final String CHANGE = "change";
    static final String FIELD = "field";
    static final String VALUE = "new";
    static final String NULLABLE = "nullable";
    static final String COMMENT = "note";
    static final String TYPE = "data_type";
    static final String AFTER = "after";
    static final String PROCEDURE = "procedure";
    static final String ARGUMENTS = "arguments";
    static final String CURRENT = "current_namespace";
    static final String VIEW = "view";
    static final String MESSAGES = "messages";

    private Question() {}
  }

  static final class Place {
    static final String PATH = "path";
    static final String CATALOG = "catalog";
    static final String WAREHOUSE = "warehouse";

    private Place() {}
  }

  static final class Ask {
    static final String LOAD = "load_table";
    static final String LOAD_CHANGES = "load_changes";
    static final String TRUNCATE = "truncate_table";
    static final String EXISTS = "exists";
    static final String LIST_TABLES = "list_tables";
    static final String CREATE = "create_table";
    static final String STAGE = "stage_table";
    static final String ALTER = "alter_table";
    static final String DROP = "drop_table";
    static final String RENAME = "rename_table";
    static final String LIST_NAMESPACES = "list_namespaces";
    static final String LOAD_NAMESPACE = "load_namespace";
    static final String CREATE_NAMESPACE = "create_namespace";
    static final String ALTER_NAMESPACE = "alter_namespace";
    static final String DROP_NAMESPACE = "drop_namespace";
    static final String LIST_PARTITIONS = "list_partitions";
    static final String LIST_PROCEDURES = "list_procedures";
    static final String LOAD_PROCEDURE = "load_procedure";
    static final String CALL = "call";
    static final String LIST_VIEWS = "list_views";
    static final String LOAD_VIEW = "load_view";
    static final String PUT_VIEW = "put_view";
    static final String DROP_VIEW = "drop_view";
    static final String RENAME_VIEW = "rename_view";

    private Ask() {}
  }

  static final class Changes {
    static final String READ = "readChangeFeed";
    static final String STARTING_VERSION = "startingVersion";
    static final String ENDING_VERSION = "endingVersion";
    static final String STARTING_TIMESTAMP = "startingTimestamp";
    static final String ENDING_TIMESTAMP = "endingTimestamp";
    static final String STARTING_INCLUSIVE = "startingBoundInclusive";
    static final String ENDING_INCLUSIVE = "endingBoundInclusive";
    static final String DEDUPLICATION = "deduplicationMode";
    static final String COMPUTE_UPDATES = "computeUpdates";
    static final String COLUMNS = "columns";
    static final String WHERE = "where";
    static final String SPLIT_SIZE = "splitSize";

    private Changes() {}
  }

  static final class Stage {
    static final String CREATE = "must_create";
    static final String REPLACE = "must_replace";
    static final String EITHER = "create_or_replace";

    private Stage() {}
  }

  static final class Change {
    static final String PROPERTY = "set_property";
    static final String CLUSTER = "cluster_by";
    static final String ADD = "add_column";
    static final String RENAME = "rename_column";
    static final String DELETE = "delete_column";
    static final String WIDEN = "change_type";
    static final String NULLABILITY = "set_nullable";
    static final String COMMENT = "set_comment";
    static final String MOVE = "move_column";
    static final String DEFAULT = "set_default";

    private Change() {}
  }

  static final class Namespace {
    static final String DEFAULT = "default";
    static final String SYSTEM = "system";

    private Namespace() {}
  }

  static final class Answer {
    static final String MARK = "plake.answer";
    static final String ERROR = "error";
    static final String KIND = "kind";
    static final String MESSAGE = "message";
    static final String OPTIONS = "options";
    static final String STAGED = "staged";
    static final String TABLE = "table";
    static final String AT = "at";
    static final String PARTITION_BY = "partition_by";
    static final String IS_METADATA = "is_metadata";
    static final String PROPERTIES = "properties";
    static final String EXISTS = "found";
    static final String NAMES = "names";
    static final String DESCRIPTION = "description";
    static final String PARAMETERS = "parameters";
    static final String COLUMNS = "columns";
    static final String ROWS = "rows";
    static final String VIEW = "view";
    static final String CHANGED = "changed";
    static final String TASKS = "tasks";

    private Answer() {}
  }

  static final class View {
    static final String SQL = "sql";
    static final String COLUMNS = "columns";
    static final String QUERY_COLUMNS = "query_columns";
    static final String CATALOG = "catalog";
    static final String NAMESPACE = "namespace";
    static final String CONFIGS = "configs";
    static final String SCHEMA_MODE = "schema_mode";
    static final String PROPERTIES = "properties";

    private View() {}
  }

  static final class Parameter {
    static final String DEFAULT = "default";

    private Parameter() {}
  }

  static final class Failure {
    static final String NO_TABLE = "no_table";
    static final String TABLE_EXISTS = "table_exists";
    static final String NO_NAMESPACE = "no_namespace";
    static final String NAMESPACE_EXISTS = "namespace_exists";
    static final String NAMESPACE_NOT_EMPTY = "namespace_not_empty";
    static final String OTHER = "other";

    private Failure() {}
  }

  static final class Part {
    static final String PUSHDOWN = "pushdown";
    static final String AGGREGATES = "aggregates";
    static final String FUNCTIONS = "functions";
    static final String JOIN_KEYS = "join keys";
    static final String BATCHES = "batches";
    static final String DECIMALS = "decimals";
    static final String VIEWS = "views";
    static final String STATEMENTS = "statements";
    static final String CATALOG = "catalog";
    static final String CATALOG_VIEWS = "catalog views";
    static final String PROVIDER = "save modes";
    static final String READER = "reader";
    static final String METRICS = "metrics";

    private Part() {}
  }

  static final class Setting {
    static final String PLANNER = "spark.plake.planner.enabled";
    static final String BATCHES = "spark.plake.planner.batches.enabled";
    static final String STATEMENT = "spark.plake.statement.";
    static final String READER = "spark.plake.planner.reader";
    static final String ENV_ALLOWED = "spark.plake.env.allowed";
    static final String HOSTS_ALLOWED = "spark.plake.hosts.allowed";
    static final String STATIC = "PLAKE_STATIC_CONFIGURATION";

    private Setting() {}
  }

  static final class Reader {
    static final String AUTO = "auto";
    static final String PYTHON = "python";
    static final String SPARK = "spark";

    private Reader() {}
  }

  static final class Entry {
    static final String MODULE = "lakehouse_source.spark.source";
    static final String CLASS = "FromExtension";

    private Entry() {}
  }

  static final class Option {
    static final String OWN = "plake.";
    static final String SEAL = "plake.seal";
    static final String VIEW = "plake.view";
    static final String STATEMENT = "plake.statement";
    static final String QUESTION = "plake.question";
    static final String COMMAND = "plake.command";
    static final String TASKS = "plake.tasks";
    static final String OVERWRITE = "plake.overwrite";
    static final String READS = "plake.reads";
    static final String SESSION_PARTITIONS = "plake.session_partitions";
    static final String STAGED = "plake.staged";
    static final String SETTINGS = "plake.settings";
    static final String MODE = "plake.mode";
    static final String APPLICATION = "plake.application";

    private Option() {}
  }

  static final class Mode {
    static final String CREATE = "create";
    static final String EXISTING = "existing";

    private Mode() {}
  }

  static final class Schema {
    static final String STORED = "stored";
    static final String GIVEN = "given";

    private Schema() {}
  }

  static final class Files {
    static final String ROOT = "root";
    static final String PATHS = "paths";
    static final String SIZES = "sizes";
    static final String PARTITIONED = "partitioned";
    static final String VALUES = "partition_values";
    static final String VALUES_OF = "values_of";
    static final String LAYOUTS = "layouts";
    static final String LAYOUT_OF = "layout_of";
    static final String DELETED = "deleted";
    static final String UNPUSHED = "unpushed";
    static final String PLACES = "places";
    static final String IDENTITIES = "identities";

    private Files() {}
  }

  static final class Count {
    static final String FILES = "filesOfTable";
    static final String FILES_BY_PARTITION = "filesPrunedByPartition";
    static final String FILES_BY_STATISTICS = "filesPrunedByStatistics";
    static final String FILES_BY_JOIN_KEYS = "filesPrunedByJoinKeys";
    static final String FILES_READ = "filesToRead";
    static final String ROW_GROUPS = "rowGroupsOfTable";
    static final String ROW_GROUPS_PRUNED = "rowGroupsPruned";
    static final String ROW_GROUPS_READ = "rowGroupsToRead";

    private Count() {}
  }
}
