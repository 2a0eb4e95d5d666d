package io.plake.spark;

import java.io.IOException;
import java.util.Map;
import java.util.OptionalLong;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * How many rows a scan gives, at most. By this Spark decides which side of a join to broadcast.
 *
 * <p>The size is that of Spark's rows in memory, which is what a broadcast takes, not that of the
 * files.
 */
final class RowCount implements Statistics {
  private static final long OVERHEAD = 8; // bytes per row, as in Spark's own estimates

  private final long rows;
  private final long bytes;

  RowCount(long rows, StructType columns) {
    this.rows = rows;
    this.bytes = Math.max(1, rows) * (OVERHEAD + columns.defaultSize());
  }

  /**
   * Adds up the row counts of pickled partitions: those of {@code ScanPartition} in
   * {@code lakehouse_source/spark}.
   */
  static RowCount of(Seq<byte[]> partitions, StructType columns) throws IOException {
    long rows = 0;
    for (Iterator<byte[]> it = partitions.iterator(); it.hasNext(); ) {
      Object partition = new Unpickler().loads(it.next());
      Object count = partition instanceof Map ? ((Map<?, ?>) partition).get(Vocabulary.Pickle.ROW_COUNT) : null;
      rows += count == null ? 0 : ((Number) count).longValue(); // Spark's own, without tasks, has none
    }
    return new RowCount(rows, columns);
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
