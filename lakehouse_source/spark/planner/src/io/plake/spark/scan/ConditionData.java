package io.plake.spark.scan;

import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Spark's predicates that compare columns with literals, as trees in the form of {@code Node} in
 * {@code protocol/vocabulary.py}, with which metadata of a schema are made. {@link ExpressionData}
 * makes the trees of other conditions. The reading side is
 * {@code lakehouse_source/spark/reading/pushdown.py}.
 *
 * <p>A predicate without a tree is left out where that makes the condition weaker and not
 * stronger: it is a term of an AND that is not under NOT.
 */
public final class ConditionData {
  /** With more values, to send them takes longer than pruning by them saves. */
  private static final int MOST_VALUES = 100_000;

  private static final Set<DataType> PLAIN = Set.of(
      DataTypes.BooleanType, DataTypes.ByteType, DataTypes.ShortType, DataTypes.IntegerType,
      DataTypes.LongType, DataTypes.FloatType, DataTypes.DoubleType, DataTypes.StringType,
      DataTypes.BinaryType, DataTypes.DateType, DataTypes.TimestampType, DataTypes.TimestampNTZType);

  private static final Set<String> JOINS = Set.of("AND", "OR", "NOT");
  private static final Set<String> TESTS = Set.of(
      "IS_NULL", "IS_NOT_NULL", "=", "<>", "<=>", "<", "<=", ">", ">=", "STARTS_WITH", "ENDS_WITH",
      "CONTAINS", "IN");

  private final StructType table;
  private final Predicate[] predicates;
  private final List<Metadata> terms = new ArrayList<>();
  private final List<Object> shown = new ArrayList<>();
  private boolean whole = true;

  public ConditionData(StructType table, Predicate[] predicates) {
    this(table, predicates, null);
  }

  /**
   * @param expressions the value of {@link Vocabulary.Option#CONDITIONS}, of the conditions that
   *     are no plain comparisons; null: there are none
   */
  ConditionData(StructType table, Predicate[] predicates, String expressions) {
    this.table = table;
    this.predicates = predicates;
    Metadata more = expressions == null ? null : Metadata.fromJson(expressions);
    boolean all = more != null && more.getBoolean(Vocabulary.Key.WHOLE);
    for (Predicate predicate : predicates) {
      Metadata term = exact(predicate);
      if (term != null) {
        shown.add(predicate);
      } else {
        whole &= all && !isPlain(predicate);
        term = weaker(predicate);
      }
      if (term != null) {
        terms.add(term);
      }
    }
    if (more != null) {
      for (Metadata term : more.getMetadataArray(Vocabulary.Key.TERMS)) {
        terms.add(term);
        shown.add(term.getString(Vocabulary.Key.TEXT));
      }
    }
  }

  /** Whether nothing but columns, literals and comparisons is in a predicate. */
  private static boolean isPlain(Expression part) {
    return part instanceof NamedReference || part instanceof Literal
        || part instanceof Predicate inner
            && (JOINS.contains(inner.name()) || TESTS.contains(inner.name()))
            && Arrays.stream(part.children()).allMatch(ConditionData::isPlain);
  }

  /** The conjuncts that have a tree. */
  public Metadata[] terms() {
    return terms.toArray(new Metadata[0]);
  }

  /** The predicates that were given. */
  Predicate[] predicates() {
    return predicates;
  }

  /** All of them for people. */
  String texts() {
    return String.valueOf(shown);
  }

  /** Tells whether no predicate was left out or weakened. */
  public boolean isWhole() {
    return whole;
  }

  /** A predicate that follows from one without a tree; null where nothing is left. */
  private Metadata weaker(Predicate predicate) {
    boolean and = "AND".equals(predicate.name());
    if (!and && !"OR".equals(predicate.name())) {
      return exact(predicate);
    }
    List<Metadata> kept = new ArrayList<>();
    for (Expression child : predicate.children()) {
      Metadata term = weaker((Predicate) child);
      if (term != null) {
        kept.add(term);
      } else if (!and) {
        return null; // any row may match a branch without a tree
      }
    }
    return kept.isEmpty() ? null : call(predicate.name(), DataTypes.BooleanType, kept);
  }

  /** The predicate itself; null where it does more than compare columns with literals. */
  private Metadata exact(Predicate predicate) {
    String name = predicate.name();
    if (name.startsWith("ALWAYS_")) {
      return literal(name.equals("ALWAYS_TRUE"), DataTypes.BooleanType);
    }
    List<Metadata> parts = null;
    if (JOINS.contains(name)) {
      parts = new ArrayList<>();
      for (Expression child : predicate.children()) {
        parts.add(child instanceof Predicate inner ? exact(inner) : null);
      }
    } else if (TESTS.contains(name)) {
      parts = test(predicate.children());
    }
    return parts == null || parts.contains(null) ? null : call(name, DataTypes.BooleanType, parts);
  }

  /** A column, and the literals of its own type with which it is compared; null for other parts. */
  private List<Metadata> test(Expression[] parts) {
    int place = parts.length == 2 && parts[0] instanceof Literal ? 1 : 0;
    DataType type = parts[place] instanceof NamedReference column ? typeOf(column) : null;
    if (type == null || parts.length > MOST_VALUES + 1 || parts.length > 1 && !hasText(type)) {
      return null;
    }
    List<Object> values = new ArrayList<>();
    for (int i = 0; i < parts.length; i++) {
      if (i == place) {
        continue;
      }
      if (!(parts[i] instanceof Literal<?> one)
          || one.value() != null && !type.equals(one.dataType())) {
        return null;
      }
      values.add(one.value());
    }
    Metadata column = column(List.of(((NamedReference) parts[place]).fieldNames()), type);
    Metadata listed = literals(values, type);
    return parts.length == 1 ? Arrays.asList(column)
        : place == 0 ? Arrays.asList(column, listed) : Arrays.asList(listed, column);
  }

  /** The type of a column of the table, or null where the names lead nowhere. */
  private DataType typeOf(NamedReference reference) {
    DataType found = table;
    for (String name : reference.fieldNames()) {
      DataType inside = null;
      for (var field : found instanceof StructType struct ? struct.fields() : new StructField[0]) {
        boolean alike = inside == null && field.name().equalsIgnoreCase(name);
        inside = alike || field.name().equals(name) ? field.dataType() : inside;
      }
      found = inside;
    }
    return found;
  }

  // --- trees ---

  /**
   * Whether literals of a type have a text. Strings with a collation have none: they compare
   * otherwise.
   */
  public static boolean hasText(DataType type) {
    return PLAIN.contains(type) || type instanceof DecimalType
        || type instanceof DayTimeIntervalType;
  }

  static Metadata column(List<String> path, DataType type) {
    return new MetadataBuilder().withMetadata(node(Vocabulary.Node.COLUMN, type))
        .putStringArray(Vocabulary.Key.COLUMN, path.toArray(new String[0])).build();
  }

  public static Metadata literal(Object value, DataType type) {
    return literals(Collections.singletonList(value), type);
  }

  /** The values of a list. */
  static Metadata literals(Collection<?> values, DataType type) {
    String[] found = values.stream().filter(Objects::nonNull).map(ConditionData::text)
        .toArray(String[]::new);
    return new MetadataBuilder().withMetadata(node(Vocabulary.Node.LITERAL, type))
        .putStringArray(Vocabulary.Key.VALUES, found)
        .putBoolean(Vocabulary.Key.NULL, found.length < values.size()).build();
  }

  static Metadata call(String name, DataType type, List<Metadata> parts) {
    Metadata named = new MetadataBuilder().withMetadata(node(Vocabulary.Node.CALL, type))
        .putString(Vocabulary.Key.NAME, name.toLowerCase(Locale.ROOT)).build();
    return with(named, parts);
  }

  static Metadata with(Metadata node, List<Metadata> parts) {
    return new MetadataBuilder().withMetadata(node)
        .putMetadataArray(Vocabulary.Key.TERMS, parts.toArray(new Metadata[0])).build();
  }

  static Metadata node(String kind, DataType type) {
    return new MetadataBuilder().putString(Vocabulary.Key.OP, kind)
        .putString(Vocabulary.Key.TYPE, type.catalogString()).build();
  }

  /** The text of a value that Spark holds, in the form of its type. */
  private static String text(Object value) {
    return value instanceof Decimal number ? number.toJavaBigDecimal().toPlainString()
        : value instanceof byte[] bytes ? HexFormat.of().formatHex(bytes)
        : value instanceof Float number ? String.valueOf(number.doubleValue()) : value.toString();
  }
}
