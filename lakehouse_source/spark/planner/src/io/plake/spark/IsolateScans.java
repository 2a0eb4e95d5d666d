package io.plake.spark;

import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Function1;
import scala.collection.Iterator;
import scala.runtime.AbstractPartialFunction;

/**
 * Gives every batch scan of a {@code plake} frame a read plan of its own.
 *
 * <p>Spark keeps one read plan per DataFrame, on the {@link PythonDataSourceV2} that all scans of
 * the frame share. A reader that prunes by the filters of one scan therefore drops rows from the
 * next. This rule swaps the table of each relation for one whose scans are isolated and narrow;
 * everything else (which filters, which columns, applying the filters again) stays Spark's work.
 *
 * <p>Only {@link DataSourceV2Relation} is touched: streams have relations of another class, and
 * the target of a write is no child of its plan.
 *
 * <p>All of this rests on Spark's internals. Where one is missing or a later Spark prunes by
 * itself, the relation stays as it is and one line is logged: the query is then unpruned, and
 * right.
 */
final class IsolateScans extends Rule<LogicalPlan> {

  /** Name of the data source, as Python registers it. */
  private static final String SOURCE = "plake";

  /** Set to false, this session's plans are left alone. */
  static final String SWITCH = "spark.plake.planner.enabled";

  static final String UNKNOWN_SPARK = "this Spark is not one that plake knows";

  private static final Logger LOG = LoggerFactory.getLogger(PlakeExtension.class);
  private static final Set<String> SAID = ConcurrentHashMap.newKeySet();

  /** Whether this session has not turned the extension off. */
  static boolean isOn() {
    return "true".equalsIgnoreCase(SQLConf.get().getConfString(SWITCH, "true"));
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!isOn()) {
      return plan;
    }
    try {
      Map<LogicalPlan, CatalogQuestion> questions = new IdentityHashMap<>();
      collect(plan, questions);
      return plan.transformUp(new Swap(questions));
    } catch (LinkageError | RuntimeException e) {
      standAside(UNKNOWN_SPARK, e);
      return plan;
    }
  }

  /** Finds the relations of which no more than an aggregate is asked. */
  private static void collect(LogicalPlan plan, Map<LogicalPlan, CatalogQuestion> questions) {
    if (plan instanceof Aggregate) {
      LogicalPlan below = ((Aggregate) plan).child();
      Map<ExprId, Expression> aliases = new HashMap<>();
      while (below instanceof Project || below instanceof Filter) {
        if (below instanceof Project) {
          Iterator<NamedExpression> it = ((Project) below).projectList().iterator();
          while (it.hasNext()) {
            NamedExpression named = it.next();
            if (named instanceof Alias) {
              aliases.put(named.exprId(), ((Alias) named).child());
            }
          }
        }
        below = below.children().head();
      }
      CatalogQuestion question =
          Swap.isOurs(below) ? CatalogQuestion.of((Aggregate) plan, aliases) : null;
      if (question != null) {
        questions.put(below, question);
      }
    }
    for (Iterator<LogicalPlan> it = plan.children().iterator(); it.hasNext(); ) {
      collect(it.next(), questions);
    }
  }

  /** Says once per JVM and reason what of the extension is not used. */
  static void standAside(String reason, Throwable cause) {
    if (SAID.add(reason)) {
      LOG.warn("plake's planner extension stands aside, queries are slower and right: {}{}",
          reason, cause == null ? "" : " (" + cause + ")");
    }
  }

  private static final class Swap extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {

    private final Map<LogicalPlan, CatalogQuestion> questions;

    Swap(Map<LogicalPlan, CatalogQuestion> questions) {
      this.questions = questions;
    }

    @Override
    public boolean isDefinedAt(LogicalPlan node) {
      return isOurs(node) || node instanceof Filter && isSwapped(((Filter) node).child());
    }

    private static boolean isSwapped(LogicalPlan node) {
      return node instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) node).table() instanceof IsolatedTable;
    }

    static boolean isOurs(LogicalPlan node) {
      return node instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) node).table().getClass() == PythonTable.class
          && SOURCE.equalsIgnoreCase(((DataSourceV2Relation) node).table().name());
    }

    @Override
    @SuppressWarnings("unchecked")
    public <A1 extends LogicalPlan, B1> B1 applyOrElse(A1 node, Function1<A1, B1> otherwise) {
      if (isOurs(node)) {
        return (B1) isolate((DataSourceV2Relation) node, questions.get(node));
      }
      return isDefinedAt(node) ? (B1) withRanges((Filter) node) : otherwise.apply(node);
    }

    /** Spark has brought all conditions that the relation can answer into this filter. */
    private static LogicalPlan withRanges(Filter filter) {
      try {
        return new Filter(FunctionRanges.rewrite(filter.condition()), filter.child());
      } catch (LinkageError | RuntimeException e) {
        standAside("conditions on functions of columns do not prune", e);
        return filter;
      }
    }

    private static LogicalPlan isolate(
        DataSourceV2Relation relation, CatalogQuestion question) {
      PythonTable table = (PythonTable) relation.table();
      StructType schema = table.schema();
      Set<String> names = new HashSet<>(Arrays.asList(schema.fieldNames()));
      if (names.isEmpty() || names.size() < schema.length()) {
        return relation; // no column to carry the marks, or columns that a name does not tell apart
      }
      if (table.newScanBuilder(relation.options()) instanceof SupportsPushDownRequiredColumns) {
        standAside("Spark prunes columns of Python data sources by itself", null);
        return relation;
      }
      try {
        Field source = PythonTable.class.getDeclaredField("ds");
        source.setAccessible(true);
        return relation.copy(
            new IsolatedTable(
                (PythonDataSourceV2) source.get(table), table.name(), schema, question),
            relation.output(), relation.catalog(), relation.identifier(), relation.options(),
            relation.timeTravelSpec());
      } catch (ReflectiveOperationException e) {
        standAside(UNKNOWN_SPARK, e);
        return relation;
      }
    }
  }

  /** The table of a frame, with scans that prune. Equal to any other of the same frame. */
  static final class IsolatedTable extends PythonTable {
    private final PythonDataSourceV2 frame;
    private final String shortName;
    private final StructType schema;
    private final CatalogQuestion question;

    IsolatedTable(
        PythonDataSourceV2 frame, String shortName, StructType schema, CatalogQuestion question) {
      super(frame, shortName, schema);
      this.frame = frame;
      this.shortName = shortName;
      this.schema = schema;
      this.question = question;
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      try {
        return new IsolatedScanBuilder(frame, shortName, schema, options, question);
      } catch (LinkageError e) {
        standAside(UNKNOWN_SPARK, e);
        return stock(frame, shortName, schema, options);
      }
    }

    /** The scan builder that Spark would have used. */
    static ScanBuilder stock(
        PythonDataSourceV2 frame, String shortName, StructType schema,
        CaseInsensitiveStringMap options) {
      return new PythonTable(frame, shortName, schema).newScanBuilder(options);
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof IsolatedTable
          && ((IsolatedTable) other).frame == frame
          && ((IsolatedTable) other).schema.equals(schema);
    }

    @Override
    public int hashCode() {
      return System.identityHashCode(frame);
    }
  }
}
