package io.plake.spark.scan;

import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
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
 * Spark's predicates in the forms of {@code planner/vocabulary.py}, as metadata of a schema.
 *
 * <p>Values are text, because the JSON of a schema has neither NaN nor decimals. The reading side
 * is {@code lakehouse_source/spark/reading/decode_conditions.py}.
 *
 * <p>A predicate without a form is left out where that makes the condition weaker and not
 * stronger: it is a term of an AND that is not under NOT.
 */
public final class ConditionData {
  /** With more values, to send them takes longer than pruning by them saves. */
  private static final int MOST_VALUES = 100_000;

  private static final Map<DataType, String> PLAIN = Map.of(
      DataTypes.BooleanType, Vocabulary.Type.BOOLEAN,
      DataTypes.StringType, Vocabulary.Type.STRING,
      DataTypes.BinaryType, Vocabulary.Type.BINARY,
      DataTypes.DateType, Vocabulary.Type.DATE,
      DataTypes.TimestampType, Vocabulary.Type.TIMESTAMP,
      DataTypes.TimestampNTZType, Vocabulary.Type.TIMESTAMP_NTZ);

  private static final Set<String> PLAIN_NAMES = Set.of(
      "AND", "OR", "NOT", "ALWAYS_TRUE", "ALWAYS_FALSE", "IS_NULL", "IS_NOT_NULL", "<>",
      Vocabulary.Operator.EQUAL, Vocabulary.Operator.NULL_SAFE_EQUAL, Vocabulary.Operator.LESS,
      Vocabulary.Operator.LESS_OR_EQUAL, Vocabulary.Operator.GREATER,
      Vocabulary.Operator.GREATER_OR_EQUAL, "STARTS_WITH", "ENDS_WITH", "CONTAINS", "IN");

  private final StructType table;
  private final List<Metadata> terms = new ArrayList<>();
  private final List<Predicate> used = new ArrayList<>();
  private boolean whole = true;

  public ConditionData(StructType table, Predicate[] predicates) {
    this(table, predicates, null);
  }

  /**
   * @param expressions the value of {@link Vocabulary.Option#CONDITIONS}, of the conditions that are
   *     no plain comparisons; null: there are none
   */
  ConditionData(StructType table, Predicate[] predicates, String expressions) {
    this.table = table;
    Metadata more = expressions == null ? null : Metadata.fromJson(expressions);
    boolean all = more != null && more.getBoolean(Vocabulary.Key.WHOLE);
    for (Predicate predicate : predicates) {
      boolean before = whole;
      Metadata term = weaker(predicate);
      boolean said = all && !isPlain(predicate);
      if (term != null) {
        terms.add(term);
      }
      if (term != null || said) {
        used.add(predicate);
      }
      whole = said ? before : whole;
    }
    if (more != null) {
      terms.addAll(List.of(more.getMetadataArray(Vocabulary.Key.TERMS)));
    }
  }

  /** Whether a predicate compares columns with literals, and nothing else is in it. */
  private static boolean isPlain(Expression part) {
    return part instanceof NamedReference || part instanceof Literal
        || part instanceof Predicate && PLAIN_NAMES.contains(((Predicate) part).name())
            && Arrays.stream(part.children()).allMatch(ConditionData::isPlain);
  }

  /** The conjuncts that have a form. */
  public Metadata[] terms() {
    return terms.toArray(new Metadata[0]);
  }

  /** The predicates that they came from. */
  Predicate[] used() {
    return used.toArray(new Predicate[0]);
  }

  /** All of them for people. */
  String texts() {
    Stream<String> expressions = terms.stream()
        .filter(term -> term.contains(Vocabulary.Key.NAME))
        .map(term -> term.getString(Vocabulary.Key.NAME));
    Stream<String> plain = used.stream().filter(ConditionData::isPlain).map(Object::toString);
    return Stream.concat(plain, expressions).collect(Collectors.joining(", ", "[", "]"));
  }

  /** Tells whether no predicate was left out or weakened. */
  public boolean isWhole() {
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
        return null; // any row may match a branch without a form
      }
    }
    return kept.isEmpty() ? null : joined(and ? Vocabulary.Operator.AND : Vocabulary.Operator.OR, kept);
  }

  /** The predicate itself, or null. */
  private Metadata exact(Predicate predicate) {
    Expression[] children = predicate.children();
    return switch (predicate.name()) {
      case "AND" -> joined(Vocabulary.Operator.AND, children);
      case "OR" -> joined(Vocabulary.Operator.OR, children);
      case "NOT" -> joined(Vocabulary.Operator.NOT, children);
      case "ALWAYS_TRUE" -> operator(Vocabulary.Operator.TRUE).build();
      case "ALWAYS_FALSE" -> operator(Vocabulary.Operator.FALSE).build();
      case "IS_NULL" -> onColumn(Vocabulary.Operator.IS_NULL, children[0]);
      case "IS_NOT_NULL" -> negated(onColumn(Vocabulary.Operator.IS_NULL, children[0]));
      case "<>" -> negated(comparison(Vocabulary.Operator.EQUAL, children));
      case "=" -> comparison(Vocabulary.Operator.EQUAL, children);
      case "<=>" -> comparison(Vocabulary.Operator.NULL_SAFE_EQUAL, children);
      case "<" -> comparison(Vocabulary.Operator.LESS, children);
      case "<=" -> comparison(Vocabulary.Operator.LESS_OR_EQUAL, children);
      case ">" -> comparison(Vocabulary.Operator.GREATER, children);
      case ">=" -> comparison(Vocabulary.Operator.GREATER_OR_EQUAL, children);
      case "STARTS_WITH" -> withValues(Vocabulary.Operator.STARTS_WITH, children);
      case "ENDS_WITH" -> withValues(Vocabulary.Operator.ENDS_WITH, children);
      case "CONTAINS" -> withValues(Vocabulary.Operator.CONTAINS, children);
      case "IN" -> withValues(Vocabulary.Operator.IN, children);
      default -> null;
    };
  }

  private static MetadataBuilder operator(String op) {
    return new MetadataBuilder().putString(Vocabulary.Key.OP, op);
  }

  /** Null where one of the terms has no form. */
  private Metadata joined(String op, Expression[] children) {
    List<Metadata> terms = new ArrayList<>();
    for (Expression child : children) {
      Metadata term = child instanceof Predicate ? exact((Predicate) child) : null;
      if (term == null) {
        return null;
      }
      terms.add(term);
    }
    return joined(op, terms);
  }

  private static Metadata joined(String op, List<Metadata> terms) {
    return operator(op)
        .putMetadataArray(Vocabulary.Key.TERMS, terms.toArray(new Metadata[0])).build();
  }

  private static Metadata negated(Metadata term) {
    return term == null ? null : joined(Vocabulary.Operator.NOT, List.of(term));
  }

  private Metadata onColumn(String op, Expression reference) {
    return reference instanceof NamedReference column && typeOf(column) != null
        ? operator(op).putStringArray(Vocabulary.Key.COLUMN, column.fieldNames()).build() : null;
  }

  private Metadata comparison(String op, Expression[] children) {
    if (children[0] instanceof Literal && children[1] instanceof NamedReference) {
      return withValues(turned(op), new Expression[] {children[1], children[0]});
    }
    return withValues(op, children);
  }

  /** The operator for operands in the other order. */
  private static String turned(String op) {
    return switch (op) {
      case Vocabulary.Operator.LESS -> Vocabulary.Operator.GREATER;
      case Vocabulary.Operator.LESS_OR_EQUAL -> Vocabulary.Operator.GREATER_OR_EQUAL;
      case Vocabulary.Operator.GREATER -> Vocabulary.Operator.LESS;
      case Vocabulary.Operator.GREATER_OR_EQUAL -> Vocabulary.Operator.LESS_OR_EQUAL;
      default -> op;
    };
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
    return new MetadataBuilder().withMetadata(column).putString(Vocabulary.Key.TYPE, name)
        .putStringArray(Vocabulary.Key.VALUES, values.toArray(new String[0]))
        .putBoolean(Vocabulary.Key.NULL, hasNull).build();
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

  /** The name of the type, or null. Strings with a collation have none: they compare otherwise. */
  static String nameOf(DataType type) {
    if (type instanceof ByteType || type instanceof ShortType || type instanceof IntegerType
        || type instanceof LongType) {
      return Vocabulary.Type.LONG;
    }
    if (type instanceof FloatType) {
      return Vocabulary.Type.FLOAT;
    }
    if (type instanceof DoubleType) {
      return Vocabulary.Type.DOUBLE;
    }
    if (type instanceof DecimalType) {
      return Vocabulary.Type.DECIMAL;
    }
    if (type instanceof DayTimeIntervalType) {
      return Vocabulary.Type.DURATION;
    }
    return PLAIN.get(type);
  }

  /** The text of a value that Spark holds, in the form of its type. */
  static String text(Object value, DataType type) {
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
