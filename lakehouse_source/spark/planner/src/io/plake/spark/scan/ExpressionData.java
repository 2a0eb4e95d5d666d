package io.plake.spark.scan;

import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.BinaryOperator;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.Size;
import org.apache.spark.sql.catalyst.expressions.StringPredicate;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import scala.Enumeration;
import scala.Option;
import scala.collection.Iterable;
import scala.collection.Iterator;

/**
 * Conditions of Spark's plan that are no plain comparisons, as trees in the form of {@code Node} in
 * {@code protocol/vocabulary.py}. What a function means is decided by Python, which reads them in
 * {@code spark/reading/decode_expressions.py}. Here is decided only which trees mean what their text
 * means: in ANSI mode, in one time zone, with Spark's own functions.
 */
final class ExpressionData {
  private static final int MOST_NODES = 500;
  private static final int MOST_VALUES = 50;
  private static final String ANSI = "ANSI";
  private static final String NUMERIC = "NumericEvalContext(ANSI,true)";

  private final Set<String> zones = new HashSet<>();
  private int nodes = 0;

  /** A condition of which no data are made: it is then left to the rows. */
  private static final class Unsaid extends Exception {
    private static final long serialVersionUID = 1L;

    Unsaid() {
      super(null, null, false, false);
    }
  }

  private ExpressionData() {}

  /**
   * The conjuncts of a condition that {@link ConditionData} has no form for, as the value of {@link
   * Vocabulary.Option#CONDITIONS}; null where there are none.
   */
  static String of(Expression condition) {
    List<Metadata> found = new ArrayList<>();
    boolean whole = collect(condition, found);
    Metadata terms = with(Metadata.empty(), found);
    return found.isEmpty() ? null : new MetadataBuilder().withMetadata(terms)
        .putBoolean(Vocabulary.Key.WHOLE, whole).build().json();
  }

  /** Adds the terms of a condition, and tells whether none was left out. */
  private static boolean collect(Expression condition, List<Metadata> found) {
    if (condition instanceof And) {
      boolean whole = collect(((And) condition).left(), found);
      return collect(((And) condition).right(), found) && whole;
    }
    try {
      return isPlain(condition) || found.add(new ExpressionData().term(condition));
    } catch (Unsaid e) {
      return false;
    }
  }

  /** Whether a condition compares columns with literals, and nothing else is in it. */
  private static boolean isPlain(Expression condition) {
    boolean joins = condition instanceof And || condition instanceof Or || condition instanceof Not;
    boolean tests = condition instanceof BinaryComparison || condition instanceof In
        || condition instanceof InSet || condition instanceof IsNull
        || condition instanceof IsNotNull || condition instanceof StringPredicate;
    int columns = 0;
    for (Iterator<Expression> it = condition.children().iterator(); it.hasNext(); ) {
      Expression child = it.next();
      columns += isColumn(child) ? 1 : 0;
      if (joins ? !isPlain(child) : !isColumn(child) && !(child instanceof Literal)) {
        return false;
      }
    }
    return joins || isColumn(condition) || condition instanceof Literal || tests && columns == 1;
  }

  private static boolean isColumn(Expression node) {
    return node instanceof Attribute
        || node instanceof GetStructField && isColumn(((GetStructField) node).child());
  }

  private Metadata term(Expression condition) throws Unsaid {
    Metadata tree = tree(condition);
    if (zones.size() > 1) {
      throw new Unsaid();
    }
    return new MetadataBuilder().putString(Vocabulary.Key.OP, Vocabulary.Operator.EXPRESSION)
        .putMetadataArray(Vocabulary.Key.TERMS, new Metadata[] {tree})
        .putString(Vocabulary.Key.NAME, condition.sql())
        .putString(Vocabulary.Key.ZONE, zones.isEmpty() ? "UTC" : zones.iterator().next()).build();
  }

  private Metadata tree(Expression node) throws Unsaid {
    DataType type = node.dataType();
    boolean known = ConditionData.nameOf(type) != null || DataTypes.NullType.equals(type);
    if (!known && !isColumn(node) || ++nodes > MOST_NODES || !node.deterministic()) {
      throw new Unsaid();
    }
    if (isColumn(node)) {
      return new MetadataBuilder().withMetadata(said(Vocabulary.Node.COLUMN, type))
          .putStringArray(Vocabulary.Key.COLUMN, path(node).toArray(new String[0])).build();
    }
    if (node instanceof Literal) {
      return literal(((Literal) node).value(), type);
    }
    if (node.getClass().getPackage() != Expression.class.getPackage()
        || node instanceof UserDefinedExpression) {
      throw new Unsaid();
    }
    if (node instanceof TimeZoneAwareExpression) {
      Option<String> zone = ((TimeZoneAwareExpression) node).timeZoneId();
      if (zone.isDefined()) {
        zones.add(zone.get());
      }
    }
    if (node instanceof Cast) {
      return cast((Cast) node);
    }
    checkMode(node);
    if (node instanceof CaseWhen || node instanceof If) {
      return with(said(Vocabulary.Node.CASE, type), trees(node));
    }
    if (node instanceof InSet in) {
      return call(Vocabulary.Operator.IN, type, values(in));
    }
    List<Metadata> arguments = trees(node);
    if (node instanceof Like like) {
      arguments.add(literal(String.valueOf(like.escapeChar()), DataTypes.StringType));
    }
    String name = node instanceof BinaryOperator
        ? ((BinaryOperator) node).sqlOperator() : node.prettyName();
    return call(name.toLowerCase(Locale.ROOT), type, arguments);
  }

  private static List<String> path(Expression column) {
    if (column instanceof Attribute) {
      return new ArrayList<>(List.of(((Attribute) column).name()));
    }
    GetStructField field = (GetStructField) column;
    List<String> names = path(field.child());
    names.add(field.extractFieldName());
    return names;
  }

  private List<Metadata> trees(Expression node) throws Unsaid {
    List<Metadata> found = new ArrayList<>();
    for (Iterator<Expression> it = node.children().iterator(); it.hasNext(); ) {
      found.add(tree(it.next()));
    }
    return found;
  }

  private List<Metadata> values(InSet in) throws Unsaid {
    List<Metadata> found = trees(in);
    if (in.hset().size() > MOST_VALUES) {
      throw new Unsaid();
    }
    for (Iterator<Object> it = in.hset().iterator(); it.hasNext(); ) {
      found.add(literal(it.next(), in.child().dataType()));
    }
    return found;
  }

  private Metadata cast(Cast node) throws Unsaid {
    String mode = node.evalMode().toString();
    DataType from = node.child().dataType();
    boolean safe = !mode.equals(ANSI);
    // Among dates and times, and to wider numbers, no cast fails: all modes are one.
    if (safe && !mode.equals("TRY") && !Cast.canUpCast(from, node.dataType())
        && !(isMoment(from) && isMoment(node.dataType()))) {
      throw new Unsaid();
    }
    String kind = mode.equals("TRY") ? Vocabulary.Node.TRY_CAST : Vocabulary.Node.CAST;
    return with(said(kind, node.dataType()), trees(node));
  }

  private static boolean isMoment(DataType type) {
    return DataTypes.DateType.equals(type) || DataTypes.TimestampType.equals(type)
        || DataTypes.TimestampNTZType.equals(type);
  }

  /** Refuses a node that is not evaluated as in ANSI mode, or of which that cannot be told. */
  private static void checkMode(Expression node) throws Unsaid {
    for (Iterator<Object> it = node.productIterator(); it.hasNext(); ) {
      Object one = it.next();
      boolean said = one instanceof Expression || one instanceof Iterable || one instanceof Option
          || one instanceof DataType || one instanceof Character
          || one instanceof Boolean flag && flag != node instanceof Size
          || one instanceof Enumeration.Value && one.toString().equals(ANSI)
          || NUMERIC.equals(String.valueOf(one));
      if (!said) {
        throw new Unsaid();
      }
    }
  }

  private static Metadata literal(Object value, DataType type) {
    String[] texts = value == null ? new String[0] : new String[] {ConditionData.text(value, type)};
    return new MetadataBuilder().withMetadata(said(Vocabulary.Node.LITERAL, type))
        .putStringArray(Vocabulary.Key.VALUES, texts).build();
  }

  private static Metadata call(String name, DataType type, List<Metadata> arguments) {
    Metadata named = new MetadataBuilder().withMetadata(said(Vocabulary.Node.CALL, type))
        .putString(Vocabulary.Key.NAME, name).build();
    return with(named, arguments);
  }

  private static Metadata with(Metadata node, List<Metadata> arguments) {
    return new MetadataBuilder().withMetadata(node)
        .putMetadataArray(Vocabulary.Key.TERMS, arguments.toArray(new Metadata[0])).build();
  }

  private static Metadata said(String kind, DataType type) {
    return new MetadataBuilder().putString(Vocabulary.Key.OP, kind)
        .putString(Vocabulary.Key.TYPE, type.catalogString()).build();
  }
}
