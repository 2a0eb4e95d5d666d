package io.plake.spark;

import java.io.IOException;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Some;

/**
 * The data source of one scan: its own read plan over the Python instance of its frame.
 *
 * <p>The instance is the frame's, because it pins the version that all scans of the frame read.
 * The plan is made when Spark asks for partitions, so {@code explain()} of a scan starts no Python
 * worker.
 */
final class IsolatedSource extends PythonDataSourceV2 {

  private final PythonDataSourceV2 frame;
  final StructType full;
  private final CaseInsensitiveStringMap options;
  final StructType columns;
  final ScanMarks marks;
  private RowCount rows;

  IsolatedSource(
      PythonDataSourceV2 frame, StructType full, CaseInsensitiveStringMap options,
      StructType columns, ScanMarks marks) {
    this.frame = frame;
    this.full = full;
    this.options = options;
    this.columns = columns;
    this.marks = marks;
  }

  /** The same scan, planned with the keys of a join besides. */
  IsolatedSource with(Metadata[] joinKeys) {
    return new IsolatedSource(frame, full, options, columns, marks.with(joinKeys));
  }

  /** The same scan with longs for the decimals that they can hold; null where there are none. */
  IsolatedSource unscaled() {
    StructField[] fields = columns.fields().clone();
    MetadataBuilder decimals = new MetadataBuilder();
    boolean any = false;
    for (int i = 0; i < fields.length; i++) {
      StructField field = fields[i];
      if (LongDecimals.fits(field.dataType())) {
        DecimalType type = (DecimalType) field.dataType();
        decimals.putLongArray(field.name(), new long[] {type.precision(), type.scale()});
        fields[i] = new StructField(
            field.name(), DataTypes.LongType, field.nullable(), field.metadata());
        any = true;
      }
    }
    return !any ? null : new IsolatedSource(
        frame, full, options, new StructType(fields), marks.withDecimals(decimals.build()));
  }

  /** Spark's own scan of this source. */
  Scan scan(String shortName) {
    return new PythonScanBuilder(this, shortName, marks.on(columns), options).build();
  }

  /** At most how many rows the scan gives. Spark asks for every copy of the plan. */
  synchronized RowCount rowCount(String shortName) throws IOException {
    if (rows == null) {
      rows = RowCount.of(
          getOrCreateReadInfo(shortName, options, marks.on(columns), false).partitions(), columns);
    }
    return rows;
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

  /** Spark asks for partitions and for the reader, each time with a source of its own thread. */
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
        && columns.equals(that.columns)
        && options.equals(that.options)
        && marks.equals(that.marks);
  }

  @Override
  public int hashCode() {
    return 31 * System.identityHashCode(frame) + columns.hashCode();
  }
}
