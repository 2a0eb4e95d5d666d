package io.plake.spark;

/**
 * The names that Java and Python share. Generated from {@code planner/vocabulary.py} by
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
    static final String VALUE = "value";
    static final String VERSION = "frame_version";

    private Pickle() {}
  }

  static final class MetadataColumn {
    static final String FILE = "_file";
    static final String POSITION = "_pos";
    static final String ROW = "_row_id";

    private MetadataColumn() {}
  }

  static final class Statement {
    static final String COMMAND = "command";
    static final String VERSION = "base_version";
    static final String ADDED = "added";
    static final String CONDITION = "condition";

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

  static final class Part {
    static final String PUSHDOWN = "pushdown";
    static final String AGGREGATES = "aggregates";
    static final String FUNCTIONS = "functions";
    static final String JOIN_KEYS = "join keys";
    static final String BATCHES = "batches";
    static final String DECIMALS = "decimals";
    static final String VIEWS = "views";
    static final String STATEMENTS = "statements";

    private Part() {}
  }

  static final class Setting {
    static final String PLANNER = "spark.plake.planner.enabled";
    static final String BATCHES = "spark.plake.planner.batches.enabled";
    static final String STATEMENT = "spark.plake.statement.";

    private Setting() {}
  }

  static final class Option {
    static final String VIEW = "plake.view";
    static final String STATEMENT = "plake.statement";

    private Option() {}
  }

  static final class Schema {
    static final String STORED = "stored";
    static final String GIVEN = "given";

    private Schema() {}
  }
}
