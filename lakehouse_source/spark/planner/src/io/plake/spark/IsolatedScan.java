package io.plake.spark;

import java.util.Arrays;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;

/**
 * Spark's own scan of a Python source, told apart by what it reads.
 *
 * <p>Adds three things: a schema without plake's marks (they would turn up in the metadata of the
 * query's columns), equality (an exchange over the same columns and filters is computed once), and
 * an {@code explain()} that shows filters and columns. Executors meet only Spark's classes.
 */
final class IsolatedScan implements Scan, SupportsMetadata {

  private final Scan stock;
  private final IsolatedSource source;

  IsolatedScan(Scan stock, IsolatedSource source) {
    this.stock = stock;
    this.source = source;
  }

  @Override
  public StructType readSchema() {
    return source.columns;
  }

  @Override
  public Batch toBatch() {
    return new IsolatedBatch(stock.toBatch(), source);
  }

  /** Follows the name of the table in Spark's plans. */
  @Override
  public String description() {
    return stock.description() + ", PushedFilters: " + pushedFilters()
        + ", ReadSchema: " + source.columns.simpleString();
  }

  @Override
  public Map<String, String> getMetaData() {
    return new Map.Map2<>(
        "PushedFilters", pushedFilters(), "ReadSchema", source.columns.simpleString());
  }

  private String pushedFilters() {
    return Arrays.stream(source.filters).map(Object::toString)
        .collect(Collectors.joining(", ", "[", "]"));
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return stock.supportedCustomMetrics();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return stock.reportDriverMetrics();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return stock.columnarSupportMode();
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof IsolatedScan && ((IsolatedScan) other).source.equals(source);
  }

  @Override
  public int hashCode() {
    return source.hashCode();
  }

  /** Spark compares physical scans by their batches. */
  private static final class IsolatedBatch implements Batch {
    private final Batch stock;
    private final IsolatedSource source;

    IsolatedBatch(Batch stock, IsolatedSource source) {
      this.stock = stock;
      this.source = source;
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return stock.planInputPartitions();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return stock.createReaderFactory();
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof IsolatedBatch && ((IsolatedBatch) other).source.equals(source);
    }

    @Override
    public int hashCode() {
      return source.hashCode();
    }
  }
}
