package io.plake.spark.core;

/**
 * The names that Java and Python share. Generated from {@code protocol/vocabulary.py} by
 * {@code planner/build.py}: change them there.
 */
public final class Vocabulary {
  private Vocabulary() {}

  public static final class Envelope {
    public static final String NAME = "plake.envelope";
    public static final String PROTOCOL = "protocol";
    public static final String NUMBER = "1";
    public static final String QUESTION = "question";
    public static final String ANSWER = "answer";
    public static final String ERROR = "error";
    public static final String BEGIN = "<plake-envelope ";

    private Envelope() {}
  }

  public static final class Failed {
    public static final String CODE = "code";
    public static final String KIND = "kind";
    public static final String MESSAGE = "message";
    public static final String FACTS = "facts";

    private Failed() {}
  }

  public static final class Mark {
    public static final String CONDITION = "where";
    public static final String JOIN_KEYS = "join_keys";
    public static final String ROWS_ONLY = "rows_only";
    public static final String DECIMALS = "decimals";
    public static final String LIMIT = "row_limit";
    public static final String AGGREGATE = "aggregate";
    public static final String PARALLELISM = "parallelism";
    public static final String METADATA = "metadata_columns";
    public static final String READER = "wanted_reader";
    public static final String CHANGED_FILES = "changed_files";
    public static final String JOINED = "joined";

    private Mark() {}
  }

  public static final class Key {
    public static final String OP = "op";
    public static final String TERMS = "terms";
    public static final String COLUMN = "column";
    public static final String TYPE = "type";
    public static final String VALUES = "values";
    public static final String NULL = "null";
    public static final String GROUP = "group";
    public static final String FUNCTIONS = "functions";
    public static final String COLUMNS = "columns";

    private Key() {}
  }

  public static final class Operator {
    public static final String TRUE = "true";
    public static final String FALSE = "false";
    public static final String AND = "and";
    public static final String OR = "or";
    public static final String NOT = "not";
    public static final String IS_NULL = "is_null";
    public static final String EQUAL = "=";
    public static final String NULL_SAFE_EQUAL = "<=>";
    public static final String LESS = "<";
    public static final String LESS_OR_EQUAL = "<=";
    public static final String GREATER = ">";
    public static final String GREATER_OR_EQUAL = ">=";
    public static final String IN = "in";
    public static final String STARTS_WITH = "starts_with";
    public static final String ENDS_WITH = "ends_with";
    public static final String CONTAINS = "contains";

    private Operator() {}
  }

  public static final class Type {
    public static final String BOOLEAN = "boolean";
    public static final String LONG = "long";
    public static final String FLOAT = "float";
    public static final String DOUBLE = "double";
    public static final String DECIMAL = "decimal";
    public static final String STRING = "string";
    public static final String BINARY = "binary";
    public static final String DATE = "date";
    public static final String TIMESTAMP = "timestamp";
    public static final String TIMESTAMP_NTZ = "timestamp_ntz";
    public static final String DURATION = "duration";

    private Type() {}
  }

  public static final class Function {
    public static final String COUNT = "count";
    public static final String MIN = "min";
    public static final String MAX = "max";

    private Function() {}
  }

  public static final class Planned {
    public static final String ROW_COUNT = "row_count";
    public static final String BYTE_COUNT = "byte_count";
    public static final String COUNTS = "counts";
    public static final String NOTE = "note";
    public static final String KEY_COLUMNS = "key_columns";
    public static final String ROWS = "answered_rows";
    public static final String VERSION = "frame_version";

    private Planned() {}
  }

  public static final class MetadataColumn {
    public static final String FILE = "_file";
    public static final String POSITION = "_pos";
    public static final String ROW = "_row_id";
    public static final String COMMIT = "_commit_version";
    public static final String LAST_CHANGED = "_last_changed_version";

    private MetadataColumn() {}
  }

  public static final class Statement {
    public static final String COMMAND = "command";
    public static final String VERSION = "base_version";
    public static final String ADDED = "added";
    public static final String CONDITION = "condition";
    public static final String RESCANS = "rescans";

    private Statement() {}
  }

  public static final class Command {
    public static final String DELETE = "delete";
    public static final String UPDATE = "update";
    public static final String MERGE = "merge";

    private Command() {}
  }

  public static final class Row {
    public static final String OPERATION = "__row_operation";

    private Row() {}
  }

  public static final class Question {
    public static final String COMMAND = "ask";
    public static final String CATALOG = "asking_catalog";
    public static final String IDENTIFIER = "identifier";
    public static final String SHOWN = "shown";
    public static final String NAMESPACE = "namespace";
    public static final String VERSION = "at_version";
    public static final String MICROSECONDS = "at_microseconds";
    public static final String MUST_BE_NEW = "must_be_new";
    public static final String SCHEMA = "schema";
    public static final String DEFAULTS = "defaults";
    public static final String PARTITION_BY = "partition_columns";
    public static final String CLUSTER_BY = "cluster_columns";
    public static final String PROPERTIES = "texts";
    public static final String STAGE = "stage";
    public static final String PURGE = "purge";
    public static final String SETTINGS = "settings";
    public static final String CASCADE = "cascade";
    public static final String RENAMED = "renamed";
    public static final String CHANGES = "changes";
    public static final String CHANGE = "change";
    public static final String FIELD = "field";
    public static final String VALUE = "new";
    public static final String NULLABLE = "nullable";
    public static final String COMMENT = "note";
    public static final String TYPE = "data_type";
    public static final String AFTER = "after";
    public static final String PROCEDURE = "procedure";
    public static final String ARGUMENTS = "arguments";
    public static final String CURRENT = "current_namespace";
    public static final String VIEW = "view";
    public static final String MESSAGES = "messages";

    private Question() {}
  }

  public static final class Place {
    public static final String PATH = "path";
    public static final String CATALOG = "catalog";
    public static final String WAREHOUSE = "warehouse";

    private Place() {}
  }

  public static final class Ask {
    public static final String LOAD = "load_table";
    public static final String LOAD_CHANGES = "load_changes";
    public static final String TRUNCATE = "truncate_table";
    public static final String EXISTS = "exists";
    public static final String LIST_TABLES = "list_tables";
    public static final String CREATE = "create_table";
    public static final String STAGE = "stage_table";
    public static final String ALTER = "alter_table";
    public static final String DROP = "drop_table";
    public static final String RENAME = "rename_table";
    public static final String LIST_NAMESPACES = "list_namespaces";
    public static final String LOAD_NAMESPACE = "load_namespace";
    public static final String CREATE_NAMESPACE = "create_namespace";
    public static final String ALTER_NAMESPACE = "alter_namespace";
    public static final String DROP_NAMESPACE = "drop_namespace";
    public static final String LIST_PARTITIONS = "list_partitions";
    public static final String LIST_PROCEDURES = "list_procedures";
    public static final String LOAD_PROCEDURE = "load_procedure";
    public static final String CALL = "call";
    public static final String LIST_VIEWS = "list_views";
    public static final String LOAD_VIEW = "load_view";
    public static final String PUT_VIEW = "put_view";
    public static final String DROP_VIEW = "drop_view";
    public static final String RENAME_VIEW = "rename_view";

    private Ask() {}
  }

  public static final class Changes {
    public static final String READ = "readChangeFeed";
    public static final String STARTING_VERSION = "startingVersion";
    public static final String ENDING_VERSION = "endingVersion";
    public static final String STARTING_TIMESTAMP = "startingTimestamp";
    public static final String ENDING_TIMESTAMP = "endingTimestamp";
    public static final String STARTING_INCLUSIVE = "startingBoundInclusive";
    public static final String ENDING_INCLUSIVE = "endingBoundInclusive";
    public static final String DEDUPLICATION = "deduplicationMode";
    public static final String COMPUTE_UPDATES = "computeUpdates";
    public static final String COLUMNS = "columns";
    public static final String WHERE = "where";
    public static final String SPLIT_SIZE = "splitSize";

    private Changes() {}
  }

  public static final class Stage {
    public static final String CREATE = "must_create";
    public static final String REPLACE = "must_replace";
    public static final String EITHER = "create_or_replace";

    private Stage() {}
  }

  public static final class Change {
    public static final String PROPERTY = "set_property";
    public static final String CLUSTER = "cluster_by";
    public static final String ADD = "add_column";
    public static final String RENAME = "rename_column";
    public static final String DELETE = "delete_column";
    public static final String WIDEN = "change_type";
    public static final String NULLABILITY = "set_nullable";
    public static final String COMMENT = "set_comment";
    public static final String MOVE = "move_column";
    public static final String DEFAULT = "set_default";

    private Change() {}
  }

  public static final class Namespace {
    public static final String DEFAULT = "default";
    public static final String SYSTEM = "system";

    private Namespace() {}
  }

  public static final class Answer {
    public static final String OPTIONS = "options";
    public static final String STAGED = "staged";
    public static final String TABLE = "table";
    public static final String AT = "at";
    public static final String PARTITION_BY = "partition_by";
    public static final String IS_METADATA = "is_metadata";
    public static final String PROPERTIES = "properties";
    public static final String EXISTS = "found";
    public static final String NAMES = "names";
    public static final String DESCRIPTION = "description";
    public static final String PARAMETERS = "parameters";
    public static final String COLUMNS = "columns";
    public static final String ROWS = "rows";
    public static final String VIEW = "view";
    public static final String CHANGED = "changed";
    public static final String TASKS = "tasks";

    private Answer() {}
  }

  public static final class View {
    public static final String SQL = "sql";
    public static final String COLUMNS = "columns";
    public static final String QUERY_COLUMNS = "query_columns";
    public static final String CATALOG = "catalog";
    public static final String NAMESPACE = "namespace";
    public static final String CONFIGS = "configs";
    public static final String SCHEMA_MODE = "schema_mode";
    public static final String PROPERTIES = "properties";

    private View() {}
  }

  public static final class Parameter {
    public static final String DEFAULT = "default";

    private Parameter() {}
  }

  public static final class Failure {
    public static final String NO_TABLE = "no_table";
    public static final String TABLE_EXISTS = "table_exists";
    public static final String NO_NAMESPACE = "no_namespace";
    public static final String NAMESPACE_EXISTS = "namespace_exists";
    public static final String NAMESPACE_NOT_EMPTY = "namespace_not_empty";
    public static final String OTHER = "other";

    private Failure() {}
  }

  public static final class Part {
    public static final String PUSHDOWN = "pushdown";
    public static final String AGGREGATES = "aggregates";
    public static final String FUNCTIONS = "functions";
    public static final String JOIN_KEYS = "join keys";
    public static final String BATCHES = "batches";
    public static final String DECIMALS = "decimals";
    public static final String VIEWS = "views";
    public static final String STATEMENTS = "statements";
    public static final String CATALOG = "catalog";
    public static final String CATALOG_VIEWS = "catalog views";
    public static final String PROVIDER = "save modes";
    public static final String READER = "reader";
    public static final String METRICS = "metrics";

    private Part() {}
  }

  public static final class Setting {
    public static final String PLANNER = "spark.plake.planner.enabled";
    public static final String BATCHES = "spark.plake.planner.batches.enabled";
    public static final String STATEMENT = "spark.plake.statement.";
    public static final String READER = "spark.plake.planner.reader";
    public static final String ENV_ALLOWED = "spark.plake.env.allowed";
    public static final String HOSTS_ALLOWED = "spark.plake.hosts.allowed";
    public static final String STATIC = "PLAKE_STATIC_CONFIGURATION";

    private Setting() {}
  }

  public static final class Reader {
    public static final String AUTO = "auto";
    public static final String PYTHON = "python";
    public static final String SPARK = "spark";

    private Reader() {}
  }

  public static final class Entry {
    public static final String MODULE = "lakehouse_source.spark.source";
    public static final String CLASS = "FromExtension";

    private Entry() {}
  }

  public static final class Option {
    public static final String OWN = "plake.";
    public static final String SEAL = "plake.seal";
    public static final String VIEW = "plake.view";

    private Option() {}
  }

  public static final class Told {
    public static final String STATEMENT = "statement";
    public static final String QUESTION = "catalog_question";
    public static final String COMMAND = "catalog_command";
    public static final String TASKS = "call_tasks";
    public static final String OVERWRITE = "replaced_rows";
    public static final String READS = "read_versions";
    public static final String SESSION_PARTITIONS = "session_partitions";
    public static final String STAGED = "staged_table";
    public static final String SETTINGS = "session_settings";
    public static final String MODE = "write_mode";
    public static final String APPLICATION = "application";

    private Told() {}
  }

  public static final class Mode {
    public static final String CREATE = "create";
    public static final String EXISTING = "existing";

    private Mode() {}
  }

  public static final class Schema {
    public static final String STORED = "stored";
    public static final String GIVEN = "given";

    private Schema() {}
  }

  public static final class Files {
    public static final String ROOT = "root";
    public static final String PATHS = "paths";
    public static final String SIZES = "sizes";
    public static final String PARTITIONED = "partitioned";
    public static final String VALUES = "partition_values";
    public static final String VALUES_OF = "values_of";
    public static final String LAYOUTS = "layouts";
    public static final String LAYOUT_OF = "layout_of";
    public static final String DELETED = "deleted";
    public static final String UNPUSHED = "unpushed";
    public static final String PLACES = "places";
    public static final String IDENTITIES = "identities";

    private Files() {}
  }

  public static final class Count {
    public static final String FILES = "filesOfTable";
    public static final String FILES_BY_PARTITION = "filesPrunedByPartition";
    public static final String FILES_BY_STATISTICS = "filesPrunedByStatistics";
    public static final String FILES_BY_JOIN_KEYS = "filesPrunedByJoinKeys";
    public static final String FILES_READ = "filesToRead";
    public static final String ROW_GROUPS = "rowGroupsOfTable";
    public static final String ROW_GROUPS_PRUNED = "rowGroupsPruned";
    public static final String ROW_GROUPS_READ = "rowGroupsToRead";

    private Count() {}
  }
}
