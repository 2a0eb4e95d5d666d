package io.plake.spark.scan;

import java.util.OptionalLong;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;

/**
 * How many rows a scan gives, at most, and its size. By this Spark decides which side of a join to
 * broadcast.
 *
 * <p>The size is what Spark's own Parquet relation tells: bytes in files, with the part of the
 * widths that the columns of the scan have. Only row groups count that are left after pruning.
 */
final class ScanStatistics implements Statistics {
  private static final long OVERHEAD = 8; // bytes per row, as in Spark's own estimates

  private final long rows;
  private final long bytes;

  private ScanStatistics(long rows, long bytes) {
    this.rows = rows;
    this.bytes = Math.max(1, bytes);
  }

  /** Of rows that are in memory. */
  static ScanStatistics ofRows(long rows, StructType columns) {
    return new ScanStatistics(rows, rows * width(columns));
  }

  /**
   * @param bytes those of the row groups that are read
   * @param columns those of the scan
   * @param full all columns of the table
   */
  static ScanStatistics of(long rows, long bytes, StructType columns, StructType full) {
    double share = (double) width(columns) / width(full);
    return new ScanStatistics(
        rows, (long) (bytes * share * SQLConf.get().fileCompressionFactor()));
  }

  private static long width(StructType columns) {
    return OVERHEAD + columns.defaultSize();
  }

  @Override
  public OptionalLong sizeInBytes() {
    return OptionalLong.of(bytes);
  }

  @Override
  public OptionalLong numRows() {
    return OptionalLong.of(rows);
  }
}
