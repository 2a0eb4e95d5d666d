package io.plake.spark.scan;

import io.plake.spark.core.Vocabulary;
import java.io.IOException;
import java.util.Map;
import java.util.OptionalLong;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

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
   * Adds up what pickled partitions hold: those of {@code ScanPartition} in
   * {@code lakehouse_source/spark}.
   *
   * @param columns those of the scan
   * @param full all columns of the table
   */
  static ScanStatistics of(Seq<byte[]> partitions, StructType columns, StructType full)
      throws IOException {
    long rows = 0;
    long bytes = 0;
    for (Iterator<byte[]> it = partitions.iterator(); it.hasNext(); ) {
      Object partition = new Unpickler().loads(it.next());
      rows += count(partition, Vocabulary.Pickle.ROW_COUNT);
      bytes += count(partition, Vocabulary.Pickle.BYTE_COUNT);
    }
    double share = (double) width(columns) / width(full);
    return new ScanStatistics(
        rows, (long) (bytes * share * SQLConf.get().fileCompressionFactor()));
  }

  /** Spark's own partition, of a scan without tasks, has none. */
  private static long count(Object partition, String key) {
    Object found = partition instanceof Map ? ((Map<?, ?>) partition).get(key) : null;
    return found == null ? 0 : ((Number) found).longValue();
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
