package io.plake.spark;

import java.util.Arrays;
import java.util.OptionalLong;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;

/**
 * Spark's own scan of a Python source, told apart by what it reads.
 *
 * <p>Adds six things: a schema without plake's marks (they would turn up in the metadata of the
 * query's columns), equality (an exchange over the same columns and filters is computed once), an
 * {@code explain()} that shows filters and columns, the number of rows for whoever joins them,
 * pruning by the keys of a join that Spark learns while the query runs, and batches that are not
 * copied row by row.
 */
final class IsolatedScan
    implements Scan, SupportsMetadata, SupportsRuntimeV2Filtering, SupportsReportStatistics {

  private static final Statistics UNKNOWN = new Statistics() {
    @Override
    public OptionalLong sizeInBytes() {
      return OptionalLong.empty();
    }

    @Override
    public OptionalLong numRows() {
      return OptionalLong.empty();
    }
  };

  private final String shortName;
  private final IsolatedSource source;
  private final Predicate[] predicates;
  private final Scan stock;
  private final boolean inBatches = comesInBatches();
  private final ThreadLocal<Batch> narrowed = new ThreadLocal<>();
  private volatile Batch planned;

  IsolatedScan(IsolatedSource source, String shortName, Predicate[] predicates) {
    this.source = source;
    this.shortName = shortName;
    this.predicates = predicates;
    this.stock = source.scan(shortName);
  }

  private static boolean comesInBatches() {
    try {
      return BatchReads.arePossible();
    } catch (LinkageError | ReflectiveOperationException | RuntimeException e) {
      IsolateScans.standAside(BatchReads.COPIED, e);
      return false;
    }
  }

  /** The same scan with longs for decimals; null where it has none, or longs already. */
  IsolatedScan unscaled() {
    IsolatedSource longs = source.unscaled();
    return longs == null ? null : new IsolatedScan(longs, shortName, predicates);
  }

  @Override
  public StructType readSchema() {
    return source.columns;
  }

  /** The batch of this scan or, right after {@link #filter}, a narrower one, once. */
  @Override
  public Batch toBatch() {
    Batch batch = narrowed.get();
    narrowed.remove();
    return new IsolatedBatch(batch == null ? stock.toBatch() : batch);
  }

  /** Asked for where relations are joined. The plan is made here then, and kept for the run. */
  @Override
  public Statistics estimateStatistics() {
    try {
      return source.rowCount(shortName);
    } catch (Exception | LinkageError e) { // what is wrong shows when the scan runs
      return UNKNOWN;
    }
  }

  @Override
  public NamedReference[] filterAttributes() {
    return Arrays.stream(source.columns.fields())
        .filter(field -> ConditionData.nameOf(field.dataType()) != null)
        .map(StructField::name).map(Column::new).toArray(NamedReference[]::new);
  }

  /**
   * Spark calls this with the keys of a broadcast, and then {@link #toBatch} for partitions.
   *
   * <p>Other nodes of the plan may hold this same scan: nothing of the filter stays behind.
   */
  @Override
  public void filter(Predicate[] offered) {
    try {
      ConditionData keys = new ConditionData(source.full, offered);
      if (keys.terms().length > 0) {
        narrowed.set(source.with(keys.terms()).scan(shortName).toBatch());
      }
    } catch (LinkageError | RuntimeException e) {
      IsolateScans.standAside("keys of joins do not prune", e);
    }
  }

  /** Follows the name of the table in Spark's plans. */
  @Override
  public String description() {
    int limit = source.marks.limit();
    return stock.description() + ", PushedFilters: " + pushedFilters()
        + ", ReadSchema: " + source.columns.simpleString()
        + (limit < 0 ? "" : ", Limit: " + limit);
  }

  @Override
  public Map<String, String> getMetaData() {
    return new Map.Map2<>(
        "PushedFilters", pushedFilters(), "ReadSchema", source.columns.simpleString());
  }

  private String pushedFilters() {
    return Arrays.stream(predicates).map(Object::toString)
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
    return inBatches ? ColumnarSupportMode.SUPPORTED : stock.columnarSupportMode();
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
  private final class IsolatedBatch implements Batch {
    private final Batch stock;

    IsolatedBatch(Batch stock) {
      this.stock = stock;
    }

    @Override
    public InputPartition[] planInputPartitions() {
      InputPartition[] partitions = stock.planInputPartitions();
      planned = stock;
      return partitions;
    }

    /** The reader of any plan of the scan reads the partitions of every other: no second plan. */
    @Override
    public PartitionReaderFactory createReaderFactory() {
      Batch any = planned;
      PartitionReaderFactory rows = (any == null ? stock : any).createReaderFactory();
      return inBatches ? new BatchReads(rows) : rows;
    }

    private IsolatedSource source() {
      return source;
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof IsolatedBatch && ((IsolatedBatch) other).source().equals(source);
    }

    @Override
    public int hashCode() {
      return source.hashCode();
    }
  }

  /** A reference to a top-level column. */
  private static final class Column implements NamedReference {
    private final String name;

    Column(String name) {
      this.name = name;
    }

    @Override
    public String[] fieldNames() {
      return new String[] {name};
    }

    @Override
    public String toString() {
      return name;
    }
  }
}
