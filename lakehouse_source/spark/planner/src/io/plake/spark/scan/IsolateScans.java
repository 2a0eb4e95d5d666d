package io.plake.spark.scan;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import io.plake.spark.core.Feature;
import io.plake.spark.core.FrameTable;
import io.plake.spark.core.HiddenColumns;
import io.plake.spark.core.Relations.NamedTable;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Rewrite;
import io.plake.spark.core.SealedOptions;
import io.plake.spark.core.Vocabulary;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Gives every batch scan of a {@code plake} frame a read plan of its own.
 *
 * <p>Spark keeps one read plan per DataFrame, on the {@link PythonDataSourceV2} that all scans of
 * the frame share. A reader that prunes by the filters of one scan therefore drops rows from the
 * next. This rule replaces the table of each relation by one whose scans have plans of their own
 * and can push down. Spark still decides what to push down, and applies the filters again.
 *
 * <p>Only {@link DataSourceV2Relation} is changed. Streams have relations of another class, and
 * the target of a write is not a child of its plan.
 *
 * <p>All of this rests on Spark's internals. Where one is missing, or where a later Spark prunes
 * by itself, the relation stays as it is: the query is then unpruned, and right.
 */
public final class IsolateScans extends Rule<LogicalPlan> {

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!Relations.isOn()) {
      return plan;
    }
    try {
      Map<LogicalPlan, AggregateRequest> questions = new IdentityHashMap<>();
      collect(plan, questions);
      return plan.transformUp(new Rewrite<>(node -> changed(node, questions)));
    } catch (LinkageError | RuntimeException e) {
      Feature.PUSHDOWN.failed(e);
      return plan;
    }
  }

  /** Finds the relations of which the query asks no more than one aggregate. */
  private static void collect(LogicalPlan plan, Map<LogicalPlan, AggregateRequest> questions) {
    if (plan instanceof Aggregate aggregate) {
      LogicalPlan below = aggregate.child();
      Map<ExprId, Expression> aliases = new HashMap<>();
      while (below instanceof Project || below instanceof Filter) {
        if (below instanceof Project project) {
          for (var named : asJava(project.projectList())) {
            if (named instanceof Alias alias) {
              aliases.put(named.exprId(), alias.child());
            }
          }
        }
        below = below.children().head();
      }
      AggregateRequest request =
          Relations.isOurs(below) ? AggregateRequest.of(aggregate, aliases) : null;
      if (request != null) {
        questions.put(below, request);
      }
    }
    asJava(plan.children()).forEach(child -> collect(child, questions));
  }

  private static LogicalPlan changed(
      LogicalPlan node, Map<LogicalPlan, AggregateRequest> questions) {
    if (Relations.isOurs(node)) {
      return isolate((DataSourceV2Relation) node, questions.get(node));
    }
    return node instanceof Filter filter && isSwapped(filter.child())
        ? withConditions(filter) : node;
  }

  private static boolean isSwapped(LogicalPlan node) {
    return node instanceof DataSourceV2Relation relation
        && (relation.table() instanceof IsolatedTable || Relations.isTarget(relation.table()));
  }

  /**
   * Tells the scan of the conditions above it that Spark will not offer, or not with all that they
   * depend on. Spark has brought all conditions that the relation can answer into this filter.
   */
  private static LogicalPlan withConditions(Filter filter) {
    try {
      DataSourceV2Relation relation = (DataSourceV2Relation) filter.child();
      ExpressionData.Conjuncts found = new ExpressionData.Conjuncts(
          CatalogV2Util.v2ColumnsToStructType(relation.table().columns()), filter.condition());
      String conditions = found.json();
      if (conditions == null) {
        return new Filter(found.offered, relation);
      }
      Map<String, String> options = new HashMap<>(relation.options().asCaseSensitiveMap());
      SealedOptions.mark(options, Vocabulary.Option.CONDITIONS, conditions);
      return new Filter(found.offered, Relations.copy(
          relation, relation.table(), new CaseInsensitiveStringMap(options)));
    } catch (LinkageError | RuntimeException e) {
      Feature.FUNCTIONS.failed(e);
      return filter;
    }
  }

  private static LogicalPlan isolate(DataSourceV2Relation relation, AggregateRequest request) {
    PythonTable table = (PythonTable) relation.table();
    StructType schema = table.schema();
    if (!HiddenColumns.canJoin(schema)) {
      return relation; // no column carries the marks, or a name does not tell columns apart
    }
    if (sparkPrunes()) {
      Feature.PUSHDOWN.failed(SPARK_PRUNES);
      return relation;
    }
    try {
      // Spark has added all of these columns where a query names one.
      boolean hasHidden = relation.output().size() > schema.size();
      PythonTable isolated = IsolatedTable.of(
          sourceOf(table, relation.options()), schema, request,
          hasHidden && table instanceof FrameTable placed ? placed.hidden() : Map.of());
      return Relations.copy(relation, isolated, relation.options());
    } catch (ReflectiveOperationException e) {
      Feature.PUSHDOWN.failed(e);
      return relation;
    }
  }

  private static final String SPARK_PRUNES = "Spark prunes columns of Python data sources itself";

  /** Whether Spark has learned what this rule is for. */
  private static boolean sparkPrunes() {
    return SupportsPushDownRequiredColumns.class.isAssignableFrom(PythonScanBuilder.class);
  }

  /** Why this Spark is not one whose scans can push down; null where it is. */
  public static String obstacle() throws ReflectiveOperationException {
    Relations.check();
    return sparkPrunes() ? SPARK_PRUNES : null;
  }

  /** The source that all scans of a relation share: the table's own, or one with its options. */
  private static PythonDataSourceV2 sourceOf(PythonTable table, CaseInsensitiveStringMap options)
      throws ReflectiveOperationException {
    return table instanceof NamedTable named ? named.frameFor(options) : Relations.sourceOf(table);
  }

  /** The table of a frame, with scans that prune. */
  static final class IsolatedTable extends FrameTable {
    private final AggregateRequest request;

    IsolatedTable(
        PythonDataSourceV2 frame, StructType schema, AggregateRequest request,
        Map<String, StructField> hidden) {
      super(frame, schema, hidden);
      this.request = request;
    }

    /** Here, so that the rule links where this class does not. */
    static PythonTable of(
        PythonDataSourceV2 frame, StructType schema, AggregateRequest request,
        Map<String, StructField> hidden) {
      return new IsolatedTable(frame, schema, request, hidden);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      try {
        return new IsolatedScanBuilder(frame, schema, options, request, hidden);
      } catch (LinkageError e) {
        Feature.PUSHDOWN.failed(e);
        if (!hidden.isEmpty()) { // Spark's own scan does not have these columns
          throw e;
        }
        return super.newScanBuilder(options);
      }
    }
  }
}
