package io.plake.spark;

import java.io.IOException;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Some;
import scala.collection.immutable.Seq;

/**
 * The data source of one scan: its own read plan over the Python instance of its frame.
 *
 * <p>It uses the Python instance of the frame, which pins the version that all scans of the frame
 * read. The plan is made when Spark asks for partitions: {@code explain()} of a scan starts no
 * Python worker.
 */
final class IsolatedSource extends PythonDataSourceV2 {

  private final PythonDataSourceV2 frame;
  final StructType full;
  private final CaseInsensitiveStringMap options;
  final Pushdown pushdown;
  private RowCount rows;

  IsolatedSource(
      PythonDataSourceV2 frame, StructType full, CaseInsensitiveStringMap options,
      Pushdown pushdown) {
    this.frame = frame;
    this.full = full;
    this.options = options;
    this.pushdown = pushdown;
  }

  /** The same scan with more conditions, which only planning uses. */
  IsolatedSource withJoinKeys(Metadata[] terms) {
    return new IsolatedSource(frame, full, options, pushdown.withJoinKeys(terms));
  }

  /** The same scan with longs for the decimals that a long can hold; null where there are none. */
  IsolatedSource withLongs() {
    Pushdown longs = pushdown.withLongs();
    return longs == null ? null : new IsolatedSource(frame, full, options, longs);
  }

  /** Spark's own scan of this source. */
  Scan scan(String shortName) {
    return new PythonScanBuilder(this, shortName, pushdown.marked(), options).build();
  }

  /** The partitions, pickled. The first call plans the scan, in a Python worker. */
  Seq<byte[]> partitions(String shortName) {
    return getOrCreateReadInfo(shortName, options, pushdown.marked(), false).partitions();
  }

  /** At most how many rows the scan gives. Spark asks for every copy of the plan. */
  synchronized RowCount rowCount(String shortName) throws IOException {
    if (rows == null) {
      rows = RowCount.of(partitions(shortName), pushdown.columns);
    }
    return rows;
  }

  @Override
  public UserDefinedPythonDataSource source() {
    return frame.source();
  }

  /** The frame's instance. A frame whose schema the user gave has none yet: it is made here. */
  @Override
  public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
      String shortName, CaseInsensitiveStringMap options, Option<StructType> userSchema) {
    synchronized (frame) {
      return frame.getOrCreateDataSourceInPython(shortName, options, new Some<>(full));
    }
  }

  /** Several threads of Spark may ask for partitions and for the reader. */
  @Override
  public synchronized PythonDataSourceReadInfo getOrCreateReadInfo(
      String shortName, CaseInsensitiveStringMap options, StructType marked, boolean streaming) {
    return super.getOrCreateReadInfo(shortName, options, marked, streaming);
  }

  /** Tells whether both read the same rows and columns, so that one may stand for the other. */
  @Override
  public boolean equals(Object other) {
    if (!(other instanceof IsolatedSource)) {
      return false;
    }
    IsolatedSource that = (IsolatedSource) other;
    return frame == that.frame
        && options.equals(that.options)
        && pushdown.equals(that.pushdown);
  }

  @Override
  public int hashCode() {
    return 31 * System.identityHashCode(frame) + pushdown.hashCode();
  }
}
