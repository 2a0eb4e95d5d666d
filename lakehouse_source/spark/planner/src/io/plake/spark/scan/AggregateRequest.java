package io.plake.spark.scan;

import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
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
import scala.collection.Iterator;

/**
 * Counts, minima and maxima of columns, for all rows or for each value of some columns: requests
 * that the catalog may answer without reading a file.
 */
final class AggregateRequest {
  private static final String ALL = ""; // the column of count(*)

  private final List<String> groups = new ArrayList<>();
  private final List<String> functions = new ArrayList<>();
  private final List<String> columns = new ArrayList<>();
  private final Map<ExprId, Expression> aliases;

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
    for (Iterator<Expression> it = aggregate.groupingExpressions().iterator(); it.hasNext(); ) {
      Expression group = it.next();
      String name = request.nameOf(group);
      if (name == null) {
        return null;
      }
      request.groups.add(name);
    }
    Iterator<NamedExpression> results = aggregate.aggregateExpressions().iterator();
    while (results.hasNext()) {
      if (!request.collect((Expression) results.next())) {
        return null;
      }
    }
    return request.functions.isEmpty() ? null : request;
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
    for (Iterator<Expression> it = expression.children().iterator(); it.hasNext(); ) {
      if (!collect(it.next())) {
        return false;
      }
    }
    return true;
  }

  private boolean add(AggregateExpression aggregate) {
    AggregateFunction function = aggregate.aggregateFunction();
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
    while (found instanceof Attribute && aliases.containsKey(((Attribute) found).exprId())) {
      found = aliases.get(((Attribute) found).exprId());
    }
    return found instanceof Attribute ? ((Attribute) found).name() : null;
  }

  private boolean add(AggregateFunc function) {
    if (function instanceof CountStar) {
      return add(Vocabulary.Function.COUNT, ALL);
    }
    if (function instanceof org.apache.spark.sql.connector.expressions.aggregate.Count count) {
      return !count.isDistinct() && add(Vocabulary.Function.COUNT, column(count.column()));
    }
    if (function instanceof org.apache.spark.sql.connector.expressions.aggregate.Min) {
      return add(Vocabulary.Function.MIN,
          column(((org.apache.spark.sql.connector.expressions.aggregate.Min) function).column()));
    }
    return function instanceof org.apache.spark.sql.connector.expressions.aggregate.Max
        && add(Vocabulary.Function.MAX,
            column(((org.apache.spark.sql.connector.expressions.aggregate.Max) function).column()));
  }

  private boolean add(String function, String column) {
    if (column != null) {
      functions.add(function);
      columns.add(column);
    }
    return column != null;
  }

  private static String column(org.apache.spark.sql.connector.expressions.Expression expression) {
    if (!(expression instanceof NamedReference)) {
      return null;
    }
    String[] names = ((NamedReference) expression).fieldNames();
    return names.length == 1 ? names[0] : null;
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
    int[] places = new int[groups.size() + functions.size()];
    for (int i = 0; i < places.length; i++) {
      places[i] = i;
    }
    for (int i = 0; i < functions.size(); i++) {
      int found = -1;
      for (int j = 0; j < wider.functions.size(); j++) {
        if (functions.get(i).equals(wider.functions.get(j))
            && columns.get(i).equals(wider.columns.get(j))) {
          found = j;
        }
      }
      if (found < 0) {
        return null;
      }
      places[groups.size() + i] = groups.size() + found;
    }
    return places;
  }

  /** The request as {@code lakehouse_source/spark/reading/catalog_read.py} reads it. */
  Metadata data() {
    return new MetadataBuilder()
        .putStringArray(Vocabulary.Key.GROUP, groups.toArray(new String[0]))
        .putStringArray(Vocabulary.Key.FUNCTIONS, functions.toArray(new String[0]))
        .putStringArray(Vocabulary.Key.COLUMNS, columns.toArray(new String[0]))
        .build();
  }

  /** The columns in the request; where it counts rows only, any one column. */
  StructType about(StructType table) {
    List<StructField> fields = new ArrayList<>();
    for (StructField field : table.fields()) {
      if (groups.contains(field.name()) || columns.contains(field.name())) {
        fields.add(field);
      }
    }
    if (fields.isEmpty()) {
      fields.add(table.fields()[0]);
    }
    return new StructType(fields.toArray(new StructField[0]));
  }

  /** The answer's schema: groups, then one column per function. Null: no such column. */
  StructType response(StructType table) {
    List<StructField> fields = new ArrayList<>();
    for (String group : groups) {
      fields.add(field(table, group));
    }
    for (int i = 0; i < functions.size(); i++) {
      String name = functions.get(i) + "(" + columns.get(i) + ")";
      boolean count = Vocabulary.Function.COUNT.equals(functions.get(i));
      StructField of = columns.get(i).equals(ALL) ? null : field(table, columns.get(i));
      if (!columns.get(i).equals(ALL) && of == null) {
        return null;
      }
      fields.add(new StructField(
          name, count ? DataTypes.LongType : of.dataType(), !count, Metadata.empty()));
    }
    return fields.contains(null) ? null : new StructType(fields.toArray(new StructField[0]));
  }

  private static StructField field(StructType table, String name) {
    return table.getFieldIndex(name).isDefined() ? table.apply(name) : null;
  }
}
