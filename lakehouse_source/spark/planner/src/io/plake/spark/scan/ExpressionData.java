package io.plake.spark.scan;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BinaryOperator;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.KnownNullable;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Size;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.catalyst.util.V2ExpressionBuilder;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructType;
import scala.Enumeration;
import scala.Option;
import scala.collection.Iterable;

/**
 * Conditions of Spark's plan that are no plain comparisons, as trees like those of {@link
 * ConditionData}. What a function means is decided by Python. Here is decided only which trees mean
 * what their text means: in ANSI mode, in one time zone, with Spark's own functions.
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

  /** A condition, and the conjuncts of it that {@link ConditionData} has no tree for. */
  static final class Conjuncts {
    private final StructType table;
    private final List<Metadata> terms = new ArrayList<>();
    private boolean whole = true;

    /** The condition, in which Spark does not offer the conjuncts that it cannot translate. */
    final Expression offered;

    Conjuncts(StructType table, Expression condition) {
      this.table = table;
      this.offered = collect(condition);
    }

    /**
     * The value of {@link Vocabulary.Option#CONDITIONS}; null where there are no such conjuncts.
     */
    String json() {
      return terms.isEmpty() ? null : new MetadataBuilder()
          .withMetadata(ConditionData.with(Metadata.empty(), terms))
          .putBoolean(Vocabulary.Key.WHOLE, whole).build().json();
    }

    private Expression collect(Expression condition) {
      if (condition instanceof And and) {
        Expression left = collect(and.left());
        Expression right = collect(and.right());
        return left == and.left() && right == and.right() ? and : new And(left, right);
      }
      Expression found = condition;
      try {
        Object offer = new V2ExpressionBuilder(condition, true).build().getOrElse(() -> null);
        if (offer instanceof Predicate predicate
            && new ConditionData(table, new Predicate[] {predicate}).isWhole()) {
          return condition;
        }
      } catch (AssertionError e) {
        // A part of truth values inside of a function, as in coalesce(a > 1, b > 2): Spark asserts
        // that it is a predicate. The node below has the value of what is inside.
        found = new KnownNullable(condition);
      }
      try {
        terms.add(new ExpressionData().term(condition));
      } catch (Unsaid e) {
        whole = false;
      }
      return found;
    }
  }

  private static boolean isColumn(Expression node) {
    return node instanceof Attribute
        || node instanceof GetStructField field && isColumn(field.child());
  }

  private Metadata term(Expression condition) throws Unsaid {
    Metadata tree = tree(condition);
    if (zones.size() > 1) {
      throw new Unsaid();
    }
    return new MetadataBuilder().withMetadata(tree)
        .putString(Vocabulary.Key.TEXT, condition.sql())
        .putString(Vocabulary.Key.ZONE, zones.isEmpty() ? "UTC" : zones.iterator().next()).build();
  }

  private Metadata tree(Expression node) throws Unsaid {
    DataType type = node.dataType();
    boolean known = ConditionData.hasText(type) || DataTypes.NullType.equals(type);
    known |= node instanceof VariantGet && DataTypes.VariantType.equals(type);
    if (!known && !isColumn(node) || ++nodes > MOST_NODES || !node.deterministic()) {
      throw new Unsaid();
    }
    if (isColumn(node)) {
      return ConditionData.column(path(node), type);
    }
    if (node instanceof Literal literal) {
      return ConditionData.literal(literal.value(), type);
    }
    if (!(node instanceof VariantGet)
        && node.getClass().getPackage() != Expression.class.getPackage()
        || node instanceof UserDefinedExpression) {
      throw new Unsaid();
    }
    if (node instanceof TimeZoneAwareExpression aware && aware.timeZoneId().isDefined()) {
      zones.add(aware.timeZoneId().get());
    }
    if (node instanceof Cast cast) {
      return cast(cast);
    }
    if (node instanceof VariantGet get) {
      return variantGet(get);
    }
    checkMode(node);
    if (node instanceof CaseWhen || node instanceof If) {
      return ConditionData.with(ConditionData.node(Vocabulary.Node.CASE, type), trees(node));
    }
    if (node instanceof InSet in) {
      return ConditionData.call("in", type, values(in));
    }
    List<Metadata> arguments = trees(node);
    if (node instanceof Like like) {
      arguments.add(ConditionData.literal(String.valueOf(like.escapeChar()), DataTypes.StringType));
    }
    String name = node instanceof BinaryOperator operator
        ? operator.sqlOperator() : node.prettyName();
    return ConditionData.call(name, type, arguments);
  }

  private static List<String> path(Expression column) {
    if (column instanceof Attribute attribute) {
      return new ArrayList<>(List.of(attribute.name()));
    }
    GetStructField field = (GetStructField) column;
    List<String> names = path(field.child());
    names.add(field.extractFieldName());
    return names;
  }

  private List<Metadata> trees(Expression node) throws Unsaid {
    List<Metadata> found = new ArrayList<>();
    for (Expression child : asJava(node.children())) {
      found.add(tree(child));
    }
    return found;
  }

  private List<Metadata> values(InSet in) throws Unsaid {
    List<Metadata> found = trees(in);
    if (in.hset().size() > MOST_VALUES) {
      throw new Unsaid();
    }
    List<Object> values = new ArrayList<>();
    in.hset().foreach(values::add);
    found.add(ConditionData.literals(values, in.child().dataType()));
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
    return ConditionData.with(ConditionData.node(kind, node.dataType()), trees(node));
  }

  /** A path, and the cast of what is there, which is the same in all modes. */
  private Metadata variantGet(VariantGet node) throws Unsaid {
    Metadata found = ConditionData.call("variant_get", DataTypes.VariantType, trees(node));
    DataType type = node.targetType();
    if (DataTypes.VariantType.equals(type)) {
      return found;
    }
    String kind = node.failOnError() ? Vocabulary.Node.CAST : Vocabulary.Node.TRY_CAST;
    return ConditionData.with(ConditionData.node(kind, type), List.of(found));
  }

  private static boolean isMoment(DataType type) {
    return DataTypes.DateType.equals(type) || DataTypes.TimestampType.equals(type)
        || DataTypes.TimestampNTZType.equals(type);
  }

  /** Refuses a node that is not evaluated as in ANSI mode, or of which that cannot be told. */
  private static void checkMode(Expression node) throws Unsaid {
    for (int i = 0; i < node.productArity(); i++) {
      Object one = node.productElement(i);
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
}
