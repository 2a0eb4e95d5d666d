package io.plake.spark;

import java.util.Arrays;
import java.util.HashSet;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonFilterPushdownResult;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Some;

/**
 * The data source of one scan: its own read plan over the Python instance of its frame.
 *
 * <p>The instance is the frame's, because it pins the version that all scans of the frame read.
 * The plan is made when Spark asks for partitions, so {@code explain()} starts no Python worker.
 *
 * <p>Filters go to Python whatever {@code spark.sql.python.filterPushdown.enabled} says. That
 * setting is off by default, and on it would let every other Python source of the session prune
 * its shared plans, which is what loses rows.
 */
final class IsolatedSource extends PythonDataSourceV2 {

  private final PythonDataSourceV2 frame;
  private final StructType full;
  final StructType columns;
  final Filter[] filters;
  private final CaseInsensitiveStringMap options;
  private boolean planned = false;

  IsolatedSource(
      PythonDataSourceV2 frame, StructType full, StructType columns, Filter[] filters,
      CaseInsensitiveStringMap options) {
    this.frame = frame;
    this.full = full;
    this.columns = columns;
    this.filters = filters;
    this.options = options;
  }

  @Override
  public UserDefinedPythonDataSource source() {
    return frame.source();
  }

  /** The frame's instance; made here, once, when the user's own schema spared Spark to make it. */
  @Override
  public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
      String shortName, CaseInsensitiveStringMap options, Option<StructType> userSchema) {
    synchronized (frame) {
      return frame.getOrCreateDataSourceInPython(shortName, options, new Some<>(full));
    }
  }

  @Override
  public synchronized PythonDataSourceReadInfo getOrCreateReadInfo(
      String shortName, CaseInsensitiveStringMap options, StructType marked, boolean streaming) {
    if (!planned && filters.length > 0 && !streaming) {
      try {
        Option<PythonFilterPushdownResult> plan = source().pushdownFiltersInPython(
            getOrCreateDataSourceInPython(shortName, options, Option.empty()),
            ScanMarks.mark(marked, true, false), filters);
        if (plan.isDefined()) { // empty: no filter has a form that Python knows
          setReadInfo(plan.get().readInfo());
        }
      } catch (LinkageError e) {
        IsolateScans.standAside("this Spark passes filters to Python in another way", e);
      }
    }
    PythonDataSourceReadInfo plan =
        super.getOrCreateReadInfo(shortName, options, marked, streaming);
    planned = true;
    return plan;
  }

  /** Tells whether both read the same rows and columns, so that one may stand for the other. */
  @Override
  public boolean equals(Object other) {
    if (!(other instanceof IsolatedSource)) {
      return false;
    }
    IsolatedSource that = (IsolatedSource) other;
    return frame == that.frame
        && columns.equals(that.columns)
        && options.equals(that.options)
        && new HashSet<>(Arrays.asList(filters)).equals(new HashSet<>(Arrays.asList(that.filters)));
  }

  @Override
  public int hashCode() {
    return 31 * System.identityHashCode(frame) + columns.hashCode();
  }
}
