package io.plake.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Spark's predicates as data that Python can read, in the one carrier that a schema offers.
 *
 * <pre>
 * {op: "and" | "or" | "not", terms: [..]}
 * {op: "=" | "<=>" | "<" | "<=" | ">" | ">=" | "in" | "starts_with" | ..,
 *  column: [names from the top], type: "long", values: ["1"], null: true}
 * {op: "is_null", column: [..]}        {op: "true" | "false"}
 * </pre>
 *
 * <p>Values are text, each in one form per type (counts of days and microseconds for dates and
 * times), because a schema's JSON has neither NaN nor decimals. {@code null: true} puts NULL among
 * the values. The reading side is {@code lakehouse_source/spark/decode_conditions.py}.
 *
 * <p>What has no such form is left out where that only makes the condition weaker: a term of an
 * AND that is not under NOT.
 */
final class ConditionData {
  /** A schema that holds more is slower than what pruning by it could save. */
  private static final int MOST_VALUES = 100_000;

  private final StructType table;
  private final List<Metadata> terms = new ArrayList<>();
  private final List<Predicate> used = new ArrayList<>();
  private boolean whole = true;

  ConditionData(StructType table, Predicate[] predicates) {
    this.table = table;
    for (Predicate predicate : predicates) {
      Metadata term = weaker(predicate);
      if (term != null) {
        terms.add(term);
        used.add(predicate);
      }
    }
  }

  /** The conjuncts that have a form. */
  Metadata[] terms() {
    return terms.toArray(new Metadata[0]);
  }

  /** The predicates that they came from. */
  Predicate[] used() {
    return used.toArray(new Predicate[0]);
  }

  /** Tells whether the terms say all that the predicates say. */
  boolean isWhole() {
    return whole;
  }

  /** The predicate, or one that follows from it; null where nothing is left. */
  private Metadata weaker(Predicate predicate) {
    boolean and = "AND".equals(predicate.name());
    if (!and && !"OR".equals(predicate.name())) {
      Metadata found = exact(predicate);
      whole &= found != null;
      return found;
    }
    List<Metadata> kept = new ArrayList<>();
    for (Expression child : predicate.children()) {
      Metadata term = weaker((Predicate) child);
      if (term != null) {
        kept.add(term);
      } else if (!and) {
        return null; // an OR with a branch that is not understood says nothing
      }
    }
    return kept.isEmpty() ? null : joined(and ? "and" : "or", kept);
  }

  /** The predicate itself, or null. */
  private Metadata exact(Predicate predicate) {
    Expression[] children = predicate.children();
    switch (predicate.name()) {
      case "AND":
      case "OR":
      case "NOT":
        List<Metadata> terms = new ArrayList<>();
        for (Expression child : children) {
          Metadata term = child instanceof Predicate ? exact((Predicate) child) : null;
          if (term == null) {
            return null;
          }
          terms.add(term);
        }
        return joined(predicate.name().toLowerCase(java.util.Locale.ROOT), terms);
      case "ALWAYS_TRUE":
        return new MetadataBuilder().putString("op", "true").build();
      case "ALWAYS_FALSE":
        return new MetadataBuilder().putString("op", "false").build();
      case "IS_NULL":
        return onColumn("is_null", children[0]);
      case "IS_NOT_NULL":
        return negated(onColumn("is_null", children[0]));
      case "<>":
        return negated(comparison("=", children));
      case "=":
      case "<=>":
      case "<":
      case "<=":
      case ">":
      case ">=":
        return comparison(predicate.name(), children);
      case "STARTS_WITH":
        return withValues("starts_with", children);
      case "ENDS_WITH":
        return withValues("ends_with", children);
      case "CONTAINS":
        return withValues("contains", children);
      case "IN":
        return withValues("in", children);
      default:
        return null;
    }
  }

  private static Metadata joined(String op, List<Metadata> terms) {
    return new MetadataBuilder().putString("op", op)
        .putMetadataArray("terms", terms.toArray(new Metadata[0])).build();
  }

  private static Metadata negated(Metadata term) {
    return term == null ? null : joined("not", List.of(term));
  }

  private Metadata onColumn(String op, Expression reference) {
    if (!(reference instanceof NamedReference) || typeOf((NamedReference) reference) == null) {
      return null;
    }
    return new MetadataBuilder().putString("op", op)
        .putStringArray("column", ((NamedReference) reference).fieldNames()).build();
  }

  private Metadata comparison(String op, Expression[] children) {
    if (children[0] instanceof Literal && children[1] instanceof NamedReference) {
      String turned = op.replace('<', '!').replace('>', '<').replace('!', '>');
      return withValues("<=>".equals(op) ? op : turned,
          new Expression[] {children[1], children[0]});
    }
    return withValues(op, children);
  }

  /** A column with one or more literals of its own type. */
  private Metadata withValues(String op, Expression[] children) {
    Metadata column = onColumn(op, children[0]);
    if (column == null || children.length - 1 > MOST_VALUES) {
      return null;
    }
    DataType type = typeOf((NamedReference) children[0]);
    String name = nameOf(type);
    if (name == null) {
      return null;
    }
    List<String> values = new ArrayList<>();
    boolean hasNull = false;
    for (int i = 1; i < children.length; i++) {
      if (!(children[i] instanceof Literal)) {
        return null;
      }
      Literal<?> literal = (Literal<?>) children[i];
      if (literal.value() == null) {
        hasNull = true;
      } else if (type.equals(literal.dataType())) {
        values.add(text(literal.value(), type));
      } else {
        return null;
      }
    }
    return new MetadataBuilder().withMetadata(column).putString("type", name)
        .putStringArray("values", values.toArray(new String[0])).putBoolean("null", hasNull)
        .build();
  }

  /** The type of a column of the table, or null where the names lead nowhere. */
  private DataType typeOf(NamedReference reference) {
    DataType found = table;
    for (String name : reference.fieldNames()) {
      StructField field = null;
      if (found instanceof StructType) {
        for (StructField candidate : ((StructType) found).fields()) {
          field = candidate.name().equals(name) ? candidate : field;
        }
      }
      if (field == null) {
        return null;
      }
      found = field.dataType();
    }
    return found;
  }

  /** What Python calls the type, or null. Collated strings compare in ways of their own. */
  static String nameOf(DataType type) {
    if (type instanceof ByteType || type instanceof ShortType || type instanceof IntegerType
        || type instanceof LongType) {
      return "long";
    }
    if (type instanceof FloatType) {
      return "float";
    }
    if (type instanceof DoubleType) {
      return "double";
    }
    if (type instanceof DecimalType) {
      return "decimal";
    }
    if (type instanceof DayTimeIntervalType) {
      return "duration";
    }
    for (DataType plain : new DataType[] {
        DataTypes.BooleanType, DataTypes.StringType, DataTypes.BinaryType, DataTypes.DateType,
        DataTypes.TimestampType, DataTypes.TimestampNTZType}) {
      if (plain.equals(type)) {
        return plain.typeName();
      }
    }
    return null;
  }

  /** A value, as Spark holds it inside, as text. */
  private static String text(Object value, DataType type) {
    if (value instanceof Decimal) {
      return ((Decimal) value).toJavaBigDecimal().toPlainString();
    }
    if (value instanceof byte[]) {
      return java.util.HexFormat.of().formatHex((byte[]) value);
    }
    if (type instanceof FloatType) {
      return String.valueOf(((Float) value).doubleValue());
    }
    return value.toString();
  }
}
