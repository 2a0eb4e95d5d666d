package io.plake.spark.scan;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Counts, minima and maxima of columns, for all rows or for each value of some columns: requests
 * that the catalog may answer without reading a file.
 */
final class AggregateRequest {
  private static final String ALL = ""; // the column of count(*)

  private final List<String> groups = new ArrayList<>();
  private final List<Of> functions = new ArrayList<>();
  private final Map<ExprId, Expression> aliases;

  private record Of(String name, String column) {}

  private AggregateRequest(Map<ExprId, Expression> aliases) {
    this.aliases = aliases;
  }

  /**
   * The request of an aggregate, or null where it asks for more than a catalog could know.
   *
   * @param aliases the expressions of names that are given between relation and aggregate
   */
  static AggregateRequest of(Aggregate aggregate, Map<ExprId, Expression> aliases) {
    AggregateRequest request = new AggregateRequest(aliases);
    for (Expression group : asJava(aggregate.groupingExpressions())) {
      String name = request.nameOf(group);
      if (name == null) {
        return null;
      }
      request.groups.add(name);
    }
    boolean isKnown = aggregate.aggregateExpressions().forall(
        result -> request.collect((Expression) result));
    return isKnown && !request.functions.isEmpty() ? request : null;
  }

  /** The request that Spark pushes down, or null where it asks for something else. */
  static AggregateRequest of(Aggregation aggregation) {
    AggregateRequest request = new AggregateRequest(Map.of());
    for (org.apache.spark.sql.connector.expressions.Expression group
        : aggregation.groupByExpressions()) {
      String name = column(group);
      if (name == null) {
        return null;
      }
      request.groups.add(name);
    }
    for (AggregateFunc function : aggregation.aggregateExpressions()) {
      if (!request.add(function)) {
        return null;
      }
    }
    return request;
  }

  private boolean collect(Expression expression) {
    if (expression instanceof AggregateExpression aggregate) {
      return aggregate.filter().isEmpty() && add(aggregate);
    }
    return expression.children().forall(this::collect);
  }

  private boolean add(AggregateExpression aggregate) {
    var function = aggregate.aggregateFunction();
    if (function.children().size() != 1) {
      return false;
    }
    Expression of = function.children().head();
    String name = nameOf(of);
    if (function instanceof Count && !aggregate.isDistinct()) {
      boolean all = of instanceof Literal && ((Literal) of).value() != null;
      return add(Vocabulary.Function.COUNT, all ? ALL : name);
    }
    return function instanceof Min && add(Vocabulary.Function.MIN, name)
        || function instanceof Max && add(Vocabulary.Function.MAX, name);
  }

  /** The name of a column of the relation, or null for anything else. */
  private String nameOf(Expression expression) {
    Expression found = expression;
    while (found instanceof Attribute column && aliases.containsKey(column.exprId())) {
      found = aliases.get(column.exprId());
    }
    return found instanceof Attribute column ? column.name() : null;
  }

  private boolean add(AggregateFunc function) {
    if (function instanceof CountStar) {
      return add(Vocabulary.Function.COUNT, ALL);
    }
    if (function instanceof org.apache.spark.sql.connector.expressions.aggregate.Count count) {
      return !count.isDistinct() && add(Vocabulary.Function.COUNT, column(count.column()));
    }
    String name = function instanceof org.apache.spark.sql.connector.expressions.aggregate.Min
        ? Vocabulary.Function.MIN
        : function instanceof org.apache.spark.sql.connector.expressions.aggregate.Max
        ? Vocabulary.Function.MAX : null;
    return name != null && add(name, column(function.children()[0]));
  }

  private boolean add(String function, String column) {
    return column != null && functions.add(new Of(function, column));
  }

  private static String column(org.apache.spark.sql.connector.expressions.Expression expression) {
    return expression instanceof NamedReference column && column.fieldNames().length == 1
        ? column.fieldNames()[0] : null;
  }

  boolean hasGroups() {
    return !groups.isEmpty();
  }

  boolean isGroupedBy(List<?> columns) {
    return columns.containsAll(groups);
  }

  /** The places of this answer's columns in the answer of a wider request, or null. */
  int[] within(AggregateRequest wider) {
    if (!groups.equals(wider.groups)) {
      return null;
    }
    return !wider.functions.containsAll(functions) ? null : IntStream.concat(
        IntStream.range(0, groups.size()),
        functions.stream().mapToInt(one -> groups.size() + wider.functions.indexOf(one))).toArray();
  }

  /** The request as {@code lakehouse_source/spark/reading/catalog_read.py} reads it. */
  Metadata data() {
    return new MetadataBuilder()
        .putStringArray(Vocabulary.Key.GROUP, groups.toArray(new String[0]))
        .putStringArray(
            Vocabulary.Key.FUNCTIONS, functions.stream().map(Of::name).toArray(String[]::new))
        .putStringArray(
            Vocabulary.Key.COLUMNS, functions.stream().map(Of::column).toArray(String[]::new))
        .build();
  }

  /** The columns in the request; where it counts rows only, any one column. */
  StructType about(StructType table) {
    StructField[] fields = Arrays.stream(table.fields())
        .filter(field -> groups.contains(field.name())
            || functions.stream().anyMatch(one -> one.column.equals(field.name())))
        .toArray(StructField[]::new);
    return new StructType(fields.length > 0 ? fields : new StructField[] {table.apply(0)});
  }

  /** The answer's schema: groups, then one column per function. Null: no such column. */
  StructType response(StructType table) {
    List<StructField> fields = new ArrayList<>();
    for (String group : groups) {
      fields.add(field(table, group));
    }
    for (Of one : functions) {
      boolean count = Vocabulary.Function.COUNT.equals(one.name);
      StructField of = field(table, one.column);
      if (of == null && !one.column.equals(ALL)) {
        return null;
      }
      fields.add(new StructField(one.name + "(" + one.column + ")",
          count ? DataTypes.LongType : of.dataType(), !count, Metadata.empty()));
    }
    return fields.contains(null) ? null : new StructType(fields.toArray(new StructField[0]));
  }

  private static StructField field(StructType table, String name) {
    return table.getFieldIndex(name).isDefined() ? table.apply(name) : null;
  }
}
