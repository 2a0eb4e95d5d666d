package io.plake.spark;

import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
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

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!"true".equalsIgnoreCase(SQLConf.get().getConfString(SWITCH, "true"))) {
      return plan;
    }
    try {
      return plan.transformUp(new Swap());
    } catch (LinkageError | RuntimeException e) {
      standAside(UNKNOWN_SPARK, e);
      return plan;
    }
  }

  /** Says once per JVM and reason why queries run without pruning. */
  static void standAside(String reason, Throwable cause) {
    if (SAID.add(reason)) {
      LOG.warn("plake's planner extension stands aside, scans are complete and unpruned: {}{}",
          reason, cause == null ? "" : " (" + cause + ")");
    }
  }

  private static final class Swap extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {

    @Override
    public boolean isDefinedAt(LogicalPlan node) {
      return node instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) node).table().getClass() == PythonTable.class
          && SOURCE.equalsIgnoreCase(((DataSourceV2Relation) node).table().name());
    }

    @Override
    @SuppressWarnings("unchecked")
    public <A1 extends LogicalPlan, B1> B1 applyOrElse(A1 node, Function1<A1, B1> otherwise) {
      return isDefinedAt(node)
          ? (B1) isolate((DataSourceV2Relation) node)
          : otherwise.apply(node);
    }

    private static LogicalPlan isolate(DataSourceV2Relation relation) {
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
            new IsolatedTable((PythonDataSourceV2) source.get(table), table.name(), schema),
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

    IsolatedTable(PythonDataSourceV2 frame, String shortName, StructType schema) {
      super(frame, shortName, schema);
      this.frame = frame;
      this.shortName = shortName;
      this.schema = schema;
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      try {
        return new IsolatedScanBuilder(frame, shortName, schema, options);
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
